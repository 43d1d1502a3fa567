"""The first look: where a failure may arise, as its message says or as values inside the model show.

It only decides what the search asks about first. A look may mislead, and then costs a few checks: what is found is
found by the search's own questions all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto, helper

from runner.checkers.checker import Checker, inner
from runner.checkers.failure_text import last_line
from runner.checkers.runtime import RuntimeCheck
from runner.engine.session import Session
from runner.engine.session_question import Cause
from runner.engine.subject import Subject
from runner.files import inside, read_plain
from runner.jobs.reduce.nodes_in_message import named_operators, named_tensors
from runner.jobs.reduce.subgraph import SameNodes, Subgraph, subgraph
from runner.judgment import CauseStatus, least_as_bad, measured
from runner.model.graph.graph_index import Graph, needed
from runner.text import counted, listed
from runner.verdict import INSIDE, SAID, Candidate, Invalid, Phase, Sample, Verdict
from runner.workers.gpu_leases import OutOfTime
from strategies.search import Trial

# Subject `inside`: the whole model, taken apart where values are known, so that each part is judged by itself.
#
# The comparison of the check makes a row of each tensor: a first look and `strategy=layerwise` read these.

MOST_TENSORS = 500
"""Tensors of one run: a runtime takes longer for each output the more there are."""
MOST_BYTES = 1 << 28
"""Bytes of values, of all samples together, that one look may take."""


@dataclass(frozen=True)
class InnerValues(SameNodes):
    """``tensors``: those that are looked at, of the model that ``base`` cuts candidates out of.

    ``handed_out``: they are outputs of the candidate, for a builder: an engine tells the shapes of its outputs alone.
    """

    tensors: tuple[str, ...]
    handed_out: bool = False

    @staticmethod
    def of(base: Subgraph, *, handed_out: bool = False) -> InnerValues:
        """Look at as many as the budget allows, evenly spread."""
        values = base.recorded.values
        # what stands for the whole may be the user's file, and nothing is written beside that
        base = replace(base, as_file=False)
        sizes = {name: sum(sample[name].size for sample in values) for name in known(base, finite=True)}
        for step in range(1, len(sizes) + 1):
            names = list(sizes)[::step]
            if len(names) <= MOST_TENSORS and sum(map(sizes.__getitem__, names)) <= MOST_BYTES:
                return InnerValues(base, tuple(names), handed_out)
        return InnerValues(base, ())

    def identity(self) -> dict[str, str]:
        """Return what the model is, and what is looked at."""
        return {**self.base.identity(), "kind": "inside", "tensors": " ".join(self.tensors)}

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Return the candidate of ``trial``, with what its inner tensors should hold."""
        made = self.base.make(trial, folder)
        if isinstance(made, Invalid):
            return made
        if self.handed_out and made.model:
            mark(made, self.base, self.tensors)
        return replace(beside(made, self.base, self.tensors), inside=self.tensors)


def known(base: Subgraph, *, finite: bool = False, sizes: bool = False) -> Iterator[str]:
    """Yield the tensors that nodes make of data and that the reference tells, in topological order.

    What is the same for all data is left out, since runtimes fold it. ``finite``: so is what cannot be fed. ``sizes``:
    what is computed of shapes and read beside data is not.
    """
    values, graph = base.recorded.values, base.graph
    folded = graph.data_independent - (_sizes_beside_data(graph) if sizes else frozenset())
    for name in base.graph.producers:
        held = [one for sample in values if (one := sample.get(name)) and one.structure is None]
        told = values and len(held) == len(values) and (not finite or all(one.finite for one in held))
        if told and base.has_reference(name) and name not in folded:
            yield name


def _sizes_beside_data(graph: Graph) -> frozenset[str]:
    """Return the tensors that nodes compute of shapes, and that nodes read which compute of data."""
    of_data = (node for node in graph.nodes if not graph.data_independent.issuperset(node.outputs))
    read = {name for node in of_data for name in node.inputs} & graph.data_independent
    return frozenset(one for one in read if one in graph.producers and graph.producers[one] not in graph.constants)


