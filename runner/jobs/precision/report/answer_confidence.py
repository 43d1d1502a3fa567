"""How far an answer of a precision search is to be trusted: the samples that it passes on, and by which margin."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from runner.jobs.precision.held_out_samples import GIVEN
from runner.jobs.precision.subject import Precision
from strategies.trial import Trial

log = logging.getLogger(__name__)

_COUNTS = {"searched": "searched", "held_out": "held"}


@dataclass
class Worth:
    """What is known of an answer besides that it passes, by the end of a run.

    ``searched`` and ``held``: how many samples. ``error``: of nothing raised and of the answer on either, in units of
    the tolerance, where the check tells. ``kind``, ``reason``: of those held out, see `Division`. ``alone``: nodes that
    fail when they alone are low and are not needed by the answer; ``kept``: whether they are raised all the same.
    ``warnings``: for a person.
    """

    searched: int = 0
    held: int = 0
    kind: str = ""
    reason: str = ""
    passed: bool | None = None
    rounds: int = 0
    error: dict[str, dict[str, float | None]] = field(default_factory=dict)
    alone: tuple[int, ...] = ()
    kept: bool = False
    warnings: list[str] = field(default_factory=list)

    def to_json(self, subject: Precision) -> dict[str, Any]:
        """Return what result.json says."""
        samples = {"searched": self.searched, "held_out": self.held, "passed_held_out": self.passed}
        kind = self.kind if self.held else None
        return {
            "samples": {**samples, "held_out_are": kind, "why_not_held_out": self.reason, "rounds": self.rounds},
            "error": self.error,
            "fails_alone": {"nodes": list(subject.names(Trial.of(self.alone))), "raised": self.kept},
        }

    @property
    def said(self) -> str:
        """What a message says of it, empty if there is nothing to say."""
        parts = []
        for samples, error in self.error.items():
            if error["after"] is not None:
                before = "not finite" if error["before"] is None else f"{error['before']:.3g}"
                on = f"{getattr(self, _COUNTS[samples])} {samples.replace('_', ' ')}"
                aside = f"{self.kind}; " if samples == "held_out" and self.kind != GIVEN else ""
                parts.append(f"{error['after']:.2g} of the tolerance on {on} ({aside}all low: {before})")
        if self.passed and not parts:
            parts.append(f"it passes on {self.held} held out ({self.kind}) as well")
        if self.passed is None and self.reason:
            parts.append(f"not held out: {self.reason}")
        return "; ".join(parts)

    def warn(self, text: str) -> None:
        """Note what a person should know, and log it."""
        self.warnings.append(text)
        log.warning("%s", text)
