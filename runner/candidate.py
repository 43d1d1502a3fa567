"""A candidate: the files of one trial, ready to be judged, and what it is checked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.model.values.recorded import TensorFile


class Purpose(str, Enum):
    """What a check is paid for. A budget of checks limits all but those of trust."""

    SEARCH = "search"
    REFINE = "refine"
    CAUSE = "cause"
    TRUST = "trust"
    DOUBT = "doubt"  # only a flaky check needs it: it counts as trust, and the budget pays for it

    __str__ = str.__str__


class Phase(str, Enum):
    """What a check is made for: the one list of these, which tells how each is counted and called.

    ``purpose``: what it is paid for, unless somebody says otherwise. ``counted``: among which checks of trust, by the
    name in `Checks`; "": it is none. ``words``: for people. A search names phases of its own: these are `SEARCH`.
    """

    PREFLIGHT = "pre-flight", Purpose.TRUST, "preflight", "pre-flight: checking the whole"
    CONTROL = "control", Purpose.TRUST, "control", "control: can the check tell good from bad?"
    CONSTANTS = "constants", Purpose.TRUST, "preflight", "pre-flight: checking nodes that no input reaches"
    REPEAT = "doubt", Purpose.TRUST, "repeats", "repeating checks on which the answer depends"
    ALONE = "stability", Purpose.TRUST, "samples", "testing nodes that were left out"
    HELD_OUT = "held out", Purpose.TRUST, "samples", "checking with inputs that the search has not seen"
    RECHECK = "re-check", Purpose.TRUST, "recheck", "checking the result once more"
    FIRST_LOOK = "first look inside", Purpose.SEARCH, "", "looking inside the whole model"
    SEARCH = "search", Purpose.SEARCH, "", "trying one after the other"
    FREEZE = "freeze", Purpose.REFINE, "", "searching: freeze"
    SHRINK = "shrink", Purpose.REFINE, "", "making the answer simpler"
    CAUSE = "cause", Purpose.CAUSE, "", "cause: does the failure arise inside the answer?"

    def __new__(cls, value: str, purpose: Purpose, counted: str, words: str) -> Phase:
        """Return the phase: a text, as journals hold it."""
        made = str.__new__(cls, value)
        made._value_, made.purpose, made.counted, made.words = value, purpose, counted, words
        return made

    purpose: Purpose
    counted: str
    words: str
    __str__ = str.__str__

    @property
    def searching(self) -> bool:
        """Whether a check looks for an answer, from which an unknown verdict keeps the search."""
        return self in (Phase.SEARCH, Phase.FREEZE)

    @property
    def begins(self) -> bool:
        """Whether a check says what the whole does, or whether the check can judge."""
        return self.counted in ("preflight", "control")

    @classmethod
    def of(cls, text: str) -> Phase:
        """Return the phase of this text."""
        return cls._value2member_map_.get(text, cls.SEARCH)  # type: ignore[return-value]


_OF_SEARCHES = {
    "search": Phase.SEARCH.words,
    "one at a time": "proving it 1-minimal, one element at a time",
    "several at once": "proving it minimal, several elements at once",
    "repeat": "repeating",
}


def in_words(phase: str) -> str:
    """Return what a person is told of a phase, or of one that a search names."""
    known = Phase.of(phase)
    return known.words if known is not Phase.SEARCH else _OF_SEARCHES.get(phase) or f"searching: {phase}"


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

    @staticmethod
    def of(values: Mapping[str, TensorFile], inputs: Iterable[str], outputs: Iterable[str] = ()) -> Sample:
        """Return what of recorded values a model is fed, and what its outputs should be, as far as that is known."""
        feeds, expected = ({name: values[name] for name in names if name in values} for names in (inputs, outputs))
        return Sample(feeds, expected)


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
