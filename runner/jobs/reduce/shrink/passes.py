"""The passes that make an answer smaller without taking nodes away, each a stage of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from runner.checkers.backend_run import Side
from runner.jobs.reduce.shrink.default_attributes import DefaultAttributes
from runner.jobs.reduce.shrink.plain_floats import PlainFloats
from runner.jobs.reduce.shrink.shorter_names import ShorterNames
from runner.jobs.reduce.shrink.shrunk_subject import Shrunk, Simpler, Whole
from runner.jobs.reduce.shrink.simpler_values import SimplerValues
from runner.jobs.reduce.shrink.smaller_shapes import SmallerShapes
from runner.jobs.reduce.subgraph import Subgraph
from runner.model.graph.control_model import Form
from runner.model.graph.cut import Cut
from runner.model.graph.graph_index import Graph
from runner.model.graph.protobuf_edits import copy_of
from runner.session.inquiry import SEARCHING, Budget
from runner.session.judge import Judge
from runner.session.question import NOTHING
from runner.session.stage import Stage, Standing
from runner.session.subject import Subject, cutting
from runner.session.trust.check_counts import SHRINKING
from strategies.outcome import Outcome
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


@dataclass
class Shrinking:
    """Makes the stages.

    ``reference``: runs candidates. ``folder``: for values. ``most``: questions of a pass at most. ``budget``: of the
    run. ``model``: the whole one. ``own``: the check is the user's, and may know the model's own outputs by name.
    ``fed``: it asks for values of the inputs.
    """

    reference: Side
    folder: Path
    most: int
    budget: Budget
    model: Subgraph
    own: bool = False
    fed: bool = True
    _made: int = 0
    _able: dict[tuple[str, ...], bool] = field(default_factory=dict)

    def stages(self, standing: Standing) -> Iterator[Stage]:
        """Yield the passes that an answer has not been through."""
        subject = cutting(standing.judge.subject)
        if self._is_short(standing.judge):
            return
        if subject.closure is Closure.DESCENDANTS:
            return  # the check knows what the model's own outputs should be
        made = subject.cut(standing.trial)
        hands_out = not set(made.outputs).isdisjoint(self.model.graph.outputs)
        if self.own and not self._judges_other_values(standing.judge, made):
            return
        whole = Whole(made.model, subject.samples(made))
        first = VALUES
        if isinstance(subject, Shrunk):
            unchanged = standing.trial == subject.space.whole
            first = (REST if subject.number == SHAPES and unchanged else subject.number) + 1
        # a check of the user's own would trip over another shape of what it knows, and that may look like the failure
        known = self.own and (hands_out or not self.fed)
        # what the reference does not run, or makes a NaN or Inf of, it cannot tell from another failure
        unguarded = not all(one.expected and all(v.finite for v in one.expected.values()) for one in whole.samples)
        values = partial(SimplerValues.of, careful=unguarded)
        array = subject.store.array
        kinds: dict[int, Callable[[Path], Simpler]] = {
            VALUES: lambda folder: values(whole, array, folder),
            SHAPES: lambda folder: SmallerShapes.of(whole, array, folder),
            REST: lambda folder: values(whole, array, folder),
            ATTRIBUTES: lambda _: DefaultAttributes.of(whole),
            DTYPES: lambda folder: PlainFloats.of(whole, array, folder),
            NAMES: lambda folder: ShorterNames.of(whole, folder),
        }
        for number in (VALUES, NAMES) if known or unguarded else kinds:
            if number < first:
                continue
            self._made += 1
            folder = self.folder / str(self._made)
            simpler = kinds[number](folder)
            if not simpler.levels.tops:
                continue
            shrunk = Shrunk(subject, standing.trial, whole, simpler, number, self.reference, folder)
            judge = standing.judge.stage(simpler.name, shrunk)
            start = partial(simpler.levels.search, most=self.most)
            yield Stage(
                *(SHRINKING, PASSES[number], judge, start, standing.origin, shrunk.space.whole),
                purpose="refine",
                known=True,
            )

    def _is_short(self, judge: Judge) -> bool:
        """Whether half of the budget is spent: the rest is for the cause."""
        checks, seconds = self.budget.checks, self.budget.seconds
        paid = sum(judge.tally.paid[purpose] for purpose in SEARCHING)
        spent = time.monotonic() - self.budget.started
        return (checks is not None and 2 * paid > checks) or (seconds is not None and 2 * spent > seconds)

    def _judges_other_values(self, judge: Judge, made: Cut) -> bool:
        """Whether the check passes a model that hands out other values under the names of the answer's outputs."""
        if made.outputs not in self._able:
            known = self.model.recorded.values
            unknown = tuple({name: one[name] for name in one if name not in made.outputs} for one in known)
            recorded = replace(self.model.recorded, values=unknown)
            graph = Graph.of(copy_of(made.model))
            other = replace(self.model, graph=graph, recorded=recorded, control=Form(outputs=True))
            label = "an Identity with the answer's outputs, with other values"
            verdict = judge.stage(label, other).sure(NOTHING, "control", label, "refine")
            self._able[made.outputs] = verdict.outcome is not Outcome.FAIL
            if verdict.outcome is Outcome.FAIL:
                log.info("values stay: the check knows what the answer's outputs should be (%s)", verdict.said)
        return self._able[made.outputs]
