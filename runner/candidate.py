"""A candidate: the files of one trial, ready to be judged."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.model.values.recorded import TensorFile


@dataclass(frozen=True)
class Sample:
    """One input sample of a candidate.

    ``feeds``: a value for each graph input of the candidate. ``expected``: the recorded reference value of each of its
    outputs, as far as there is one (golden values made ahead of time). ``reference``: what a parent of the
    model, which the reference runs in its place, is fed: its inputs may have other names and types.
    """

    feeds: Mapping[str, TensorFile]
    expected: Mapping[str, TensorFile] = field(default_factory=dict)
    reference: Mapping[str, TensorFile] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """What is otherwise where a candidate runs.

    ``settings``: of the target. ``switches``: words for the user's command, None where nothing is switched. ``python``:
    the interpreter, None: the configured one.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    switches: tuple[str, ...] | None = None
    python: str | None = None


@dataclass(frozen=True)
class Candidate:
    """What a checker gets.

    ``model`` is None for a subject that has none (repeat without a model). ``folder`` is the trial's own folder, made
    anew: logs and whatever a check asks for (npz, test_data_set) go there. ``draws``: it draws random numbers, of which
    a runtime may give the same in one process again and again. ``fresh``: what judges it shares nothing with what
    judged others. ``ours``: its model may be kept as an artifact. ``temporary``: its model was written for this check
    alone, and is removed after it. ``inside``: inner tensors at which it is taken apart, where the backend can: each
    part gets what the samples expect. ``marked``: inner tensors that it hands out (its model has them as outputs, or
    its parts make them), each of which is measured. ``control``: its model has nothing of the one under study, so the
    reference has no other in its place. ``left_out``: how many samples do not judge it, since
    their values would themselves explain a failure. The judge says the rest: ``iteration``: one running number over a
    whole run; ``phase`` and ``label``: what it is checked for. ``variant``: of what runs it. The checker adds
    ``values``: files and folders with values in the form that it asks for. ``left``: what its check left in ``folder``.
    """

    model: Path | None
    folder: Path
    trial: Trial
    samples: tuple[Sample, ...] = ()
    engine: Path | None = None
    nodes: tuple[str, ...] = ()
    draws: bool = False
    fresh: bool = False
    ours: bool = True
    temporary: bool = False
    variant: Variant = field(default_factory=Variant)
    inside: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    control: bool = False
    left_out: int = 0
    iteration: int = 0
    phase: str = ""
    label: str = ""
    values: list[Path] = field(default_factory=list, compare=False)
    left: list[Path] = field(default_factory=list, compare=False)

    @property
    def size(self) -> int:
        """How many nodes it has, where they are named: its elements may be parts of these. Else how many elements."""
        return len(self.nodes) or len(self.trial)

    @property
    def fewer(self) -> str:
        """What there is to say of the samples that are left out."""
        return fewer(self.left_out, len(self.samples))

    def discard(self) -> None:
        """Remove the model's file, if it was made for this check alone."""
        if self.temporary and self.model:
            self.model.unlink(missing_ok=True)

    def discard_values(self) -> None:
        """Remove what ``values`` and ``left`` name."""
        for path in (*self.values, *self.left):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def fewer(left_out: int, judging: int) -> str:
    """Say that some samples do not judge a candidate."""
    return f"{left_out} of {left_out + judging} samples left out, whose values hold NaN or Inf"


@dataclass(frozen=True)
class Invalid:
    """A trial of which no candidate can be made; it is UNRESOLVED and costs no check."""

    reason: str
