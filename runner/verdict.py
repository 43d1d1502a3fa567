"""A candidate, and the verdict: what one check found out about it, with the signature of the failure."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.judgment import NON_FINITE
from runner.schema.checker import SameFailure
from runner.text import one_line, own_words
from strategies.search import Outcome, Trial

if TYPE_CHECKING:
    from runner.model.values.recorded import TensorFile

# A candidate: the files of one trial, ready to be judged, and what it is checked for.


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
    CAUSE = "cause", Purpose.CAUSE, "", "cause: does the whole model pass with right values there?"

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
    "one at a time": "trying to leave out one node after the other",
    "several at once": "trying to leave out several nodes at once",
    "repeat": "repeating",
    "latest start": "looking for the node where the failure begins",
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
    their values would themselves explain a failure. ``unseen``: so many samples, the last ones, do not judge it either;
    a checker that ``divides`` them has a verdict on these in the metrics (`UNSEEN`). The judge says the rest:
    ``iteration``: one running number over a whole run; ``phase`` and ``label``: what it is checked for. ``variant``: of
    what runs it. The checker adds ``values``: files and folders with values in the form that it asks for. ``left``:
    what its check left in ``folder``.
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
    unseen: int = 0
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


CHECK_OUTPUT = "check_output"
"""The attribute of a log record that shows what a check printed: that text."""
CAUGHT = "caught"
"""The key of a passing verdict's metrics for the exceptions that the check showed all the same."""
SAID = "said"
"""The key of a verdict's metrics for all that the target said of its failure."""
UNSEEN = "unseen"
"""The key of a verdict's metrics for that on samples that are no part of what is judged."""
INSIDE = "inside"
"""The key of a verdict's metrics for the tensors inside a model that were judged, and how bad each is."""
TABLE = "table"
"""The key of a verdict's metrics for a row of numbers on each tensor that was compared."""
ALONE = "alone"
"""The key of a verdict's metrics for the output that is wrong while all others are right."""
FLIPPED = "flipped"
"""The key of a verdict's metrics for the first integers that differ: places, the target's, and what is right."""
NOT_FINITE = "not_finite"
"""The key of a verdict's metrics for how many elements of the output that failed are NaN and Inf, of how many."""
FUSED = "fused"
"""The key of a verdict's metrics for the layers of an engine, each with its nodes."""
CONSTANT = "constant"
"""The key of a verdict's metrics for the outputs that show nothing, though they have elements."""
FILED = "filed"
"""The same for those that files hold as constant, unlike the model, so that they do show something."""
EMPTY = "empty"
"""The same for those that have none."""
NONE_FINITE = "none_finite"
"""The same for those that have no others than NaN and Inf, in what is right too."""
NEITHER = "neither"
"""How many of the right values of other outputs are NaN or Inf, which are no mask, and of how many."""
SHOW_NOTHING = (EMPTY, NONE_FINITE, CONSTANT, FILED, NEITHER)
"""All of these."""
OURS = frozenset({CAUGHT, INSIDE, TABLE, FLIPPED, NOT_FINITE, FUSED, *SHOW_NOTHING})
"""The keys that a function of the user's cannot fill: what they hold is relied on."""
LONGEST = 160
"""Characters of a signature's detail."""
_TOKEN = re.compile(r"[\w./:-]*[\w/]")
_LISTED = re.compile(r"_(?:(?:,\s*|\s+)_)+")
MODEL, CHECK, FEEDS = "model", "check", "feeds"
"""What an exception can be about."""
MISFIT = "the check does not fit the candidate"
OWN_EXCEPTION = "the check ended in an exception of its own"
"""Why a check has not judged."""
REFUSED = "a runtime refuses it, which tells nothing of its precision"
REDUCE = "strategy=reduce finds the part that fails"
"""Why a model that fails is no question of precision, and what is one."""
UNFIT = (MISFIT, OWN_EXCEPTION)
FOR_A_BAD_ONE = "for a bad one?"
"""How it ends where a check passes a model of which something is known to be wrong."""
NO_IMPORT, NOT_RUN = "the check could not import what it needs", "the command could not run"
"""Why a check has said nothing: what it needs was not there."""


