"""Experiments on the whole model: what is asked, by which session, and whether the check reads what it is given.

The two experiments on the whole model, judged at its own outputs; see `prove_cause` for what they show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, TypeProto, helper

from runner.checkers.checker import inner
from runner.checkers.command import CommandCheck
from runner.checkers.python import PythonCheck
from runner.engine.check_trials import Expected, Judge
from runner.engine.session import SearchRun, Session, scale_of
from runner.engine.session_question import NOTHING, AnswerExperiments, Cause, CurrentAnswer
from runner.jobs.reduce.subgraph import InPlace, SameNodes, Spliced, subgraph
from runner.judgment import CauseStatus, Experiment, Scale, Whose, measured, milder
from runner.model.graph.cut import depends_on
from runner.model.graph.edits import add_initializer, edited
from runner.model.graph.low_precision import WiderTypes
from runner.model.values.recorded import read, write
from runner.samples.ask_reference import Taken
from runner.text import counted
from runner.verdict import Candidate, Invalid, Phase, Purpose, Sample, Verdict, got_further
from strategies.search import Answer, Claim, Closure, Done, Outcome, Space, Step, Trial

REACHED = "the budget was reached"
USED_UP = "the experiments used up their checks (strategy.cause_checks=100 allows more)"


@dataclass
class Experiments:
    """Makes experiments, each a check of one model.

    ``left``: questions that may still be asked.
    """

    model: SessionModel
    left: int

    def heal(self, fault: AnswerExperiments) -> None:
        """Give good values to what a fault gives from now on; what fails then is the failure under study."""
        assert fault.good_outputs
        self.model.healed |= fault.answer.elements
        self.model.failure = fault.good_outputs

    def as_bad(self, one: Experiment, among: int = 1) -> bool:
        """Whether it fails as badly as what is studied, or as one of so many places that share it."""
        return one.as_bad_as(self.model.failure, among, self.model.scale)

    def harmless(self, one: Experiment, beside: Experiment) -> bool:
        """Whether it is much milder than another experiment, which fails without it too; not measured: it passes."""
        scale = self.model.scale
        known = one.measure is not None and beside.measure is not None and one.outcome in (Outcome.PASS, Outcome.FAIL)
        if not known or scale.harm(beside.measure or 0.0) <= 0:
            return one.heals
        enough = scale.limit is None or self.better(one, than=beside)
        return enough and milder(one.measure or 0.0, beside.measure or 0.0, scale)

    def better(self, one: Experiment, than: Experiment) -> bool:
        """Whether it is better than another one by more than what a model passes with, as far as that is known."""
        scale = self.model.scale
        if scale.limit is None or one.measure is None or than.measure is None:
            return False
        return scale.harm(than.measure) - scale.harm(one.measure) > scale.limit

    def slight(self, one: Experiment) -> bool:
        """Whether it fails by so little that what it would do without a share of others may pass."""
        limit = self.model.scale.limit
        return limit is not None and one.measure is not None and self.model.scale.harm(one.measure) <= 2 * limit

    @property
    def exhausted(self) -> bool:
        """Whether no further question may be asked."""
        return bool(self.used_up)

    @property
    def used_up(self) -> str:
        """Why no further question may be asked; "" where one may be."""
        return REACHED if self.model.spent() else USED_UP if self.left <= 0 else ""

    @property
    def everything(self) -> frozenset[int]:
        """All elements of the model."""
        return self.model.space.whole.elements

    def both(self, answer: Trial) -> None:
        """Make (a) and (b) at once, where several checks are: one that the other turns out to decide is paid for."""
        if self.left > 1 and not self.gives_all(answer):
            both = self._without(answer), self._only(answer)
            self.model.ahead([one for one in both if one[0] != self.model.space.whole])

    def without(self, answer: Trial) -> Experiment:
        """Experiment (a): good values in place of what some nodes give."""
        # a failure that is not about values (a crash) may also arise upstream
        if self.gives_all(answer):
            return Experiment(Outcome.PASS, reason="it gives all outputs")
        return self._made(*self._without(answer))

    def only(self, answer: Trial) -> Experiment:
        """Experiment (b): only what depends on some nodes is computed; all that it reads from elsewhere is good.

        Some fusions need the QuantizeLinear in front of them, and integers that are fed have none. Where it passes, and
        these nodes are right, they stay.
        """
        kept, label = self._only(answer)
        made, quantizers = self._made(kept, label), self._quantizers(answer)
        if not made.heals or not quantizers or self.exhausted or self.alone(quantizers):
            return made
        return self._made(Trial(kept.elements | quantizers.elements), f"{label}, quantized there")

    def _quantizers(self, answer: Trial) -> Trial:
        """Return the nodes that quantize what some nodes read."""
        graph, inside = self.model.graph, answer.elements | self.model.healed
        read = {graph.producers.get(name) for index in answer for name in graph.nodes[index].inputs} - {None, *inside}
        return Trial(frozenset(one for one in read if one is not None and graph.nodes[one].op_type == "QuantizeLinear"))

    def before(self, nodes: frozenset[int]) -> Experiment:
        """What is computed before nodes that give all outputs: it is judged by what these read."""
        self.left -= 1
        return self.model.before(Trial(self.everything - nodes - depends_on(self.model.graph, nodes)))

    def below(self, answer: Trial) -> Experiment:
        """Experiment (c): the same, with good values in place of what these nodes give as well."""
        kept = depends_on(self.model.graph, answer.elements, self.model.healed) - answer.elements
        if not kept:
            return Experiment(Outcome.PASS, reason="nothing depends on it")
        said = f"good values in place of the inputs and outputs of {counted(len(answer), 'node')}"
        return self._made(Trial(kept), f"the whole model, {said}")

    def from_on(self, nodes: Sequence[int]) -> Experiment:
        """Compute some nodes and what depends on them; all that is read from elsewhere is good."""
        kept = depends_on(self.model.graph, nodes, self.model.healed)
        said = f"the whole model, computed from {self.model.graph.names[nodes[0]]} on"
        return self._made(Trial(kept), said, fits=True)

    def fenced(self, answer: Trial, parts: Sequence[Trial]) -> Experiment:
        """Experiment (b) on some nodes, with fences around parts of them."""
        kept, label = self._only(answer)
        return self.model.fenced(kept, parts, f"{label}, no fusion across {counted(len(parts), 'fence')}")

    def alone(self, kept: Trial) -> bool:
        """Whether a part of the model fails by itself."""
        self.left -= 1
        return self.model.alone(kept)

    def following(self, order: tuple[int, ...]) -> Trial | None:
        """Return another answer among these elements, if there is one and it was found in time."""
        # a closure forbids searching among some of the nodes only
        if not order or self.exhausted or not self.model.space.any_set:
            return None
        self.left -= 1
        found, asked = self.model.another(order, self.left)
        self.left -= asked
        return found

    def gives_all(self, healed: Trial) -> bool:
        """Whether some nodes, with those that are good already, give all that the check compares."""
        graph, gone = self.model.graph, healed.elements | self.model.healed
        return self.model.compares and all(graph.producers.get(name) in gone for name in graph.outputs)

    def _without(self, healed: Trial) -> tuple[Trial, str]:
        gone = healed.elements | self.model.healed
        label = f"the whole model, good values in place of the outputs of {counted(len(gone), 'node')}"
        return Trial(self.everything - gone), label

    def _only(self, answer: Trial) -> tuple[Trial, str]:
        kept = depends_on(self.model.graph, answer.elements, self.model.healed)
        return Trial(kept), f"the whole model, good values in place of the inputs of {counted(len(answer), 'node')}"

    def _made(self, kept: Trial, label: str, *, fits: bool = False) -> Experiment:
        if kept == self.model.space.whole:
            return replace(self.model.whole, reason="it is the whole model")
        self.left -= 1
        return self.model.asked(self.model.fitting if fits else self.model.spliced, kept, label)


# Whether a check was fed the good values; of one that feeds values of its own the experiments say nothing.
#
# Three controls tell. A check that fails a Gather that is fed an index beyond its data reads it, also one that makes
# up what it does not get. Where a runtime minds no index, one that fails a harmless model for which it gets no values
# does. One that fails the answer's nodes beside outputs that are right, whatever these compute, looks at nodes: no
# value misleads it.

_DATA, _BEYOND = 1 << 15, 60_000
"""Elements that the Gather reads of, more than a check makes up an index for, and an index beyond, also in float16."""
_INDEX = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64)


Change = Callable[[ModelProto, tuple[Sample, ...], Path], tuple[Sample, ...]]
"""Changes a model, and returns what it is fed then."""


def unless_fed(session: Session, cause: Cause, answer: Trial) -> Cause:
    """Return what is known about the cause: nothing, where the check that was asked feeds values of its own."""
    checker, studied = inner(session.judge.checker), session.judge.studied.signature
    held = session.judge.subject.space.closure is Closure.PLACE  # the good values are in the model
    asked = cause.status is not CauseStatus.UNTESTED and studied is not None and studied.about_values and not held
    if not asked or not isinstance(checker, CommandCheck | PythonCheck):
        return cause
    for label, change in _UNREAD.items() if checker.takes_inputs else ():
        if not _passes(session, NOTHING, label, change):
            return cause
    if looks_at_nodes(session, answer):
        return cause
    inputs, how = "{inputs}", " (checker.command='python check.py {model} {inputs}')"
    if isinstance(checker, PythonCheck):
        inputs, how = "its argument inputs", ""
    reason = f"your check does not read {inputs}, so no good value reached the model. Let it feed {inputs}{how}"
    return replace(cause, status=CauseStatus.UNTESTED, causes=(), reason=reason)


def unless_made_up(cause: Cause, standing: CurrentAnswer, made: Taken) -> Cause:
    """Return what is known of the cause: not whose it is, where inputs were made up and others may be what it takes."""
    names = standing.judge.subject.names(standing.trial)
    if not cause.no_value or made.doubtful == () or not set(names) & {*made.doubtful}:
        return cause
    said = f"{cause.no_value}; {made.doubt}"
    return replace(cause, reason=said, whose=Whose.UNKNOWN, no_value=said)


def looks_at_nodes(session: Session, answer: Trial) -> bool:
    """Whether a check fails an answer's nodes beside outputs that are right; of checks of ours this is not known."""
    if not isinstance(inner(session.judge.checker), CommandCheck | PythonCheck):
        return True
    return not _passes(session, answer, "the answer beside outputs that are right", _beside)


