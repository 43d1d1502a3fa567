"""A verdict: what one check found out about one candidate, with the signature of the failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.schema.checker import SameFailure
from strategies.outcome import Outcome

MEASURE = "measure"
"""The key of a verdict's metrics that says how bad a failure is, whatever the unit; larger is worse."""


@dataclass(frozen=True)
class Signature:
    """What a failure looks like, so that one failure can be told from another.

    ``stage``: load, build, infer, compare, or check (a command of the user's).
    ``kind``: ``exit 1``, ``listed exit``, ``regex``, ``death MEMORY`` (SEGV, BUS and ABRT are one), ``death FPE``,
    ``timeout``,
    ``memory``, ``error TYPE``, ``nan``, ``inf``, ``mismatch``, ``shape``.
    ``detail``: normalised text, a hint only (it changes while a model shrinks).
    """

    stage: str
    kind: str
    detail: str = ""

    @property
    def family(self) -> str:
        """The kind, but an Inf and a NaN are one.

        What overflows to Inf at its source is a NaN after the next subtraction.
        """
        return "non-finite" if self.kind in ("nan", "inf") else self.kind

    @property
    def about_values(self) -> bool:
        """Whether the failure may lie in what tensors hold; a crash, an error or a time-out shows whatever they do."""
        if self.stage in ("load", "build"):
            return False
        return not self.kind.startswith(("death", "timeout", "memory", "error"))

    def __str__(self) -> str:
        return f"{self.stage}: {self.kind}" + (f" ({self.detail})" if self.detail else "")


def same_failure(one: Signature, other: Signature, rule: SameFailure = SameFailure.kind) -> bool:
    """Whether two failures are the same one, as far as ``rule`` looks."""
    if rule is SameFailure.any:
        return True
    if one.stage != other.stage:
        return False
    if rule is SameFailure.stage:
        return True
    return one.family == other.family and (rule is SameFailure.kind or one.detail == other.detail)


@dataclass(frozen=True)
class Verdict:
    """The result of one check.

    ``metrics``: numbers that the check measured (JSON-able). ``seconds``: wall time of the check. ``reason``: one
    line for a person. ``log``: where the check's whole output lies, relative to the run folder. ``returncode``: of a
    command, else None.
    """

    outcome: Outcome
    signature: Signature | None = None
    reason: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    log: str | None = None
    returncode: int | None = None
    peak_rss_mb: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; ``from_json`` reads them back."""
        return {
            "outcome": self.outcome.value,
            "signature": [self.signature.stage, self.signature.kind, self.signature.detail] if self.signature else None,
            "reason": self.reason,
            "metrics": dict(self.metrics),
            "seconds": round(self.seconds, 6),
            "log": self.log,
            "returncode": self.returncode,
            "peak_rss_mb": round(self.peak_rss_mb, 1),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Verdict:
        """Read what ``to_json`` wrote. Raises KeyError, TypeError or ValueError on anything else."""
        signature = data["signature"]
        return Verdict(
            outcome=Outcome(data["outcome"]),
            signature=Signature(*signature) if signature else None,
            reason=data["reason"],
            metrics=data["metrics"],
            seconds=data["seconds"],
            log=data["log"],
            returncode=data["returncode"],
            peak_rss_mb=data["peak_rss_mb"],
        )
