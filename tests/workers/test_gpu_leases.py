"""Leases: the lock itself, and the folder that it lies in."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.exit_codes import UsageError
from runner.workers.gpu_leases import LockFolder
from tests.workers.house import LOCKS, ONE, TWO, free, leases

# ---- the lock itself


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    mine = leases(tmp_path, ONE, TWO)
    first, second = mine.take("gpu"), leases(tmp_path, ONE, TWO).take("gpu")
    assert first and second and {first.name, second.name} == {ONE, TWO}
    assert mine.take("gpu") is None  # also the same process does not get it twice
    assert f"{ONE} is held by process {os.getpid()}" in mine.held_by("gpu")
    assert str(tmp_path / "run") in mine.held_by("gpu")
    second.close()
    third = mine.take("gpu")
    assert third and third.name == TWO
    first.close()
    third.close()
    assert free(tmp_path, ONE) and free(tmp_path, TWO)


def test_cpu_slots(tmp_path: Path) -> None:
    mine = leases(tmp_path, slots=2)
    held = [mine.take("cpu"), mine.take("cpu")]
    assert all(held) and mine.take("cpu") is None
    assert "2 CPU slots" in mine.held_by("cpu")


# ---- the folder


def test_the_shared_folder_is_open_to_all_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.workers.gpu_leases._SHARED", tmp_path / "shared")
    before = os.umask(0o077)
    try:
        folder = LockFolder(None)
        fd = folder.lock("GPU-x")
    finally:
        os.umask(before)
    assert fd is not None
    os.close(fd)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder.path / "GPU-x.lock").stat().st_mode) == 0o666


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to be two users")
@pytest.mark.parametrize("first", [0, 65534])
def test_two_users_exclude_each_other(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Whoever of them comes first; the second says who the first is."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o1777)
        monkeypatch.setattr("runner.workers.gpu_leases._SHARED", Path(place) / "shared")

        def as_user(uid: int, what: Callable[[], bool]) -> bool:
            pid = os.fork()
            if pid == 0:
                os.umask(0o077)
                os.setuid(uid)
                os._exit(0 if what() else 1)
            return os.waitpid(pid, 0)[1] == 0

        def take() -> bool:
            fd = LockFolder(None).lock(ONE)
            if fd is not None:
                LockFolder(None).write(fd, {"pid": os.getpid(), "user": str(os.getuid())})
            return fd is not None

        assert as_user(first, take)
        assert as_user(65534 - first, lambda: LockFolder(None).read(ONE)["user"] == str(first) and take())
        held = LockFolder(None).lock(ONE)
        assert held is not None
        assert as_user(65534, lambda: not take())
        os.close(held)
        assert as_user(65534, take)


def test_names_stay_inside_the_folder(tmp_path: Path) -> None:
    folder = LockFolder(tmp_path / LOCKS)
    fd = folder.lock("MIG-GPU-x/../../../1")
    assert fd is not None
    os.close(fd)
    assert [path.parent for path in tmp_path.rglob("*.lock")] == [tmp_path / LOCKS]


@pytest.mark.parametrize("trap", ["symlink", "hardlink", "fifo", "folder"])
def test_nothing_is_written_through_a_trap(tmp_path: Path, trap: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    folder = tmp_path / LOCKS
    folder.mkdir()
    path = folder / f"{ONE}.lock"
    if trap == "symlink":
        path.symlink_to(precious)
    elif trap == "hardlink":
        path.hardlink_to(precious)
    elif trap == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(UsageError, match=r"workers\.lease_folder=.*no plain file.*workers\.lease=none"):
        leases(tmp_path, ONE).take("gpu")
    assert precious.read_text() == "keep me"


@pytest.mark.parametrize("trap", ["symlink", "open to all", "file"])
def test_a_shared_folder_that_was_prepared_by_somebody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setattr("runner.workers.gpu_leases._SHARED", shared)
    if trap == "file":
        shared.write_text("")
    else:
        (tmp_path / "theirs").mkdir()
    if trap == "symlink":
        shared.symlink_to(tmp_path / "theirs")
    if trap == "open to all":
        (tmp_path / "theirs").rename(shared)
        shared.chmod(0o777)
        monkeypatch.setattr(os, "geteuid", lambda: shared.stat().st_uid + 1)
    with pytest.raises(UsageError, match=r"workers\.lease_folder="):
        LockFolder(None).lock("GPU-x")


def test_a_file_that_was_taken_away_while_it_was_locked(tmp_path: Path) -> None:
    """Whoever holds a file that lies there no more holds nothing: others lock the new one."""
    folder = LockFolder(tmp_path / LOCKS)
    fd = folder.lock("GPU-x")
    assert fd is not None and folder.is_file_of(fd, "GPU-x")
    (tmp_path / LOCKS / "GPU-x.lock").unlink()
    again = folder.lock("GPU-x")
    assert again is not None and folder.is_file_of(again, "GPU-x") and not folder.is_file_of(fd, "GPU-x")
    os.close(fd)
    os.close(again)


def test_what_a_file_says_cannot_trouble_a_terminal(tmp_path: Path) -> None:
    made = leases(tmp_path, ONE)
    held = made.take("gpu")
    path = tmp_path / LOCKS / f"{ONE}.lock"
    path.write_text(json.dumps({"pid": 7, "user": "\x1b[2Jeve", "folder": "a\nb", "since": 1e300}))
    assert made.held_by("gpu") == f"{ONE} is held by process 7 of [2Jeve on ? (ab), or by what it started"
    path.write_text("[1")
    assert "does not say" in made.held_by("gpu")
    assert held
