"""The cause: does the failure of the whole model arise inside an answer?

A set of nodes that fails alone is not yet the cause: rounding may exceed, on a tensor inside the model, a tolerance
that was meant for the model's outputs. Two experiments on the whole model, judged at its own outputs, tell:

(a) with good values in place of what the set gives, the model passes: whatever makes it fail lies in the set or
    upstream of it;
(b) with good values in place of what the set reads, it still fails as badly: what lies upstream does not matter.

Both together say that the failure arises inside. A fusion that is wrong is wrong wherever its pattern stands, so where
one set does not explain the failure, all sets of its pattern are tested together. After that the search goes on without
what is healed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from runner.doubt import SEARCH_ERROR, Doubt
from runner.journal import Journal
from runner.judge import Judge
from runner.model.pattern import instances, pieces
from runner.model.splice import ancestors, depends_on, outside_reads
from runner.subjects.spliced import Good, Spliced
from runner.subjects.subgraph import Subgraph
from runner.subjects.subject import Subject
from runner.verdict import MEASURE, Verdict
from strategies.outcome import Answer, Outcome
from strategies.search import Claim, Search
from strategies.space import Closure
from strategies.trial import Trial

log = logging.getLogger(__name__)

SHARE = 0.25
"""Part of the whole model's measure from which on a failure counts as as bad."""
LEAST_QUESTIONS = 2
"""The two experiments on the first answer are made in any case."""


class Status(str, Enum):
    """What was shown of an answer."""

    PROVEN = "proven"
    """Both experiments hold."""
    JOINT = "joint"
    """Several answers together heal the whole model, and leaving out any of them does not."""
    NOT_PROVEN = "not proven"
    """The experiments were made, and do not hold."""
    UNTESTED = "untested"
    """They could not be made, or gave no answer."""


@dataclass(frozen=True)
class Experiment:
    """What one experiment gave. ``measure``: how bad it is, None where the check does not say."""

    outcome: Outcome
    measure: float | None = None
    reason: str = ""

    @staticmethod
    def of(verdict: Verdict) -> Experiment:
        """Return what a verdict says."""
        measure = verdict.metrics.get(MEASURE)
        number = float(measure) if isinstance(measure, int | float) else None
        return Experiment(verdict.outcome, number, verdict.reason)

    def as_bad_as(self, whole: Experiment) -> bool:
        """Whether it fails, and as badly as the whole model does, as far as that is measured."""
        if self.outcome is not Outcome.FAIL:
            return False
        return self.measure is None or whole.measure is None or self.measure >= SHARE * whole.measure


@dataclass(frozen=True)
class Tested:
    """An answer and its experiments.

    ``healed``: the elements that got good values around them: the answer, or all ``instances`` of its pattern.
    ``good_outputs``, ``good_inputs``: the experiments (a) and (b); None: not made, since the other one had decided.
    """

    answer: Trial
    healed: Trial
    instances: tuple[frozenset[int], ...] = ()
    good_outputs: Experiment | None = None
    good_inputs: Experiment | None = None
    proven: bool = False

    @property
    def heals(self) -> bool:
        """Whether the whole model passes with good values in place of what these nodes give."""
        return self.good_outputs is not None and self.good_outputs.outcome is Outcome.PASS

    @property
    def unanswered(self) -> str:
        """Why an experiment gave no answer; "" where all that were made did."""
        made = [one for one in (self.good_outputs, self.good_inputs) if one]
        return next((one.reason or "no answer" for one in made if one.outcome is Outcome.UNRESOLVED), "")


@dataclass(frozen=True)
class Cause:
    """What is known about the cause.

    ``answers``: in the order in which they were found. ``causes``: which of them are the cause, or part of it.
    ``main``: the one with the strongest effect.
    """

    status: Status
    whole: Experiment
    answers: tuple[Tested, ...]
    causes: tuple[int, ...] = ()
    main: int = 0
    reason: str = ""

    @property
    def said(self) -> str:
        """The status, and why it is no better."""
        return self.status.value + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class Causes:
    """How answers are shown to be the cause.

    ``journal``: opens the journal of a stage: the journal of what it works on, its name, its subject. ``most``:
    questions that may be asked for it; None: as many as the search asked.
    """

    journal: Callable[[Journal, str, Subject], Journal]
    most: int | None = None


