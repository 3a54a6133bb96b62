"""Machines that can be cut off from each other: network namespaces on a bridge, each with one address. Needs root and Linux.

The test itself has an address on the bridge and reaches every machine, also one that is cut off from the others.
"""
from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

_NETWORK = "10.77.{id}."
_TEST = 254


class Machines:
    """Machines 0, 1, 2 and so on. id: tells them from those of other tests that run at the same time."""

    def __init__(self, count: int, id: int) -> None:
        self._id, self._count = id, count
        self._bridge = f"svcd{id}"

    def address(self, number: int) -> str:
        """The address of a machine."""
        return _NETWORK.format(id=self._id) + str(number + 1)

    def command(self, number: int) -> Sequence[str]:
        """What stands before a command that runs on a machine; it replaces itself by the command."""
        return ["ip", "netns", "exec", self._name(number)]

    def make(self) -> None:
        """Make them."""
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "address", "add", f"{_NETWORK.format(id=self._id)}{_TEST}/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for number in range(self._count):
            name, here, there = self._name(number), f"sv{self._id}h{number}", f"sv{self._id}n{number}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
            _run("ip", "link", "set", here, "master", self._bridge, "up")
            for command in (("ip", "address", "add", f"{self.address(number)}/24", "dev", there),
                            ("ip", "link", "set", there, "up"), ("ip", "link", "set", "lo", "up")):
                _run(*self.command(number), *command)

    def cut(self, number: int) -> None:
        """Drop all that comes from and goes to other machines, silently."""
        for other in range(self._count):
            if other != number:
                for chain, side in (("INPUT", "-s"), ("OUTPUT", "-d")):
                    _run(*self.command(number), "iptables", "-A", chain, side, self.address(other), "-j", "DROP")

    def lose_packets(self, number: int, share: float) -> None:
        """Drop a share of what comes from other machines."""
        for other in range(self._count):
            if other != number:
                _run(*self.command(number), "iptables", "-A", "INPUT", "-s", self.address(other), "-m", "statistic",
                     "--mode", "random", "--probability", str(share), "-j", "DROP")

    def heal(self, number: int) -> None:
        """Undo cut() and lose_packets()."""
        _run(*self.command(number), "iptables", "-F")

    def remove(self) -> None:
        """Remove them, as far as they were made."""
        for number in range(self._count):
            subprocess.run(["ip", "netns", "del", self._name(number)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)

    def _name(self, number: int) -> str:
        return f"svcd{self._id}-{number}"


@contextmanager
def machines(count: int, id: int) -> Iterator[Machines]:
    """Machines for the time of the block; the test is skipped where there can be none."""
    missing = [tool for tool in ("ip", "iptables") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"machines that can be cut off need root{' and ' if missing else ''}{', '.join(missing)}")
    made = Machines(count, id)
    made.remove()
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as refused:
            pytest.skip(f"no network namespaces here: {refused.stderr.decode().strip()}")
        yield made
    finally:
        made.remove()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
