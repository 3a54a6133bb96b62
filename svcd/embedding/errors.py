"""EmbeddingError: why vectors could not be made, in the wording of the interface."""
from __future__ import annotations

CODE = "vector_embedding_error"

USER, RUNTIME, BUG, UNDECIDED = "user error", "runtime error", "coding error", "error"

NO_MEDIA = "`media` requested but the configuration doesn't have source `rest`"


class EmbeddingError(Exception):
    """Vectors could not be made. str(): the fault and the reason, as `runtime error: could not reach embedding server: ...`.

    fault: who can fix it, one of USER, RUNTIME, BUG and UNDECIDED. Its error code is CODE. Callers put their context before it:
    `While embedding documents for embedder `NAME`: {error}`, or error.while_generating() outside of documents.
    """

    def __init__(self, fault: str, reason: str) -> None:
        super().__init__(f"{fault}: {reason}")
        self.fault = fault
        self.reason = reason

    @property
    def is_user_error(self) -> bool:
        """Whether the settings or the request must change; the service may work."""
        return self.fault == USER

    def while_generating(self) -> str:
        """Return the message of an error in settings or searches."""
        return f"Error while generating embeddings: {self}"


class ServiceError(EmbeddingError):
    """The service answered with a status other than 2xx. reply: its body as shown in messages, or ""."""

    def __init__(self, fault: str, reason: str, status: int, reply: str) -> None:
        super().__init__(fault, reason + reply)
        self.status = status
        self.reply = reply


def user_provided(text: str) -> EmbeddingError:
    """Return the error of an embedder without a model that was asked for the vector of a text."""
    return EmbeddingError(USER, "attempt to embed the following text in a configuration where embeddings must be user "
                                f"provided:\n  - `{text}`")


def wrong_dimensions(expected: int, found: int) -> EmbeddingError:
    """Return the error of a vector whose length differs from the settings, or from the first vector."""
    return EmbeddingError(
        RUNTIME, f"was expecting embeddings of dimension `{expected}`, got embeddings of dimensions `{found}`")


def unknown_dimensions(failure: EmbeddingError) -> EmbeddingError:
    """Return the error of an embedder that could not embed the text `test`."""
    return EmbeddingError(
        RUNTIME, f"could not determine model dimensions:\n  - test embedding failed with {failure}")


def stopped() -> EmbeddingError:
    """Return the error of a call that abort() ended."""
    return EmbeddingError(RUNTIME, "the work was stopped")
