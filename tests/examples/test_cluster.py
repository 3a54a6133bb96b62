"""examples/cluster. What must hold:

1. The units are valid, and the log's server and the node start with what they get from cluster.env.
2. Options and variables that the files name exist; addresses in one place are those of the others.
3. A server of NATS takes its configuration, which syncs always.

That containers find each other is not tested.
"""
from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from svcd.cli.config import load
from svcd.cli.options import OPTIONS
from svcd.cluster.log import parsed_address
from tests.support.daemon import ROOT
from tests.support.log_servers import NatsServers, RqliteServers, free_ports, program

FOLDER = ROOT / "examples/cluster"
UNIT = (FOLDER / "rqlited.service").read_text()
COMPOSE = (FOLDER / "compose.yaml").read_text()
NODES = ("node1", "node2", "node3")


def variables() -> Mapping[str, str]:
    """What cluster.env sets."""
    lines = (FOLDER / "cluster.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


# -- systemd


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_1_the_units_are_valid(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "rqlited.service", tmp_path)
    shutil.copy(ROOT / "examples/svcd.service", tmp_path)
    (tmp_path / "svcd.service.d").mkdir()
    shutil.copy(FOLDER / "cluster.conf", tmp_path / "svcd.service.d")
    for unit in ("rqlited.service", "svcd.service"):
        made = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / unit], capture_output=True, text=True, check=False)
        faults = [line for line in made.stderr.splitlines() if re.search(r"svcd\.|rqlited\.|cluster\.conf", line)
                  and "not executable" not in line]
        assert faults == []


def test_1_the_environment_makes_a_node() -> None:
    given = variables()
    config = load({}, {**{name: value for name, value in given.items() if name.startswith("SVC_")}, "SVC_MASTER_KEY": "k" * 16})
    assert config.node_name == given["SVC_NODE_NAME"] and config.node_url == given["SVC_NODE_URL"]
    hosts = [host for host, _ in parsed_address(config.cluster).servers]
    assert given["LOG_SERVERS"] == ",".join(f"{host}:4002" for host in hosts)
    assert given["ADDRESS"] == hosts[0] == str(config.http_addr[0]) and given["SVC_NODE_URL"] == f"http://{hosts[0]}:7700"


def test_1_the_server_of_the_log_starts(tmp_path: Path) -> None:
    """Alone, so that one is enough, on ports that are free."""
    folder, (http, raft) = tmp_path / "state", free_ports(2)
    environ = {**variables(), "ADDRESS": "127.0.0.1", "LOG_SERVERS": f"127.0.0.1:{raft}", "STATE_DIRECTORY": str(folder)}
    (line,) = re.findall(r"^ExecStart=rqlited (.*)$", UNIT, re.M)
    arguments = [re.sub(r"\$\{(\w+)\}", lambda found: environ[found[1]], each) for each in shlex.split(line)]
    assert "4001" in line and "4002" in line
    arguments = [each.replace(":4001", f":{http}").replace(":4002", f":{raft}") for each in arguments]
    arguments[arguments.index("-bootstrap-expect") + 1] = "1"
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([program(RqliteServers.command, RqliteServers.search_path), *arguments], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while "HTTP API available" not in (said := (tmp_path / "log").read_text()):
            assert server.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.05)
    finally:
        server.kill()
        server.wait()


# -- containers


def test_2_what_the_compose_file_names_exists() -> None:
    known = {option.variable for option in OPTIONS}
    assert set(re.findall(r"\bSVC_\w+\b", COMPOSE)) <= known
    services = re.findall(r"^  (\w+):$", COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0], re.M)
    assert services == ["log1", "log2", "log3", *NODES]
    (address,) = re.findall(r"SVC_CLUSTER: (\S+)", COMPOSE)
    assert [host for host, _ in parsed_address(address).servers] == services[:3]
    for place, key in (("SVC_NODE_NAME: {}\n", NODES), ("SVC_NODE_URL: http://{}:7700\n", NODES), ('"-node-id", "{}"', services[:3])):
        assert [COMPOSE.count(place.format(name)) for name in key] == [1, 1, 1]
    for path in re.findall(r"(?:context|dockerfile): (\S+)", COMPOSE):
        assert (FOLDER / path).exists() or (FOLDER / "../.." / path).exists()


def test_2_the_log_in_containers_has_options_that_rqlited_knows() -> None:
    said = subprocess.run([program(RqliteServers.command, RqliteServers.search_path), "-h"], capture_output=True, text=True, check=False)
    known = set(re.findall(r"^  (-[\w-]+)", said.stdout + said.stderr, re.M))
    named = {*re.findall(r'"(-[a-z-]+)"', COMPOSE), *re.findall(r" (-[a-z-]+) ", UNIT.partition("ExecStart=")[2].partition("\n")[0])}
    assert named and named <= known


# -- NATS


def test_3_nats_takes_its_configuration() -> None:
    checked = subprocess.run([program(NatsServers.command, NatsServers.search_path), "-t", "-c", FOLDER / "nats.conf"],
                             capture_output=True, text=True, check=False, env={**os.environ, "NATS_PASSWORD": "secret"})
    assert checked.returncode == 0, checked.stderr
    assert re.search(r"^  sync_interval: always$", (FOLDER / "nats.conf").read_text(), re.M)
