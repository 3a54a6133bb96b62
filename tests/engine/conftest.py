"""What tests of several modules put in place."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from svcd.text import segmenters


@pytest.fixture
def no_word_lists() -> Iterator[None]:
    """As if the extra `languages` were not installed, which is all that the oracle knows."""
    for language in segmenters.LISTS:
        segmenters.offer(language, lambda: None)
    yield
    for language in segmenters.LISTS:
        segmenters.offer(language, None)
