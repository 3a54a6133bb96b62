"""What a new instance begins with: a dump, when one is named and there is no database yet.

Knows when a dump is imported and when the start is refused; refuses to know dumps (svcd.tasks.importing).
Source: options.json (import_dump and its companions).
"""
from __future__ import annotations

from pathlib import Path

from svcd import logs
from svcd.cli.config import Config, ConfigError


def import_dump(config: Config) -> None:
    """Import the dump that the options name. Raises ConfigError, DumpRefused, OSError: nothing is there then."""
    path = config.import_dump
    if path is None or not _is_wanted(config, path):
        return
    from svcd.cli.backstage import import_budget  # few starts import anything
    from svcd.tasks import importing

    logs.info("importing a dump", path=str(path), folder=str(config.db_path))
    importing.import_dump(path, config.db_path, import_budget(config))


def _is_wanted(config: Config, path: Path) -> bool:
    if not _is_new(config.db_path):
        if config.ignore_dump_if_db_exists:
            return False
        raise ConfigError(f"{config.where('import_dump')}: the database {config.db_path} exists already; move it away, "
                          "or start it as it is with --ignore-dump-if-db-exists")
    if not path.exists():
        if config.ignore_missing_dump:
            return False
        raise ConfigError(f"{config.where('import_dump')}: there is no dump {path}; name one that is there, or start "
                          "with an empty database by --ignore-missing-dump")
    return True


def _is_new(folder: Path) -> bool:
    return not folder.exists() or folder.is_dir() and not any(folder.iterdir())
