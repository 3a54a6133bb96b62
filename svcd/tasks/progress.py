"""How far a running batch is, and what each step took."""
from __future__ import annotations

import time
from typing import Any

_WHOLE = "processing tasks"


class Progress:
    """The progress of one batch, as `/batches` shows it; made and moved on by one thread, read by many."""

    def __init__(self) -> None:
        self._step = ""
        self._since = time.monotonic_ns()
        self._begun = self._since
        self.trace: dict[str, int] = {}
        self.view: dict[str, Any] = _view("", 0, 1)

    def __call__(self, step: str, finished: int, total: int) -> None:
        """`finished` of `total` units of a step are done."""
        if step != self._step:
            self._end_step()
            self._step = step
        self.view = _view(step, finished, total)

    def end(self) -> dict[str, int]:
        """Step path -> nanoseconds."""
        self._end_step()
        return {_WHOLE: time.monotonic_ns() - self._begun, **self.trace}

    def _end_step(self) -> None:
        moment = time.monotonic_ns()
        if self._step:
            path = f"{_WHOLE} > {self._step}"
            self.trace[path] = self.trace.get(path, 0) + moment - self._since
        self._since = moment


def _view(step: str, finished: int, total: int) -> dict[str, Any]:
    steps = [{"currentStep": _WHOLE, "finished": 0, "total": 1}]
    if step:
        steps.append({"currentStep": step, "finished": finished, "total": total})
    return {"steps": steps, "percentage": round(100 * finished / total, 2) if step and total else 0.0}
