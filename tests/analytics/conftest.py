"""The application whose requests are counted: the fixtures of the routes' tests."""
from __future__ import annotations

from tests.api.conftest import client, connect, instance, work  # noqa: F401 (fixtures)
