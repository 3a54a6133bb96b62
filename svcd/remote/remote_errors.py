"""Failures of a remote as errors of the interface: codes and messages (docs/network.md#failures).

Clients read these messages, and the reference engine sends the same ones, to the letter.
"""
from __future__ import annotations

from typing import Any

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.remote import Failure, Undelivered
from svcd.validation.answers import shortened

_SAME_VERSION = "\n  - hint: check that the remote instance is a Svc instance running the same version"
_KEY_HINT = ("could not authenticate against the remote host\n  - hint: check that the remote instance was registered with a "
             "valid API key having the `search` action")
_REQUEST_HINTS = ("\n  - hint: check that the remote instance has the correct index configuration for that request"
                  "\n  - hint: check that the `network` experimental feature is enabled on the remote instance")


def missing_in_hit(path: str) -> ApiError:
    """The error for a remote whose hit lacks a member. path: such as `._federation`."""
    return ApiError("remote_bad_response", f"remote hit does not contain `{path}`{_SAME_VERSION}")


def unexpected_in_hit(path: str, expected: str, value: Any) -> ApiError:
    """The error for a remote whose hit has a member of a wrong type. expected: such as `map`."""
    return ApiError("remote_bad_response", f"remote hit contains an unexpected value at path `{path}`: expected {expected}, "
                                           f"received `{shortened(dumps(value))}`{_SAME_VERSION}")


def unreadable_scores(reason: str) -> ApiError:
    """The error for a remote whose hit has weighted score values that cannot be compared."""
    return ApiError("remote_bad_response", f"could not parse weighted score values in the remote hit: {reason}")


def late() -> ApiError:
    """The error for a remote that did not answer before the deadline of the request."""
    return ApiError("remote_timeout", "remote host did not answer before the deadline")


def unreadable(reply: str) -> ApiError:
    """The error for a response of unexpected form. reply: from quoted_reply()."""
    return ApiError("remote_bad_response", "could not parse response from the remote host as a federated search "
                                           f"response{reply}{_SAME_VERSION}")


def error_of_status(status: int, reply: str) -> ApiError:
    """The error for a status of 400 or more. reply: from quoted_reply()."""
    if status in (401, 403):
        return ApiError("remote_invalid_api_key", _KEY_HINT)
    if status < 500:
        return ApiError("remote_bad_request", f"remote host responded with code {status}{reply}{_REQUEST_HINTS}")
    return ApiError("remote_remote_error", f"remote host responded with code {status}{reply}")


_MOST_FREQUENT = "error sending request"
_NOT_SENT = {  # kind of failure -> message, if it is not the most frequent one
    Failure.URL: "builder error",
    Failure.FORBIDDEN_ADDRESS: "Rejected IP",
    Failure.REDIRECTS: "error following redirect",
}


def not_sent(reason: str = _MOST_FREQUENT) -> ApiError:
    """The error for a remote that svcd could not connect to, or may not call."""
    return ApiError("remote_could_not_send_request", reason)


def error_of_failure(failure: Undelivered) -> ApiError:
    """The error for a request without a response."""
    if failure.kind is Failure.TIMEOUT:
        return late()
    if failure.kind is Failure.RESPONSE:
        return unreadable(f":\n  - additionally, could not retrieve response from remote: {failure}")
    return not_sent(_NOT_SENT.get(failure.kind, _MOST_FREQUENT))


def quoted_reply(body: bytes) -> str:
    """Return a response body as error messages quote it."""
    if not body:
        return ""
    try:
        text = dumps(loads(body))
    except ValueError:
        text = body.decode(errors="replace")
    return f":\n  - response from remote: {shortened(text)}"
