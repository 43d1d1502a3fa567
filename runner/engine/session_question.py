"""The question that a session puts, how it ended, and the cause: what experiments on the whole model showed.

The question that a session puts: everything has the wanted outcome, nothing has not; the smallest that has it?

A reduction and an isolation of tactics want FAIL: everything fails, and nothing passes. A precision search wants PASS:
with everything in high precision the check passes, with nothing it fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn

from runner.checkers.compare_outputs import NO_OUTPUT_TELLS
from runner.engine.check_trials import Judge
from runner.engine.subject import Kept, Subject, kept, nodes_of
from runner.exit_codes import BUDGET_REACHED, CannotJudge, Status
from runner.judgment import CauseStatus, Experiment, Scale, Whose
from runner.report.diagnosis_sections import NOT_THE_CAUSE
from runner.run_folder import REDUCED
from runner.text import counted, listed, short
from runner.verdict import Signature, Verdict
from strategies.search import Answer, Done, Outcome, Trial, answer_of

# The cause: what was shown of the answers of a reduction, and by which experiments on the whole model.
# `runner.jobs.reduce.prove_cause` makes them.

_LONGEST_NAME = 60


@dataclass(frozen=True)
class AnswerExperiments:
    """An answer and its experiments.

    ``instances``: all places of its pattern, where good outputs for all of them heal the model and for it alone do not.
    ``good_outputs``, ``good_inputs``, ``good_around``: the experiments (a), (b) and (c); None: not made, since another
    one had decided.
    """

    answer: Trial
    instances: tuple[frozenset[int], ...] = ()
    good_outputs: Experiment | None = None
    good_inputs: Experiment | None = None
    good_around: Experiment | None = None
    proven: bool = False
    together: bool = False

    @property
    def heals(self) -> bool:
        """Whether the whole model does not fail any more with good values in place of what these nodes give."""
        return self.good_outputs is not None and self.good_outputs.heals

    @property
    def ruled_out(self) -> bool:
        """Whether these nodes do no harm by themselves: the whole model passes with good values for what they read."""
        return self.good_inputs is not None and self.good_inputs.outcome is Outcome.PASS

    def harm(self, whole: Experiment, scale: Scale) -> float | None:
        """How bad it is with good values for what they read, or else what good outputs mend; None: not measured."""
        inputs, outputs = self.good_inputs, self.good_outputs
        if inputs:
            return inputs.level(whole, scale) if inputs.outcome is Outcome.FAIL and inputs.measure is not None else None
        if outputs is None or self.heals or outputs.outcome is not Outcome.FAIL or outputs.measure is None:
            return None
        return whole.level(whole, scale) - outputs.level(whole, scale)

    @property
    def unanswered(self) -> str:
        """Why an experiment gave no answer; "" where all that were made did."""
        made = [one for one in (self.good_outputs, self.good_inputs, self.good_around) if one]
        return next((one.reason or "no answer" for one in made if one.outcome is Outcome.UNRESOLVED), "")

    def doubt(self, names: Sequence[str]) -> str:
        """Return why it is not shown to be the cause. ``names``: of all elements."""
        these = listed([short(names[index], _LONGEST_NAME) for index in self.answer])
        model = f"with right outputs of {these} the model"
        if self.good_outputs and self.good_outputs.outcome is Outcome.DIFFERENT and not self.heals:
            return f"{model} fails in another way: {self.good_outputs.reason.removeprefix('another failure, ')}"
        if self.good_around and not self.heals:
            return f"{model} still fails: later nodes do much of the harm by themselves"
        if self.good_around and self.good_inputs and self.good_outputs:
            sides = (("outputs", self.good_outputs), ("inputs", self.good_inputs))
            near = [f"{one.measure:.3g} with right {what}" for what, one in sides if one.measure is not None]
            told = f": it measures {' and '.join(near)}" * bool(near)
            return f"{model} passes, and with right inputs it fails{told}, too near for a proof"
        if self.heals:
            return f"the model passes, or nearly so, if only the inputs of {these} are corrected: other nodes matter"
        return f"{model} still fails"


@dataclass(frozen=True)
class Inside:
    """What is known of nodes of a body. ``names``: of what ``cause`` tells of, the model with the body in the open."""

    cause: Cause
    names: Callable[[Trial], tuple[str, ...]]


@dataclass(frozen=True)
class InWiderType:
    """What an answer gives in a wider type.

    ``largest``: of the exact values of ``tensor`` the farthest from 0; ``beyond`` many are beyond ``limit``, the end of
    its type. ``raised``: the nodes that were in the wider type in experiment (a).
    """

    tensor: str
    type: str
    wider: str
    largest: float
    limit: float
    beyond: int
    elements: int
    raised: Trial = field(default_factory=lambda: Trial.of([]))

    @property
    def said(self) -> str:
        """It in words."""
        if not self.beyond:
            end = f"{self.type} ends at {shown(self.limit)}"
            return f"its partial sums overflow: the exact result is {shown(abs(self.largest))} at most, {end}"
        there = f"{self.beyond:,} of {counted(self.elements, 'element')}"
        limit = "±" * (self.largest < 0) + shown(self.limit)
        return f"{there} exceed{'s' * (self.beyond == 1)} {limit}; the largest is {shown(self.largest)}"


def shown(number: float) -> str:
    """Return a number for people, with thousands in groups."""
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e9 else f"{number:.6g}"


@dataclass(frozen=True)
class Cause:
    """What is known about the cause.

    ``answers``: in the order in which they were found. ``causes``: which of them are the cause, or part of it.
    ``main``: the one with the strongest effect. ``whose``: whose failure it is. ``wider``: of an overflow, what the
    answer gives in a wider type; ``no_value``: what gives it none in any type, in words.
    ``right``: how far both sides are from the exact values, in words. ``lacks``: see `CannotJudge`.
    """

    status: CauseStatus
    whole: Experiment
    answers: tuple[AnswerExperiments, ...]
    causes: tuple[int, ...] = ()
    main: int = 0
    reason: str = ""
    whose: Whose = Whose.UNKNOWN
    wider: InWiderType | None = None
    no_value: str = ""
    right: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def ending(self) -> Status:
        """How a run ends that knows this of its answer."""
        if self.whose is Whose.REFERENCE:
            return Status.reference_wrong
        return Status.suspected if self.status is CauseStatus.NOT_PROVEN else Status.found

    def checked(self, scale: Scale) -> Cause:
        """Return it as untested where its measures are no better where the model passes than where it fails."""
        bad, passing = self.whole.measure, (one.good_outputs for one in self.answers if one.heals)
        good = next((one.measure for one in passing if one and one.measure is not None), None)
        if good is None or bad is None or scale.harm(good) < scale.harm(bad) or good == bad == 0:
            return self
        if good == bad:
            told = f"the check's measure is {good:g} where the model passes and where it fails, so it tells nothing"
            return replace(self, status=CauseStatus.UNTESTED, causes=(), reason=told)
        other = f"checker.measure_better={'lower' if scale.higher_is_better else 'higher'}"
        told = f"the check's measure is {good:g} where the model passes and {bad:g} where it fails; set {other}"
        return replace(self, status=CauseStatus.UNTESTED, causes=(), reason=told, lacks=(other,))


def how_it_fails(size: int, drift: str, cause: Cause | None) -> str:
    """Return in words how an answer of so many nodes fails; None: whether it is the cause was not asked.

    ``drift``: how its message differs from the model's. That it is the model's own failure is not said where the
    experiments on the whole model speak against it.
    """
    fail = "fails" if size == 1 else "fail"
    if cause is not None and cause.status is CauseStatus.NOT_PROVEN:
        return "; ".join(filter(None, (f"{fail} alone, but {NOT_THE_CAUSE}", drift)))
    return f"{counted(size, 'node')} {fail}" + (f"; {drift}" if drift else " like the whole model")


# The ending of a session.


@dataclass(frozen=True)
class CurrentAnswer:
    """An answer as it stands: a trial of ``judge.subject``.

    ``origin``: the bodies that it is in, from the outermost on. ``inside``: what was shown of its nodes in the last of
    these; None: nothing, they fail alone.
    """

    judge: Judge
    trial: Trial
    origin: tuple[str, ...] = ()
    inside: Inside | None = None

    @property
    def _kept(self) -> Kept | None:
        return kept(self.judge.subject, self.trial)

    @property
    def owner_kept(self) -> bool:
        """Whether the nodes of the trial are inside an owner, and all of the model around it is still there."""
        return self._kept is not None and self._kept.inside

    def top_level(self, subject: Subject) -> Trial | None:
        """Return the answer as a trial of ``subject``, where it still consists of nodes of the same graph."""
        own, whole = self._kept, kept(subject, subject.space.whole)
        same = own and whole and own.graph is whole.graph and not own.inside
        return own.nodes if own and same else None

    @property
    def size(self) -> int:
        """How many top-level nodes the answer has."""
        return len(self._kept.present) if self._kept else len(self.judge.subject.names(self.trial))


@dataclass(frozen=True)
class SessionResult:
    """How a session ended.

    ``standing``: the answer; ``main``: its trial before it was refined. ``min_good``: the passing trial that differs
    least from a failing one. ``drift``: how the message of the answer's failure differs from that of the whole model's.
    ``measures``: of an answer that was made simpler, how bad it is by the check, before that and now.
    ``cause``: what is known about the cause, None: it was not asked. ``whose``: whose failure it is, where no cause
    says it. ``code``: the exit code where it is not the status's own. ``lacks``: see `CannotJudge`.
    """

    status: Status
    message: str
    done: Done | None = None
    standing: CurrentAnswer | None = None
    min_good: Trial | None = None
    signature: Signature | None = None
    remaining: int = 0
    main: Trial | None = None
    cause: Cause | None = None
    drift: str = ""
    measures: tuple[float, float] | None = None
    code: int | None = None
    whose: Whose | None = None
    lacks: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the run."""
        return self.status.exit_code if self.code is None else self.code

    @property
    def trial(self) -> Trial | None:
        """The trial of the answer."""
        return self.standing.trial if self.standing else None


