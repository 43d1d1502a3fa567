"""What a failure, healing and an answer are: every rule by which numbers and outcomes are judged, in one place.

A check says whether a candidate fails, and may measure how badly. Here stands when that counts as *as bad* as the whole
model's failure, which way a measure points, what can be shown of an answer, and whose fault a failure can be. Nothing
here runs, reads or writes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from strategies.search import Outcome

MEASURE = "measure"
"""The key of a verdict's metrics that says how bad a failure is, whatever the unit."""
SHARE = 0.25
"""Part of a failure's harm from which on another failure counts as bad as this one."""

NON_FINITE = ("nan", "inf")
"""The kinds of a failure whose values are no finite numbers."""


# ---- measures


@dataclass(frozen=True)
class Scale:
    """How a measure is read. ``good``: what a passing model reaches, from which harm is counted.

    None: no model is known to pass, so no harm is known. ``higher_is_better``: an accuracy, say, whose harm is how far
    it drops. ``limit``: the harm up to which a model passes; None: only the check knows it.
    """

    good: float | None = 0.0
    higher_is_better: bool = False
    limit: float | None = None

    def harm(self, measure: float) -> float:
        """Return how bad a measure is: larger is worse, 0 is what a passing model reaches."""
        if self.good is None:
            return 0.0
        return self.good - measure if self.higher_is_better else measure - self.good


ERROR = Scale()
"""An error: 0 is right, larger is worse."""
TOLERANCES = Scale(limit=1.0)
"""The same, counted in tolerances."""


def measured(metrics: Mapping[str, Any]) -> float | None:
    """Return the measure among a verdict's metrics; None where there is none. A journal may hold anything."""
    found = metrics.get(MEASURE)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def least_as_bad(harm: float, among: int = 1) -> float:
    """Return the least harm that is as bad as another. ``among``: how many places the harm may be divided among."""
    return SHARE * harm / among


def milder(now: float, before: float, scale: Scale = ERROR) -> bool:
    """Whether a failure is so much milder than another one that the two may be different failures."""
    return scale.harm(now) < least_as_bad(scale.harm(before))


def gives_expected(off: float, whole: float | None) -> bool:
    """Whether a run gives the expected outputs, so that what is inside it is good.

    ``off``: how far it is from them, in tolerances; ``whole``: how far the failing model is, None: not measured.
    """
    return off <= 1 and (whole is None or off < least_as_bad(ERROR.harm(whole)))


@dataclass(frozen=True)
class Experiment:
    """What one experiment gave. ``measure``: how bad it is, None where the check does not say.

    ``gone``: the model got further than the failure under study lets it, and failed there in another way.
    """

    outcome: Outcome
    measure: float | None = None
    reason: str = ""
    gone: bool = False

    @property
    def heals(self) -> bool:
        """Whether the failure under study does not show any more."""
        return self.outcome is Outcome.PASS or self.gone

    def as_bad_as(self, whole: Experiment, among: int = 1, scale: Scale = ERROR) -> bool:
        """Whether it fails, and as badly as the whole model does, as far as that is measured.

        ``among``: how many places the failure may be divided among.
        """
        if self.outcome is not Outcome.FAIL:
            return False
        if self.measure is None or whole.measure is None:
            return True
        harm = scale.harm(whole.measure)
        return harm <= 0 or scale.harm(self.measure) >= least_as_bad(harm, among)  # there is no part of a logarithm

    def lacks_a_part_of(self, whole: Experiment, scale: Scale = ERROR) -> bool:
        """Whether it still fails, but as much of the whole model's harm is gone as would be as bad by itself."""
        if self.outcome is not Outcome.FAIL or self.measure is None or whole.measure is None:
            return False
        harm = scale.harm(whole.measure)
        return harm > 0 and scale.harm(self.measure) <= (1 - SHARE) * harm

    def level(self, whole: Experiment, scale: Scale = ERROR) -> float:
        """Return how bad it came out; without a measure, whether it fails."""
        if self.measure is not None:
            return scale.harm(self.measure)
        return 0.0 if self.heals else (whole.measure and scale.harm(whole.measure)) or 1.0


# ---- answers


class CauseStatus(str, Enum):
    """What was shown of an answer."""

    PROVEN = "proven"
    """Both experiments hold."""
    JOINT = "joint"
    """Several answers together heal the whole model, and each of them makes it fail by itself."""
    NOT_PROVEN = "not proven"
    """The experiments were made, and do not hold."""
    UNTESTED = "untested"
    """They could not be made, or gave no answer."""


SHOWN = (CauseStatus.PROVEN, CauseStatus.JOINT)


class Whose(str, Enum):
    """Whose fault a failure is."""

    MODEL = "model"
    CONVERSION = "conversion"
    QUANTIZATION = "quantization"
    """A conversion, of which no weight is wrong beyond its steps: what it rounds, or cuts off."""
    TARGET = "target"
    REFERENCE = "reference"
    CHECK = "check"
    BOTH = "both lose digits"
    UNKNOWN = "not known"


CONVERTED = (Whose.CONVERSION, Whose.QUANTIZATION)
"""The file is at fault, compared with its original."""
