from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.errors import UsageError
from runner.schema.run import LeaseMode, WorkerSettings
from runner.workers import Guardian, Pool, run_command
from runner.workers.gpus import Gpus
from runner.workers.leases import Leases, NoGpuError, OutOfTime, Stopped
from runner.workers.lockfolder import LockFolder
from tests.workers.test_pool import gone

ONE, TWO = "GPU-one", "GPU-two"
LOCKS = "locks"


def leases(folder: Path, *gpus: str, mode: LeaseMode = LeaseMode.auto, slots: int = 2) -> Leases:
    return Leases(lambda: Gpus(gpus, "there is none here"), slots, folder / LOCKS, mode, folder / "run")


def free(folder: Path, name: str) -> bool:
    """Whether nobody holds the lease, asked as another job would."""
    lease = leases(folder, name).take("gpu")
    if lease:
        lease.close()
    return lease is not None


def soon(what: Callable[[], bool], patience: float = 20.0) -> bool:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


class House:
    """A pool with leases, and the functions that workers call."""

    def __init__(self, folder: Path, checks: Path, made: Leases) -> None:
        self.folder, self.checks = folder, checks
        self.guardian = Guardian()
        self.pool = Pool(folder / "workers", self.guardian, made)

    def ask(self, function: str = "pid", model: str = "", lease: Any = "gpu", **limits: Any) -> Any:
        arguments = {"file": str(self.checks), "function": function, "model": model, "samples": [], "expected": []}
        return self.pool.call("user_check", arguments, lease=lease, **limits)

    def pid(self, **more: Any) -> int:
        return self.ask("environment", **more).value["result"]["pid"]

    def gpu(self, **more: Any) -> str:
        return self.ask("environment", **more).value["result"]["detail"]


ENVIRONMENT = '''
def environment(model, inputs, expected):
    return {"outcome": True, "pid": os.getpid(), "detail": os.environ.get("CUDA_VISIBLE_DEVICES")}

def daemon(model, inputs, expected):
    """Leave a process in a session of its own that has all our descriptors."""
    if os.fork() == 0:
        os.setsid()
        with open(model, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    while not os.path.exists(model):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGSEGV)

def child(model, inputs, expected):
    """Start a program that outlives this process."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, close_fds=False)
    with open(model, "w") as file:
        file.write(str(process.pid))
    os._exit(0)
'''


@pytest.fixture
def house(tmp_path: Path, checks: Path) -> Iterator[Callable[..., House]]:
    checks.write_text(checks.read_text() + ENVIRONMENT)
    made: list[House] = []

    def make(*gpus: str, **more: Any) -> House:
        made.append(House(tmp_path, checks, leases(tmp_path, *gpus, **more)))
        return made[-1]

    yield make
    for one in made:
        one.pool.close()
        one.guardian.close()


Make = Callable[..., House]


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


def test_a_lease_that_nobody_knows_any_more_is_free(tmp_path: Path) -> None:
    leases(tmp_path, ONE).take("gpu")
    assert free(tmp_path, ONE)


def test_cpu_slots(tmp_path: Path) -> None:
    mine = leases(tmp_path, slots=2)
    held = [mine.take("cpu"), mine.take("cpu")]
    assert all(held) and mine.take("cpu") is None
    assert "2 CPU slots" in mine.held_by("cpu")


def test_no_gpu_is_a_clear_error(house: Make) -> None:
    with pytest.raises(NoGpuError, match=r"workers\.gpus: .*there is none here.*nvidia-smi -L"):
        house().ask()
    assert house().pool.gpus == () and house().pool.no_gpu == "there is none here"


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaaaaaa-0000-0000-0000-000000000000")
    folder = str(tmp_path / LOCKS)
    names = Leases.of(WorkerSettings(leases=folder), tmp_path).gpus.names
    assert set(names) <= {"GPU-aaaaaaaa-0000-0000-0000-000000000000"}  # none, where NVML knows better
    with pytest.raises(UsageError, match=r"workers\.gpus=nonsense"):
        _ = Leases.of(WorkerSettings(leases=folder, gpus=["nonsense"]), tmp_path).gpus
    assert Leases.of(WorkerSettings(lease=LeaseMode.none), tmp_path).needed("gpu") is None


# ---- the folder


def test_the_shared_folder_is_open_to_all_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.workers.lockfolder._SHARED", tmp_path / "shared")
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
        monkeypatch.setattr("runner.workers.lockfolder._SHARED", Path(place) / "shared")

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
    with pytest.raises(UsageError, match=r"workers\.leases=.*no plain file.*workers\.lease=none"):
        leases(tmp_path, ONE).take("gpu")
    assert precious.read_text() == "keep me"


