"""Reducing inside nested graphs: stages, bodies as subjects, iterations of loops.

First each body is hoisted: its nodes take the owner's place, so that they are reduced like those of a flat graph. The
branch that an If takes, or a function, is hoisted in the whole model, where its nodes are shown to be the cause as all
others are. Of a Loop or Scan one iteration is hoisted in the answer. Where the failure needs its owner (a Loop that
never ends), the body is reduced in its place, unless the owner fails with an empty body as well.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count as counting
from pathlib import Path
from typing import TypeVar

import onnx

from runner.disk_space import FULL, NoRoom
from runner.engine.session import SearchRun, Session, Stage
from runner.engine.session_question import CurrentAnswer, Inside
from runner.engine.subject import Kept, Subject, cut_candidate
from runner.exit_codes import WinnowError
from runner.jobs.reduce.cause_experiments import SessionModel
from runner.jobs.reduce.check_controls import FIT
from runner.jobs.reduce.prove_cause import Causes
from runner.jobs.reduce.subgraph import InPlace, Subgraph, same_in_all
from runner.journal.journal import context_digest
from runner.judgment import SHOWN, CauseStatus
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import Cut, CutError, cut, with_outputs
from runner.model.graph.graph_index import Graph
from runner.model.nested.cut_body import Inner, Knowledge, cut_inside
from runner.model.nested.hoist import COUNT, Body, HoistError, Kind, bodies
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile
from runner.reference import body_values
from runner.reference.body_values import HoistedBody, Level, RecorderOf
from runner.reference.parent import InheritedBody
from runner.reference.recording import recorded_types
from runner.report.diagnosis_sections import NOT_SEARCHED
from runner.text import listed
from runner.verdict import Candidate, Invalid, Phase, Purpose, Sample
from strategies.bisect import bisect
from strategies.search import Answer, Ask, Claim, Closure, Done, Space, Step, Trial

# Subject `inside`: the elements are the nodes of one body of one owner, and a trial is the nodes kept there.
#
# The owner and the rest of the model stay. What kept nodes read and removed ones gave is fed with what the body's
# nodes hold once they are hoisted: of a Loop or Scan, in its first iteration.


@dataclass
class BodySubject:
    """Cuts candidates out of one body of a small model.

    ``descent``: the body hoisted, in its first iteration, with the values of its tensors; ``descent.above`` is the
    model. ``trips``: how many iterations the reference makes, for each sample (of a Loop; see ``trip_counts``): a
    candidate in which the Loop's condition was cut makes as many. ``folder``: for values of our own. ``origin``: the
    answer that the model was made from.
    ``emptied``: nothing is left of the body, and what it handed out is fed. Then the one element is the owner, which
    stays: a failure that stays too does not need this body, it is the owner's own or another body's. ``fed``: the
    check reads values.
    """

    descent: HoistedBody
    trips: tuple[int | None, ...]
    folder: Path
    origin: str = ""
    emptied: bool = False
    fed: bool = True
    closure = Closure.FREE

    @property
    def level(self) -> Level:
        """The model that holds the owner."""
        return self.descent.above

    @cached_property
    def inner(self) -> Inner:
        """The body's elements."""
        return Inner.of(self.level.graph, self.descent.body)

    @cached_property
    def space(self) -> Space:
        """The body's own nodes, Constants excepted; an owner among them is one element."""
        if self.emptied:
            return Space((0,), ((),), self.closure)
        elements = self.inner.elements
        return Space(tuple(range(len(elements.nodes))), elements.parents, self.closure)

    def identity(self) -> dict[str, str]:
        """Return the model, what it was made from, which body is cut, and how."""
        return {
            "kind": "emptied" if self.emptied else "inside",
            "graph": self.level.graph.digest,
            "origin": self.origin,
            "body": self.descent.body.path,
            "trips": json.dumps(self.trips),
            "closure": self.closure.value,
        }

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the paths of the kept nodes; the owner's name where the body is emptied."""
        return (self.level.graph.nodes[self.descent.body.owner].name,) if self.emptied else self.inner.names(trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate that keeps ``trial`` in the body."""
        return cut_candidate(self, self.store, trial, folder, self._unusable)

    def cut(self, trial: Trial) -> Cut:
        """Keep ``trial`` in the body. Raises CutError where a value that must come from outside is not known."""
        keep = () if self.emptied else trial.elements
        return cut_inside(self.inner, keep, self._knowledge, emptied=self.emptied)

    def kept(self, trial: Trial) -> Kept:
        """Return all nodes of the model around the body: they stay."""
        graph = self.level.graph
        return Kept(graph, Trial.of(range(len(graph.nodes))), inside=True)

    def samples(self, made: Cut) -> tuple[Sample, ...]:
        """Return, for each input sample, what a cut is fed and what its outputs should be.

        A Loop or Scan of which nodes were removed gives what nobody has recorded: of its outputs, and of what depends
        on them, nothing is said.
        """
        changed = self._changed(made)
        known = [name for name in made.outputs if name not in changed]
        return tuple(Sample.of(one, made.inputs, known) for one in self.values)

    @property
    def store(self) -> Store:
        """The model's weights, which candidates share."""
        return self.level.store

    @cached_property
    def values(self) -> tuple[Mapping[str, TensorFile], ...]:
        """What is recorded: the level's tensors, and the body's under the names that they have in candidates."""
        found = []
        for at, (above, below) in enumerate(
            zip(self.level.recorded.values, self.descent.level.recorded.values, strict=True)
        ):
            sample = dict(above)
            for name, outer in self.inner.outer.items():
                value = below.get(self.descent.hoisted.names.get(name, name))
                if value is not None:
                    sample[outer] = sample[self.inner.shown[name]] = value
            if at < len(self._limits):
                sample[self._limit_name] = self._limits[at]
            found.append(sample)
        return tuple(found)

    @cached_property
    def _knowledge(self) -> Knowledge:
        below = self.descent.level.recorded.values
        now = self.descent.hoisted.names
        types = recorded_types(below)
        inner = {name: types[now[name]] for name in self.inner.outer if now.get(name) in types}
        fixed = {name for name in inner if now[name] in self.descent.level.graph.data_independent}
        agreed = {name: same_in_all([sample.get(now[name]) for sample in below]) for name in fixed}
        return Knowledge(
            self.level.all_types,
            inner,
            {name: tensor for name, tensor in agreed.items() if tensor is not None},
            self._limit_name if self._limits else "",
            same_in_all(list(self._limits)),
        )

    @cached_property
    def _limit_name(self) -> str:
        return self.inner.supply().fresh(f"{self.descent.body.path}/iterations")

    @cached_property
    def _limits(self) -> tuple[TensorFile, ...]:
        """How often a Loop may run whose condition was cut, for each sample; once where nobody knows."""
        if self.descent.body.kind is not Kind.LOOP:
            return ()
        self.folder.mkdir(parents=True, exist_ok=True)
        name = self._limit_name
        return tuple(
            values.write(
                onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [], [1 if count is None else count]),
                name,
                self.folder / f"iterations{at}.pb",
            )
            for at, count in enumerate(self.trips)
        )

    def _changed(self, made: Cut) -> frozenset[str]:
        """The tensors that may hold something else in a cut than what is recorded."""
        if self.descent.body.kind not in (Kind.LOOP, Kind.SCAN):
            return frozenset()
        shown = frozenset(self.inner.shown.values())  # not of the first iteration alone
        whole = not self.emptied and made.model == self.cut(self.space.whole).model
        return shown if whole else self.inner.followers | shown

    def _unusable(self, made: Cut) -> str | None:
        """Why a cut is no question: a value that it is fed is not there, or would itself explain a failure.

        A NaN would. An Inf would, unless the reference run ended finite all the same (the mask of an attention).
        """
        healthy = self.level.recorded.healthy(self.level.graph.outputs)
        for name in made.inputs if self.fed else ():
            if name in self.level.graph.input_order:
                continue
            if name in self.level.recorded.unfit:
                return self.level.recorded.unfit[name]
            for sample in self.values:
                value = sample.get(name)
                if value is None:
                    return f"no value is recorded of {name!r}"
                if not value.finite and (value.nan or not healthy):
                    return f"the value recorded for {name!r} is not finite"
        return None


