"""What passed once passes: the ratchet over the recorded answers of the reference engine."""
from __future__ import annotations

import pytest

from tests.conformance import ratchet

needs_recordings = pytest.mark.skipif(not ratchet.recordings(), reason="no ../shared/conformance beside the project")


@needs_recordings
def test_the_list_names_recordings() -> None:
    assert ratchet.passing() and not set(ratchet.passing()) - set(ratchet.recordings())


@needs_recordings
def test_what_passed_still_passes() -> None:
    failed = dict(ratchet.failures(ratchet.passing()))
    assert not failed, "\n".join(f"{name}\n{found}" for name, found in failed.items())
