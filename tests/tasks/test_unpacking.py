"""What must hold of unpacking, whatever an archive is made of:

1. No more is written than the disk has room for, and that is known before it is written.
2. No header takes more memory than headers do.
3. What is refused is refused in words of svcd, for any damage.
4. Two imports do not make one folder at the same time; a failed one leaves no folder, not even those above.
"""
from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from svcd.tasks.unpacking import ArchiveRefused, new_data_folder, unpack


def archive(path: Path, *entries: tarfile.TarInfo, content: bytes = b"") -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(content) if content else None)
    return path


def entry(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type = size, kind
    return made


def rejection(path: Path, folder: Path) -> str:
    with pytest.raises(ArchiveRefused) as refused:
        unpack(path, folder, "dump")
    words = str(refused.value)
    assert "Error" not in words and "b'" not in words and "\n" not in words and len(words) < 600
    return words


def test_what_the_disk_has_no_room_for_is_refused_before_it_is_written(tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    disk = {"f_bavail": 20 << 8, "f_frsize": 4096, "f_files": 9, "f_favail": 5000}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**disk))
    content = b"x" * (5 << 20)
    words = rejection(archive(tmp_path / "x", entry("a", len(content)), content=content), tmp_path / "new")
    assert "the entry `a` of the dump has 5242880 bytes" in words and "20971520 left" in words
    assert list((tmp_path / "new").iterdir()) == []
    disk["f_favail"] = 3
    assert "cannot hold more files" in rejection(archive(tmp_path / "y", entry("a")), tmp_path / "other")


def test_an_entry_that_says_it_is_huge_writes_nothing(tmp_path: Path) -> None:
    """A sparse file has few bytes in the archive and any number on the disk."""
    block = bytearray(entry("a", 0).tobuf(tarfile.GNU_FORMAT))
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[386:398] = block[398:410] = b"00000000000\0"
    block[483:495] = b"77777777777\0"  # 8 GiB
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    (tmp_path / "x").write_bytes(gzip.compress(bytes(block) + bytes(1024)))
    assert "plain files" in rejection(tmp_path / "x", tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_without_end_takes_no_memory(tmp_path: Path, kind: bytes) -> None:
    reads: list[int] = []

    class Zeros:
        """A header that goes on for 8 GiB."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._head = entry("a", 8 << 30, kind).tobuf(tarfile.GNU_FORMAT)

        def __enter__(self) -> Zeros:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self, size: int) -> bytes:
            reads.append(size)
            head, self._head = self._head, b""
            return head.ljust(size, b"\0")

    (tmp_path / "x").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzip, "GzipFile", Zeros)
        assert "is not a whole dump" in rejection(tmp_path / "x", tmp_path / "new")
    assert sum(reads) < 2 << 20


@pytest.mark.parametrize("made", [
    [entry("a"), entry("a/b")], [entry("a/b"), entry("a")], [entry("x" * 300)], [entry("é\0b")], [entry("")],
    [entry("a", kind=tarfile.FIFOTYPE)], [entry("a", kind=tarfile.LNKTYPE)],
])
def test_odd_names_and_kinds_are_refused(tmp_path: Path, made: list[tarfile.TarInfo]) -> None:
    rejection(archive(tmp_path / "x", *made), tmp_path / "new")


def test_any_damage_gives_a_clear_error(tmp_path: Path) -> None:
    good = io.BytesIO()
    with tarfile.open(fileobj=good, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("metadata.json", "é" * 200, "keys.jsonl"):
            tar.addfile(entry(name, 5), io.BytesIO(b"01234"))
    chance = random.Random(7)
    for number in range(400):
        content = bytearray(good.getvalue())
        for _ in range(chance.randrange(1, 6)):
            content[chance.randrange(len(content) - 10_000)] = chance.choice([0, 32, 45, 49, 55, 128, 255])
        (tmp_path / "x").write_bytes(gzip.compress(bytes(content), 1))
        try:
            unpack(tmp_path / "x", tmp_path / str(number), "dump")
        except ArchiveRefused as refused:
            assert "Error" not in str(refused)


def test_two_imports_do_not_make_one_folder(tmp_path: Path) -> None:
    with new_data_folder(tmp_path / "data") as work:
        with pytest.raises(ArchiveRefused, match="another svcd is importing"):
            with new_data_folder(tmp_path / "data"):
                pass
        work.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_failed_import_leaves_no_folder_above(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        with new_data_folder(tmp_path / "a" / "b" / "data") as work:
            work.mkdir()
            raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with new_data_folder(tmp_path / "a" / "b" / "data") as work:
        work.mkdir()
    assert (tmp_path / "a" / "b" / "data").is_dir()


def test_what_a_killed_import_left_is_taken_away(tmp_path: Path) -> None:
    left = tmp_path / ".data.import" / "dump" / "indexes"
    left.mkdir(parents=True)
    with new_data_folder(tmp_path / "data") as work:
        assert list(work.parent.iterdir()) == []
        work.mkdir()
