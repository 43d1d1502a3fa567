"""Who is right where two sides differ: the one that is nearer to what all of it in float64 gives."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto, TensorProto

from runner.candidate import Sample
from runner.checkers.runtime import RuntimeCheck
from runner.checkers.wrapping_checker import inner
from runner.jobs.reduce.cause.exact_values import Array, Exact, NotKnown, arrays
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import SHARE, CauseStatus, Whose
from runner.model.graph.cut import CutError
from runner.model.graph.wider_types import LOW
from runner.session.cause import Cause
from runner.session.session import Session
from strategies.trial import Trial

TIMES = 10
"""The side whose error is so many times smaller is right."""
CHEAP = 3.0
"""Seconds that a check of the whole model may take where that is evaluated too."""
_FLOAT64 = (LOW | {TensorProto.FLOAT}, TensorProto.DOUBLE)
_SHOWN = (CauseStatus.PROVEN, CauseStatus.JOINT)


@dataclass(frozen=True)
class WhoIsRight:
    """``apart``: what is right comes from a model of its own, of which the one under study was made."""

    exact: Exact
    apart: bool

    @property
    def witnesses(self) -> Exact:
        """What computes exact values: no program that is the target's alone, which may be wrong in float64 as well."""
        own, other = type(self.exact.target.settings), type(self.exact.reference.settings)
        sides = self.exact.sides if own is other else [one for one in self.exact.sides if type(one.settings) is not own]
        return replace(self.exact, sides=tuple(sides))

    def judged(self, session: Session, cause: Cause) -> Cause:
        """Return the cause with whose failure it is, where Winnow runs both sides and their values differ."""
        base, failure = session.judge.subject, session.judge.studied.signature
        compares = failure is not None and (failure.stage == "compare" or failure.kind in ("nan", "inf"))
        if cause.whose is not Whose.UNKNOWN or not compares or session.spent():
            return cause
        if not isinstance(base, Subgraph) or not isinstance(inner(session.judge.checker), RuntimeCheck):
            return cause
        whole = session.judge.counted(base.space.whole)
        asked: list[tuple[str, Trial | None]] = []
        if whole and whole[0].seconds < CHEAP and not self.exact.target.settings.builds_engines:
            asked = [("the whole model", None)]
        if cause.status in _SHOWN:  # of an answer that is not the cause its values say nothing
            asked += [("the answer", cause.answers[cause.main].answer)]
        why = ""
        for of, trial in asked:
            try:
                whose, said = self._of(base, trial)
                return replace(cause, whose=whose, right=f"By values in float64 ({of}) {said}")
            except (NotKnown, CutError) as error:  # noqa: PERF203 - it is asked twice at most
                why = f"Who is right is not known: {of} could not be computed in float64 ({error})"
            finally:
                self.exact.clear()
        for of, trial in asked if self.apart else ():
            with suppress(NotKnown, CutError):
                if self._is_another(*_made(base, trial)):
                    said = (
                        f"The reference's runtime makes the same of {of} as the target, and the original something else"
                    )
                    return replace(cause, whose=Whose.CONVERSION, right=said)
        return replace(cause, right=why)

    def _is_another(self, model: ModelProto, samples: tuple[Sample, ...]) -> bool:
        """Whether the target and the reference's runtime make the same of a model, and its original something else.

        Raises NotKnown.
        """
        try:
            mine, peer = (self.exact.plain(model, samples, side) for side in (self.exact.target, self.exact.reference))
        finally:
            self.exact.clear()
        good = arrays([one.expected for one in samples])
        sides, origin = (max(map(_largest, mine, other)) for other in (peer, good))
        return sides * TIMES <= origin < np.inf and origin > 0

    def _of(self, base: Subgraph, trial: Trial | None) -> tuple[Whose, str]:
        """Return whose failure it is, and both errors in words; of the whole without a trial.

        Raises NotKnown, CutError.
        """
        model, samples = _made(base, trial)
        exact = self.witnesses.values(model, base.types_of_all, samples, _FLOAT64, outputs=True)
        ran = [self.exact.plain(model, samples, side) for side in (self.exact.target, self.exact.reference)]
        good = arrays([one.expected for one in samples]) if self.apart else ran[1]
        found = []
        for right, *held in zip(exact, *ran, good, strict=True):
            for name in right:
                if all(name in one and one[name].shape == right[name].shape for one in held):
                    mine, peer, theirs = (one[name] for one in held)
                    off = [_off(one, right[name], right[name]) for one in (mine, peer, theirs)]
                    found.append((_off(mine, theirs, right[name]), *off, name))
        if not found or max(found)[0] == 0:
            raise NotKnown("no output in which the two sides differ is computed in it")
        apart, own, peer, other, name = max(found)
        whose = Whose.BOTH
        # the same model run by the reference tells the target's error from that of a conversion
        if peer * TIMES <= own and own >= SHARE * apart:
            whose = Whose.TARGET
        elif own * TIMES <= other:
            whose = Whose.CONVERSION if self.apart else Whose.REFERENCE
        said = f"the target is off by {own:.3g} at {name}, and the reference by {other:.3g}, of its largest value"
        return whose, said


def _made(base: Subgraph, trial: Trial | None) -> tuple[ModelProto, tuple[Sample, ...]]:
    """Return a model and its samples; the whole without a trial. Raises CutError."""
    cut = base.cut(trial) if trial else None
    samples = base.samples(cut) if cut else base.whole_samples
    return (cut.model if cut else base.graph.model), samples or (Sample({}),)


def _largest(made: Mapping[str, Array], good: Mapping[str, Array]) -> float:
    """Return the largest difference of the outputs of a sample; infinite where these cannot be compared."""
    both = [(made[name], good[name]) for name in made if name in good]
    if not both or any(a.shape != b.shape or a.dtype.kind not in "biuf" for a, b in both):
        return np.inf
    return max(_off(a, b, b.astype(np.float64)) for a, b in both)


def _off(made: Array, good: Array, exact: Array) -> float:
    """Return the largest difference as a part of the largest exact value; infinite where only one is not finite."""
    scale = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0)) or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(made.astype(np.float64) - good.astype(np.float64))
    same = (made == good) | (np.isnan(made) & np.isnan(good))
    return float(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)).max(initial=0.0)) / scale