@dataclass(frozen=True)
class Raised:
    """The exceptions that ended a check.

    ``where``: each as ``TYPE at FILE:LINE``, with the line of the user's own code. ``about``: ``model`` (a runtime
    refused it, or failed on it), ``feeds: WHAT`` (what the check feeds, asks for or compares with does not fit), or
    ``check`` (any other). ``went_on``: the check said more after them: it may have caught them.
    """

    where: tuple[str, ...]
    about: str
    went_on: bool = field(default=False, compare=False)

    @property
    def feeds(self) -> bool:
        """Whether it is about what does not fit the candidate."""
        return self.about.startswith(FEEDS)

    @property
    def why(self) -> str:
        """Why a check that it ended has not judged."""
        return f"{MISFIT} ({self.about.partition(': ')[2]})" if self.feeds else OWN_EXCEPTION

    def beyond(self, caught: Raised, studied: Raised | None) -> Raised | None:
        """What is left of it without what a check shows where it passes (``caught``); ``studied``: of the whole model.

        None: nothing.
        """
        if self.feeds and self.about != caught.about:
            return self
        left = tuple(where for where in self.where if where not in caught.where)
        if not left:
            return None
        if studied and left == studied.where:
            return studied
        return self if self.feeds else replace(self, where=left)

    def to_json(self) -> list[Any]:
        """Return plain JSON types."""
        return [self.about, self.went_on, *self.where]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Raised:
        """Read what ``to_json`` wrote."""
        return Raised(tuple(data[2:]), data[0], data[1])

    @property
    def asserts(self) -> bool:
        """Whether each of them is an assertion: any other may be a mistake in the check."""
        return bool(self.where) and all(where.startswith("AssertionError") for where in self.where)

    def __str__(self) -> str:
        return ", ".join(self.where) or self.about


OVERFLOW = "overflow"
"""The stage of a failure inside a mixed model: its outputs pass."""


@dataclass(frozen=True)
class Signature:
    """What a failure looks like, so that one failure can be told from another.

    ``stage``: load, build, infer, compare, check (a command of the user's), or overflow (inside a mixed model).
    ``kind``: ``exit 1``, ``listed exit``, ``regex``, ``death MEMORY`` (SEGV, BUS and ABRT are one), ``death FPE``,
    ``timeout``, ``memory``, ``error TYPE``, ``nan``, ``inf``, ``mismatch``, ``shape``, ``raised``, ``returned fail``.
    ``detail``: normalized text, a hint only (it changes while a model shrinks).
    ``raised``: the exceptions with which a check ended; None where it judged.
    """

    stage: str
    kind: str
    detail: str = ""
    raised: Raised | None = None

    @property
    def family(self) -> str:
        """The kind, but an Inf and a NaN are one, and so is whether a function asserts or says that it fails.

        What overflows to Inf at its source is a NaN after the next subtraction.
        """
        return "non-finite" if self.kind in NON_FINITE else SAYS_SO if self.kind == "raised" else self.kind

    @property
    def about_values(self) -> bool:
        """Whether the failure may lie in what tensors hold; a crash, an error or a time-out shows whatever they do."""
        return not self.refuses and not self.kind.startswith(("death", "timeout", "memory", "error"))

    @property
    def refuses(self) -> bool:
        """Whether a runtime refused the model, so that nothing is said of what it computes."""
        return self.stage in ("load", "build") or (self.raised is not None and self.raised.about == MODEL)

    def __str__(self) -> str:
        return self.told(self.detail)

    def told(self, detail: str) -> str:
        """Return it with a detail; an exception that this begins with is not said twice."""
        twice = self.raised is not None and detail.startswith(str(self.raised))
        name = f"{self.stage}: {self.kind}" if twice else self.name
        return f"{name} ({detail})" if detail else name

    @property
    def name(self) -> str:
        """Stage, kind and exceptions: a failure's class."""
        return f"{self.stage}: {self.kind}" + (f", {self.raised}" if self.raised else "")

    def to_json(self) -> list[Any]:
        """Return plain JSON types."""
        return [self.stage, self.kind, self.detail, *([self.raised.to_json()] if self.raised else [])]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Signature:
        """Read what ``to_json`` wrote."""
        return Signature(data[0], data[1], data[2], Raised.from_json(data[3]) if len(data) > 3 else None)