def _passes(session: Session, trial: Trial, label: str, change: Change) -> bool:
    judge = session.judge.stage(label, Changed(subgraph(session.judge), change))
    ruling = session.reliability.rule(judge, trial, Phase.CONTROL, label)
    return ruling is not None and ruling.verdict.outcome is Outcome.PASS


@dataclass(frozen=True)
class Changed(SameNodes):
    """Subject: what ``base`` makes of a trial, with a change to it."""

    change: Change

    def identity(self) -> dict[str, str]:
        """Return how the model is cut, and what is done with the cut."""
        return {**self.base.identity(), "kind": self.change.__name__}

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate."""
        made = self.base.make(trial, folder)
        if isinstance(made, Invalid) or made.model is None:
            return made
        model = ModelProto.FromString(made.model.read_bytes())
        samples = self.change(model, made.samples, folder)
        made.model.write_bytes(model.SerializeToString())
        return replace(made, samples=samples)


def _unfed(_: ModelProto, samples: tuple[Sample, ...], __: Path) -> tuple[Sample, ...]:
    """Feed nothing."""
    return tuple(Sample({}, one.expected) for one in samples)


def _beside(model: ModelProto, samples: tuple[Sample, ...], _: Path) -> tuple[Sample, ...]:
    """Hand on good outputs in place of what is computed."""
    feeds, expected = [dict(one.feeds) for one in samples], [dict(one.expected) for one in samples]
    outputs = [*model.graph.output]
    del model.graph.output[:]
    for output in outputs:
        given, handed = f"{output.name}_is_good", f"{output.name}_handed_on"
        model.graph.node.append(helper.make_node("Identity", [given], [handed], name=handed))
        model.graph.input.append(helper.make_value_info(given, output.type))
        model.graph.output.append(helper.make_value_info(handed, output.type))
        for fed, good in zip(feeds, expected, strict=True):
            if output.name in good:
                fed[given] = good[handed] = good.pop(output.name)
    return tuple(map(Sample, feeds, expected))


def _beyond(model: ModelProto, samples: tuple[Sample, ...], folder: Path) -> tuple[Sample, ...]:
    """Make a Gather of a lone Identity; of other controls, and of types that hold no such index, the same is left."""
    graph = model.graph
    kinds = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    if len(graph.node) != 1 or len(graph.input) != 1 or len(kinds) != 1 or not kinds <= {*_INDEX}:
        return samples
    (fed,), (gives,) = graph.node[0].input, graph.node[0].output
    if any(fed not in one.feeds for one in samples):  # the check brings values of its own
        return samples
    index, data, kind = f"{gives}_index", f"{gives}_data", kinds.pop()
    add_initializer(model, helper.make_tensor("", kind, [_DATA], [1] * _DATA), data)
    graph.node[0].CopyFrom(helper.make_node("Cast", [fed], [index], to=TensorProto.INT64))
    graph.node.append(helper.make_node("Gather", [data, index], [gives]))
    found = []
    for at, one in enumerate(samples):
        beyond = np.full_like(read(one.feeds[fed]), _BEYOND)
        found.append(Sample({fed: write(beyond, fed, folder / f"beyond{at}.pb")}, one.expected))
    return tuple(found)


_UNREAD: Mapping[str, Change] = {
    "a lone Gather, fed an index beyond its data": _beyond,
    "a lone Identity, and nothing to feed it": _unfed,
}
"""Harmless models that a check passes only if it reads no values."""


# The model of a session, as a proof of a cause asks about it: each experiment and each search is checks of the run.


@dataclass(frozen=True)
class Wider(SameNodes):
    """Subject `wider`: the whole model, with the nodes of a trial in a wider type."""

    types: WiderTypes

    def identity(self) -> dict[str, str]:
        """Return the model, and the type."""
        return {**self.base.identity(), "kind": "wider", "wide": str(self.types.wide)}

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Write the candidate.

        An output of the model that the raised nodes alone read has the wider type. A value of the reference that is not
        finite is none that it should give.
        """
        graph, types = self.base.graph, self.types
        made = edited(graph.model, [*types.edits(tuple(trial))])
        casts = {node.output[0]: node for node in made.graph.node if node.op_type == "Cast"}
        for output in made.graph.output:
            if output.name in types.raised and trial.elements.issuperset(graph.readers.get(output.name, ())):
                output.type.tensor_type.elem_type = types.wide
                casts[output.name].attribute[0].i = types.wide
        samples = tuple(
            replace(one, expected={name: held for name, held in one.expected.items() if held.finite})
            for one in self.base.whole_samples
        )
        draws = bool(graph.drawing)
        return Candidate(self.base.store.write(made, folder), folder, trial, samples, draws=draws, temporary=True)


