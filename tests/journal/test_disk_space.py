"""A full disk ends a run without a verdict; with room again it goes on, and the answer is that of any other run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner import disk_space
from runner.disk_space import LEAST, RESERVE, NoRoom, Room
from runner.exit_codes import UsageError
from runner.journal.journal import Journal
from runner.verdict import Signature, Verdict
from runner.workers.gpu_leases import LockFolder
from strategies.search import Outcome, Trial
from tests.engine.test_session import FAIL, PASS, session
from tests.harness import ROOT


@pytest.mark.parametrize(("free", "told"), [(RESERVE - 1, "free"), (LEAST - 1, "free"), (RESERVE, "")])
def test_what_has_to_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, told: str) -> None:
    """At the seam: the system's word about the room on a disk."""
    monkeypatch.setattr(disk_space.os, "statvfs", lambda _: disk_with(free))
    if told:
        with pytest.raises(NoRoom, match=told):
            Room(tmp_path).confirm()
    else:
        Room(tmp_path).confirm()
        with pytest.raises(NoRoom, match=r"recording takes at least 1 MiB"):
            Room(tmp_path).confirm(1 << 20, "recording")


@pytest.mark.parametrize("blocks", [0, RESERVE])
def test_a_disk_that_says_nothing_of_its_size_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    monkeypatch.setattr(disk_space.os, "statvfs", lambda _: disk_with(blocks, size=blocks))
    Room(tmp_path).confirm()


def test_no_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(disk_space.tempfile, "gettempdir", none)
    Room(tmp_path).confirm()


def test_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Quota:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> Quota:
            return self

        def __exit__(self, *_: object) -> None: ...
        def write(self, _: bytes) -> int:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(disk_space.tempfile, "TemporaryFile", Quota)
    with pytest.raises(NoRoom, match="quota"):
        Room(tmp_path).confirm()


def test_a_folder_of_leases_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the seam, as above."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("runner.workers.gpu_leases.fcntl.flock", refuse)
    for take in (LockFolder.lock, LockFolder.share):
        with pytest.raises(UsageError, match=r"workers\.lease_folder=.*no locks.*workers\.lease=none"):
            take(LockFolder(tmp_path), "GPU-x")


def disk_with(free: int, *, size: int = 1 << 40) -> SimpleNamespace:
    return SimpleNamespace(f_blocks=size, f_bfree=free, f_bavail=free, f_frsize=1)


@pytest.mark.parametrize(
    ("verdict", "full"),
    [
        (Verdict(Outcome.FAIL, Signature("check", "exit 1"), "sh: write error: No space left on device"), True),
        (Verdict(Outcome.UNRESOLVED, None, "OSError: [Errno 122] Disk quota exceeded"), True),
        (Verdict(Outcome.FAIL, Signature("check", "exit 1"), "another", log="said.log"), True),
        (Verdict(Outcome.PASS, None, "", log="said.log", returncode=5), True),
        (Verdict(Outcome.PASS, None, "", log="said.log", returncode=0), False),
        (Verdict(Outcome.FAIL, Signature("check", "regex"), "another", log="said.log"), False),
        (Verdict(Outcome.FAIL, Signature("check", "exit 1"), "another", log="gone.log"), False),
    ],
)
def test_a_check_that_says_so_itself(tmp_path: Path, verdict: Verdict, full: bool) -> None:
    (tmp_path / "said.log").write_text("torch: No space left on device\nbad\n")
    if full:
        with pytest.raises(NoRoom, match="the check says"):
            Room(tmp_path).judge(verdict)
    else:
        Room(tmp_path).judge(verdict)


def test_what_was_found_on_a_full_disk_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []

    def rule(candidate: Any) -> Verdict:
        checked.append(candidate)
        if len(checked) == 3:
            monkeypatch.setattr(disk_space.os, "statvfs", lambda _: disk_with(0))
        return FAIL if 7 in candidate.trial.elements else PASS

    one = session(tmp_path, rule)
    assert one.preflight() is None
    with pytest.raises(NoRoom):
        one.reduce()
    assert len(one.judge.journal.entries()) == len(checked) - 1 == sum(one.judge.tally.paid.values())


@pytest.mark.parametrize("fault", ["short", "refused"])
def test_a_journal_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """At the seam: a write that takes a part and then nothing, or nothing at all. Nothing half-written stays."""
    journal = Journal(tmp_path / "run" / "journal.jsonl", {"a": "b"}, writer=str(tmp_path / "run"))
    journal.put(Trial.of([1]), 0, PASS, "search", "", 1)
    before = journal.path.read_bytes()
    write = os.write

    def small(descriptor: int, data: bytes) -> int:
        if fault == "short" and len(data) > 60:
            return write(descriptor, data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", small)
        with pytest.raises(NoRoom, match=r"No space left on device.*resume="):
            journal.put(Trial.of([2]), 0, PASS, "search", "", 2)
    assert journal.path.read_bytes() == before
    journal.put(Trial.of([2]), 0, FAIL, "search", "", 2)
    assert Journal(journal.path, {"a": "b"}).get(Trial.of([2])) == FAIL


def test_a_packed_value_that_does_not_fit(tmp_path: Path) -> None:
    """Real: a process that may write 4 KB a file. It says so as a full disk does, and nothing half-written stays."""
    (tmp_path / "pack").write_bytes(bytes(9000))
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from runner.disk_space import FULL\n"
        "from runner.jobs.reduce.nested_graphs import _tried\n"
        "from runner.model.values.recorded import TensorFile\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "folder = Path(sys.argv[1])\n"
        "value = TensorFile('a', folder / 'a.pb', 1, (2250,), packed=(folder / 'pack', 0, 9000))\n"
        "try: _tried('a body', lambda: value.path)\n"
        "except OSError as error: sys.exit(9 if error.errno in FULL else 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, cwd=ROOT)
    assert done.returncode == 9
    assert [one.name for one in tmp_path.iterdir()] == ["pack"]


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.parametrize("lock", ["flock", "lockf"])
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, lock: str) -> None:
    """At the seam. A run's own journal does without; one that is shared says what to do."""

    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    def shared() -> None:
        with Journal(tmp_path / "shared.jsonl", {}, shared=True).claimed(Trial.of([1])):
            pass

    refused: Callable[[], None] = shared
    monkeypatch.setattr(f"runner.journal.journal.fcntl.{lock}", refuse)
    own = Journal(tmp_path / "own.jsonl", {})
    with own.claimed(Trial.of([1])):
        own.put(Trial.of([1]), 0, PASS, "search", "", 1)
    assert Journal(tmp_path / "own.jsonl", {}).get(Trial.of([1])) == PASS
    with pytest.raises(UsageError, match=r"no locks.*journal\.share=false"):
        refused()
