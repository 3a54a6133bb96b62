"""What passed once passes: the ratchet over the recorded answers of the reference engine."""
from __future__ import annotations

import pytest

from tests.conformance import ratchet
from tests.conftest import PLAYED

needs_recordings = pytest.mark.skipif(not ratchet.recordings(), reason="no ../shared/conformance beside the project")


@needs_recordings
def test_the_list_names_recordings() -> None:
    assert ratchet.passing() and not set(ratchet.passing()) - set(ratchet.recordings())


@needs_recordings
def test_what_passed_still_passes(request: pytest.FixtureRequest) -> None:
    """The recordings are played beside the other tests (tests/conftest.py): most of those wait, on one core."""
    played = request.config.stash[PLAYED]
    said, _ = played.communicate()
    assert played.returncode == 0, said