# Subject `iterations`: the elements are the iterations of a Loop or Scan, and a trial is the first ones of them.
#
# The candidate is the owner alone, which stops after these. What goes wrong in one iteration is carried into all that
# follow, so the first that fails is found by bisection.


@dataclass(frozen=True)
class Iterations:
    """``level``: the model that holds the owner. ``count``: of iterations. ``origin``: what the model was made from.

    ``partner``: tells what is right, where another model does.
    """

    level: Level
    body: Body
    count: int
    record: RecorderOf
    folder: Path
    origin: str
    partner: InheritedBody | None = None
    _numbers: Iterator[int] = field(default_factory=counting)

    @cached_property
    def space(self) -> Space:
        """The iterations, each of which needs the ones before it."""
        order = range(self.count)
        return Space(tuple(order), tuple((at - 1,) if at else () for at in order), Closure.ANCESTORS)

    def search(self) -> Step:
        """Look for the first that fails; where it is the very first, whose nodes do not fail, the owner does."""
        first = Trial.of([0])

        def then(answer: Answer) -> Step:
            return Done(first, Claim.WINDOW) if answer is Answer.YES else bisect(self.space)

        return Ask(first, then, "earliest end", "1 iteration")

    def identity(self) -> dict[str, str]:
        """Return the model, what it was made from, and which body is run."""
        return {"kind": "iterations", "graph": self.level.graph.digest, "origin": self.origin, "body": self.body.path}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the number of each iteration."""
        return tuple(f"{self.body.path}, iteration {at + 1}" for at in trial)

    def kept(self, trial: Trial) -> Kept:
        """Return the owner."""
        return Kept(self.level.graph, Trial.of([self.body.owner]))

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the owner that makes these iterations."""
        place = self.folder / str(next(self._numbers))
        place.mkdir(parents=True)
        try:
            model, parts = body_values.shortened(self.level, self.body, len(trial), place, stacked=True)
            values = body_values.run_alone(self.level, model, self.record, place / "values", parts)
            graph = Graph.of(model)
            if self.partner:
                values = self.partner.stopped(len(trial), values, graph.outputs, place / "parent")
            types = {**self.level.all_types, **recorded_types(values)}
            made = cut(graph, range(len(graph.nodes)), types=types, constants={})
        except (CutError, HoistError) as error:
            return Invalid(str(error))
        made = with_outputs(made, {*made.outputs} - {COUNT})  # which is for whoever runs it, and no check of the user's
        samples = tuple(Sample.of(one, made.inputs, made.outputs) for one in values)
        path = self.level.store.write(made.model, folder)
        return Candidate(path, folder, trial, samples, nodes=self.names(trial), temporary=True)


