"""Uploads a stream to an object store that speaks S3, in parts: requests and their signatures, role credentials, error messages.

Memory: at most `parts_at_once` parts of `part_bytes`, including the part that is being filled. See docs/dumps.md#object-store.

The store keeps the parts of an upload until the upload is completed or aborted. A killed process can do neither, so each upload
is recorded in the data folder before its first part is sent; the next upload, or the runner after a cancelation, aborts it.

The signature is AWS signature version 4 in the query of a URL, as S3 accepts it: it signs only the header `Host`, and not the
body. Source: "Authenticating Requests: Using Query Parameters" in the API reference of S3, whose example is a test.

Threads: one thread writes, others send one part each.
"""
from __future__ import annotations

import hmac
import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import escape

from svcd.base.errors import ApiError
from svcd.remote import Failure, Undelivered
from svcd.remote.client import Answer, Client, Pause, repeated
from svcd.remote.guard import Guard, parse_networks
from svcd.validation.answers import read_answer

STS_URL = "https://sts.amazonaws.com/"
SESSION_VARIABLE = "SVC_EXPERIMENTAL_S3_WEB_IDENTITY_TOKEN_DURATION_SECONDS"
_SESSION_S = 3600
_SESSION_NAME = "svc-snapshot-session"
# A store may take minutes to join the parts of a large object; a connection that is silent for longer has been lost.
SILENCE_S = 300.0
_ABORT_S = 5.0
_TYPE = {"Content-Type": "application/gzip"}  # matters only for the object, not for other requests
_MOST_BYTES = 1 << 20
_SHOWN = 1000  # characters of an answer in an error
_UPLOAD_ID = re.compile(r"<UploadId>([^<]+)</UploadId>")
_ERROR = re.compile(r"^\s*(?:<\?xml[^>]*\?>)?\s*<Error\b")
_ENTITIES = {"&quot;": '"', "&apos;": "'", "&lt;": "<", "&gt;": ">", "&amp;": "&"}
_RECORD = "snapshot.upload"  # the file that records the upload in progress
_ALGORITHM, _SERVICE, _END = "AWS4-HMAC-SHA256", "s3", "aws4_request"
_UNSIGNED = "UNSIGNED-PAYLOAD"
_UNRESERVED = "-_.~"
PARAMETERS, REQUEST, SERVER = "invalid_s3_snapshot_parameters", "invalid_s3_snapshot_request", "s3_snapshot_server_error"


class Credentials(NamedTuple):
    """The keys to sign with. session_token: token of an assumed role; None for a permanent key."""

    access_key: str
    secret_key: str
    session_token: str | None = None


