"""Checks at once, in threads: what is waited for at the end, and what is not."""

from __future__ import annotations

import threading
from contextlib import suppress

from runner.session.parallel import ParallelChecks
from strategies.search import Ask, Claim, Done
from strategies.trial import Trial


def test_what_no_thread_had_begun_is_not_waited_for() -> None:
    begun = threading.Event()

    def check(ask: Ask, given_up: threading.Event) -> None:
        begun.set()
        given_up.wait()

    def interrupted() -> None:
        with suppress(KeyboardInterrupt), ParallelChecks(2, check, lambda: None) as checks:
            for number in range(6):  # as where a thread is asked for and has not begun yet
                checks.start(Ask(Trial.of([number]), lambda _: Done(None, Claim.COUNTED), ""))
            begun.wait()
            raise KeyboardInterrupt

    ended = threading.Thread(target=interrupted, daemon=True)
    ended.start()
    ended.join(60)
    assert not ended.is_alive()