LIMITS = ("timeout", "memory")
"""The kinds of failures that a limit of the user's means: they take long, or much, to be seen again."""
LISTED, SAYS_SO = "listed exit", "returned fail"
"""The kinds of a failure that a command's code of ``fail_codes`` means, and of one that a function returns."""
ERROR = "error "
"""How the kind of a runtime's own error begins; its class, or the status that it gives, follows."""


def same_failure(
    one: Signature, other: Signature, rule: SameFailure = SameFailure.kind, names: Collection[str] = ()
) -> bool:
    """Whether two failures are the same one, as far as ``rule`` looks; ``other``: the one under study.

    Feeds that do not fit are nobody's, under any rule, unless both failed in that very way. ``names``: of the model's
    nodes and tensors, which messages may hold.
    """
    misfit = any(signature.raised and signature.raised.feeds for signature in (one, other))
    if not _as_raised(one, other) and (misfit or rule in (SameFailure.kind, SameFailure.strict)):
        return False
    if rule is SameFailure.any:
        return True
    if one.stage != other.stage:
        return False
    if rule is SameFailure.stage:
        return True
    alike = _same_message(one.detail, other.detail, names)
    if rule is SameFailure.strict:
        return one.family == other.family and alike
    # releases of a runtime give one error other classes
    errors = one.kind.startswith(ERROR) and other.kind.startswith(ERROR)
    return one.family == other.family or (errors and bool(one.detail) and alike)


def _as_raised(one: Signature, studied: Signature) -> bool:
    """Whether a check ended as on the whole model.

    What it may have caught there need not come again. One that shows no exception has judged; what a runtime said
    there is missed, unless the user lists the code.
    """
    now, before = one.raised, studied.raised
    if now == before or now or before is None or before.feeds:
        return now == before
    return before.went_on or one.kind == LISTED or before.about != MODEL


def _same_message(one: str, other: str, names: Collection[str]) -> bool:
    """Whether two messages are the same but for the names in them; of cut ones as far as both go."""
    short, long = sorted((_without(one, names), _without(other, names)), key=len)
    return short == long or (max(len(one), len(other)) >= LONGEST and long.startswith(short))


def _without(message: str, names: Collection[str]) -> str:
    """A message without the names in it; several in a row are one."""
    masked = _TOKEN.sub(lambda found: "_" if found[0] in names else found[0], message)
    return _LISTED.sub("_", masked)


def got_further(studied: Signature | None, met: Signature | None) -> bool:
    """Whether a failure is one that the model under study does not live to see: of a later stage than its own."""
    if studied is None or met is None:
        return False
    return 0 < _reached(studied)[1] < _reached(met)[0]


def _reached(failure: Signature) -> tuple[int, int]:
    """How far a model came before it failed, at least and at most; 0: the stage does not say.

    A model that is loaded has not failed to load, and one that gave values has run without an error. A process that
    ended, in whatever way, may have done so while the model was loaded.
    """
    if failure.stage != "infer":
        at = {"load": 1, "build": 1, "compare": 3}.get(failure.stage, 0)
        return at, at
    if failure.kind in NON_FINITE:
        return 3, 3
    return (2, 2) if failure.kind.startswith("error") else (1, 2)


