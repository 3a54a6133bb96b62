"""Uploads a stream to an object store that speaks S3, in parts: requests, role credentials, and error messages.

Memory: at most `parts_at_once` parts of `part_bytes`, including the part that is being filled. See docs/dumps.md#object-store.

Threads: one thread writes, others send one part each.
"""
from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import escape

from svcd.base.errors import ApiError
from svcd.remote import Failure, Undelivered
from svcd.remote.aws_signature import Credentials, signed_url
from svcd.remote.client import Answer, Client
from svcd.remote.retries import Pause, repeated
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
PARAMETERS, REQUEST, SERVER = "invalid_s3_snapshot_parameters", "invalid_s3_snapshot_request", "s3_snapshot_server_error"


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
        self.store = store
        self._client = client
        self._pause = pause
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
        if self._credentials is None:
            self._credentials = self._assumed_role() if self.store.role_arn else Credentials(
                self.store.access_key or "", self.store.secret_key or "")
        return self._credentials

    def _assumed_role(self) -> Credentials:
        """Get credentials of the role; reads the token each time, because other software replaces it from time to time."""
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
            return read_answer(answer.body, _credentials)
        except ValueError as fault:
            raise ApiError("internal", f"Failed to deserialize STS response: {fault}") from None


class ObjectWriter:
    """A file-like object; finish() makes its content an object of the store. One thread uses it."""

    def __init__(self, client: StoreClient, upload: Upload) -> None:
        self._client = client
        self._upload = upload
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
        raise ValueError("credentials that are no ASCII texts")
    return Credentials(*values)


def _never(_answer: Answer) -> bool:
    return False


def _refuse(code: str, answer: Answer) -> NoReturn:
    raise ApiError(code, f"S3 error: status: {answer.status}, body: {_shown(answer.body)}")


def _shown(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