@pytest.mark.parametrize("trap", ["symlink", "open to all", "file"])
def test_a_shared_folder_that_was_prepared_by_somebody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setattr("runner.workers.lockfolder._SHARED", shared)
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
    with pytest.raises(UsageError, match=r"workers\.leases="):
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
    assert made.held_by("gpu") == f"{ONE} is held by process 7 of [2Jeve on ? (ab)"
    path.write_text("[1")
    assert "does not say" in made.held_by("gpu")
    assert held


def test_a_holder_that_has_ended_is_not_blamed(tmp_path: Path) -> None:
    """What a process left running holds its GPU; the file names the process still."""
    made = leases(tmp_path, ONE)
    held = made.take("gpu")
    assert held
    code = "import subprocess as s; print(s.Popen(['sleep', '600'], close_fds=False, stdout=s.DEVNULL).pid, flush=True)"
    command = [sys.executable, "-c", f"{code}; input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=held.fds) as process:
        assert process.stdout
        orphan = int(process.stdout.readline())
        held.hand_over(process.pid)
        try:
            assert made.held_by("gpu").startswith(f"{ONE} is held by process {process.pid} of ")
            process.communicate(b"\n")
            assert made.take("gpu") is None
            told = made.held_by("gpu")
            assert told.startswith(
                f"{ONE} is held by a process that does not say who it is, after process {process.pid} "
            )
            assert told.endswith(", which has ended")
        finally:
            os.kill(orphan, signal.SIGKILL)
    path = tmp_path / LOCKS / f"{ONE}.lock"
    said = json.loads(path.read_text())
    for key, value in (("host", "elsewhere"), ("pids", -1)):  # whose processes are not seen from here
        path.write_text(json.dumps({**said, key: value}))
        assert made.held_by("gpu").startswith(f"{ONE} is held by process {process.pid} of ")


# ---- workers


def test_a_worker_sees_its_gpu_and_keeps_it(house: Make, tmp_path: Path) -> None:
    here = house(ONE)
    first = here.ask("environment").value["result"]
    assert first["detail"] == ONE
    assert here.pid() == first["pid"]  # warm
    assert not free(tmp_path, ONE)
    assert here.ask("environment", lease=None).value["result"]["detail"] == os.environ.get("CUDA_VISIBLE_DEVICES")
    os.kill(first["pid"], signal.SIGKILL)
    assert soon(lambda: free(tmp_path, ONE))
    assert here.pid() != first["pid"]
    here.pool.close()
    assert free(tmp_path, ONE)


def test_a_number_is_seen_as_such(house: Make) -> None:
    assert house("index:3").gpu() == "3"


def test_only_the_worker_holds_the_lock(house: Make, tmp_path: Path, checks: Path) -> None:
    """Neither the job nor a program that the worker starts has a copy."""
    here = house(ONE)
    pid = here.pid()
    inode = (tmp_path / LOCKS / f"{ONE}.lock").stat().st_ino

    def holds(of: int) -> bool:
        folder = Path(f"/proc/{of}/fd")
        return any(link.stat().st_ino == inode for link in folder.iterdir() if link.exists())

    assert holds(pid) and not holds(os.getpid())
    reply = here.ask("child", str(tmp_path / "sleeper"))
    assert reply.death == "exit 0"
    sleeper = int((tmp_path / "sleeper").read_text())
    assert psutil.pid_exists(sleeper) and not holds(sleeper)
    os.kill(sleeper, signal.SIGKILL)
    assert soon(lambda: free(tmp_path, ONE))


def test_fresh_and_confirmed_calls_on_one_gpu(house: Make) -> None:
    here = house(ONE)
    pids = [here.pid(fresh=True) for _ in range(3)]
    assert len(set(pids)) == 3 and gone(pids[0]) and gone(pids[1]) and not gone(pids[2], 0.1)
    reply = here.ask("first")
    assert reply.value is not None and reply.death is None  # its death in a warm worker is confirmed in a fresh one


def test_crash_and_timeout_free_the_gpu(house: Make, tmp_path: Path) -> None:
    here = house(ONE)
    assert here.ask("segv").death == "death MEMORY"
    assert soon(lambda: free(tmp_path, ONE))
    assert here.ask("hangs", str(tmp_path / "pids"), timeout=1.5).death == "timeout"
    assert soon(lambda: free(tmp_path, ONE))
    assert here.gpu() == ONE


def test_what_a_dead_worker_left_running_does_not_keep_the_gpu(house: Make, tmp_path: Path) -> None:
    here = house(ONE)
    assert here.ask("daemon", str(tmp_path / "daemon")).death == "death MEMORY"
    assert gone(int((tmp_path / "daemon").read_text()))
    assert here.gpu() == ONE


def test_two_interpreters_share_one_gpu(house: Make, tmp_path: Path) -> None:
    here = house(ONE)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    first = here.pid()
    second = here.pid(python=str(other))
    assert gone(first) and first != second
    assert gone(second, 0.1) is False
    assert here.pid() not in (first, second) and gone(second)


def test_two_gpus_work_at_once(house: Make, tmp_path: Path) -> None:
    here = house(ONE, TWO)
    files = [str(tmp_path / f"pids{number}") for number in range(2)]
    threads = [threading.Thread(target=here.ask, args=("hangs", file), kwargs={"timeout": 60}) for file in files]
    for thread in threads:
        thread.start()
    assert soon(lambda: all(Path(file).exists() for file in files))
    here.pool.close()
    for thread in threads:
        thread.join(20)


def test_waiting_is_in_no_timeout_and_says_who_holds_it(
    house: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("runner.workers.leases._FIRST_WORD", 0.1)
    held = leases(tmp_path, ONE).take("gpu")
    assert held
    timer = threading.Timer(1.5, held.close)
    timer.start()
    with caplog.at_level("INFO"):
        reply = house(ONE).ask("environment", timeout=1.0)
    assert reply.value is not None and reply.seconds < 1.0
    assert f"waiting for a GPU for 0 s: {ONE} is held by process {os.getpid()}" in caplog.text
    timer.join()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_wait_can_be_given_up(house: Make, tmp_path: Path, end: str) -> None:
    held = leases(tmp_path, ONE).take("gpu")
    here = house(ONE)
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            here.ask("environment")
        except Stopped as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert soon(lambda: here.pool._leases is not None and here.pool._leases.wanted("gpu"))
    (here.pool.close if end == "close" else here.guardian.kill)()
    thread.join(20)
    assert len(raised) == 1 and held


def test_a_wait_ends_at_the_deadline(tmp_path: Path, checks: Path) -> None:
    """What is free at once is taken after it, too."""
    checks.write_text(checks.read_text() + ENVIRONMENT)
    held = leases(tmp_path, ONE).take("gpu")
    assert held
    with Pool(tmp_path / "workers", None, leases(tmp_path, ONE), time.monotonic() + 0.5) as pool:
        arguments = {"file": str(checks), "function": "environment", "model": "", "samples": [], "expected": []}
        words = rf"budget\.seconds is over, after \d+ s of waiting for a GPU: {ONE} is held by process {os.getpid()}"
        for _ in range(2):
            with pytest.raises(OutOfTime, match=words):
                pool.call("user_check", arguments, lease="gpu")
        assert not leases(tmp_path, ONE).wanted("gpu")
        held.close()
        reply = pool.call("user_check", arguments, lease="gpu")
        assert reply.value is not None


def test_an_idle_worker_gives_its_gpu_to_another_job(house: Make) -> None:
    """It keeps it while nobody waits, and lets go within seconds when somebody does."""
    one, other = house(ONE), house(ONE)
    first = one.pid()
    time.sleep(2.5)
    assert not gone(first, 0.1)
    assert other.gpu() == ONE
    assert gone(first)


def test_gpus_and_slots_are_not_held_while_waiting_for_each_other(house: Make) -> None:
    """Two jobs of which each needs a GPU and a CPU slot in turn, and there is one of each."""
    houses = [house(ONE, slots=1), house(ONE, slots=1)]
    found: list[str] = []

    def work(here: House, kinds: str) -> None:
        found.extend(here.ask("environment", lease=kind).value["result"]["outcome"] for kind in kinds.split())

    threads = [
        threading.Thread(target=work, args=(here, order), daemon=True)
        for here, order in zip(houses, ("gpu cpu gpu cpu", "cpu gpu cpu gpu"), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 8


def test_no_leases(house: Make, tmp_path: Path) -> None:
    here = house(ONE, mode=LeaseMode.none)
    assert here.gpu() == os.environ.get("CUDA_VISIBLE_DEVICES")
    assert free(tmp_path, ONE)


def test_nothing_leaks(house: Make) -> None:
    here = house(ONE)
    here.pid()
    before = psutil.Process().num_fds()
    for _ in range(5):
        here.pid(fresh=True)
        here.pid()
    assert psutil.Process().num_fds() == before


# ---- commands


def run(here: House, script: str, folder: Path, **more: Any) -> Any:
    with here.pool.user_lease() as lease:
        limits = {"timeout": 60.0, "memory_mb": None, "env": dict(os.environ), "cwd": folder, **more}
        argv = [sys.executable, "-c", script]
        return run_command(argv, log=folder / "log", guardian=here.guardian, lease=lease, **limits)


def test_commands_get_a_gpu_if_that_is_asked_for(house: Make, tmp_path: Path) -> None:
    show = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
    before = str(os.environ.get("CUDA_VISIBLE_DEVICES"))
    for mode, seen in ((LeaseMode.auto, before), (LeaseMode.none, before), (LeaseMode.gpu, ONE)):
        assert run(house(ONE, mode=mode), show, tmp_path).returncode == 0
        assert (tmp_path / "log").read_text().strip() == seen
        assert free(tmp_path, ONE)


def test_a_command_holds_it_with_all_that_it_starts(house: Make, tmp_path: Path) -> None:
    """A program that leaves the command's session keeps the GPU while it uses it, and ends with the command."""
    here = house(ONE, mode=LeaseMode.gpu)
    script = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen(['sh', '-c', 'sleep 600'], start_new_session=True, close_fds=False)\n"
        "open('pid', 'w').write(str(p.pid))\n"
        "time.sleep(1.5)\n"
    )
    ends: list[Any] = []
    thread = threading.Thread(target=lambda: ends.append(run(here, script, tmp_path)))
    thread.start()
    assert soon(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    assert not free(tmp_path, ONE)
    thread.join()
    assert ends[0].returncode == 0
    assert gone(int((tmp_path / "pid").read_text()))
    assert soon(lambda: free(tmp_path, ONE))


def test_a_command_that_cannot_start_frees_it(house: Make, tmp_path: Path) -> None:
    here = house(ONE, mode=LeaseMode.gpu)
    assert run(here, "", tmp_path, cwd=tmp_path / "nowhere").cannot_start
    assert free(tmp_path, ONE)


_INNER = """
import os, sys
from pathlib import Path
from runner.schema.run import LeaseMode
from runner.workers import Pool
from runner.workers.gpus import Gpus
from runner.workers.leases import Leases
folder = Path(sys.argv[1])
made = Leases(lambda: Gpus((sys.argv[2],)), 1, folder / "locks", LeaseMode.auto, folder)
with Pool(folder / "inner", None, made) as pool:
    arguments = {"file": sys.argv[3], "function": sys.argv[4], "model": sys.argv[5], "samples": []}
    reply = pool.call("user_check", arguments, lease="gpu", timeout=60)
    print("death", reply.death, "detail", (reply.value or {}).get("result"), flush=True)
    second = made.take("gpu")
    sys.exit(second is not None)
"""


def test_a_run_inside_a_command_uses_the_commands_gpu(house: Make, tmp_path: Path) -> None:
    here = house(ONE, mode=LeaseMode.gpu)
    with here.pool.user_lease() as lease:
        argv = [sys.executable, "-c", _INNER, str(tmp_path), ONE, str(here.checks), "environment", ""]
        end = run_command(
            argv, log=tmp_path / "log", guardian=here.guardian, lease=lease, timeout=60, memory_mb=None,
            env=dict(os.environ), cwd=tmp_path,
        )  # fmt: skip
    assert end.returncode == 0, (tmp_path / "log").read_text()  # and inside, too, there is one holder at a time
    assert f"'detail': '{ONE}'" in (tmp_path / "log").read_text()
    assert free(tmp_path, ONE)


# ---- jobs that are killed


def test_an_orphan_holds_its_gpu_until_it_dies(tmp_path: Path, checks: Path) -> None:
    """Job and guardian are killed, and the worker is stuck in native code: nobody is left to end it."""
    marker = tmp_path / "pid"
    argv = [sys.executable, "-c", _INNER, str(tmp_path), ONE, str(checks), "holds_the_lock", str(marker)]
    job = subprocess.Popen(argv)
    assert soon(lambda: marker.exists() and marker.read_text() != "")
    orphan = int(marker.read_text())
    for process in psutil.Process(job.pid).children():
        if process.pid != orphan:
            process.kill()
    job.kill()
    job.wait()
    time.sleep(1.5)
    assert psutil.pid_exists(orphan) and not free(tmp_path, ONE)
    assert f"held by process {orphan}" in leases(tmp_path, ONE).held_by("gpu")
    os.kill(orphan, signal.SIGKILL)
    assert soon(lambda: free(tmp_path, ONE))


def test_the_guardian_ends_an_orphan_and_so_frees_the_gpu(tmp_path: Path, checks: Path) -> None:
    marker = tmp_path / "pid"
    argv = [sys.executable, "-c", _INNER, str(tmp_path), ONE, str(checks), "holds_the_lock", str(marker)]
    job = subprocess.Popen(argv)
    assert soon(lambda: marker.exists() and marker.read_text() != "")
    assert not free(tmp_path, ONE)
    job.kill()
    job.wait()
    assert soon(lambda: free(tmp_path, ONE))
    assert gone(int(marker.read_text()))
