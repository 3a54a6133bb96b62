"""The one error of embedders, and the sentences that clients know."""
from __future__ import annotations

CODE = "vector_embedding_error"

USER, RUNTIME, BUG, UNDECIDED = "user error", "runtime error", "coding error", "error"


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
