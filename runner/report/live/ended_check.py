"""A check that has ended, as far as it says what is still to come."""

from __future__ import annotations

from dataclasses import dataclass

from runner.report.live.checked import ExpectedRepeats


@dataclass(frozen=True)
class EndedCheck:
    """A check that has ended.

    ``at``: when, in seconds, ``seconds``: how long it took; ``kept``: elements; ``left``, ``following`` and
    ``repeats``: see `Checked`.
    """

    phase: str
    kept: int
    at: float
    seconds: float = 0.0
    outcome: str = ""
    left: int | None = None
    following: str = ""
    known: bool = False
    repeats: ExpectedRepeats | None = None
