"""What a new instance begins with: a dump or a snapshot, when one is named and there is no database yet.

Knows when one is imported and when the start is refused; refuses to know dumps (svcd.tasks.importing) and snapshots
(svcd.tasks.snapshot_import). Source: options.json (import_dump, import_snapshot and their companions).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from svcd import logs
from svcd.cli.config import Config, ConfigError
from svcd.cli.options import BY_NAME


def begin(config: Config) -> None:
    """Import what the options name. Raises ConfigError, ArchiveRefused, NewerFormat, OSError: nothing is there then."""
    for noun, import_one in _IMPORTS.items():
        path = getattr(config, f"import_{noun}")
        if path is not None and _is_wanted(config, noun, path):
            logs.info(f"importing a {noun}", path=str(path), folder=str(config.db_path))
            import_one(path, config)


def _import_dump(path: Path, config: Config) -> None:
    from svcd.cli.backstage import import_budget  # few starts import anything
    from svcd.tasks import importing

    importing.import_dump(path, config.db_path, import_budget(config))


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
