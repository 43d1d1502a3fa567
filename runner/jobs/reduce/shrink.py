"""The passes that make an answer smaller without taking nodes away, each a stage of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from runner.candidate import Phase, Purpose
from runner.checkers.candidate_runs import BackendRunner
from runner.engine.check_trials import CheckLimits, Expected, Judge
from runner.engine.search_run import SEARCHING
from runner.engine.session import Stage
from runner.engine.session_question import NOTHING, CurrentAnswer
from runner.engine.subject import Subject, cutting
from runner.jobs.reduce.shrunk_subject import Shrunk, Simpler, Whole
from runner.jobs.reduce.simpler_values import DefaultAttributes, PlainFloats, ShorterNames, SimplerValues
from runner.jobs.reduce.smaller_shapes import SmallerShapes
from runner.jobs.reduce.subgraph import Subgraph
from runner.journal.journal import context_digest
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import Graph
from runner.model.graph.identity_model import Form
from runner.text import listed
from strategies.outcome import Answer, Outcome
from strategies.search import Ask, Claim, Done, Search
from strategies.search_space import Closure
from strategies.trial import Trial

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
VALUES, SHAPES, REST, ATTRIBUTES, DTYPES, NAMES = range(len(PASSES))


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
                last, found = together[-1], Done(together[-1].first.trial, Claim.SMALLEST_SEEN)
                yield Stage(
                    *(Phase.SHRINK, _label(together), last.judge, partial(Search, last.shrunk.space, found)),
                    *(standing.origin, last.first.trial),
                    purpose=Purpose.REFINE,
                )
            start, whole = partial(one.shrunk.simpler.levels.search, most=self.most), one.shrunk.space.whole
            yield Stage(
                *(Phase.SHRINK, one.title, one.judge, start, standing.origin, whole),
                purpose=Purpose.REFINE,
                known=True,
            )
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
            known = self.own and (not set(made.outputs).isdisjoint(self.model.graph.outputs) or not self.fed)
            # what the reference does not run, or makes a NaN or Inf of, it cannot tell from another failure
            unguarded = not all(one.expected and all(v.finite for v in one.expected.values()) for one in whole.samples)
            values = partial(SimplerValues.of, whole, array, folder, careful=unguarded)
            kinds: dict[int, Callable[[], Simpler]] = {
                VALUES: values,
                SHAPES: partial(SmallerShapes.of, whole, array, folder),
                REST: values,
                ATTRIBUTES: partial(DefaultAttributes.of, whole),
                DTYPES: partial(PlainFloats.of, whole, array, folder),
                NAMES: partial(ShorterNames.of, whole, folder),
            }
            numbers = [number for number in kinds if number > done and (changed or number != REST)]
            self._made[key] = None
            for number in numbers:
                if (known or unguarded) and number not in (VALUES, NAMES):
                    continue
                simpler = kinds[number]()
                if not simpler.levels.tops:
                    continue
                shrunk = Shrunk(subject, trial, whole, simpler, number, self.reference, folder)
                first = simpler.levels.search({shrunk.space.whole: Answer.YES}, self.most).next
                assert isinstance(first, Ask), "one question is allowed at least, and there is a lower level"
                self._made[key] = Pass(shrunk, judge.stage(simpler.name, shrunk), first)
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
                log.info(
                    "the recorded values are kept: the check compares with values of its own, and fails other ones "
                    "(%s)",
                    verdict.said,
                )
        return self._able[made.outputs]


def _label(together: Sequence[Pass]) -> str:
    """What the check of a candidate is called that several passes have made, or one."""
    if len(together) == 1:
        return together[0].first.label
    return f"{listed([one.title for one in together], len(PASSES))}, all at once"
