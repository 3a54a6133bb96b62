"""CallLimit. What must hold: each bearer has its calls of a minute, a refused call says when the next minute begins, and old counts go."""
from __future__ import annotations

from svcd.mcp.limits import CallLimit


def test_each_bearer_has_its_own_minute() -> None:
    now = [60.0]
    limit = CallLimit(2, lambda: now[0])
    assert [limit.wait_s("a"), limit.wait_s("a"), limit.wait_s("b")] == [0, 0, 0]
    now[0] = 75.0
    assert limit.wait_s("a") == 45 and limit.wait_s("b") == 0
    now[0] = 119.9
    assert limit.wait_s("a") == 1
    now[0] = 120.0
    assert limit.wait_s("a") == 0
