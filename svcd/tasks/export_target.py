"""The calls of an export to the instance that takes the documents: paths, retries, and error messages.

See docs/export.md#calls and docs/export.md#failures.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import Event
from typing import Any

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, fault_in, loads
from svcd.remote import Failure, Undelivered
from svcd.remote.client import PASSING, Answer, Client, repeated

WITHIN_S = 5.0
# The time limit grows by a second for each BYTES_PER_S of a body: large bodies need longer than WITHIN_S on slow networks.
BYTES_PER_S = 128 << 10
_REDIRECTS = 5
_MOST_BYTES = 1 << 20
_INDEX_NOT_FOUND = "index_not_found"
# Answers of a target that is a shard of a network: the first counts as success, the others end the stream.
_ALREADY_RECEIVED = "import_task_already_received"
_NOT_TAKEN = ("import_task_unknown_remote", "import_task_without_network_task")
_UNKNOWN_HOST = ("Name or service not known", "Temporary failure in name resolution", "No address associated with hostname")

_MEMBERS = ("message", "code", "type", "link")
_REFUSED = "Failed to export documents to remote server {code} ({type}): {message} <{link}>"

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}


class Stopped(Exception):
    """The export ends because another of its calls failed."""


class NotTaken(Exception):
    """The target takes no documents of this stream. This is not a failure."""


class Target:
    """The instance that takes the documents. Any thread may call its methods; after stop() no call waits for a retry."""

    def __init__(self, client: Client, url: str, api_key: str | None) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._stopping = Event()

    def stop(self) -> None:
        """Make calls in progress and later calls raise Stopped."""
        self._stopping.set()
        self._client.abort()

    def has_index(self, index_uid: str) -> bool:
        """Return whether the target has an index. Raises ApiError, Stopped, as do all calls."""
        answer = self._answer("GET", f"/indexes/{index_uid}", {}, None)
        if answer.status == 200:
            return True
        if _error_of(answer.body).get("code") == _INDEX_NOT_FOUND:
            return False
        raise _failure(answer)

    def create_index(self, index_uid: str, primary_key: str | None) -> None:
        """Enqueue the creation of an index."""
        self._call("POST", "/indexes", {"uid": index_uid, "primaryKey": primary_key})

    def update_index(self, index_uid: str, primary_key: str | None) -> None:
        """Enqueue a change of the primary key."""
        self._call("PATCH", f"/indexes/{index_uid}", {"primaryKey": primary_key})

    def update_settings(self, index_uid: str, settings: Mapping[str, Any], unset: Collection[str] = ()) -> None:
        """Enqueue a change of settings. unset: settings without a value; they are left out if the target refuses them."""
        path = f"/indexes/{index_uid}/settings"
        answer = self._answer("PATCH", path, JSON, dumps(settings).encode())
        if answer.status == 400 and unset:
            known = {name: value for name, value in settings.items() if name not in unset}
            answer = self._answer("PATCH", path, JSON, dumps(known).encode())
        self._accepted(answer)

    def delete_index(self, index_uid: str) -> None:
        """Enqueue the deletion of an index, if the target can be reached and the key allows it. Never raises."""
        try:
            self._client.exchange(f"{self._url}/indexes/{index_uid}", self._headers, None, WITHIN_S, _MOST_BYTES, method="DELETE")
        except Undelivered:
            pass

    def add_documents(self, index_uid: str, packed: bytes) -> None:
        """Enqueue documents. packed: their texts, compressed by gzip. Raises NotTaken."""
        self._accepted(self._answer("POST", f"/indexes/{index_uid}/documents", NDJSON, packed))

    def _call(self, method: str, path: str, value: Mapping[str, Any]) -> None:
        self._accepted(self._answer(method, path, JSON, dumps(value).encode()))

    def _accepted(self, answer: Answer) -> None:
        if 200 <= answer.status < 300:
            return
        code = _error_of(answer.body).get("code")
        if answer.status == 412 and code == _ALREADY_RECEIVED:
            return
        if code in _NOT_TAKEN:
            raise NotTaken
        raise _failure(answer)

    def _answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        within_s = WITHIN_S + len(body or b"") / BYTES_PER_S

        def call() -> Answer:
            if self._stopping.is_set():
                raise Stopped
            return self._client.exchange(f"{self._url}{path}", {**self._headers, **headers}, body, within_s, _MOST_BYTES,
                                         method=method, redirects=_REDIRECTS)

        def is_passing(answer: Answer) -> bool:
            return ((answer.status in PASSING or 300 <= answer.status < 400)
                    and _error_of(answer.body).get("code") not in _NOT_TAKEN)

        def pause(seconds: float) -> None:
            if self._stopping.wait(seconds):
                raise Stopped

        try:
            return repeated(call, is_passing, pause)
        except Undelivered as failure:
            if self._stopping.is_set():
                raise Stopped from None
            reason, url = str(failure), f"{self._url}{path}"
            texts = {
                Failure.TIMEOUT: "timeout: global", Failure.FORBIDDEN_ADDRESS: "bad uri: Rejected URI",
                Failure.FORBIDDEN_HOST: "bad uri: Rejected URI", Failure.REDIRECTS: "too many redirects",
                Failure.URL: "http: invalid format" if "://" in url else f"bad uri: {url} is missing scheme"}
            other = f"failed to lookup address information: {reason}" if reason in _UNKNOWN_HOST else reason
            raise ApiError("internal", texts.get(failure.kind, other)) from None


def _error_of(body: bytes) -> Mapping[str, Any]:
    """Return the error object of an answer; {} if the answer has none."""
    try:
        value = loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _failure(answer: Answer) -> ApiError:
    """Return the error of the task for a refusal of the target."""
    if 300 <= answer.status < 400:
        return ApiError("internal", "protocol: missing a location header")
    error = _error_of(answer.body)
    missing = next((name for name in _MEMBERS if not isinstance(error.get(name), str)), None)
    if missing is None:
        return ApiError("internal", _REFUSED.format(**{name: error[name] for name in _MEMBERS}))
    fault = fault_in(answer.body)
    return ApiError("internal", f"json: {fault or f'missing field `{missing}` at line 1 column {len(answer.body)}'}")