def signed_url(method: str, url: str, query: Mapping[str, str], credentials: Credentials, region: str, expires_s: int,
               moment: float) -> str:
    """Return a URL that is valid for `expires_s` seconds from `moment` (seconds since 1970).

    url: without query, its path percent-encoded. query: parameters, not encoded.
    """
    date = datetime.fromtimestamp(moment, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{date[:8]}/{region}/{_SERVICE}/{_END}"
    parameters = {
        **query, "X-Amz-Algorithm": _ALGORITHM, "X-Amz-Credential": f"{credentials.access_key}/{scope}", "X-Amz-Date": date,
        "X-Amz-Expires": str(expires_s), "X-Amz-SignedHeaders": "host"}
    if credentials.session_token is not None:
        parameters["X-Amz-Security-Token"] = credentials.session_token
    parts = urlsplit(url)
    encoded = "&".join(sorted(f"{quote(name, _UNRESERVED)}={quote(value, _UNRESERVED)}" for name, value in parameters.items()))
    request = "\n".join((method, parts.path or "/", encoded, f"host:{parts.netloc}", "", "host", _UNSIGNED))
    text = "\n".join((_ALGORITHM, date, scope, sha256(request.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"{url}?{encoded}&X-Amz-Signature={hmac.digest(key, text.encode(), 'sha256').hex()}"


@dataclass(frozen=True)
class ObjectStore:
    """The launch options of the object store: where uploads go, and how.

    Either access_key and secret_key are set, or role_arn and token_file. parts_at_once: parts in transit; level: of gzip.
    """

    url: str
    region: str
    bucket: str
    prefix: str
    access_key: str | None = None
    secret_key: str | None = None
    role_arn: str | None = None
    token_file: str | None = None
    parts_at_once: int = 10
    level: int = 0
    signature_s: int = 28_800
    part_bytes: int = 375 << 20

    def object_url(self, name: str) -> str:
        """Return the URL of an object, in path style. Raises invalid_s3_snapshot_parameters."""
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError as fault:
            raise ApiError(PARAMETERS, f"S3 bucket error: {fault}") from None
        if not parts.scheme:
            raise ApiError(PARAMETERS, "S3 bucket error: relative URL without a base")
        if parts.scheme not in ("http", "https"):
            raise ApiError(PARAMETERS, "S3 bucket error: unsupported Url scheme")
        if not host:
            raise ApiError(PARAMETERS, "S3 bucket error: Url is missing the `host`")
        # The signature covers the host exactly as the client sends it.
        place = f"[{host}]" if ":" in host else host
        place += f":{port}" if port is not None else ""
        path = f"{parts.path.rstrip('/')}/{quote(self.bucket, '-_.~')}/{quote(self.prefix + name, '-_.~/')}"
        return f"{parts.scheme}://{place}{path}"


class Upload(NamedTuple):
    """A multipart upload that has begun."""

    object_url: str
    upload_id: str


class StoreClient:
    """Sends requests to an object store. Any thread may call."""

    def __init__(self, store: ObjectStore, client: Client, pause: Pause = time.sleep) -> None:
        self.store, self._client, self._pause = store, client, pause
        self._credentials: Credentials | None = None

    def begin(self, name: str) -> Upload:
        """Begin the upload of an object. Raises ApiError, as do all methods except abort()."""
        url = self.store.object_url(name)
        answer = self._repeated(lambda: self._sent("POST", url, {"uploads": "1"}, b""),
                                lambda answer: answer.status == 429 or answer.status >= 500)
        if answer.status == 429:
            _refuse(REQUEST, answer)
        if answer.status >= 500:
            _refuse(SERVER, answer)
        found = _UPLOAD_ID.search(answer.body.decode("utf-8", "replace"))
        if found is None:
            raise ApiError(SERVER, f"S3 XML error: missing field `UploadId` in: {_shown(answer.body)}")
        return Upload(url, re.sub("&[a-z]+;", lambda entity: _ENTITIES.get(entity[0], entity[0]), found[1]))

    def send_part(self, upload: Upload, number: int, content: bytes | bytearray) -> str:
        """Send a part, numbered from 1; return its tag."""
        query = {"partNumber": str(number), "uploadId": upload.upload_id}
        answer = self._repeated(lambda: self._sent("PUT", upload.object_url, query, content), _never)
        if answer.status >= 500:
            _refuse(SERVER, answer)
        if answer.status >= 300:  # not the URL, which is signed
            raise ApiError(SERVER, f"S3 HTTP error: status: {answer.status}, body: {_shown(answer.body)}")
        tag = answer.headers.get("etag")
        if tag is None:
            raise ApiError(SERVER, "S3 XML error: Missing ETag header")
        return tag

    def end(self, upload: Upload, tags: list[str]) -> None:
        """Make the parts an object."""
        parts = "".join(f"<Part><ETag>{escape(tag)}</ETag><PartNumber>{number}</PartNumber></Part>"
                        for number, tag in enumerate(tags, 1))
        content = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer = self._repeated(lambda: self._sent("POST", upload.object_url, {"uploadId": upload.upload_id}, content), _never)
        if answer.status >= 300:
            _refuse(SERVER if answer.status >= 500 else REQUEST, answer)
        # The status is sent before the parts are joined, so that a failure can follow it.
        if _ERROR.match(answer.body.decode("utf-8", "replace")):
            _refuse(SERVER, answer)

    def abort(self, upload: Upload) -> bool:
        """Ask the store to delete the parts, in one attempt. Returns False if that failed."""
        try:
            answer = self._sent("DELETE", upload.object_url, {"uploadId": upload.upload_id}, None, _ABORT_S)
        except (Undelivered, ApiError):
            return False
        return answer.status < 300 or answer.status == 404

    def _sent(self, method: str, url: str, query: dict[str, str], content: bytes | bytearray | None,
              within_s: float | None = None) -> Answer:
        store = self.store
        signed = signed_url(method, url, query, self._signer(), store.region, store.signature_s, time.time())
        # The client sends a bytearray like bytes, so it need not be copied.
        return self._client.exchange(signed, _TYPE, content, within_s or store.signature_s, _MOST_BYTES,  # type: ignore[arg-type]  # bytes
                                     method=method, proxies=True)

    def _repeated(self, call: Callable[[], Answer], is_passing: Callable[[Answer], bool]) -> Answer:
        self._signer()  # first: its failures must not be reported as failures of the store
        try:
            return repeated(call, is_passing, self._pause)
        except Undelivered as failure:
            reason = "operation timed out" if failure.kind is Failure.TIMEOUT else str(failure)
            raise ApiError(SERVER, f"S3 HTTP error: {reason}") from None

    def _signer(self) -> Credentials:
        """Return the credentials. Those of a role are asked for once, with the token that other software writes into a file."""
        if self._credentials is None and not self.store.role_arn:
            self._credentials = Credentials(self.store.access_key or "", self.store.secret_key or "")
        if self._credentials is not None:
            return self._credentials
        try:
            token = Path(self.store.token_file or "").read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ApiError("internal", f"Failed to read web identity token file: {error}") from None
        given = os.environ.get(SESSION_VARIABLE)
        try:
            session_s = int(given) if given else _SESSION_S
        except ValueError:
            raise ApiError("internal", f"{SESSION_VARIABLE} is not a number of seconds") from None
        form = {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": self.store.role_arn or "",
                "RoleSessionName": _SESSION_NAME, "WebIdentityToken": token, "DurationSeconds": str(session_s)}
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        try:
            answer = self._client.exchange(STS_URL, headers, urlencode(form).encode(), 60.0, _MOST_BYTES, proxies=True)
        except Undelivered as failure:
            step = "read STS response body" if failure.kind is Failure.RESPONSE else "send STS request"
            raise ApiError("internal", f"Failed to {step}: {failure}") from None
        if answer.status >= 300:
            raise ApiError("internal", f"STS request failed with status {answer.status}: {_shown(answer.body)}")
        try:
            self._credentials = read_answer(answer.body, _credentials)
        except ValueError as fault:
            raise ApiError("internal", f"Failed to deserialize STS response: {fault}") from None
        return self._credentials


class ObjectWriter:
    """A file-like object; finish() makes its content an object of the store. One thread uses it."""

    def __init__(self, client: StoreClient, upload: Upload) -> None:
        self._client, self._upload = client, upload
        self._part_bytes = client.store.part_bytes
        self._part = bytearray()
        self._sending: deque[Future[str]] = deque()
        self._tags: list[str] = []
        self._parts = 0
        self._pool = ThreadPoolExecutor(client.store.parts_at_once, "svcd-upload")

    def write(self, content: bytes) -> int:
        """Add content. Raises ApiError if the store refused a part."""
        view = memoryview(content)
        while len(view):
            room = self._part_bytes - len(self._part)
            self._part += view[:room]
            view = view[room:]
            if len(self._part) == self._part_bytes:
                self._send()
        return len(content)

    def flush(self) -> None:
        """Do nothing: a part that is not full waits for more content."""

    def finish(self) -> None:
        """Send the rest, and create the object. Raises ApiError."""
        if self._part or not self._parts:
            self._send()
        while self._sending:
            self._await_oldest()
        self._client.end(self._upload, self._tags)

    def close(self) -> None:
        """Wait for the parts in transit, if any."""
        for each in self._sending:
            each.cancel()
        self._pool.shutdown()

    def _send(self) -> None:
        part, self._part = self._part, bytearray()
        self._parts += 1
        self._sending.append(self._pool.submit(self._client.send_part, self._upload, self._parts, part))
        if len(self._sending) >= self._client.store.parts_at_once:
            self._await_oldest()

    def _await_oldest(self) -> None:
        self._tags.append(self._sending.popleft().result())


def _credentials(answer: Any) -> Credentials:
    """Return the credentials in a reply of the security token service. Raises one of MISFITS for a wrong shape."""
    found = answer["AssumeRoleWithWebIdentityResponse"]["AssumeRoleWithWebIdentityResult"]["Credentials"]
    values = [found[name] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
    if not all(isinstance(value, str) and value.isascii() for value in values):
        raise ValueError("credentials that are not ASCII")
    return Credentials(*values)


def _never(_answer: Answer) -> bool:
    return False


def _refuse(code: str, answer: Answer) -> NoReturn:
    raise ApiError(code, f"S3 error: status: {answer.status}, body: {_shown(answer.body)}")


def _shown(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# The upload of a snapshot


@contextmanager
def uploaded(request: Mapping[str, Any]) -> Iterator[ObjectWriter]:
    """Give a file-like object, whose content becomes an object of the store when the block ends. An exception aborts the upload.

    request: of an archive, see svcd.tasks.global_tasks. Raises ApiError.
    """
    client, record = _client_of(request), Path(request["folder"]) / _RECORD
    _abort_recorded(client, record)
    upload = client.begin(request["name"])
    record.write_text(json.dumps(upload))
    writer = ObjectWriter(client, upload)
    try:
        yield writer
        writer.finish()
    except BaseException:
        writer.close()
        _abort_recorded(client, record)
        raise
    writer.close()
    record.unlink()


def abort_upload(request: Mapping[str, Any]) -> None:
    """Have the store delete the parts that a killed process sent, if the store can be reached."""
    _abort_recorded(_client_of(request), Path(request["folder"]) / _RECORD)


def _abort_recorded(client: StoreClient, record: Path) -> None:
    try:
        upload = Upload(*json.loads(record.read_text()))
    except FileNotFoundError:
        return
    except (ValueError, TypeError):  # a power cut left half of the record
        record.unlink()
        return
    if client.abort(upload):
        record.unlink()


def _client_of(request: Mapping[str, Any]) -> StoreClient:
    guard = Guard(parse_networks(",".join(request["networks"])))
    return StoreClient(ObjectStore(**request["store"]), Client(guard, SILENCE_S))