@dataclass
class Prover:
    """Makes the experiments on the answers of a reduction.

    ``judge``: of the search, whose subject cuts the whole model. ``search``: looks for an answer among these elements
    only, with so many questions at most; None: they do not fail. ``asked``: how many questions the search asked.
    ``spent``: whether the budget is.
    """

    judge: Judge
    doubt: Doubt
    causes: Causes
    search: Callable[[tuple[int, ...], int], Search | None]
    asked: int
    spent: Callable[[], bool]

    def __post_init__(self) -> None:
        assert isinstance(self.judge.subject, Subgraph)
        self._base: Subgraph = self.judge.subject
        most = self.asked if self.causes.most is None else self.causes.most
        self._left = max(most, LEAST_QUESTIONS)
        failed = [one for one in self.judge.counted(self._base.space.whole) if one.outcome is Outcome.FAIL]
        self._whole = Experiment.of(failed[0]) if failed else Experiment(Outcome.FAIL)
        signature = self.judge.baseline
        self._alive = signature is not None and not signature.about_values
        self._judges: dict[Good, Judge] = {}

    def prove(self, answer: Trial) -> Cause:
        """Return what is known about the cause, once an answer was found."""
        if self._base.closure is Closure.ANCESTORS:
            reason = "strategy.reduce_inputs=false: the check is fed the model's own inputs only"
            return self._end(Status.UNTESTED, [Tested(answer, answer)], reason=reason)
        first = self._test(answer)
        if first.unanswered:
            return self._end(Status.UNTESTED, [first], reason=first.unanswered)
        tested, failing = [first], [] if first.heals else [first]
        left = self._beyond(self._base.space.order, first)
        while not tested[-1].proven:
            following = self._following(left)
            if following is None:
                reason = "the checks for it were used up" if self._exhausted else self._why(first)
                return self._end(Status.NOT_PROVEN, tested, reason=reason)
            tested.append(self._test(following))
            if not tested[-1].heals:
                failing.append(tested[-1])
                if joint := self._joint(tested, failing):
                    return joint
            left = self._beyond(left, tested[-1])
        return self._end(Status.PROVEN, tested, causes=(len(tested) - 1,))

    def _following(self, order: tuple[int, ...]) -> Trial | None:
        """Return another answer among these elements, if there is one and it was found in time."""
        if not order or self._exhausted:
            return None
        self._left -= 1
        search = self.search(order, self._left)
        if search is None:
            return None
        self._left -= len(search.asked)
        return search.done.trial if search.done and search.done.claim is not Claim.BUDGET else None

    # ---- one answer

    def _test(self, answer: Trial) -> Tested:
        """Make both experiments; on all instances of the answer's pattern where those on itself do not hold."""
        alone = self._both(Tested(answer, answer, (answer.elements,)))
        if alone.proven or alone.unanswered or self._exhausted:
            return alone
        copies = instances(self._base.graph, answer.elements, self._base.types_of_all)
        everywhere = Trial(frozenset().union(answer.elements, *copies))
        if everywhere in (answer, self._base.space.whole):
            return alone
        together = self._both(Tested(answer, everywhere, copies))
        return together if together.proven else alone

    def _both(self, tested: Tested) -> Tested:
        healed = tested.healed
        outputs = self._made(healed, Good.OUTPUTS)
        tested = replace(tested, good_outputs=outputs)
        if not tested.heals:
            return tested
        inputs = self._made(healed, Good.INPUTS)
        tested = replace(tested, good_inputs=inputs)
        if inputs.as_bad_as(self._whole):
            return replace(tested, proven=True)
        return self._with_first_inputs(tested) or tested

    def _with_first_inputs(self, tested: Tested) -> Tested | None:
        """Test pieces of which some act through others, so that good values in between would silence them.

        Only what the first pieces read is good then, which leaves room for a fault between the pieces. There is none
        if the whole model already passes with good values in place of what the first pieces give.
        """
        healed, graph = tested.healed, self._base.graph
        parts = pieces(graph, healed.elements)
        if len(parts) < 2 or not self._subject(Good.INPUTS).splice(healed).silent:
            return None
        first = [part for part in parts if not any(part & (depends_on(graph, other) - other) for other in parts)]
        if not first or len(first) == len(parts):
            return None
        top = self._made(Trial(frozenset().union(*first)), Good.OUTPUTS)
        if top.outcome is not Outcome.PASS:
            return None
        inputs = self._made(healed, Good.FIRST_INPUTS)
        return replace(tested, good_inputs=inputs, proven=True) if inputs.as_bad_as(self._whole) else None

    def _made(self, trial: Trial, good: Good) -> Experiment:
        graph = self._base.graph
        if good is Good.OUTPUTS and all(graph.producers.get(name) in trial for name in graph.outputs):
            return Experiment(Outcome.PASS, 0.0 if self._whole.measure is not None else None, "it gives all outputs")
        if good is not Good.OUTPUTS and not outside_reads(graph, trial.elements):
            return replace(self._whole, reason="it reads the model's own inputs alone")
        self._left -= 1
        label = f"the whole model, good values in place of the {good.value} of {_nodes(trial)}"
        ruling = self.doubt.rule(
            self._judge(good), trial, "cause", label, "cause", error=SEARCH_ERROR, spent=self.spent
        )
        if ruling is None:
            return Experiment(Outcome.UNRESOLVED, reason="the budget was reached")
        experiment = Experiment.of(ruling.verdict)
        if self.doubt.rates and ruling.answer is Answer.UNKNOWN:
            return replace(experiment, outcome=Outcome.UNRESOLVED, reason="the check is too flaky to tell")
        return experiment

    def _judge(self, good: Good) -> Judge:
        if good not in self._judges:
            subject = Spliced(self._base, good, self._alive)
            self._judges[good] = self.judge.beside(subject, self.causes.journal(self.judge.journal, "cause", subject))
        return self._judges[good]

    def _subject(self, good: Good) -> Spliced:
        subject = self._judge(good).subject
        assert isinstance(subject, Spliced)
        return subject

    # ---- several answers

    def _beyond(self, order: Sequence[int], tested: Tested) -> tuple[int, ...]:
        """Return where the cause may be instead: upstream of an answer that heals, else anywhere but there."""
        if tested.heals:
            above = ancestors(self._base.graph, tested.healed.elements)
            return tuple(index for index in order if index in above)
        return tuple(index for index in order if index not in tested.healed)

    def _joint(self, tested: list[Tested], failing: list[Tested]) -> Cause | None:
        """Return the cause if the answers so far heal the whole model together, and none of them is dispensable."""
        if len(failing) < 2 or failing[-1].proven or self._exhausted:
            return None
        together = self._made(_union(failing), Good.OUTPUTS)
        if together.outcome is not Outcome.PASS:
            return None
        needed, effects = list(failing), {}
        for one in failing:
            rest = [other for other in needed if other is not one]
            if not rest or self._exhausted:
                return None
            without = self._made(_union(rest), Good.OUTPUTS)
            if without.outcome is Outcome.UNRESOLVED:
                return None
            if without.outcome is Outcome.PASS:
                needed = rest
            else:
                effects[tested.index(one)] = without.measure or 0.0
        if len(needed) < 2 or self._exhausted:
            return None
        inputs = self._made(_union(needed), Good.INPUTS)
        if not inputs.as_bad_as(self._whole):
            return None
        causes = tuple(tested.index(one) for one in needed)
        return self._end(Status.JOINT, tested, causes=causes, main=max(causes, key=lambda at: (effects[at], -at)))

    def _end(
        self,
        status: Status,
        tested: list[Tested],
        *,
        causes: tuple[int, ...] = (),
        main: int | None = None,
        reason: str = "",
    ) -> Cause:
        if main is None:
            main = causes[0] if causes else self._strongest(tested)
        return Cause(status, self._whole, tuple(tested), causes, main, reason)

    def _strongest(self, tested: list[Tested]) -> int:
        """Return the answer whose good values make the model best; the first where that is not measured."""
        left = [
            one.good_outputs.measure if one.good_outputs and one.good_outputs.measure is not None else None
            for one in tested
        ]
        known = [(measure, at) for at, measure in enumerate(left) if measure is not None]
        return min(known)[1] if len(known) == len(tested) else 0

    def _why(self, first: Tested) -> str:
        if first.heals:
            return "good values in place of what it reads make the model pass, or nearly so: what is upstream matters"
        if first.good_outputs and first.good_outputs.outcome is Outcome.DIFFERENT:
            return f"with good values in place of what it gives, another failure shows: {first.good_outputs.reason}"
        return "the model fails with good values in place of what it gives, and nothing else was found to fail"

    @property
    def _exhausted(self) -> bool:
        return self._left <= 0 or self.spent()


def _union(tested: Sequence[Tested]) -> Trial:
    return Trial(frozenset().union(*(one.healed.elements for one in tested)))


def _nodes(trial: Trial) -> str:
    return f"{len(trial)} node{'s' * (len(trial) != 1)}"