def beside(made: Candidate, base: Subgraph, tensors: Sequence[str]) -> Candidate:
    """Return a candidate with what these tensors should hold."""
    samples = tuple(
        Sample(one.feeds, {**one.expected, **{name: values[name] for name in tensors}})
        for one, values in zip(made.samples, base.recorded.values, strict=True)
    )
    return replace(made, samples=samples)


def mark(made: Candidate, base: Subgraph, tensors: Sequence[str]) -> None:
    """Make these tensors outputs of the candidate's model, besides its own."""
    assert made.model
    model = ModelProto.FromString(made.model.read_bytes())
    shown, types = {output.name for output in model.graph.output}, base.types_of_all
    model.graph.output.extend(helper.make_value_info(name, types[name]) for name in tensors if name not in shown)
    made.model.write_bytes(model.SerializeToString())


# The nodes that make a tensor of others.

LARGEST = 64
"""Nodes that say where to look; more do not."""


def between(graph: Graph, end: str, begin: Collection[str]) -> tuple[int, ...]:
    """Return the nodes that make the tensor ``end`` of those of ``begin``; none where they are too many."""
    last = graph.producers[end]
    found, waiting = {last}, [last]
    while waiting:
        for name in graph.nodes[waiting.pop()].inputs:
            above = graph.producers.get(name)
            if above is not None and name not in begin and above not in found:
                found.add(above)
                waiting.append(above)
        if len(found) > LARGEST:
            return ()
    return tuple(sorted(found))


log = logging.getLogger(__name__)

MOST = 16
"""Nodes at most that are named together."""
LONGEST = 8000
"""Characters of a text in which names are looked for."""
CLEAR, COMPARABLE = 3.0, 100.0
"""A tensor says where to look if its error is so many tolerances, and at most so many times less than the worst."""


_TRACE = "Fatal Python error"
_FEW = 3
"""Places that a warning names."""


