"""The Debian package: program, units, user, manual, completion, sample configuration; written without Debian's tools.

A package is an ar archive of two tar archives: `control`, which dpkg reads, and `data`, which it unpacks (deb(5)).
"""
from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from click.shell_completion import ShellComplete, get_completion_class

from distribution.bundle import ROOT, Files
from distribution.launcher import launcher
from svcd import __version__
from svcd.cli.main import COMMAND

NAME = f"svcd_{__version__}_all.deb"
SCRIPTS = ("postinst", "prerm", "postrm")
_UNIT = {  # line of examples/svcd.service: its replacement in the package
    "ExecStart=svcd ": "ExecStart=/usr/bin/svcd ",
    # A user of the package owns the data, also while the service does not run.
    "DynamicUser=yes\n": "User=svcd\n",
}
_COMPLETIONS = {  # shell: path of its completions
    "bash": "usr/share/bash-completion/completions/svcd",
    "zsh": "usr/share/zsh/vendor-completions/_svcd",
    "fish": "usr/share/fish/vendor_completions.d/svcd.fish",
}
_TIME = 315_532_800  # 1980: the same files give the same bytes
_SHEBANG = b"#!/usr/bin/python3 -I\n"


class Entry(NamedTuple):
    """A file of the package, owned by root."""

    content: bytes
    mode: int = 0o644


def build(files: Files) -> bytes:
    """Return the content of the package. files: the files of the bundle."""
    entries = package_files(files)
    return _ar({
        "debian-binary": b"2.0\n",
        "control.tar.gz": _tar(control_files(entries)),
        "data.tar.gz": _tar(entries),
    })


def package_files(files: Files) -> dict[str, Entry]:
    """Return the installed files by their paths."""
    return {
        "usr/bin/svcd": Entry(_SHEBANG + launcher(
            'os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "lib", "svcd")'), 0o755),
        **{f"usr/lib/svcd/{path}": Entry(content) for path, content in files.items()},
        "usr/lib/systemd/system/svcd.service": Entry(_service()),
        "usr/lib/systemd/system/svcd.socket": Entry(_read("examples/svcd.socket")),
        "usr/lib/sysusers.d/svcd.conf": Entry(_read("distribution/debian/sysusers.conf")),
        "etc/svcd/svcd.toml": Entry(_read("examples/svcd.toml")),
        **{path: Entry(completion(shell)) for shell, path in _COMPLETIONS.items()},
        **{f"usr/share/man/man{page.suffix[1:]}/{page.name}.gz": Entry(_packed(page.read_bytes()))
           for page in sorted((ROOT / "man").iterdir())},
        "usr/share/doc/svcd/changelog.gz": Entry(_packed(_read("CHANGELOG.md"))),
        "usr/share/doc/svcd/copyright": Entry(_copyright(files)),
        "usr/share/doc/svcd/examples/films.json": Entry(_read("examples/films.json")),
    }


def control_files(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the files that dpkg reads: description, checksums, configuration files, scripts."""
    sums = "".join(f"{hashlib.md5(entry.content, usedforsecurity=False).hexdigest()}  {path}\n"
                   for path, entry in sorted(entries.items()) if not path.startswith("etc/"))
    configuration = "".join(f"/{path}\n" for path in entries if path.startswith("etc/"))
    kilobytes = sum(len(entry.content) for entry in entries.values()) // 1024 + 1
    control = _read("distribution/debian/control").decode().replace("@VERSION@", __version__).replace("@SIZE@", str(kilobytes))
    return {
        "control": Entry(control.encode()),
        "md5sums": Entry(sums.encode()),
        "conffiles": Entry(configuration.encode()),
        **{name: Entry(_read(f"distribution/debian/{name}"), 0o755) for name in SCRIPTS},
    }


def completion(shell: str) -> bytes:
    """Return the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    made = kind(COMMAND, {}, "svcd", "_SVCD_COMPLETE")
    return ShellComplete.source(made).encode()  # of the base class: the class for bash starts a shell


def _service() -> bytes:
    unit = _read("examples/svcd.service").decode()
    for line, other in _UNIT.items():
        assert unit.count(f"\n{line}") == 1, line
        unit = unit.replace(f"\n{line}", f"\n{other}")
    return unit.encode()


def _copyright(files: Files) -> bytes:
    folders = sorted({path.split("/")[0] for path in files if ".dist-info/" in path} - {"svcd.dist-info"})
    others = "\n".join(f"/usr/lib/svcd/{folder}/" for folder in folders)
    return _read("LICENSE") + f"\nThe licenses of the packages that come with svcd are in:\n\n{others}\n".encode()


def _read(path: str) -> bytes:
    return (ROOT / path).read_bytes()


def _packed(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)


# -- Archives


def _tar(entries: Mapping[str, Entry]) -> bytes:
    """Return a compressed tar archive of these files and their folders."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in _folders(entries):
            folder = _entry_of(path, 0o755)
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
        for path, entry in sorted(entries.items()):
            file = _entry_of(f"./{path}", entry.mode)
            file.size = len(entry.content)
            archive.addfile(file, io.BytesIO(entry.content))
    return _packed(made.getvalue())


def _folders(entries: Mapping[str, Entry]) -> Iterator[str]:
    """Return the folders of all files, each after its parent."""
    parts = [path.split("/")[:-1] for path in entries]
    return iter(sorted({"./" + "".join(f"{name}/" for name in folders[:depth])
                        for folders in parts for depth in range(len(folders) + 1)}))


def _entry_of(path: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.mode, entry.mtime = mode, _TIME
    entry.uname = entry.gname = "root"
    return entry


def _ar(members: Mapping[str, bytes]) -> bytes:
    made = b"!<arch>\n"
    for name, content in members.items():
        head = f"{name:<16}{_TIME:<12}{0:<6}{0:<6}{0o100644:<8o}{len(content):<10}`\n"
        made += head.encode() + content + b"\n" * (len(content) % 2)
    return made
