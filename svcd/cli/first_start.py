"""What a new instance begins with: a dump or a snapshot, when one is named and there is no database yet.

Knows when one is imported, when the start is refused, and that a first start which fails leaves nothing behind; refuses
to know dumps (svcd.tasks.dump_import) and snapshots (svcd.tasks.snapshot_import). Source: options.json (import_dump,
import_snapshot and their companions).
"""
from __future__ import annotations

import fcntl
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from svcd.base import logs
from svcd.cli.config import Config, ConfigError
from svcd.cli.options import BY_NAME
from svcd.http.sockets import listen
from svcd.index.connections import open_reader

_MISSED = ("tasks", "indexes", "keys", "webhooks", "features")


def begin(config: Config) -> None:
    """Import what the options name. Raises ConfigError, ArchiveRefused, NewerFormat, OSError: nothing is there then."""
    for noun, import_one in _IMPORTS.items():
        path = getattr(config, f"import_{noun}")
        if path is not None and _is_wanted(config, noun, path):
            _try_address(config)
            logs.info(f"importing a {noun}", path=str(path), folder=str(config.db_path))
            with _ended_in_order():
                import_one(path, config)


@contextmanager
def undone_on_failure(folder: Path) -> Iterator[Callable[[], None]]:
    """Take the data folder away again when it was made in this block, and the block fails before it calls what it gets.

    What stays would be taken for a database by the next start, which then refuses to import one. A folder whose database
    holds anything stays: what was imported, and what another svcd has begun meanwhile.
    """
    kept: list[bool] = []
    parents = [parent for parent in folder.absolute().parents if not parent.exists()]
    was_new, was_there = _is_new(folder), folder.exists()
    try:
        yield lambda: kept.append(True)
    except BaseException:
        if was_new and not kept and folder.is_dir():
            _undo(folder, [] if was_there else [folder, *parents])
        raise


def _undo(folder: Path, made: Sequence[Path]) -> None:
    """Empty the folder, and remove those of `made` that are empty then; nothing when it is in use or holds something."""
    try:
        with (folder / "LOCK").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _holds_nothing(folder / "instance.sqlite"):
                return
            for entry in folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            for empty in made:
                empty.rmdir()
    except OSError:  # somebody else uses it, or has put something into one of them
        pass


def _holds_nothing(path: Path) -> bool:
    """Whether the file of an instance has no row of what somebody could miss."""
    if not path.exists():
        return True
    try:
        with closing(open_reader(path)) as reader:
            tables = {name for (name,) in reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return not any(reader.execute(f"SELECT EXISTS (SELECT 1 FROM {table})").fetchone()[0]
                           for table in tables.intersection(_MISSED))
    except sqlite3.Error:
        return False


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM ends an import as Ctrl-C does: what it has made so far goes."""
    def end(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _try_address(config: Config) -> None:
    """An import may take hours: what would refuse the start after it shall do so before. Raises ListenError."""
    for sock in listen(*config.http_addr):
        sock.close()


def _import_dump(path: Path, config: Config) -> None:
    from svcd.cli.wiring import import_budget  # few starts import anything
    from svcd.tasks import dump_import

    dump_import.import_dump(path, config.db_path, import_budget(config))


def _import_snapshot(path: Path, config: Config) -> None:
    from svcd.tasks import snapshot_import

    snapshot_import.import_snapshot(path, config.db_path)


_IMPORTS: Mapping[str, Callable[[Path, Config], None]] = {"dump": _import_dump, "snapshot": _import_snapshot}


def _is_wanted(config: Config, noun: str, path: Path) -> bool:
    if not _is_new(config.db_path):
        if getattr(config, f"ignore_{noun}_if_db_exists"):
            return False
        raise ConfigError(f"{config.where(f'import_{noun}')}: the database {config.db_path} exists already; move it away, "
                          f"or start it as it is with {BY_NAME[f'ignore_{noun}_if_db_exists'].flag}")
    if not path.exists():
        if getattr(config, f"ignore_missing_{noun}"):
            return False
        raise ConfigError(f"{config.where(f'import_{noun}')}: there is no {noun} {path}; name one that is there, or start "
                          f"with an empty database by {BY_NAME[f'ignore_missing_{noun}'].flag}")
    return True


def _is_new(folder: Path) -> bool:
    return not folder.exists() or folder.is_dir() and not any(folder.iterdir())
