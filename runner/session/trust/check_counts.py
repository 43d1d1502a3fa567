"""What a run has paid for: its checks, by what they were made for, and how long they took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from runner.report.unresolved import Unknown
from runner.verdict import Verdict

CONSTANTS = "constants"
"""The phase of the check that holds what no input reaches against its good values."""
TRUST_PHASES = ("pre-flight", "control", "doubt", "stability", "held out", "re-check", CONSTANTS)
"""Checks that are no part of a search."""
FIRST_LOOK = "first look inside"
"""The phase of a check whose verdict says nothing of the failure, only where it may arise."""
FREEZING = "freeze"
"""The phase of checks of an answer with values in place of nodes that compute constants."""
SHRINKING = "shrink"
"""The phase of checks of an answer with simpler values: many of these are no question, which is nobody's mistake."""
NOT_SEARCHING = (*TRUST_PHASES, "cause", FIRST_LOOK, SHRINKING)
"""Phases in which an unknown verdict keeps no search from its answer."""
REFINE = "refine"
OF_SIMPLER = (SHRINKING, "control")
"""The phases of checks that refine an answer and make it simpler: one on harmless values comes first."""
SEARCHED = ("search", REFINE)
"""The purposes of checks that look for an answer."""
REPEATS = "repeats"
"""What a check counts as, in place of its phase, where one of the same candidate was made before."""
HANDED_OVER = 1000
"""Attempts from this number on are about the files as they are handed over, by the run that did so last."""


@dataclass
class Tally:
    """What was paid for.

    Checks of each purpose, verdicts reused, outcomes, seconds inside checks, peak memory in MiB. ``seen``: the verdicts
    that are counted, one way or the other: (journal, trial, attempt). ``unknown``: the reasons of those that are not
    known. ``parts``: the checks that are no part of a search, by phase or as `REPEATS`; ``spent``: seconds in checks of
    each purpose and part. ``simpler``: checks that made an answer simpler, and looked for none. ``due``: checks of
    trust that are announced and not made, None: nothing was announced.
    """

    paid: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    spent: dict[str, float] = field(default_factory=dict)
    simpler: int = 0
    seen: set[tuple[Path, str, int]] = field(default_factory=set)
    reused: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    peak_rss_mb: float = 0.0
    unknown: Unknown = field(default_factory=Unknown)
    due: int | None = None

    def count(self, verdict: Verdict, phase: str) -> None:
        """Count a verdict by its outcome."""
        self.outcomes[verdict.outcome.value] += 1
        self.unknown.add(verdict, searching=phase not in NOT_SEARCHING)

    def pay(self, verdict: Verdict, purpose: str, phase: str, attempt: int) -> None:
        """Count a check that was made."""
        self.paid[purpose] += 1
        self.count(verdict, phase)
        self.seconds += verdict.seconds
        self.peak_rss_mb = max(self.peak_rss_mb, verdict.peak_rss_mb)
        part = purpose
        if purpose == REFINE and phase in OF_SIMPLER:
            self.simpler += 1
            part = SHRINKING
        if phase in TRUST_PHASES:
            self.due = self.due and self.due - 1
            part = REPEATS if attempt % HANDED_OVER else TRUST_PHASES[0] if phase == CONSTANTS else phase
            self.parts[part] += 1
        self.spent[part] = self.spent.get(part, 0.0) + verdict.seconds

    @property
    def searched(self) -> tuple[int, float]:
        """How many checks looked for an answer, and how many seconds they took."""
        checks = sum(self.paid[one] for one in SEARCHED) - self.simpler
        return checks, sum(self.spent.get(one, 0.0) for one in SEARCHED)
