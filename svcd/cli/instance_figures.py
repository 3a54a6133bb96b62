"""What the anonymous usage report tells of the machine and of the launch options.

Knows where the system says what it is, and that of an option that names a path, an address or a secret only whether
it was given is told. Refuses to know what is counted of requests (svcd.analytics.collector).
"""
from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from svcd import INTERFACE_VERSION
from svcd.analytics.figures import FIGURES
from svcd.cli import machine
from svcd.cli.config import DEFAULT, FILE, Config
from svcd.cli.options import BY_NAME, COUNT, INTERVAL, LIMIT, OPTIONS, POSITIVE, PROCESSES, SIZE
from svcd.instance.instance import Instance

_DAY_S = 86_400
_PREFIX = "infos."
_NUMBERS = (SIZE, COUNT, POSITIVE, PROCESSES, LIMIT, INTERVAL)
_CHOICES = ("env", "log_level", "experimental_logs_mode")
_OTHER_NAMES = {"task_queue_webhook": "task_webhook_url", "experimental_dumpless_upgrade": "upgrade_db"}
_FEATURES = {  # figure: the feature that an option of this name has become, or can start
    "experimental_composite_embedders": "compositeEmbedders",
    "experimental_contains_filter": "containsFilter",
    "experimental_edit_documents_by_function": "editDocumentsByFunction",
    "experimental_enable_metrics": "metrics",
    "experimental_enable_logs_route": "logsRoute",
    "experimental_multimodal": "multimodal",
}
# By whom an instance is hosted, if that is told: the variable that hosting offers set.
_PROVIDER = "SVC_SERVER_PROVIDER"


class InstanceFigures:
    """Of one daemon, since its start."""

    def __init__(self, config: Config, instance: Instance) -> None:
        self._config = config
        self._instance = instance
        self._started = time.monotonic()

    def now(self) -> dict[str, Any]:
        """Figure -> value at this moment, of all those that no request is asked for."""
        features = self._instance.features()
        return {
            **{name: self._option(name.removeprefix(_PREFIX), features) for name in FIGURES
               if name.startswith(_PREFIX)},
            **_system(self._config.db_path),
            "stats.database_size": self._instance.database_size(),
            "stats.indexes_number": self._instance.list_indexes(0, 0)[1],
            "start_since_days": int((time.monotonic() - self._started) // _DAY_S),
            "experimental_network": bool(features.get("network")),
        }

    def _option(self, name: str, features: Mapping[str, bool | None]) -> Any:
        """A truth or a number; a word where there is a choice of few."""
        if name == "with_configuration_file":
            return any(self._config.source(option.name) == FILE for option in OPTIONS)
        if name in _FEATURES:
            return bool(features.get(_FEATURES[name]))
        return self._value(_OTHER_NAMES.get(name, name))

    def _value(self, name: str) -> Any:
        """Options that svcd does not have were not given."""
        option = BY_NAME.get(name)
        if option is None:
            return False
        if option.is_switch or option.kind in _NUMBERS or name in _CHOICES:
            return getattr(self._config, name)
        return self._config.source(name) != DEFAULT


def _system(folder: Path) -> dict[str, Any]:
    memory = machine.memory()
    return {
        "context.app.version": INTERFACE_VERSION,
        "system.distribution": _distribution(),
        "system.kernel_version": os.uname().release,
        "system.cores": machine.cores(),
        "system.ram_size": None if memory is None else memory // 1024,
        "system.disk_size": _largest_disk(folder),
        "system.server_provider": os.environ.get(_PROVIDER),
    }


def _distribution(path: Path = Path("/etc/os-release")) -> str | None:
    """The ID of os-release(5)."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError):
        return None
    return next((line.removeprefix("ID=").strip("\"'") for line in lines if line.startswith("ID=")), None)


def _largest_disk(folder: Path, mounts: Path = Path("/proc/mounts")) -> int | None:
    """Bytes of the largest file system on a device; of that of the data where the system tells of none."""
    try:
        rows = [line.split() for line in mounts.read_text().splitlines()]
    except (OSError, ValueError):
        rows = []
    places = [row[1] for row in rows if len(row) > 1 and row[0].startswith("/dev/")]
    return max((size for place in (*places, str(folder)) if (size := _size(place))), default=None)


def _size(place: str) -> int:
    try:
        return shutil.disk_usage(place).total
    except OSError:
        return 0
