"""Workers that hold leases."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from runner.schema.root import LeaseMode
from runner.workers.gpu_leases import OutOfTime, Stopped
from runner.workers.pool import Pool
from tests.workers.house import ENVIRONMENT, LOCKS, ONE, House, Make, free, leases, soon
from tests.workers.test_pool import gone


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


def test_only_the_worker_holds_the_lock(house: Make, tmp_path: Path, checks: Path) -> None:
    """Neither the job nor a program that the worker starts has a copy."""
    here = house(ONE)
    pid = here.pid()
    inode = (tmp_path / LOCKS / f"{ONE}.lock").stat().st_ino

    def holds(of: int) -> bool:
        found = []
        for link in Path(f"/proc/{of}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                found.append(link.stat().st_ino)
        return inode in found

    assert holds(pid) and not holds(os.getpid())
    assert here.ask("child", str(tmp_path / "sleeper")).value
    sleeper = int((tmp_path / "sleeper").read_text())
    assert psutil.pid_exists(sleeper) and not holds(sleeper)
    here.pool.close()
    assert gone(sleeper)
    assert soon(lambda: free(tmp_path, ONE))


def test_fresh_calls_on_one_gpu(house: Make) -> None:
    here = house(ONE)
    pids = [here.pid(fresh=True) for _ in range(3)]
    assert len(set(pids)) == 3 and gone(pids[0]) and gone(pids[1]) and not gone(pids[2], 0.1)


def test_an_error_under_a_gpu_lease_spoils_no_other_call(house: Make, tmp_path: Path) -> None:
    here = house(ONE)
    good, bad = str(tmp_path / "good"), str(tmp_path / "bad")
    assert "result" in here.ask("poisoned", good).value
    assert "raised" in here.ask("poisoned", bad).value
    assert "result" in here.ask("poisoned", good).value
    # the error of a worker that had served before is made sure of; that of a fresh one counts
    assert (tmp_path / "calls").read_text() == "good bad bad good "
    assert "raised" in here.ask("poisoned", bad, fresh=True).value
    assert "result" in here.ask("poisoned", good).value
    assert (tmp_path / "calls").read_text() == "good bad bad good bad good "
    served = here.pid()
    assert here.ask("no such function").failure is not None and here.pid() != served
    # where no GPU is used, an error costs nothing
    assert "raised" in here.ask("raises", lease=None).value
    pid = here.pid(lease=None)
    assert "raised" in here.ask("raises", lease=None).value
    assert here.pid(lease=None) == pid


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


def test_waiting_is_in_no_timeout_and_says_who_holds_it(
    house: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("runner.workers.gpu_leases._FIRST_WORD", 0.1)
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


def test_an_idle_worker_gives_its_gpu_to_another_job(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps it while nobody waits, and lets go when somebody does."""
    monkeypatch.setattr("runner.workers.pool._LENT_SECONDS", 0.1)
    one, other = house(ONE), house(ONE)
    first = one.pid()
    time.sleep(0.3)
    assert not gone(first, 0.1)
    assert other.gpu() == ONE
    assert gone(first)


@pytest.mark.slow
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
    for _ in range(2):
        here.pid(fresh=True)
        here.pid()
    assert psutil.Process().num_fds() == before
