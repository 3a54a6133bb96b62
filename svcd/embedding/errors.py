"""EmbeddingError: why no vectors could be made, in the sentences that clients know."""
from __future__ import annotations

CODE = "vector_embedding_error"

USER, RUNTIME, BUG, UNDECIDED = "user error", "runtime error", "coding error", "error"

NO_MEDIA = "`media` requested but the configuration doesn't have source `rest`"


class EmbeddingError(Exception):
    """No vectors could be made. str(): the fault and the reason, as `runtime error: could not reach embedding server: ...`.

    fault: who can mend it, one of USER, RUNTIME, BUG and UNDECIDED. Its error code is CODE. Callers put what they were doing
    before it: `While embedding documents for embedder `NAME`: {error}`, or error.while_generating() where no documents are
    concerned.
    """

    def __init__(self, fault: str, reason: str) -> None:
        super().__init__(f"{fault}: {reason}")
        self.fault = fault
        self.reason = reason

    @property
    def is_user_error(self) -> bool:
        """True when the settings or the request must change; the service may be well."""
        return self.fault == USER

    def while_generating(self) -> str:
        """The message of an error outside of documents: of settings and of searches."""
        return f"Error while generating embeddings: {self}"


class ServiceError(EmbeddingError):
    """The service answered with another status than 2xx. reply: its body in the words of messages, or ""."""

    def __init__(self, fault: str, reason: str, status: int, reply: str) -> None:
        super().__init__(fault, reason + reply)
        self.status = status
        self.reply = reply


def user_provided(text: str) -> EmbeddingError:
    """An embedder without a model was asked for the vector of a text."""
    return EmbeddingError(USER, "attempt to embed the following text in a configuration where embeddings must be user "
                                f"provided:\n  - `{text}`")


def wrong_dimensions(expected: int, found: int) -> EmbeddingError:
    """A vector of another length than the settings, or the first vector, have."""
    return EmbeddingError(
        RUNTIME, f"was expecting embeddings of dimension `{expected}`, got embeddings of dimensions `{found}`")


def unknown_dimensions(failure: EmbeddingError) -> EmbeddingError:
    """The text `test` could not be embedded."""
    return EmbeddingError(
        RUNTIME, f"could not determine model dimensions:\n  - test embedding failed with {failure}")


def stopped() -> EmbeddingError:
    """abort() was called."""
    return EmbeddingError(RUNTIME, "the work was stopped")
