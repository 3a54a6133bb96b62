"""What tests of several rules share."""
from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from svcd.ranking.rule import ForwardIndexLoader


@pytest.fixture(params=["forward index", "inverted index"])
def both_evaluators(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test twice: rules read the words of few candidates, and ask the inverted index alone."""
    if request.param == "forward index":
        yield
    else:
        with patch.object(ForwardIndexLoader, "read", lambda *_: None):
            yield