@dataclass
class FirstLook:
    """``nodes``: where the search looks first. ``said``: what named them; "": nobody has looked, or nothing did.

    ``wrong``: the nodes that make each tensor that is clearly wrong though what that is made of is right.
    ``places``: those about as wrong as the worst, or all nodes that recording has shown to differ from reference.model.
    """

    nodes: tuple[int, ...] = ()
    said: str = ""
    wrong: tuple[tuple[int, ...], ...] = ()
    places: tuple[tuple[int, ...], ...] = ()

    def take(self, session: Session, checker: Checker, *, shows_inside: bool) -> None:
        """Find out what the failure under study names, and begin the search there.

        ``shows_inside``: the target tells what inner tensors hold.
        """
        subject, failure = subgraph(session.judge), session.judge.studied.signature
        if failure is None:
            return
        runs = shows_inside and isinstance(inner(checker), RuntimeCheck)
        if failure.about_values:
            told = () if inner(checker).name == "builds" else _told_by_parent(subject)
            if runs and failure.family == "non-finite" and self._by_nonfinite(subject):
                pass
            # which of several matters at the outputs is not known: it may be rounding
            elif len(told) == 1 and subject.recorded.error >= _least(session, in_tolerances=runs):
                self._found(told[0], "the original computes something else from the same values")
            elif runs:
                self._by_values(session, subject)
            elif failure.kind == "shape" and inner(checker).name == "builds":
                self._by_shapes(session, subject)
            self.places = told or self.places
            inside = [[one for one in told if {*one} <= {*place}] for place in self.wrong]
            self.wrong = tuple(one for place, own in zip(self.wrong, inside, strict=True) for one in own or [place])
        elif not self._by_text(subject, _text(session), "the error message"):
            raises = failure.stage == "infer" and failure.kind.startswith("error")
            if subject.recorded.unrunnable:
                first = [node.index for node in subject.graph.nodes if node.name in subject.recorded.unrunnable[:1]]
                self._found(tuple(first), "the reference cannot run it")
            elif not (runs and raises and self._by_values(session, subject)):
                nodes = named_operators(subject.graph, _text(session))
                self._found(nodes, "the error message names the operator")
        elements = frozenset(subject.space.order)
        self.wrong, self.places = (
            tuple(filter(None, (tuple(index for index in nodes if index in elements) for nodes in places)))
            for places in (self.wrong, self.places)
        )
        self.nodes = tuple(index for index in self.nodes if index in elements)
        if self.nodes:
            names = subject.graph.names
            self.said = f"{listed([names[index] for index in self.nodes])} ({self.said})"
            log.info("the search begins with %s", self.said)
            session.open_search()

    def above(self, cause: Cause | None, subject: Subgraph) -> tuple[str, ...]:
        """Say where else the model is wrong inside, once a cause was shown.

        A fault hides what lies above it from all that is judged at the model's outputs. What does not is left as it is
        where the model passes with good values for the fault, so it does no harm there.
        """
        if cause is None or cause.status not in (CauseStatus.PROVEN, CauseStatus.JOINT):
            return ()
        known = {index for one in cause.answers for nodes in (one.answer.elements, *one.instances) for index in nodes}
        hidden = needed(subject.graph, known)
        wrong = {*self.wrong, *self.places}
        others = [nodes for nodes in wrong if known.isdisjoint(nodes) and hidden.intersection(nodes[-1:])]
        if not others:
            return ()
        gives = "its output is" if len(others) == 1 else "their outputs are"
        ends = [[subject.graph.names[index] for index in (nodes[0], nodes[-1])] for nodes in sorted(others)]
        where = listed([first if first == last else f"{first} to {last}" for first, last in ends], _FEW)
        said = f"{where}: {gives} wrong too, with right inputs, so"
        return (f"{said} there may be another fault; strategy.find=all names all parts that fail alone",)

    def _by_text(self, subject: Subgraph, text: str, what: str) -> bool:
        """Take what a text names: one tensor, or what lies between several."""
        tensors = named_tensors(subject.graph, text)
        if not tensors:
            return False
        last = max(tensors, key=lambda name: subject.graph.producers[name])
        made = between(subject.graph, last, tensors) if len(tensors) > 1 else ()
        every = tuple(sorted({subject.graph.producers[name] for name in tensors}))
        nodes = made if 1 < len(made) <= MOST else every if len(every) <= MOST else every[-1:]
        return self._found(nodes, f"named by {what}")

    def _by_nonfinite(self, subject: Subgraph) -> bool:
        """Take the first node that made a NaN or Inf, of values without one that counts, when the reference ran."""
        bad = {name for name in subject.graph.producers if subject.is_bad_feed(name)}
        made = [
            node.index for node in subject.graph.nodes if bad.intersection(node.outputs) and bad.isdisjoint(node.inputs)
        ]
        return self._found(tuple(made[:1]), "the first NaN or Inf arises here, in the reference too")

    def _by_values(self, session: Session, subject: Subgraph) -> bool:
        """Take the nodes that make the first wrong value; looking at them is one check of the search."""
        verdict, sizes = self._inside(session, InnerValues.of(subject), "taken apart at")
        if verdict is None:
            return False
        least = max(CLEAR, max(sizes.values(), default=0.0) / COMPARABLE)
        bad = [name for name, size in sizes.items() if size >= least]
        if not bad:
            return self._by_text(
                subject, str(verdict.metrics.get(SAID, ""))[:LONGEST], "the error message of the optimized model"
            )
        # the last of several places is where the search would end that judges by the model's own outputs; of a place
        # that holds a tensor without a good value, parts cannot be judged
        places = [(name, between(subject.graph, name, sizes)) for name in bad]
        gives = [node.outputs for node in subject.graph.nodes]
        known = [one for one in places if all(subject.has_reference(out) for at in one[1] for out in gives[at] if out)]
        self.wrong = tuple(nodes for _, nodes in places)
        as_wrong = max(CLEAR, least_as_bad(max(sizes.values())))
        self.places = tuple(nodes for name, nodes in places if sizes[name] >= as_wrong)
        last, nodes = max(known or places, key=lambda one: subject.graph.producers[one[0]])
        return self._found(nodes, f"{last} is clearly wrong with right inputs")

    def _by_shapes(self, session: Session, subject: Subgraph) -> bool:
        """Take the node that makes the first wrong shape; looking at them is one check of the search."""
        _, sizes = self._inside(session, InnerValues.of(subject, handed_out=True), "built with the shapes of")
        first = next((name for name in subject.graph.producers if sizes.get(name)), None)
        if first is None:
            return False
        said = f"{first} is the first wrong shape"
        return self._found(between(subject.graph, first, sizes), said)

    def _inside(self, session: Session, apart: InnerValues, how: str) -> tuple[Verdict | None, Mapping[str, float]]:
        """Look at the whole model: its verdict, None where there is none, and how wrong tensors are that nodes make."""
        label = f"the whole model, {how} {counted(len(apart.tensors), 'tensor')}"
        verdict = looked(session, apart, session.whole, Phase.FIRST_LOOK, label) if apart.tensors else None
        sizes = verdict.metrics.get(INSIDE, {}) if verdict else {}
        return verdict, {name: size for name, size in sizes.items() if name in apart.base.graph.producers}

    def _found(self, nodes: tuple[int, ...], said: str) -> bool:
        self.nodes, self.said = nodes, said if nodes else ""
        return bool(nodes)