log = logging.getLogger(__name__)

NOTHING = Trial.of([])
"""The empty trial. Of a model it is the control: a lone Identity, which no sane check fails."""


def nothing_shown(wanted: Literal["fail", "pass"]) -> str:
    """Say that the budget ended a search before any smaller set did what was wanted of it."""
    shown = f"before a smaller set than the whole was shown to {wanted}"
    return f"{BUDGET_REACHED} {shown}: a larger one goes on from there (budget.checks, budget.seconds)"


_OPPOSITE = {Answer.YES: Answer.NO, Answer.NO: Answer.YES}


@dataclass(frozen=True)
class Question:
    """What is wanted, what the two ends are, and their words.

    ``whole``, ``nothing``: what the two ends are called. ``whole_passes``, ``nothing_fails``: what is said, and what
    follows, where FAIL is wanted and an end has the other outcome. ``name``: of the model that is handed over.
    ``begun``: what the log says of the whole and its failure, where that is searched.
    """

    wanted: Outcome = Outcome.FAIL
    whole: str = "the whole model"
    nothing: str = "a lone Identity"
    whole_passes: tuple[str, str] = ("the whole model passes the check", "there is nothing to find")
    nothing_fails: tuple[str, str] = (
        "nothing passed this check, not even a model of one Identity",
        "the check cannot tell good from bad.",
    )
    name: str = REDUCED
    begun: str = "%s fails (%s); only this failure counts"

    @property
    def wants_failure(self) -> bool:
        """Whether the smallest set that fails is looked for, and not the smallest that passes."""
        return self.wanted is Outcome.FAIL

    def ends(self, whole: Trial) -> tuple[tuple[Trial, str], tuple[Trial, str]]:
        """Return the end that should fail, and the one that should not, with what they are called."""
        ends = (whole, self.whole), (NOTHING, self.nothing)
        return ends if self.wants_failure else (ends[1], ends[0])

    def answer(self, verdict: Verdict) -> Answer:
        """Return what one verdict says."""
        return answer_of(verdict.outcome, self.wanted)

    def enough(self, verdict: Verdict) -> bool:
        """Whether a verdict with the wanted outcome is good enough where a check is reliable."""
        return True

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict counts as failed where a check is flaky.

        Whatever is no failure of the kind under study counts as passed, and whatever is no pass as failed: that which
        is wanted has to be shown.
        """
        return (verdict.outcome is self.wanted) is self.wants_failure

    def of_failing(self, answer: Answer) -> Answer:
        """Return what it means for the question that a trial fails (YES), or does not."""
        return answer if self.wants_failure else _OPPOSITE.get(answer, answer)

    def examined(self, judge: Judge, verdict: Verdict, label: str) -> None:
        """Take in the first verdict of an end: a failure is studied. Raises CannotJudge where it says nothing."""
        if not judge.studied.signature:
            if verdict.outcome is Outcome.FAIL:
                study(judge, verdict, label)
            elif verdict.outcome is not Outcome.PASS:
                refuse(judge, verdict, label)

    def begin(self, judge: Judge, whole: Verdict) -> None:
        """Say what is searched for, once the whole has the wanted outcome."""
        log.info(self.begun, self.whole, judge.studied)

    def no_answer(self, verdict: Verdict) -> SessionResult:
        """Return how it ends where the whole has not the wanted outcome."""
        what, so = self.whole_passes
        why = f" ({verdict.reason})" if verdict.reason else ""
        return SessionResult(Status.nothing_to_find, f"{what}{why}: {so}")

    def shown(self, subject: Subject, trial: Trial) -> str:
        """Return how the label of a check calls a trial."""
        return (
            counted(len(nodes_of(subject, trial)), "node")
            if self.wants_failure
            else f"{len(subject.names(trial))} raised"
        )


def study(judge: Judge, verdict: Verdict, label: str) -> None:
    """Take a failure for the one under study. Raises CannotJudge for one that cannot be told from others."""
    if not verdict.signature:
        refuse(judge, verdict, label)
    judge.studied.signature = verdict.signature
    judge.studied.message = verdict.reason
    judge.checker.settle(verdict)


def refuse(judge: Judge, verdict: Verdict, label: str) -> NoReturn:
    """Raise CannotJudge: this is no failure that can be studied."""
    if verdict.outcome is Outcome.UNRESOLVED:
        plain = verdict.never_ran or NO_OUTPUT_TELLS in verdict.reason
        about = "" if plain else f"the check gave no answer about {label}: "
        raise CannotJudge(f"{about}{verdict.reason}\ncheck: {judge.checker.describe()}")
    raise CannotJudge(
        f"{label} does not fail in a way that can be studied: "
        f"{verdict.outcome.value}, {verdict.reason}\ncheck: {judge.checker.describe()}"
    )
