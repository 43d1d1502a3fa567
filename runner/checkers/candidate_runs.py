"""One candidate while it is being judged: what has been run on it so far, at most once a side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from runner.candidate import Candidate, Sample
from runner.checkers.backend_run import BackendRun, Side
from runner.checkers.compare.auto_tolerance import nudged
from runner.inputs.fit_to_declared import FLOATS, tensor
from runner.model.values import recorded
from runner.model.values.dtype_ranges import beyond, clipped
from runner.model.values.recorded import TensorFile


@dataclass
class Case:
    """A candidate and its runs.

    ``work``: an empty folder for values, which goes away after the check. ``may_run_reference``: false where the
    reference cannot help (it could not run the whole model, or has a model of its own that is no candidate).
    ``reference_model``: what it runs instead of the candidate's, where models are taken whole. ``seeded``: both draw
    the same random numbers.
    """

    candidate: Candidate
    model: Path
    target_side: Side
    reference_side: Side
    work: Path
    may_run_reference: bool = True
    reference_model: Path | None = None
    seeded: bool = True
    runs: list[BackendRun] = field(default_factory=list)

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The candidate's samples; a model without inputs is run once."""
        return self.candidate.samples or (Sample({}),)

    @cached_property
    def target(self) -> BackendRun:
        """The run of the target."""
        return self._run(self.target_side, "target", self._feeds)

    @cached_property
    def reference(self) -> BackendRun:
        """The run of the reference on the same feeds; what a parent of the model makes gets the model's own types."""
        return self._typed(self._run(self.reference_side, "reference", self._reference_feeds), "good")

    @cached_property
    def noisy(self) -> BackendRun:
        """The run of the reference on feeds that are one unit in the last place off."""
        folder = self.work / "nudged"
        moved = []
        for number, feeds in enumerate(self._reference_feeds):
            (folder / str(number)).mkdir(parents=True)
            moved.append(nudged(feeds, folder / str(number)))
        return self._typed(self._run(self.reference_side, "noisy", moved), "noisy_good")

    @property
    def has_reference(self) -> bool:
        """Whether the reference has been run."""
        return "reference" in self.__dict__

    def alone(self) -> Iterator[Case]:
        """Yield each of several samples as a case of its own, where a run of all of them has failed."""
        if len(self.samples) > 1 and any(ran.signature or ran.invalid for ran in self.runs):
            for number, sample in enumerate(self.samples):
                one = replace(self.candidate, samples=(sample,))
                yield replace(self, candidate=one, work=self.work / f"alone{number}")

    @property
    def peak_rss_mb(self) -> float:
        """Of all runs so far."""
        return max((ran.peak_rss_mb for ran in self.runs), default=0.0)

    @property
    def _feeds(self) -> list[Mapping[str, TensorFile]]:
        return [sample.feeds for sample in self.samples]

    @property
    def _reference_feeds(self) -> list[Mapping[str, TensorFile]]:
        own = self.reference_model is not None
        return [sample.reference if own and sample.reference else sample.feeds for sample in self.samples]

    def _typed(self, ran: BackendRun, name: str) -> BackendRun:
        if not ran.outputs or not self.target.outputs or not any(one.reference for one in self.samples):
            return ran
        pairs = enumerate(zip(ran.outputs, self.target.outputs, strict=True))
        return replace(ran, outputs=tuple(_typed(one, own, self.work / f"{name}{at}") for at, (one, own) in pairs))

    @property
    def _inside(self) -> list[Mapping[str, TensorFile]]:
        names = self.candidate.inside
        return [{name: sample.expected[name] for name in names} for sample in self.samples] if names else []

    def _run(self, side: Side, name: str, feeds: Sequence[Mapping[str, TensorFile]]) -> BackendRun:
        own = self.reference_model if side is self.reference_side else None
        # what a build of the target leaves may be kept
        out = self.candidate.folder if side.builds and side is self.target_side else self.work / name
        one = self.candidate if side is self.target_side else None
        ran = side.run(
            own or self.model,
            feeds,
            out,
            engine=one.engine if one else None,
            fresh=self.candidate.draws,
            seeded=self.seeded,
            variant=one.variant if one else None,
            inside=self._inside if one and not side.builds else (),
        )
        self.runs.append(ran)
        return ran


def _typed(theirs: Mapping[str, TensorFile], own: Mapping[str, TensorFile], folder: Path) -> Mapping[str, TensorFile]:
    """Return the parent's values, those of another float type than the model's own in that.

    A number beyond the range of that becomes its end, which is no infinity: the model overflows there.
    """
    folder.mkdir()
    found = dict(theirs)
    for at, (name, value) in enumerate(theirs.items()):
        mine = own.get(name)
        if mine and mine.dtype != value.dtype and {mine.dtype, value.dtype} <= FLOATS:
            array = recorded.read(value)
            array = np.where(beyond(array, mine.dtype), clipped(array, mine.dtype), array)
            found[name] = recorded.write(tensor(array, name, mine.dtype), name, folder / f"{at}.pb")
    return found