log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass
class NestedStages:
    """Makes the stages.

    ``record``: makes recorders on the reference. ``folder``: for recorded values. ``search``: of the strategy.
    ``session``: of the run. ``partner``: returns the partner of a body of a graph in reference.model, which may take
    its owner's place or not. ``causes``: shows what is found to be the cause, None: nobody asks. ``unknown``: gets what
    has to be said of bodies that are not looked into.
    """

    record: RecorderOf
    folder: Path
    search: Callable[[Space], Step]
    session: Session
    partner: Callable[[Graph, Body, bool], InheritedBody]
    causes: Causes | None
    unknown: list[str]
    _made: int = 0

    def stages(self, standing: CurrentAnswer) -> Iterator[Stage]:
        """Yield what can be tried inside the nested graphs of an answer."""
        subject = standing.judge.subject
        if not isinstance(subject, Subgraph):
            return
        failure, whole_only = standing.judge.studied.signature, isinstance(subject, InPlace)
        by_values = (subject.fed or whole_only) and failure is not None and failure.about_values
        told = by_values and subject.recorded.partners is not None
        whole = Level(subject.graph, subject.store, subject.recorded, subject.types)
        answer: Level | None = None
        for body in body_values.ordered_bodies(whole, standing.trial):
            if by_values and body_values.is_never_taken(whole, body):
                continue
            placed = body_values.in_place(whole, body)
            made = BodyStages(self, standing, subject, whole, body, told=told or whole_only)
            if told:
                made.partner = made.tried(partial(self.partner, subject.graph, body, placed))
                if not made.partner:
                    continue
            if placed:
                yield from made.in_whole()
            elif whole_only:
                self.unknown.append(f"{body.path}{NOT_SEARCHED}: the check needs the whole model. {FIT}")
            elif told:
                yield from made.around()
            if not told and not whole_only and not made.shown:  # what experiments refused is what fails alone in there
                answer = answer or _tried("the answer", partial(self._level, subject, standing))
                for one in bodies(answer.graph) if answer else ():
                    if answer and one.path == body.path:
                        yield from BodyStages(self, standing, subject, answer, one).around()

    def _level(self, subject: Subgraph, standing: CurrentAnswer) -> Level:
        made = subject.cut(standing.trial)
        samples, known = subject.samples(made), subject.judging(made)
        record = (self.record, self.fresh())
        return body_values.level_of(made, samples, known, subject.store, subject.types, record, subject.recorded)

    def fresh(self) -> Path:
        """Return a folder that does not exist yet."""
        self._made += 1
        return self.folder / str(self._made)


