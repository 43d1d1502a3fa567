"""Who is told of each check besides the log: the program that started the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from runner.report.live.checked import Checked


@dataclass(frozen=True)
class CheckEvent:
    """One check of a run, as it ended.

    ``strategy``: of the run, or of the step of a triage. ``iteration``: its number in the journal; 0: it was known from
    an earlier run. ``phase`` and ``label``: what it was made for. ``size``: how many nodes (switches, tactics,
    iterations) the candidate has. ``outcome``: pass, fail, different or unresolved; ``reason``: why, where that is
    known. ``seconds``: wall time. ``left``: how many checks of the search are to come, None: nobody knows.
    """

    strategy: str
    iteration: int
    phase: str
    label: str
    size: int
    outcome: str
    reason: str
    seconds: float
    left: int | None

    @classmethod
    def of(cls, strategy: str, told: Checked, size: int) -> CheckEvent:
        """Return what a program is told of a check."""
        verdict = told.verdict
        outcome, seconds = verdict.outcome.value, verdict.seconds
        return cls(strategy, told.iteration, told.phase, told.label, size, outcome, verdict.reason, seconds, told.left)


Listener = Callable[[CheckEvent], None]
"""Is told of each check, in the thread that made it, one at a time."""


# a strategy is called with its settings and its folder alone
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def listener() -> Listener | None:
    """Return the program that is told of the checks of the run that goes on; None: a command line started it."""
    return _LISTENER.get()


@contextmanager
def listening(told: Listener) -> Iterator[None]:
    """Tell ``told`` of the checks that are made inside."""
    before = _LISTENER.set(told)
    try:
        yield
    finally:
        _LISTENER.reset(before)
