"""What is tried on an answer: the passes that make it smaller without taking nodes away, each a stage of its own.

With values for its constants, without outputs that hide its failure, inside its nested graphs, trimmed of the inputs
and outputs that it does not need, with simpler values.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from runner.checkers.candidate_runs import BackendRunner
from runner.engine.check_trials import CheckLimits, Expected, Judge
from runner.engine.session import SEARCHING, Stage, refining
from runner.engine.session_question import NOTHING, CurrentAnswer
from runner.engine.subject import Subject, cut_candidate, cutting
from runner.jobs.reduce import simpler_values
from runner.jobs.reduce.carried_constants import freezings
from runner.jobs.reduce.nested_graphs import NestedStages
from runner.jobs.reduce.simplification_levels import SameAnswer, Shrunk, Whole
from runner.jobs.reduce.subgraph import InPlace, Subgraph
from runner.journal.journal import context_digest
from runner.judgment import NON_FINITE
from runner.model.graph import scopes
from runner.model.graph.cut import Cut, Form, with_outputs
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import Graph
from runner.schema.root import OutputPolicy
from runner.text import listed
from runner.verdict import Candidate, Invalid, Phase, Purpose, Sample
from strategies.minimal import claim, sweep
from strategies.search import Answer, Ask, Claim, Closure, Done, Outcome, Search, Space, Step, Trial

# Simpler values, shapes, attributes, types and names.

log = logging.getLogger(__name__)

MOST_QUESTIONS = 8
"""Questions that a pass asks at most, where the user says nothing."""


PASSES = (
    "simpler values",
    "smaller shapes",
    "simpler values in these",
    "fewer attributes",
    "float32 in place of other floats",
    "shorter names",
)
"""Values first: a failure that lies in values may need many of them, of whatever recipe."""
VALUES, REST, NAMES = 0, 2, 5


def simplified(subject: Subject, trial: Trial) -> tuple[str, ...]:
    """Return the passes that made an answer smaller."""
    if not isinstance(subject, Shrunk):
        return ()
    own = (PASSES[subject.number],) if trial != subject.space.whole else ()
    return (*simplified(subject.base, subject.trial), *own)


@dataclass(frozen=True)
class Pass:
    """A pass over an answer. ``first``: the question that it asks first, about all that it simplifies."""

    shrunk: Shrunk
    judge: Judge
    first: Ask

    @property
    def title(self) -> str:
        """What it makes of an answer."""
        return PASSES[self.shrunk.number]


@dataclass
class Shrinking:
    """Makes the stages. What is left to do is tried in one candidate first; where that is no answer, pass by pass.

    ``reference``: runs candidates. ``folder``: for values. ``most``: questions of a pass at most. ``means``: those of
    the run. ``model``: the whole one. ``own``: the check is the user's, and may know the model's own outputs by name.
    ``fed``: it asks for values of the inputs.
    """

    reference: BackendRunner
    folder: Path
    most: int
    means: CheckLimits
    model: Subgraph
    own: bool = False
    fed: bool = True
    _able: dict[tuple[str, ...], bool] = field(default_factory=dict)
    _made: dict[tuple[str, Trial, int], Pass | None] = field(default_factory=dict)
    _folders: int = 0

    def stages(self, standing: CurrentAnswer) -> Iterator[Stage]:
        """Yield the passes that an answer has not been through.

        What was made for them is dropped with the last one, as each keeps a model: where a stage is refused after all,
        an answer is asked for its stages again, and the same is made once more.
        """
        yield from self._left(standing)
        self._made.clear()

    def _left(self, standing: CurrentAnswer) -> Iterator[Stage]:
        judge, trial = standing.judge, standing.trial
        subject = cutting(judge.subject)
        if self._is_short(judge) or not self.most:
            return
        if subject.closure is Closure.DESCENDANTS:
            return  # the check knows what the model's own outputs should be
        if not isinstance(subject, Shrunk):
            self._made.clear()  # another answer: what was made of the one before is not asked for any more
        if self.own and not self._judges_other_values(judge, trial):
            return
        one = self._next(judge, trial)
        while one:
            together = self._together(one)
            if len(together) > 1:
                last, held = together[-1], together[-1].first.trial
                space, found = replace(last.shrunk.space, order=tuple(held)), Done(held, Claim.SMALLEST_SEEN)
                words = Phase.SHRINK, _label(together)
                yield Stage(*words, last.judge, space, found, standing.origin, Purpose.REFINE)
            space, first = one.shrunk.space, one.shrunk.simpler.levels.first(self.most)
            yield Stage(Phase.SHRINK, one.title, one.judge, space, first, standing.origin, Purpose.REFINE, known=True)
            one = self._next(judge, trial, one.shrunk.number)

    def _next(self, judge: Judge, trial: Trial, done: int = -1) -> Pass | None:
        """Return the first pass after number ``done`` that has something to do on an answer; None: there is none."""
        subject = cutting(judge.subject)
        changed = isinstance(subject, Shrunk) and trial != subject.space.whole
        done = max(done, subject.number) if isinstance(subject, Shrunk) else done
        key = context_digest(subject.identity()), trial, done
        if key not in self._made:
            made = subject.cut(trial)
            whole = Whole(made.model, subject.samples(made))
            self._folders += 1
            array, folder = subject.store.array, self.folder / str(self._folders)
            # a check of the user's own would trip over another shape of what it knows, like the failure perhaps
            fixed = self.own and (not set(made.outputs).isdisjoint(self.model.graph.outputs) or not self.fed)
            # what the reference does not run, or makes a NaN or Inf of, it cannot tell from another failure
            unguarded = not all(one.expected and all(v.finite for v in one.expected.values()) for one in whole.samples)
            values = partial(simpler_values.plain_values, whole, array, folder, careful=unguarded)
            shapes = partial(simpler_values.smaller_shapes, whole, array)
            attributes = partial(simpler_values.default_attributes, whole)
            dtypes = partial(simpler_values.plain_floats, whole, array)
            names = partial(simpler_values.shorter_names, whole)
            kinds = (values, shapes, values, attributes, dtypes, names)
            self._made[key] = None
            for number in range(done + 1, len(PASSES)):
                skipped = (fixed or unguarded) and number not in (VALUES, NAMES)
                if skipped or (number == REST and not changed) or not (simpler := kinds[number]()).levels.tops:
                    continue
                shrunk = Shrunk(subject, trial, whole, simpler, number, self.reference, folder)
                known = {shrunk.space.whole: Answer.YES}
                first = Search(shrunk.space, simpler.levels.first(self.most), known).next
                assert isinstance(first, Ask), "one question is allowed at least, and there is a lower level"
                self._made[key] = Pass(shrunk, _of_its_kind(judge, trial, judge.stage(simpler.name, shrunk)), first)
                break
        return self._made[key]

    def _together(self, one: Pass | None) -> list[Pass]:
        """Return a pass and those after it, each over what the first question of the one before it makes of an answer.

        The last one's first question is then what all of them lead to, where each gets YES for its own. They end at one
        whose own is none: that one has to look for what the reference runs.
        """
        found: list[Pass] = []
        while one and not one.shrunk.unfit(one.first.trial):
            found.append(one)
            one = self._next(one.judge, one.first.trial)
        return found

    def _is_short(self, judge: Judge) -> bool:
        """Whether half of the budget is spent: the rest is for the cause."""
        budget = self.means.budget
        paid = sum(judge.tally.paid[purpose] for purpose in SEARCHING)
        spent = time.monotonic() - budget.started
        short = budget.checks is not None and 2 * paid > budget.checks
        return short or (budget.seconds is not None and 2 * spent > budget.seconds)

    def _judges_other_values(self, judge: Judge, trial: Trial) -> bool:
        """Whether the check passes a model that hands out other values under the names of the answer's outputs."""
        made = cutting(judge.subject).cut(trial)
        if made.outputs not in self._able:
            known = self.model.recorded.values
            unknown = tuple({name: one[name] for name in one if name not in made.outputs} for one in known)
            recorded = replace(self.model.recorded, values=unknown)
            graph = Graph.of(copy_of(made.model))
            other = replace(self.model, graph=graph, recorded=recorded, control=Form(outputs=True))
            label = "an Identity with the answer's outputs, with other values"
            control = Expected(judge.stage(label, other), NOTHING, Phase.CONTROL, label, Purpose.REFINE)
            if self.means.workers > 1 and self.means.budget.checks is None:
                together = self._together(self._next(judge, trial))
                first = [Expected(one.judge, one.first.trial, Phase.SHRINK, _label(together)) for one in together[-1:]]
                self.means.ahead([control, *first])
            verdict = control.judge.sure(NOTHING, Phase.CONTROL, label, Purpose.REFINE)
            self._able[made.outputs] = verdict.outcome is not Outcome.FAIL
            if verdict.outcome is Outcome.FAIL:
                log.info("the recorded values are kept: with others a good model fails too (%s)", verdict.said)
        return self._able[made.outputs]


