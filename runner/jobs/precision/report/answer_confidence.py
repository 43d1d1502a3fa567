"""How far an answer of a precision search is to be trusted: the samples that it passes on, and by which margin."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from runner.jobs.precision.held_out_samples import GIVEN, Division
from runner.jobs.precision.subject import Precision
from strategies.trial import Trial

log = logging.getLogger(__name__)


@dataclass
class Confidence:
    """What is known of an answer besides that it passes, by the end of a run.

    ``samples``: of the last round. ``passed``: whether it passes on those that were held out. ``error``: of nothing
    raised and of the answer on samples searched and held out, in units of the tolerance, where the check tells.
    ``alone``: units that fail when they alone are low and are not needed by the answer; ``kept``: whether they are
    raised all the same. ``warnings``: for a person.
    """

    samples: Division
    passed: bool | None = None
    rounds: int = 0
    error: dict[str, dict[str, float | None]] = field(default_factory=dict)
    alone: tuple[int, ...] = ()
    kept: bool = False
    warnings: list[str] = field(default_factory=list)

    def to_json(self, subject: Precision) -> dict[str, Any]:
        """Return what result.json says."""
        searched, held = (len(one) if self.rounds else 0 for one in (self.samples.searched, self.samples.held))
        samples = {"searched": searched, "held_out": held, "passed_held_out": self.passed}
        kind, reason = self.samples.kind if held else None, self.samples.reason
        return {
            "samples": {**samples, "held_out_are": kind, "why_not_held_out": reason, "rounds": self.rounds},
            "error": self.error,
            "fails_alone": {"nodes": list(subject.names(Trial.of(self.alone))), "raised": self.kept},
        }

    @property
    def said(self) -> str:
        """What a message says of it, empty if there is nothing to say."""
        parts, kind, held = [], self.samples.kind, len(self.samples.held)
        for name, error in self.error.items():
            if error["after"] is not None:
                before = "not finite" if error["before"] is None else f"{error['before']:.3g}"
                on = f"{held} held out" if name == "held_out" else f"{len(self.samples.searched)} searched"
                aside = f"{kind}; " if name == "held_out" and kind != GIVEN else ""
                parts.append(f"{error['after']:.2g} of the tolerance on {on} ({aside}all low: {before})")
        if self.passed and not parts:
            parts.append(f"it passes on {held} held out ({kind}) as well")
        if self.passed is None and self.samples.reason:
            parts.append(f"not held out: {self.samples.reason}")
        return "; ".join(parts)

    def warn(self, text: str) -> None:
        """Note what a person should know, and log it."""
        self.warnings.append(text)
        log.warning("%s", text)