_MARK = re.compile(r"#|\b_\b")


def crash(kind: str) -> str:
    """Return the death of a process in words; "" for a failure of another kind."""
    _, death, number = kind.partition("death ")
    return f"crash ({'bad memory access, or abort' if number == 'MEMORY' else number})" if death else ""


def in_numbers(signature: Signature | None, said: str) -> str:
    """Return a failure as it was ``said``, where its detail has a mark in place of a number or a name.

    Else as its signature.
    """
    named = str(signature)
    if signature and said and _MARK.search(signature.detail):
        named = signature.told(one_line(own_words(said), LONGEST))
    died = crash(signature.kind) if signature else ""
    return named.replace(signature.kind, died, 1) if signature and died else named


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

    @property
    def said(self) -> str:
        """Outcome and reason in one line."""
        return self.outcome.value + (f": {self.reason}" if self.reason else "")

    @property
    def failure(self) -> str:
        """The failure for a person: with the numbers that the signature's detail stands for."""
        return in_numbers(self.signature, self.reason)

    @property
    def never_ran(self) -> bool:
        """Whether what the check needs was not there: that is nothing about the candidate, and may be there later."""
        return self.outcome is Outcome.UNRESOLVED and self.reason.startswith((NO_IMPORT, NOT_RUN))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; ``from_json`` reads them back."""
        return {
            **vars(self),
            "metrics": dict(self.metrics),
            "outcome": self.outcome.value,
            "signature": self.signature.to_json() if self.signature else None,
            "seconds": round(self.seconds, 6),
            "peak_rss_mb": round(self.peak_rss_mb, 1),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Verdict:
        """Read what ``to_json`` wrote. Raises KeyError, TypeError or ValueError on anything else."""
        signature = Signature.from_json(data["signature"]) if data["signature"] else None
        given = {one.name: data[one.name] for one in fields(Verdict)} | {"signature": signature}
        return Verdict(**given | {"outcome": Outcome(data["outcome"])})


def message_drift(before: str, after: Verdict, studied: Signature, names: Collection[str] = ()) -> str:
    """Say that a failure has another message than the one under study (``before``); nothing where it is the same."""
    now = after.signature
    if now is None or same_failure(now, studied, SameFailure.strict, names):
        return ""
    told = f"{_short(before) or studied}, now {_short(after.reason) or now}"
    return f"the reduced model fails with another message than the whole model: {told}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def rows_of(verdict: Verdict) -> list[Mapping[str, Any]]:
    """Return a verdict's rows of numbers."""
    return list(verdict.metrics.get(TABLE, ()))


def relative(
    verdict: Verdict,
    studied: Signature,
    rule: SameFailure,
    names: Collection[str] = (),
    caught: Raised | None = None,
    also: Collection[Signature] = (),
) -> Verdict:
    """A verdict in the light of the failure under study.

    Another failure is DIFFERENT. A check that an exception of its own ended, not as on the whole model, has not judged:
    UNRESOLVED. ``caught``: what it shows on a harmless model that it passes. ``also``: other words of the same failure.
    """
    signature = verdict.signature
    if verdict.outcome is not Outcome.FAIL or not signature:
        return verdict
    if any(same_failure(signature, known, rule, names) for known in (studied, *also)):
        return verdict
    if caught and signature.raised:
        before = studied.raised.beyond(caught, None) if studied.raised else None
        signature = replace(signature, raised=signature.raised.beyond(caught, before))
        shown = signature.raised or not before or before.went_on  # else what it always shows may be what ended it
        if shown and same_failure(signature, replace(studied, raised=before), rule, names):
            return verdict
    if signature.raised and signature.raised.about != MODEL:
        return replace(verdict, outcome=Outcome.UNRESOLVED, reason=f"{signature.raised.why}: {verdict.reason}")
    return replace(verdict, outcome=Outcome.DIFFERENT, reason=f"another failure, {signature}: {verdict.reason}")
