"""The first look: where a failure may arise, as its message says or as values inside the model show.

It only decides what the search asks about first. A look may mislead, and then costs a few checks: what is found is
found by the search's own questions all the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from runner.checkers.checker import Checker
from runner.checkers.failure_text import last_line
from runner.checkers.runtime import RuntimeCheck
from runner.checkers.wrapping_checker import inner
from runner.files import inside, read_plain
from runner.jobs.reduce.first_look.inner_values_subject import InnerValues
from runner.jobs.reduce.first_look.nodes_between import between
from runner.jobs.reduce.first_look.nodes_named_in_text import named_operators, named_tensors
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import CauseStatus, least_as_bad, measured
from runner.model.graph.splice_good_values import ancestors
from runner.session.cause import Cause
from runner.session.session import Session
from runner.session.trust.check_counts import FIRST_LOOK
from runner.text import counted, listed
from runner.verdict import INSIDE, SAID, Verdict
from runner.workers.leases.lease import OutOfTime
from strategies.trial import Trial

log = logging.getLogger(__name__)

MOST = 16
"""Nodes at most that are named together."""
LONGEST = 8000
"""Characters of a text in which names are looked for."""
CLEAR, COMPARABLE = 3.0, 100.0
"""A tensor says where to look if its error is so many tolerances, and at most so many times less than the worst."""


_FEW = 3
_TRACE = "Fatal Python error"


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
        subject, failure = session.judge.subject, session.judge.studied.signature
        if not isinstance(subject, Subgraph) or failure is None:
            return
        runs = shows_inside and isinstance(inner(checker), RuntimeCheck)
        if failure.about_values:
            told = () if inner(checker).name == "builds" else _told_by_parent(subject)
            if runs and failure.family == "non-finite" and self._by_nonfinite(subject):
                pass
            # which of several matters at the outputs is not known: it may be rounding
            elif len(told) == 1 and subject.recorded.error >= _least(session, in_tolerances=runs):
                self._found(told[0], "reference.model makes something else, of the same values, than")
            elif runs:
                self._by_values(session, subject)
            elif failure.kind == "shape" and inner(checker).name == "builds":
                self._by_shapes(session, subject)
            self.places = told or self.places
        elif not self._by_text(subject, _text(session), "the message"):
            raises = failure.stage == "infer" and failure.kind.startswith("error")
            if subject.recorded.unrunnable:
                self._by_recording(subject)
            elif not (runs and raises and self._by_values(session, subject)):
                self._by_operators(subject, _text(session))
        elements = frozenset(subject.space.order)
        self.wrong, self.places = (
            tuple(filter(None, (tuple(index for index in nodes if index in elements) for nodes in places)))
            for places in (self.wrong, self.places)
        )
        self.nodes = tuple(index for index in self.nodes if index in elements)
        if self.nodes:
            names = subject.graph.names
            self.said = f"{self.said}: {listed([names[index] for index in self.nodes])}"
            log.info("first look: %s", self.said)
            session.open_search()

    def above(self, cause: Cause | None, subject: Subgraph) -> tuple[str, ...]:
        """Say where else the model is wrong inside, once a cause was shown.

        A fault hides what lies above it from all that is judged at the model's outputs. What does not is left as it is
        where the model passes with good values for the fault, so it does no harm there.
        """
        if cause is None or cause.status not in (CauseStatus.PROVEN, CauseStatus.JOINT):
            return ()
        known = {index for one in cause.answers for nodes in (one.answer.elements, *one.instances) for index in nodes}
        hidden = ancestors(subject.graph, known)
        others = [nodes[-1] for nodes in self.wrong if known.isdisjoint(nodes) and hidden.intersection(nodes[-1:])]
        if not others:
            return ()
        gives = "what it gives is" if len(others) == 1 else "what each of them gives is"
        where = listed(subject.names(Trial.of(others)), _FEW)
        said = f"{where}: {gives} wrong too, though what that is made of is right, so"
        return (f"{said} another fault may lie there; strategy.find=all names all that fail alone",)

    def _by_text(self, subject: Subgraph, text: str, what: str) -> bool:
        """Take what a text names: one tensor, or what lies between several."""
        tensors = named_tensors(subject.graph, text)
        if not tensors:
            return False
        last = max(tensors, key=lambda name: subject.graph.producers[name])
        made = between(subject.graph, last, tensors) if len(tensors) > 1 else ()
        every = tuple(sorted({subject.graph.producers[name] for name in tensors}))
        nodes = made if 1 < len(made) <= MOST else every if len(every) <= MOST else every[-1:]
        return self._found(nodes, f"{what} names")

    def _by_recording(self, subject: Subgraph) -> bool:
        """Take the first node that the reference could not run either."""
        first = [node.index for node in subject.graph.nodes if node.name in subject.recorded.unrunnable[:1]]
        return self._found(tuple(first), "the reference cannot run")

    def _by_nonfinite(self, subject: Subgraph) -> bool:
        """Take the first node that made a NaN or Inf, of values without one that counts, when the reference ran."""
        bad = {name for name in subject.graph.producers if subject.is_bad_feed(name)}
        made = [
            node.index for node in subject.graph.nodes if bad.intersection(node.outputs) and bad.isdisjoint(node.inputs)
        ]
        return self._found(tuple(made[:1]), "the first NaN or Inf that counts is made, by the reference as well, by")

    def _by_operators(self, subject: Subgraph, text: str) -> bool:
        """Take the nodes of an operator that a text names."""
        return self._found(named_operators(subject.graph, text), "the message names the operator of")

    def _by_values(self, session: Session, subject: Subgraph) -> bool:
        """Take the nodes that make the first wrong value; looking at them is one check of the search."""
        verdict = _looked(session, InnerValues.of(subject), "taken apart at")
        if verdict is None:
            return False
        sizes = {name: size for name, size in _inside(verdict).items() if name in subject.graph.producers}
        least = max(CLEAR, max(sizes.values(), default=0.0) / COMPARABLE)
        bad = [name for name, size in sizes.items() if size >= least]
        if not bad:
            return self._by_text(
                subject, str(verdict.metrics.get(SAID, ""))[:LONGEST], "the message of the optimized model"
            )
        # the last of several places is where the search would end that judges by the model's own outputs; of a place
        # that holds a tensor without a good value, parts cannot be judged
        places = [(name, between(subject.graph, name, sizes)) for name in bad]
        known = [one for one in places if all(map(subject.has_reference, _outputs(subject, one[1])))]
        self.wrong = tuple(nodes for _, nodes in places)
        as_wrong = max(CLEAR, least_as_bad(max(sizes.values())))
        self.places = tuple(nodes for name, nodes in places if sizes[name] >= as_wrong)
        last, nodes = max(known or places, key=lambda one: subject.graph.producers[one[0]])
        return self._found(nodes, f"{last} is wrong though what it is made of is right, and is made by")

    def _by_shapes(self, session: Session, subject: Subgraph) -> bool:
        """Take the node that makes the first wrong shape; looking at them is one check of the search."""
        verdict = _looked(session, InnerValues.of(subject, handed_out=True), "built with the shapes of")
        sizes = _inside(verdict) if verdict else {}
        first = next((name for name in subject.graph.producers if sizes.get(name)), None)
        if first is None:
            return False
        said = f"{first} has a wrong shape though what it is made of has the right one, and is made by"
        return self._found(between(subject.graph, first, sizes), said)

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


def _outputs(subject: Subgraph, nodes: tuple[int, ...]) -> list[str]:
    return [name for index in nodes for name in subject.graph.nodes[index].outputs if name]


def _looked(session: Session, apart: InnerValues, how: str) -> Verdict | None:
    """Return the verdict of the whole model as it is looked at; None: there is nothing to look at, or no time."""
    if not apart.tensors or session.spent():
        return None
    label = f"the whole model, {how} {counted(len(apart.tensors), 'tensor')}"
    try:
        judge = session.judge.stage(FIRST_LOOK, apart)
        return judge.sure(session.whole, FIRST_LOOK, label, "search")
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


def _inside(verdict: Verdict) -> dict[str, float]:
    """Return how bad each inner tensor is, as a verdict's metrics say; a journal may hold anything."""
    found = verdict.metrics.get(INSIDE)
    held = found.items() if isinstance(found, dict) else ()
    return {name: float(size) for name, size in held if isinstance(size, int | float)}