def _least(session: Session, *, in_tolerances: bool) -> float:
    """Return how wrong recording must have found an output, in tolerances, to have seen the failure under study.

    The target may be wrong where the reference's runtime is not. ``in_tolerances``: the check measures so too.
    """
    known = session.judge.counted(session.whole) if in_tolerances else ()
    sizes = [size for one in known if (size := measured(one.metrics)) is not None]
    return max(1.0, least_as_bad(max(sizes))) if sizes else CLEAR


def _told_by_parent(subject: Subgraph) -> tuple[tuple[int, ...], ...]:
    """Return the nodes that are wrong on good values, as recording them has shown: each with those that lie between.

    None where there are many: rounding is beyond a tolerance everywhere then.
    """
    names = set(subject.recorded.wrong)
    if not 0 < len(names) <= MOST:
        return ()
    good = {name for name in subject.graph.producers if subject.has_reference(name)} - subject.recorded.unfit.keys()
    ends = (next(filter(None, node.outputs), "") for node in subject.graph.nodes if node.name in names)
    return tuple(filter(None, (between(subject.graph, name, good) for name in ends if name)))


def looked(session: Session, subject: Subject, trial: Trial, phase: Phase, label: str) -> Verdict | None:
    """Return the verdict of one look at values inside the model; None: nothing is to be seen, or there is no time."""
    if not trial or session.spent():
        return None
    try:
        return session.judge.stage(phase, subject).sure(trial, phase, label)
    except OutOfTime as error:
        log.warning("%s", error)
        return None


def _text(session: Session) -> str:
    """Return what was said of the failure of the whole model: at length, where that was recorded."""
    known = session.judge.counted(session.whole)
    said = next((text for one in known if isinstance(text := one.metrics.get(SAID), str)), "")
    words = (_last_words(session, one) for one in known[:1])
    return "\n".join((said[:LONGEST], session.judge.studied.message[:LONGEST], *words))


def _last_words(session: Session, verdict: Verdict) -> str:
    """Return the end of the last line that a process wrote before it died, and before Python told of that."""
    folder = session.judge.folder.parent
    log = folder / verdict.log if verdict.log else folder
    if verdict.signature is None or not verdict.signature.kind.startswith("death") or not inside(log, folder):
        return ""
    return last_line(read_plain(log).decode("utf-8", "replace").partition(_TRACE)[0])[-LONGEST:]
