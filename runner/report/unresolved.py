"""Why verdicts are not known: the reasons, counted, and what to change where there are many."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runner.checkers.failure_text import normalize
from runner.text import one_line
from runner.verdict import MISFIT, OWN_EXCEPTION, Verdict
from strategies.outcome import Outcome

SHARE = 1 / 3
"""Where more than this share of a search's verdicts is not known, the end says what to change."""
_LONGEST = 200
_ADVICE: Mapping[str, tuple[str, ...]] = {
    re.escape(MISFIT): (
        "the check feeds, asks for or compares with what a cut model does not have. Let it read {inputs} and",
        "{references} (npz files, by name), or keep the model's own with strategy.reduce_inputs=false or",
        "strategy.reduce_outputs=false",
    ),
    re.escape(OWN_EXCEPTION): (
        "the check ends in exceptions of its own (their output lies in checks/). Mend it, or let it exit with another",
        "code where it cannot judge (checker.invalid_codes). If that is the same bug (another assertion of yours, an",
        "exception that you catch), checker.same_failure=any follows it, too",
    ),
    r"could not import|could not run|cannot be imported": ("the check could not run: see its output in checks/",),
    r"is not finite": (
        "values recorded from the reference are NaN or Inf. Give inputs on which it computes numbers (inputs=files),",
        "or another reference",
    ),
    r"partner": ("say what such tensors are in the original: reference.map='{mine: theirs}'",),
    r"the reference": (
        "the reference cannot run the candidates. Choose another (reference=onnx_reference), or compare with values",
        "recorded once (checker.golden=ahead)",
    ),
    r"invalid_codes|said unresolved|skipped": ("the check itself said so; its output lies in checks/",),
}
"""What to change, by a pattern of the reason."""


@dataclass
class Unknown:
    """The verdicts of a run that are UNRESOLVED, by reason, and how many of the search's are."""

    counts: Counter[str] = field(default_factory=Counter)
    said: dict[str, str] = field(default_factory=dict)
    searched: int = 0
    unknown: int = 0

    def add(self, verdict: Verdict, *, searching: bool) -> None:
        """Count a verdict."""
        is_unknown = verdict.outcome is Outcome.UNRESOLVED
        self.searched += searching
        self.unknown += searching and is_unknown
        if is_unknown:
            reason = one_line(verdict.reason)[:_LONGEST]
            kind = normalize(reason)
            self.said.setdefault(kind, reason)
            self.counts[kind] += 1

    @property
    def reasons(self) -> dict[str, int]:
        """How often each reason was given, most often first; of reasons that differ in names and numbers the first."""
        return {self.said[kind]: count for kind, count in self.counts.most_common()}

    @property
    def advice(self) -> str:
        """What to change, if too much of the search is not known; else nothing."""
        if self.unknown <= self.searched * SHARE or not self.counts:
            return ""
        reason = next(iter(self.reasons))
        told = f"{self.unknown} of the search's {self.searched} verdicts are not known, most often: {reason}"
        return f"{told}. {change_for(reason)}"


def change_for(reason: str) -> str:
    """What to change where this is why a verdict is not known."""
    found = (" ".join(parts) for pattern, parts in _ADVICE.items() if re.search(pattern, reason))
    return next(found, "REPORT.md lists the reasons")


def kept_for_the_check(unfit: Sequence[str], size: int) -> str:
    """Say that nodes of an answer are in it only because the check could not do without them."""
    return (
        f"{len(unfit)} of the {size} nodes left could not be left out only because the check could not judge a model "
        f"without them: {unfit[0]}. {change_for(unfit[0])}"
    )