@dataclass
class SessionModel:
    """The model whose failure is studied, and what may be asked about it.

    ``search``: for further answers, ``among`` some elements. ``found``: these answers, and how they were found.
    ``graph``, ``space``: its nodes. ``spliced``: judges it with good values in place of nodes. ``fitting``: as that,
    with such as their types hold. ``whole``: what it does as it is; ``failure``: what is left of that once the faults
    in ``healed`` have good outputs throughout. ``compares``: it is judged by the values of its outputs, and by nothing
    else. ``about_values``: the failure is one of values, no crash and no error.
    """

    session: Session
    search: Callable[[Space], Step]
    among: Trial | None = None
    found: dict[Trial, tuple[SearchRun, Done]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        judge = self.session.judge
        self.base = subgraph(judge)
        self.graph, self.space = self.base.graph, self.base.space
        failed = [one for one in judge.counted(self.space.whole) if one.outcome is Outcome.FAIL]
        self.whole = _experiment(failed[0]) if failed else Experiment(Outcome.FAIL)
        signature = judge.studied.signature
        self.compares = signature is not None and signature.stage == "compare"
        self.about_values = signature is not None and signature.about_values
        held = self.space.closure is Closure.PLACE
        alive = signature is not None and not signature.about_values and not held
        self._splices = Spliced(self.base, alive, held=held)
        self.spliced = self.fitting = judge.stage("cause", self._splices)
        if self.base.recorded.narrow:
            self.fitting = judge.stage("cause", replace(self._splices, fits=True))
        self._good: list[float] = []
        self.healed, self.failure = frozenset[int](), self.whole

    @property
    def scale(self) -> Scale:
        """How measures are read: an accuracy is counted from the best that the whole model reached with good values."""
        return scale_of(self.session.judge, self._good)

    def types(self) -> Mapping[str, TypeProto]:
        """Return the types of its tensors, as far as they are known."""
        return self.base.types_of_all

    def no_good(self, tensor: str, reader: int, among: Trial) -> bool:
        """Whether no good value can be fed to one of some nodes: there is none, or the type does not hold it."""
        return bool(self.base.recorded.why_unfit(tensor, (reader,), among.elements))

    def looks_at_nodes(self, answer: Trial) -> bool:
        """Whether its check may look for the nodes of an answer, and not at what they compute."""
        return looks_at_nodes(self.session, answer)

    def spent(self) -> bool:
        """Whether the budget of the run is."""
        return self.session.spent()

    def ahead(self, asked: Sequence[tuple[Trial, str]]) -> None:
        """Make experiments at once, unless their number is limited or each is made several times."""
        session = self.session
        if session.means.budget.checks is None and not session.spent() and not session.reliability.rates:
            session.means.ahead([Expected(self.spliced, kept, Phase.CAUSE, label) for kept, label in asked])

    @property
    def _parts(self) -> Judge:
        """Who judges parts: in their place, faults of what depends on them are seen too, and are none of theirs."""
        judge, failure, scale = self.session.judge, self.failure, self.scale
        if isinstance(judge.subject, InPlace):
            judge = judge.stage("part in place", replace(judge.subject, healed=self.healed))
            judge.mild = lambda verdict: not _experiment(verdict).as_bad_as(failure, scale=scale)
        return judge

    def alone(self, kept: Trial) -> bool:
        """Whether a part of it, cut out and fed good values, fails by itself."""
        ruling = self.session.ruled(self._parts, kept, Phase.CAUSE, f"{counted(len(kept), 'node')} alone")
        return ruling is not None and ruling.answer is Answer.YES

    def before(self, kept: Trial) -> Experiment:
        """Make an experiment: what stands before all that is left out, cut out and fed good values."""
        return self.asked(self._parts, kept, f"{counted(len(kept), 'node')} alone")

    def fenced(self, kept: Trial, parts: Sequence[Trial], label: str) -> Experiment:
        """Make an experiment with fences around some parts, which no fusion crosses; as `asked`."""
        judge = self.session.judge.stage("fenced", replace(self._splices, parts=tuple(parts)))
        return self.asked(judge, kept, label, Purpose.TRUST)

    def asked(self, judge: Judge, trial: Trial, label: str, purpose: Purpose | None = None) -> Experiment:
        """Make an experiment: what stays as it is, with good values for all else; unresolved where the budget ends."""
        ruling = self.session.ruled(judge, trial, Phase.CAUSE, label, purpose)
        if ruling is None:
            return Experiment(Outcome.UNRESOLVED, reason=REACHED)
        experiment, studied = _experiment(ruling.verdict), self.session.judge.studied.signature
        if experiment.outcome is Outcome.DIFFERENT:  # what counts as the failure under study is not gone
            experiment = replace(experiment, gone=got_further(studied, ruling.verdict.signature))
        if experiment.outcome is Outcome.PASS and experiment.measure is not None:
            self._good.append(experiment.measure)
        if self.session.reliability.rates and ruling.answer is Answer.UNKNOWN:
            return replace(experiment, outcome=Outcome.UNRESOLVED, reason="the check is too flaky for that", gone=False)
        return experiment

    def another(self, order: tuple[int, ...], most: int) -> tuple[Trial | None, int]:
        """Look for an answer among some elements; return it, and how many of ``most`` questions that took."""
        order = tuple(one for one in order if self.among is None or one in self.among)
        session, whole, judge = self.session, Trial.of(order), self._parts
        if not whole:
            return None, 0
        rest = session.ruled(judge, whole, Phase.CAUSE, "the model without what has good values")
        if rest is None or rest.answer is not Answer.YES:
            return None, 0
        inquiry = session.inquire(order, Purpose.CAUSE, most, self.search, judge)
        inquiry.note(whole, Answer.YES)
        done = inquiry.settle() if session.reliability.rates else inquiry.run()
        if done.trial and not inquiry.stopped:
            self.found[done.trial] = inquiry, done
        ended = inquiry.search.done
        return ended.trial if ended and ended.claim is not Claim.BUDGET else None, len(inquiry.search.asked)

    def found_together(self, nodes: Trial) -> None:
        """Note that some nodes are an answer as they are: none of them is left out, though fewer may fail alone."""
        inquiry = self.session.inquire(tuple(nodes), Purpose.CAUSE, step=self.search, judge=self._parts)
        self.found[nodes] = inquiry, Done(nodes, Claim.TOGETHER)

    def found_within(self, nodes: Trial, answer: Trial) -> None:
        """Note that some nodes are part of an answer, which is handed over for them: alone they may not fail."""
        if nodes not in self.found and answer in self.found:
            self.found[nodes] = self.found[answer]


def _experiment(verdict: Verdict) -> Experiment:
    return Experiment(verdict.outcome, measured(verdict.metrics), verdict.reason)
