"""Checks at once, in threads: what is waited for at the end, and what is not."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial

import pytest

from runner.engine import check_trials
from runner.engine.check_trials import CheckLimits, ParallelChecks
from strategies.search import Ask, Claim, Done, Trial


def test_what_no_thread_had_begun_is_not_waited_for() -> None:
    begun = threading.Event()

    def check(given_up: threading.Event) -> None:
        begun.set()
        given_up.wait()

    def interrupted() -> None:
        several: ParallelChecks[Ask, None] = ParallelChecks(2, lambda: None)
        with suppress(KeyboardInterrupt), several as checks:
            for number in range(6):  # as where a thread is asked for and has not begun yet
                checks.start(Ask(Trial.of([number]), lambda _: Done(None, Claim.COUNTED), ""), check)
            begun.wait()
            raise KeyboardInterrupt

    ended = threading.Thread(target=interrupted, daemon=True)
    ended.start()
    ended.join(60)
    assert not ended.is_alive()


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_asked_for_together_is_made_at_once_and_answered_in_order(workers: int) -> None:
    running, most, lock = [0], [0], threading.Lock()

    def call(number: int, _: threading.Event) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        return number

    calls = [lambda event, number=number: call(number, event) for number in range(5)]
    assert CheckLimits(workers).together(calls) == [0, 1, 2, 3, 4]
    assert most[0] == workers


def test_an_error_gives_the_others_up() -> None:
    killed, waiting = threading.Event(), threading.Event()

    def waits(given_up: threading.Event) -> bool:
        waiting.set()
        killed.wait(60)
        return given_up.is_set()

    def fails(_: threading.Event) -> bool:
        waiting.wait(60)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        CheckLimits(2, kill_checks=killed.set).together([waits, fails])
    assert killed.is_set()


def test_what_began_together_is_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a search speculates on one answer while the other, which decides that, is a moment away."""
    monkeypatch.setattr(check_trials, "PATIENCE", 1.0)
    first = threading.Event()

    def check(number: int, given_up: threading.Event) -> int:
        if number == 0:
            time.sleep(0.2)
            first.set()
        (first if number == 1 else given_up).wait(60 * (number > 0))
        return number

    several: ParallelChecks[int, int] = ParallelChecks(3, lambda: None)
    with several as checks:
        for number in range(3):
            checks.start(number, partial(check, number))
        assert sorted(number for number, _ in checks.finished()) == [0, 1]
