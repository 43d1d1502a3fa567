"""What a run has paid for, and how many of its verdicts are unresolved, for which reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.checkers.failure_text import normalize
from runner.text import one_line
from runner.verdict import MISFIT, OWN_EXCEPTION, SHOW_NOTHING, Phase, Purpose, Verdict
from strategies.search import Outcome

# Why verdicts are not known: the reasons, counted, and what to change where there are many.

SHARE = 1 / 3
"""Where more than this share of a search's verdicts is not known, the end says what to change."""
_LONGEST = 200
_ADVICE: Mapping[str, tuple[str, ...]] = {
    re.escape(MISFIT): (
        "the check uses inputs or outputs that a part of the model does not have. Let it read {inputs} and",
        "{references} (npz files, by name), or keep the model's own with strategy.reduce_inputs=false or",
        "strategy.reduce_outputs=false",
    ),
    re.escape(OWN_EXCEPTION): (
        "the check ends in exceptions of its own (see its output in checks/). Fix it, or let it exit with a code of",
        "its own where it cannot judge (checker.invalid_codes). If the exceptions are the bug that you look for, set",
        "checker.same_failure=any",
    ),
    r"could not import|could not run|cannot be imported": ("the check could not run: see its output in checks/",),
    r"is not finite": (
        "the reference computes NaN or Inf for these inputs. Give other inputs (--inputs x.npz), or another reference",
    ),
    r"partner": ("Name the partners of such tensors: reference.map='{tensor: tensor of the original}'",),
    r"the reference": (
        "the reference cannot run the candidates. Choose another (reference=onnx_reference), or compare with values",
        "recorded once (checker.golden=ahead)",
    ),
    r"invalid_codes|said unresolved|skipped": ("the check itself said so: see its output in checks/",),
}
"""What to change, by a pattern of the reason."""


@dataclass
class Unknown:
    """The verdicts of a run that are UNRESOLVED, and how many of the search's are.

    ``said``: their reasons, by what these are without names and numbers.
    """

    said: dict[str, list[str]] = field(default_factory=dict)
    searched: int = 0
    unknown: int = 0

    def add(self, verdict: Verdict, *, searching: bool) -> None:
        """Count a verdict."""
        is_unknown = verdict.outcome is Outcome.UNRESOLVED
        self.searched += searching
        self.unknown += searching and is_unknown
        if is_unknown:
            reason = one_line(verdict.reason)[:_LONGEST]
            self.said.setdefault(normalize(reason), []).append(reason)

    @property
    def reasons(self) -> dict[str, int]:
        """How often each reason was given, most often first; of reasons that differ in names and numbers the first."""
        return {said[0]: len(said) for said in sorted(self.said.values(), key=len, reverse=True)}

    def advice(self, message: str) -> str:
        """Return what to change, if too much of the search is not known, and a message does not say it; else ""."""
        if self.unknown <= self.searched * SHARE or not self.said:
            return ""
        reason, count = next(iter(self.reasons.items()))
        often = "most often" if count > 1 else "one of them"
        told = f"{self.unknown} of {self.searched} checks of the search gave no answer, {often}"
        change = change_for(reason)
        return f"{told} for that reason" if change in message else f"{told}: {reason}. {change}"


def change_for(reason: str) -> str:
    """What to change where this is why a verdict is not known."""
    found = (" ".join(parts) for pattern, parts in _ADVICE.items() if re.search(pattern, reason))
    return next(found, 'all reasons: "What is not known" in REPORT.md')


def kept_for_the_check(unfit: Sequence[str], size: int) -> str:
    """Say that nodes of an answer are in it only because the check could not do without them."""
    return (
        f"{len(unfit)} of the {size} nodes are in the answer only because the check gave no answer without them: "
        f"{unfit[0]}. {change_for(unfit[0])}"
    )


# What a run has paid for: its checks, by what they were made for, and how long they took.

HANDED_OVER = 1000
"""Attempts from this number on are about the files as they are handed over, by the run that did so last."""


@dataclass
class Tally:
    """What was paid for.

    Checks of each purpose, verdicts reused, outcomes (``controls``: of these the controls'), seconds inside checks,
    peak memory in MiB. ``seen``: the verdicts that are counted, one way or the other: (journal, trial, attempt).
    ``unknown``: the reasons of those that are not known. ``parts``: the checks of trust, as `Phase.counted` says; a
    second one of the same candidate is one of the repeats. ``spent``: seconds in checks of each purpose and part.
    ``simpler``: checks that made an answer simpler, and looked for none. ``due``: checks of trust that are
    announced and not made, None: nothing was announced. ``evidence``: of the first verdict, which is on the model, the
    outputs that show nothing.
    """

    paid: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    spent: dict[str, float] = field(default_factory=dict)
    simpler: int = 0
    seen: set[tuple[Path, str, int]] = field(default_factory=set)
    reused: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    controls: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    peak_rss_mb: float = 0.0
    unknown: Unknown = field(default_factory=Unknown)
    due: int | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def count(self, verdict: Verdict, phase: str) -> None:
        """Count a verdict by its outcome."""
        if not self.outcomes:
            self.evidence = {key: verdict.metrics[key] for key in SHOW_NOTHING if key in verdict.metrics}
        self.outcomes[verdict.outcome.value] += 1
        if phase == Phase.CONTROL:
            self.controls[verdict.outcome.value] += 1
        self.unknown.add(verdict, searching=Phase.of(phase).searching)

    def pay(self, verdict: Verdict, purpose: Purpose, phase: str, attempt: int) -> None:
        """Count a check that was made."""
        self.paid[purpose] += 1
        self.count(verdict, phase)
        self.seconds += verdict.seconds
        self.peak_rss_mb = max(self.peak_rss_mb, verdict.peak_rss_mb)
        part, known = str(purpose), Phase.of(phase)
        if purpose is Purpose.REFINE and known in (
            Phase.SHRINK,
            Phase.CONTROL,
        ):  # a control on harmless values is first
            self.simpler += 1
            part = Phase.SHRINK
        if known.counted:
            self.due = self.due and self.due - 1
            part = Phase.REPEAT.counted if attempt % HANDED_OVER else known.counted
            self.parts[part] += 1
        self.spent[part] = self.spent.get(part, 0.0) + verdict.seconds

    @property
    def searched(self) -> tuple[int, float]:
        """How many checks looked for an answer, and how many seconds they took."""
        looked = Purpose.SEARCH, Purpose.REFINE
        checks = sum(self.paid[one] for one in looked) - self.simpler
        return checks, sum(self.spent.get(one, 0.0) for one in looked)
