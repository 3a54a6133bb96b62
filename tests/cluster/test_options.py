"""What must hold of the options of a node:

1. A node needs a name and a master key; a name or an address alone is refused.
2. Addresses and names are checked at the start, and the address, which may have a password, is shown nowhere.
3. The data folder of a node is not opened without --cluster.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from svcd.cli import daemon
from svcd.cli.config import ConfigError, load
from tests.cluster.conftest import KEY, MakeNode

NODE = {"cluster": "rqlite://u:secret@a,b,c", "node_name": "a", "master_key": KEY}


def refusal(**flags: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        load(flags, {})
    return str(refused.value)


def test_1_a_node_has_a_name_and_a_key() -> None:
    assert load(NODE, {}).node_name == "a"
    for missing in ("node_name", "master_key"):
        assert "a node of a cluster also needs --node-name" in refusal(**{name: text for name, text in NODE.items() if name != missing})


@pytest.mark.parametrize("flags", [{"node_name": "a"}, {"node_url": "http://a.test"}])
def test_1_without_a_cluster_its_options_have_no_effect(flags: dict[str, str]) -> None:
    assert "has no effect without --cluster" in refusal(**flags)


@pytest.mark.parametrize("flags", [
    {"cluster": "http://a"}, {"cluster": "rqlite://"}, {"node_name": "a b"}, {"node_name": "a/b"}, {"node_name": "x" * 61},
    {"node_url": "a.test"},
])
def test_2_values_are_checked(flags: dict[str, str]) -> None:
    assert refusal(**{**NODE, **flags}).startswith(f"--{next(iter(flags)).replace('_', '-')}")


def test_2_the_address_is_shown_nowhere() -> None:
    assert "u:secret" not in str(list(load(NODE, {}).described()))
    assert "u:secret" not in refusal(**{**NODE, "cluster": "rqlite://u:secret@a:x"})


def test_3_the_folder_of_a_node_is_not_opened_alone(make_node: MakeNode, tmp_path: Path) -> None:
    daemon.check_alone(load({"db_path": str(tmp_path / "none")}, {}))
    node = make_node("a")
    with pytest.raises(ConfigError, match="is the data folder of a node of a cluster"):
        daemon.check_alone(load({"db_path": str(node.path)}, {}))
