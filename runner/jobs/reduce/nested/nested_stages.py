"""The stages that reduce inside the nested graphs of an answer.

First each body is hoisted: its nodes take the owner's place, so that they are reduced like those of a flat graph. Where
the failure needs its owner (a Loop that never ends), the body is reduced in its place, unless the owner fails with an
empty body as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from runner.artifacts.disk_space import FULL, NoRoom
from runner.errors import WinnowError
from runner.jobs.reduce.nested.body_subject import Inside
from runner.jobs.reduce.subgraph import Subgraph
from runner.journal.journal import context_digest
from runner.model.graph.cut import CutError
from runner.model.nested.bodies import Body, HoistError, Kind
from runner.reference.body_values import (
    Descent,
    Level,
    RecorderOf,
    descend,
    is_taken,
    iterations,
    level_of,
    ordered_bodies,
    trip_counts,
)
from runner.session.stage import Stage, Standing
from runner.session.subject import Subject
from strategies.search import Search, Step
from strategies.search_space import Space

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class NestedStages:
    """Makes the stages.

    ``record``: makes recorders on the reference. ``folder``: for recorded values. ``search``: of the strategy.
    """

    record: RecorderOf
    folder: Path
    search: Callable[[Space], Step]
    _made: int = field(default=0)

    def stages(self, standing: Standing) -> Iterator[Stage]:
        """Yield what can be tried inside the nested graphs of an answer."""
        subject = standing.judge.subject
        if not isinstance(subject, Subgraph):
            return
        level = _tried("the answer", self._level, subject, standing)
        failure = standing.judge.studied.signature
        by_values = subject.fed and failure is not None and failure.about_values
        for body in ordered_bodies(level) if level else ():
            assert level
            if not (by_values and _never_ran(level, body)):
                yield from self._of_body(subject, standing, level, body)

    def _of_body(self, subject: Subgraph, standing: Standing, level: Level, body: Body) -> Iterator[Stage]:
        """Hoisted, in one iteration after the other; then with the owner kept."""
        origin = f"{context_digest(subject.identity())} {standing.trial.ranges} {body.path}"
        first: Descent | None = None
        for iteration in _tried(body.path, iterations, level, body, self.record, self._folder()) or ():
            descent = _tried(body.path, descend, level, body, self.record, self._folder(), iteration)
            if descent is None:
                continue
            first = first or descent
            inner = descent.level
            hoisted = replace(
                subject,
                graph=inner.graph,
                store=inner.store,
                recorded=inner.recorded,
                types=inner.types,
                origin=f"{origin} {iteration}",
                carried=inner.graph.constants - {*descent.hoisted.inside} if subject.carries else frozenset(),
                declared=False,  # what is declared, and the file, are about the whole model
                as_file=False,
            )
            label = f"{body.path} without its owner" + (f", iteration {iteration}" if iteration else "")
            yield self._stage("hoist", label, standing, hoisted, body)
        if not first or first.iteration or not body.attribute:
            return
        if kept := _tried(body.path, self._inside, first, origin, fed=subject.fed):
            stage = self._stage("inside", f"{body.path} as it is", standing, kept, body)
            yield replace(stage, without=standing.judge.stage("emptied", replace(kept, emptied=True)))

    def _stage(self, kind: str, label: str, standing: Standing, subject: Subject, body: Body) -> Stage:
        space = subject.space
        judge = standing.judge.stage(kind, subject)
        origin = (*standing.origin, body.path)
        return Stage(kind, label, judge, lambda known: Search(space, self.search(space), known), origin, space.whole)

    def _inside(self, descent: Descent, origin: str, *, fed: bool) -> Inside:
        trips = trip_counts(descent.above, descent.body, self.record, self._folder())
        found = Inside(descent, trips, self._folder(), origin=origin, fed=fed)
        found.cut(found.space.whole)
        return found

    # ---- values

    def _level(self, subject: Subgraph, standing: Standing) -> Level:
        made = subject.cut(standing.trial)
        samples, known = subject.samples(made), subject.judging(made)
        record = (self.record, self._folder())
        return level_of(made, samples, known, subject.store, subject.types, record, subject.recorded.unfit)

    def _folder(self) -> Path:
        """A folder that does not exist yet."""
        self._made += 1
        return self.folder / str(self._made)


def _never_ran(level: Level, body: Body) -> bool:
    """Whether the reference ran this body for no sample: a branch of an If whose condition is known for all."""
    if body.kind is not Kind.IF:
        return False
    name, samples = level.graph.protos[body.owner].input[0], range(len(level.recorded.values))
    known = all(level.value(at, name) is not None for at in samples)
    return known and not any(is_taken(level, body, at) for at in samples)


def _tried(what: str, make: Callable[P, T], *args: P.args, **named: P.kwargs) -> T | None:
    """Make something of a nested graph; None where that is impossible, which leaves the answer as it is.

    What a runtime never looks at is often malformed, and no two malformed bodies are alike: none of them may take away
    an answer that was found.
    """
    try:
        return make(*args, **named)
    except NoRoom:
        raise
    except (HoistError, CutError, WinnowError) as error:
        log.info("%s is not looked into: %s", what, error)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:  # of values that are written, not of the body
            raise
        log.warning("%s is not looked into, its nested graph is malformed (%r)", what, error)
    return None
