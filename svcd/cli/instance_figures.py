"""The figures of the usage report that describe the machine and the launch options.

For an option that names a path, an address or a secret, the report says only whether it was given.
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
from svcd.base import machine
from svcd.cli.config import DEFAULT, FILE, Config
from svcd.cli.options import BY_NAME, COUNT, INTERVAL, LIMIT, OPTIONS, POSITIVE, PROCESSES, SIZE
from svcd.instance.instance import Instance

_DAY_S = 86_400
_PREFIX = "infos."
_NUMBERS = (SIZE, COUNT, POSITIVE, PROCESSES, LIMIT, INTERVAL)
_CHOICES = ("env", "log_level", "experimental_logs_mode")
OTHER_NAMES = {"task_queue_webhook": "task_webhook_url", "experimental_dumpless_upgrade": "upgrade_db",
               "experimental_personalization": "experimental_personalization_api_key"}
FEATURES = {  # figure: the experimental feature that it reports
    "experimental_composite_embedders": "compositeEmbedders",
    "experimental_contains_filter": "containsFilter",
    "experimental_edit_documents_by_function": "editDocumentsByFunction",
    "experimental_enable_metrics": "metrics",
    "experimental_enable_logs_route": "logsRoute",
    "experimental_multimodal": "multimodal",
    "experimental_chat_completions": "chatCompletions",
}
# The environment variable with which hosting images name their provider.
_PROVIDER = "SVC_SERVER_PROVIDER"


class InstanceFigures:
    """The figures of one daemon since its start."""

    def __init__(self, config: Config, instance: Instance) -> None:
        self._config = config
        self._instance = instance
        self._started = time.monotonic()

    def now(self) -> dict[str, Any]:
        """Return name -> current value of all figures that do not count requests."""
        features, memory = self._instance.features(), machine.memory()
        return {
            **{name: self._option(name.removeprefix(_PREFIX), features) for name in FIGURES
               if name.startswith(_PREFIX)},
            "context.app.version": INTERFACE_VERSION,
            "system.distribution": distribution_id(),
            "system.kernel_version": os.uname().release,
            "system.cores": machine.cores(),
            "system.ram_size": None if memory is None else memory // 1024,
            "system.disk_size": largest_disk(self._config.db_path),
            "system.server_provider": os.environ.get(_PROVIDER),
            "stats.database_size": self._instance.database_size(),
            "stats.indexes_number": self._instance.list_indexes(0, 0)[1],
            "start_since_days": int((time.monotonic() - self._started) // _DAY_S),
            "experimental_network": bool(features.get("network")),
        }

    def _option(self, name: str, features: Mapping[str, bool | None]) -> Any:
        """Return the value of a figure `infos.<name>`: a boolean, a number, or one of a few fixed words."""
        if name == "with_configuration_file":
            return any(self._config.source(option.name) == FILE for option in OPTIONS)
        if name in FEATURES:
            return bool(features.get(FEATURES[name]))
        name = OTHER_NAMES.get(name, name)
        option = BY_NAME.get(name)
        if option is None:  # svcd lacks this option
            return False
        if option.is_switch or option.kind in _NUMBERS or name in _CHOICES:
            return getattr(self._config, name)
        return self._config.source(name) != DEFAULT


def distribution_id(path: Path = Path("/etc/os-release")) -> str | None:
    """Return the ID field of os-release(5), None if unknown."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError):
        return None
    return next((line.removeprefix("ID=").strip("\"'") for line in lines if line.startswith("ID=")), None)


def largest_disk(folder: Path, mounts: Path = Path("/proc/mounts")) -> int | None:
    """Return the bytes of the largest mounted block device; of the data folder's file system if no device is known."""
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