def _of_its_kind(judge: Judge, trial: Trial, staged: Judge) -> Judge:
    """Return the judge of a pass, to whom a NaN is not the Inf of the answer, nor the other way round."""
    held = {one.signature.kind for one in judge.counted(trial) if one.outcome is Outcome.FAIL and one.signature}
    if not held.isdisjoint(NON_FINITE):
        staged.mild = lambda verdict: bool(
            (judge.mild and judge.mild(verdict))
            or (verdict.signature and verdict.signature.kind in NON_FINITE and verdict.signature.kind not in held)
        )
    return staged


def _label(together: Sequence[Pass]) -> str:
    """What the check of a candidate is called that several passes have made, or one."""
    if len(together) == 1:
        return together[0].first.label
    return f"{listed([one.title for one in together], len(PASSES))}, all at once"


# Subject `trimming`: the elements are outputs of an answer that its failure may not need.
#
# One is left out only where another kept node reads what its node gives, or its node hands out another one: no node
# becomes dead by it. The nodes stay as they are.

NODES = 0
"""The element that stands for the nodes themselves; it always stays."""


@dataclass(frozen=True)
class Trimming(SameAnswer):
    """Trims the cut of ``trial`` of another subject."""

    @cached_property
    def whole(self) -> Cut:
        """The cut as it is."""
        return self.base.cut(self.trial)

    @cached_property
    def spare(self) -> tuple[str, ...]:
        """The outputs that are elements."""
        graph = self.whole.model.graph
        read = {name for node in graph.node for name in scopes.reads(node)}
        found = []
        for node in graph.node if self.base.closure is not Closure.DESCENDANTS else ():
            handed = [name for name in node.output if name in self.whole.outputs]
            free = [name for name in handed if name not in read]
            needed = not read.intersection(node.output)  # else another node keeps it alive
            found += [name for name in handed if name in read] + free[needed:]
        return tuple(found)

    @cached_property
    def space(self) -> Space:
        """The nodes, and one element for each output that may go; the nodes are what all of these depend on."""
        size = len(self.spare) + 1
        return Space(tuple(range(size)), ((), *(((NODES,),) * (size - 1))), Closure.ANCESTORS)

    def identity(self) -> dict[str, str]:
        """Return what is trimmed, and the tensors that are the elements."""
        return {
            "kind": "trimming",
            "of": context_digest(self.base.identity()),
            "trial": self.trial.ranges,
            "spare": json.dumps(self.spare),
        }

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate without what ``trial`` leaves out."""
        return cut_candidate(self, self.store, trial, folder, lambda made: None)

    def cut(self, trial: Trial) -> Cut:
        """Return the cut without what ``trial`` leaves out."""
        gone = {name for place, name in enumerate(self.spare, 1) if place not in trial}
        return with_outputs(replace(self.whole, model=copy_of(self.whole.model)), {*self.whole.outputs} - gone)

    def samples(self, made: Cut) -> tuple[Sample, ...]:
        """Return the feeds, and the expected outputs that are left."""
        return self.base.samples(made)

    def first(self) -> Step:
        """Return the first step of the search: everything that may go at once, else one after the other."""
        bare = Trial.of([NODES])

        def then(answer: Answer) -> Step:
            return claim(bare, 0) if answer is Answer.YES else sweep(self.space, self.space.whole, claim)

        return Ask(bare, then, "trim", "the needed outputs alone", left=len(self.spare))


@dataclass
class Refinements:
    """What is tried on the answer of a reduction, in order."""

    trim: bool = True
    nested: NestedStages | None = None
    shrinking: Shrinking | None = None
    _at: CurrentAnswer | None = None
    _left: Iterator[Stage] = field(default_factory=lambda: iter(()))

    def next(self, standing: CurrentAnswer) -> Stage | None:
        """Return the next stage to try on an answer; None: it is as small as it gets."""
        if standing is not self._at:
            self._at, self._left = standing, self._stages(standing)
        return next(self._left, None)

    def _stages(self, standing: CurrentAnswer) -> Iterator[Stage]:
        if isinstance(standing.judge.subject, InPlace):  # all others make models with other inputs and outputs
            yield from self._without_fence(standing, standing.judge.subject)
            if self.nested:
                yield from self.nested.stages(standing)
            return
        yield from freezings(standing)
        yield from self._sinks(standing)
        if self.nested:
            yield from self.nested.stages(standing)
        yield from self._trim(standing)
        if self.shrinking:
            yield from self.shrinking.stages(standing)

    def _sinks(self, standing: CurrentAnswer) -> Iterator[Stage]:
        """Nodes that may be needed only because without them a tensor becomes an output, which stops a fusion."""
        subject = standing.judge.subject
        if not isinstance(subject, Subgraph) or subject.outputs is not OutputPolicy.frontier:
            return
        hiding = hidden_by(subject.graph, standing.trial)
        if subject.closure is not Closure.FREE or not hiding:
            return
        other = replace(subject, outputs=OutputPolicy.sinks)
        space = replace(other.space, order=tuple(standing.trial))
        first = sweep(space, space.whole, claim, settled=standing.trial.elements - hiding)
        yield refining(standing, "sinks", "only the last values are outputs", other, space, first)

    def _without_fence(self, standing: CurrentAnswer, subject: InPlace) -> Iterator[Stage]:
        if subject.fences:
            other, done = replace(subject, fences=False), claim(standing.trial, 0)
            space = replace(subject.space, order=tuple(standing.trial))
            yield refining(standing, "no fence", "without a fence", other, space, done)

    def _trim(self, standing: CurrentAnswer) -> Iterator[Stage]:
        subject = standing.judge.subject
        if self.trim and not isinstance(subject, Trimming | Shrunk):
            trimming = Trimming(cutting(subject), standing.trial)
            if trimming.spare:
                yield refining(standing, "trim", "as it is", trimming, trimming.space, trimming.first(), known=True)


def hidden_by(graph: Graph, trial: Trial) -> frozenset[int]:
    """The nodes of a trial that share a tensor with another kept node and nobody else: without one it is an output."""
    found = set()
    for index in trial:
        for name in graph.nodes[index].outputs:
            readers = graph.readers.get(name, ())
            inside = [reader for reader in readers if reader in trial]
            if len(inside) > 1 and len(inside) == len(readers) and name not in graph.output_set:
                found.update(inside)
    return frozenset(found)
