"""The stages that reduce inside the nested graphs of an answer.

First each body is hoisted: its nodes take the owner's place, so that they are reduced like those of a flat graph. The
branch that an If takes, or a function, is hoisted in the whole model, where its nodes are shown to be the cause as all
others are. Of a Loop or Scan one iteration is hoisted in the answer. Where the failure needs its owner (a Loop that
never ends), the body is reduced in its place, unless the owner fails with an empty body as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from runner.artifacts.disk_space import FULL, NoRoom
from runner.errors import WinnowError
from runner.jobs.reduce.cause.prove_cause import Causes, Prover
from runner.jobs.reduce.cause.session_model import SessionModel
from runner.jobs.reduce.nested.body_subject import Inside as InOwner
from runner.jobs.reduce.nested.loop_iterations import Iterations
from runner.jobs.reduce.subgraph import Subgraph
from runner.journal.journal import context_digest
from runner.judgment import SHOWN, CauseStatus
from runner.model.graph.cut import CutError
from runner.model.graph.graph_index import Graph
from runner.model.nested.bodies import Body, HoistError, Kind, bodies
from runner.reference.body_values import (
    Descent,
    Level,
    RecorderOf,
    descend,
    in_place,
    is_taken,
    iterations,
    level_of,
    ordered_bodies,
    trip_counts,
)
from runner.reference.recording import Recorded
from runner.session.cause import Inside
from runner.session.inquiry import Inquiry
from runner.session.session import Session
from runner.session.stage import Stage, Standing
from runner.session.subject import Subject
from runner.text import listed
from strategies.outcome import Answer
from strategies.search import Done, Search, Step
from strategies.search_space import Space
from strategies.trial import Trial

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class NestedStages:
    """Makes the stages.

    ``record``: makes recorders on the reference. ``folder``: for recorded values. ``search``: of the strategy.
    ``inherit``: makes the good values of a graph in which a body of another one is hoisted out of this owner, as
    reference.model tells them; None: it is not given. ``causes``: shows what is found to be the cause, None: nobody
    asks. ``unknown``: gets what has to be said of bodies that are not looked into.
    """

    record: RecorderOf
    folder: Path
    search: Callable[[Space], Step]
    inherit: Callable[[Graph, str, Graph, Path], Recorded] | None = None
    causes: Causes | None = None
    unknown: list[str] = field(default_factory=list)
    _made: int = field(default=0)

    def stages(self, standing: Standing) -> Iterator[Stage]:
        """Yield what can be tried inside the nested graphs of an answer."""
        subject = standing.judge.subject
        if not isinstance(subject, Subgraph):
            return
        failure = standing.judge.studied.signature
        by_values = subject.fed and failure is not None and failure.about_values
        told = by_values and subject.recorded.partners is not None
        whole = Level(subject.graph, subject.store, subject.recorded, subject.types)
        answer: Level | None = None
        for body in ordered_bodies(whole, standing.trial):
            if by_values and _never_ran(whole, body):
                continue
            shown: list[bool] = []
            if in_place(whole, body):
                yield from self._in_whole(subject, standing, whole, body, shown, told=told)
            elif told:
                self._say_unknown(body)
            if not told and not shown:  # what experiments refused is what fails alone in there
                answer = answer or _tried("the answer", self._level, subject, standing)
                for one in bodies(answer.graph) if answer else ():
                    if answer and one.path == body.path:
                        yield from self._of_body(subject, standing, answer, one)

    def _in_whole(
        self, subject: Subgraph, standing: Standing, whole: Level, body: Body, shown: list[bool], *, told: bool
    ) -> Iterator[Stage]:
        """Hoisted in the whole model. ``shown``: gets whether what is found is the cause, once that was asked."""
        inherit = None
        if told and self.inherit:
            inherit = partial(self.inherit, subject.graph, subject.graph.names[body.owner])
        descent = _tried(body.path, descend, whole, body, self.record, self._folder(), 0, inherit)
        if descent is None:
            if told:
                self._say_unknown(body)
            return
        at, more = body.owner, len(descent.level.graph.nodes) - len(subject.graph.nodes)

        def moved(nodes: Iterable[int]) -> frozenset[int]:
            return frozenset(one if one < at else one + more for one in nodes if one != at)

        trial = Trial(moved(standing.trial).union(range(at, at + more + 1)))
        hoisted = replace(self._hoisted(subject, standing, descent, moved(subject.carried)), given=subject.given)
        space = replace(hoisted.space, order=tuple(trial))
        stage = self._stage("hoist", f"{body.path} without its owner", standing, hoisted, body, space)
        asked = self.causes is not None and subject.given is None
        yield replace(stage, prove=partial(self._prove, shown)) if asked else stage

    def _say_unknown(self, body: Body) -> None:
        why = "what its tensors should hold is not known, since reference.model tells nothing of them"
        self.unknown.append(f"{body.path} was not looked into: {why}")

    def _prove(
        self, shown: list[bool], session: Session, inquiry: Inquiry, done: Done
    ) -> tuple[Inquiry, Done, Inside] | None:
        """Show what was found in a body to be the cause, or another set of nodes in there."""
        before = session.judge, session.inquiry
        session.adopt(inquiry.judge)
        session.inquiry = inquiry
        try:
            label = "the whole model, this body in its owner's place"
            known = session.ruled(inquiry.judge, session.whole, "cause", label, "cause")
            if known is None or known.answer is not Answer.YES or self.causes is None or done.trial is None:
                return None
            model = SessionModel(session, self.causes.search, inquiry.search.space.whole)
            cause = Prover(model, before[1].answered + inquiry.answered, self.causes.most).prove(done.trial)
        finally:
            session.adopt(before[0])
            session.inquiry = before[1]
        shown.append(cause.status in SHOWN)
        if cause.status is CauseStatus.NOT_PROVEN:
            log.info("%s: %s", listed(inquiry.judge.subject.names(done.trial)), cause.said)
            return None
        inside = Inside(cause, inquiry.judge.subject.names)
        return *model.found.get(cause.answers[cause.main].answer, (inquiry, done)), inside

    def _hoisted(self, subject: Subgraph, standing: Standing, descent: Descent, carried: frozenset[int]) -> Subgraph:
        """Return what cuts a model with a hoisted body. What is declared, and the file, are about the whole model."""
        inner = descent.level
        return replace(
            subject,
            graph=inner.graph,
            store=inner.store,
            recorded=inner.recorded,
            types=inner.types,
            origin=f"{_origin(subject, standing, descent)} {descent.iteration}",
            carried=carried if subject.carries else frozenset(),
            declared=False,
            as_file=False,
            given=frozenset(need.name for need in descent.hoisted.needs) | (subject.given or frozenset()),
        )

    def _of_body(self, subject: Subgraph, standing: Standing, level: Level, body: Body) -> Iterator[Stage]:
        """Hoisted, in the first iteration, then in the first that fails; then with the owner kept."""
        count = _tried(body.path, iterations, level, body, self.record, self._folder())
        first = _tried(body.path, descend, level, body, self.record, self._folder()) if count else None
        if not count or not first:
            return
        if not in_place(level, body):  # it was tried in the whole model
            yield self._of_iteration(subject, standing, first, body)
        if count > 1:
            number: list[int] = []
            origin = _origin(subject, standing, first)
            alone = Iterations(level, body, count, self.record, self._folder(), origin)
            stage = self._stage("iterations", f"{body.path}, {count} iterations", standing, alone, body)

            def noted(_: Session, __: Inquiry, done: Done) -> None:
                number.append(len(done.trial or ()))

            yield replace(stage, start=alone.search, prove=noted, purpose="refine")
            at = number[0] - 1 if number else 0
            later = _tried(body.path, descend, level, body, self.record, self._folder(), at) if at else None
            if later:
                yield self._of_iteration(subject, standing, later, body)
        if not body.attribute:
            return
        if kept := _tried(body.path, self._inside, first, _origin(subject, standing, first), fed=subject.fed):
            stage = self._stage("inside", f"{body.path} as it is", standing, kept, body)
            yield replace(stage, without=standing.judge.stage("emptied", replace(kept, emptied=True)))

    def _of_iteration(self, subject: Subgraph, standing: Standing, descent: Descent, body: Body) -> Stage:
        carried = descent.level.graph.constants - {*descent.hoisted.inside}
        label = f"{body.path} without its owner" + (f", iteration {at}" if (at := descent.iteration) else "")
        return self._stage("hoist", label, standing, self._hoisted(subject, standing, descent, carried), body)

    def _stage(
        self, kind: str, label: str, standing: Standing, subject: Subject, body: Body, among: Space | None = None
    ) -> Stage:
        space = among or subject.space
        judge = standing.judge.stage(kind, subject)
        origin = (*standing.origin, body.path)
        return Stage(kind, label, judge, lambda known: Search(space, self.search(space), known), origin, space.whole)

    def _inside(self, descent: Descent, origin: str, *, fed: bool) -> InOwner:
        trips = trip_counts(descent.above, descent.body, self.record, self._folder())
        found = InOwner(descent, trips, self._folder(), origin=origin, fed=fed)
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


def _origin(subject: Subgraph, standing: Standing, descent: Descent) -> str:
    """What an answer and a body of it are: recorded values come from there."""
    return f"{context_digest(subject.identity())} {standing.trial.ranges} {descent.body.path}"


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