@dataclass
class BodyStages:
    """Makes the stages of one body.

    ``level``: the model that holds the body's owner: what ``subject`` cuts nodes out of, or the answer that
    ``standing`` is. ``told``: the user is told why a body is not looked into. ``partner``: tells what is right, where
    another model does. ``shown``: gets whether what is found is the cause, once that was asked.
    """

    made: NestedStages
    standing: CurrentAnswer
    subject: Subgraph
    level: Level
    body: Body
    told: bool = False
    partner: InheritedBody | None = None
    shown: list[bool] = field(default_factory=list)

    def tried(self, make: Callable[[], T]) -> T | None:
        """Make something of the body; see `_tried`."""
        return _tried(self.body.path, make, self.made.unknown if self.told else None)

    def in_whole(self) -> Iterator[Stage]:
        """Yield what is tried with the body hoisted in the whole model."""
        if not (descent := self._descend(0)):
            return
        hoisted, space = self._hoisted(descent)
        stage = self._stage("hoist", self._without_owner, replace(hoisted, given=self.subject.given), space)
        session, causes = self.made.session, self.made.causes
        beyond = len(session.space.order) < len(session.judge.subject.space.order)
        asked = self.subject.given is None and not beyond
        yield replace(stage, prove=partial(self._prove, causes)) if causes and asked else stage

    def around(self) -> Iterator[Stage]:
        """Yield the stages hoisted: the first iteration, then the first that fails; then with the owner kept."""
        level, body, record, partner = self.level, self.body, self.made.record, self.partner
        count = self.tried(lambda: body_values.iterations(level, body, record, self.made.fresh()))
        if count and partner:
            count = min(count, self.tried(lambda: partner.count(self.made.fresh())) or 0)
        # a body that begins with other values than its partner makes wrong ones of these, and is right
        begins = not (partner and partner.body) or body_values.begin_alike(level, body, partner.level, partner.body)
        first = self._descend(0) if count and begins else None
        if not count or (begins and not first):
            return
        if first and not body_values.in_place(level, body):  # it was tried in the whole model
            yield self._of_iteration(first, count)
        origin = self._origin
        if count > 1:
            ended: list[int] = []
            alone = Iterations(level, body, count, record, self.made.fresh(), origin, partner)
            stage = self._stage("iterations", f"{body.path}, {count} iterations", alone, alone.space)

            def noted(_: SearchRun, done: Done) -> None:
                ended.append(len(done.trial or ()))

            yield replace(stage, first=alone.search(), prove=noted, purpose=Purpose.REFINE)
            at = ended[0] - 1 if ended else 0
            if at and (later := self._descend(at)):
                yield self._of_iteration(later, count)
        if partner or not first or not body.attribute:
            return
        if kept := self.tried(lambda: self._inside(first, origin)):
            stage = self._stage("inside", f"{body.path} as it is", kept, kept.space)
            yield replace(stage, without=self.standing.judge.stage("emptied", replace(kept, emptied=True)))

    @property
    def _without_owner(self) -> str:
        return f"{self.body.path} without the node around it"

    @property
    def _origin(self) -> str:
        """What the answer and the body are: recorded values come from there."""
        return f"{context_digest(self.subject.identity())} {self.standing.trial.ranges} {self.body.path}"

    def _descend(self, number: int) -> HoistedBody | None:
        """Hoist the body, as in an iteration."""
        where = self.level, self.body, self.made.record, self.made.fresh()
        return self.tried(lambda: body_values.descend(*where, number, self.partner))

    def _of_iteration(self, descent: HoistedBody, count: int) -> Stage:
        hoisted, space = self._hoisted(descent)
        if self.body.kind in (Kind.LOOP, Kind.SCAN) and count > 1:
            hoisted = replace(hoisted, iteration=f"iteration {descent.iteration + 1} of {count}")
        later = f", iteration {descent.iteration + 1}" if descent.iteration else ""
        return self._stage("hoist", self._without_owner + later, hoisted, space)

    def _hoisted(self, descent: HoistedBody) -> tuple[Subgraph, Space]:
        """Return what cuts a model with a hoisted body, and where the answer is in there.

        What is declared, and the file, are about the whole model.
        """
        subject, inner = self.subject, descent.level
        hoisted = replace(
            subject,
            graph=inner.graph,
            store=inner.store,
            recorded=inner.recorded,
            types=inner.types,
            origin=f"{self._origin} {descent.iteration}",
            carried=inner.graph.constants - {*descent.hoisted.inside} if subject.carries else frozenset(),
            declared=False,
            as_file=False,
            given=frozenset(need.name for need in descent.hoisted.needs) | (subject.given or frozenset()),
        )
        if self.level.graph is not subject.graph:
            return hoisted, hoisted.space
        at, more = self.body.owner, len(inner.graph.nodes) - len(subject.graph.nodes)

        def moved(nodes: Iterable[int]) -> frozenset[int]:
            return frozenset(one if one < at else one + more for one in nodes if one != at)

        hoisted = replace(hoisted, carried=moved(subject.carried) if subject.carries else frozenset())
        if isinstance(hoisted, InPlace):
            hoisted = replace(hoisted, healed=moved(hoisted.healed), fences=True)
        trial = Trial(moved(self.standing.trial).union(range(at, at + more + 1)))
        return hoisted, replace(hoisted.space, order=tuple(trial))

    def _stage(self, kind: str, label: str, subject: Subject, space: Space) -> Stage:
        origin = (*self.standing.origin, self.body.path)
        return Stage(kind, label, self.standing.judge.stage(kind, subject), space, self.made.search(space), origin)

    def _inside(self, descent: HoistedBody, origin: str) -> BodySubject:
        folder = self.made.fresh()
        trips = body_values.trip_counts(descent.above, descent.body, self.made.record, folder)
        found = BodySubject(descent, trips, self.made.fresh(), origin=origin, fed=self.subject.fed)
        found.cut(found.space.whole)
        return found

    def _prove(self, causes: Causes, inquiry: SearchRun, done: Done) -> tuple[SearchRun, Done, Inside] | None:
        """Show what was found in the body to be the cause, or another set of nodes in there."""
        session = self.made.session
        before = session.judge, session.inquiry
        session.adopt(inquiry.judge, inquiry)
        try:
            label = "the whole model, this body in its owner's place"
            known = session.ruled(inquiry.judge, session.whole, Phase.CAUSE, label)
            if known is None or known.answer is not Answer.YES or done.trial is None:
                return None
            model = SessionModel(session, causes.search, inquiry.search.space.whole)
            cause = causes.shown(model, before[1].answered + inquiry.answered, done.trial)
        finally:
            session.adopt(*before)
        self.shown.append(cause.status in SHOWN)
        if cause.status is CauseStatus.NOT_PROVEN:
            log.info("%s: %s", listed(inquiry.judge.subject.names(done.trial)), f"{cause.status.value}; {cause.reason}")
            return None
        inside = Inside(cause, inquiry.judge.subject.names)
        return *model.found.get(cause.answers[cause.main].answer, (inquiry, done)), inside


def _tried(what: str, make: Callable[[], T], told: list[str] | None = None) -> T | None:
    """Make something of a nested graph; None where that is impossible, which leaves the answer as it is.

    What a runtime never looks at is often malformed, and no two malformed bodies are alike: none of them may take away
    an answer that was found. ``told``: gets why it is impossible.
    """
    try:
        return make()
    except NoRoom:
        raise
    except (HoistError, CutError, WinnowError) as error:
        log.info("%s is not searched: %s", what, error)
        if told is not None:
            told.append(f"{what}{NOT_SEARCHED}: {error}")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:  # of values that are written, not of the body
            raise
        log.warning("%s is not searched, its nested graph is malformed (%r)", what, error)
    return None
