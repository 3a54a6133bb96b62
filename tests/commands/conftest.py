"""What the tests of commands share: a command line, run in this process."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from svcd.cli import main as svcd

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Run:
    """call(arguments) -> status, standard output, standard error."""
    def called(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            svcd.main(arguments)
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return called
