"""The two experiments on the whole model, judged at its own outputs; see `prove_cause` for what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from onnx import TypeProto

from runner.judgment import Experiment, Scale, milder
from runner.model.graph.graph_index import Graph
from runner.model.graph.splice_good_values import depends_on
from runner.session.cause import Tested
from runner.text import counted
from strategies.outcome import Outcome
from strategies.search_space import Space
from strategies.trial import Trial

REACHED = "the budget was reached"
USED_UP = "the checks for it were used up: strategy.cause_checks=100, say, allows more"


class WholeModel(Protocol):
    """The model whose failure is studied, and what may be asked about it.

    ``space``: its nodes. ``whole``: what it does as it is. ``compares``: it is judged by the values of its outputs, and
    by nothing else. ``about_values``: the failure is one of values, no crash and no error.
    """

    graph: Graph
    space: Space
    whole: Experiment
    compares: bool
    about_values: bool

    @property
    def scale(self) -> Scale:
        """How its measures are read."""

    def types(self) -> Mapping[str, TypeProto]:
        """Return the types of its tensors, as far as they are known."""

    def spent(self) -> bool:
        """Whether the budget of the run is."""

    def ahead(self, asked: Sequence[tuple[Trial, str]]) -> None:
        """Make experiments at once, where that is possible: nodes that stay as they are, and a label."""

    def with_only(self, kept: Trial, label: str) -> Experiment | None:
        """Check it with good values in place of what all other nodes give; None: the budget is spent."""

    def fenced(self, kept: Trial, parts: Sequence[Trial], label: str) -> Experiment | None:
        """The same with fences around some parts, which no fusion crosses; None: the budget is spent."""

    def looks_at_nodes(self, answer: Trial) -> bool:
        """Whether its check may look for the nodes of an answer, and not at what they compute."""

    def alone(self, kept: Trial) -> bool:
        """Whether a part of it, cut out and fed good values, fails by itself."""

    def another(self, order: tuple[int, ...], most: int) -> tuple[Trial | None, int]:
        """Look for an answer among some elements; return it, and how many of ``most`` questions that took."""


@dataclass
class Experiments:
    """Makes experiments, each a check of one model.

    ``left``: questions that may still be asked. ``healed``: faults that are known, which have good outputs throughout.
    """

    model: WholeModel
    left: int
    healed: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._failure = self.model.whole  # what is left of it once faults are healed

    def heal(self, fault: Tested) -> None:
        """Give good values to what a fault gives from now on; what fails then is the failure under study."""
        self.healed |= fault.answer.elements
        assert fault.good_outputs
        self._failure = fault.good_outputs

    def as_bad(self, one: Experiment, among: int = 1) -> bool:
        """Whether it fails as badly as what is studied, or as one of so many places that share it."""
        return one.as_bad_as(self._failure, among, self.model.scale)

    def harmless(self, one: Experiment, beside: Experiment) -> bool:
        """Whether it is much milder than another experiment, which fails without it too; not measured: it passes."""
        scale = self.model.scale
        known = one.measure is not None and beside.measure is not None and one.outcome in (Outcome.PASS, Outcome.FAIL)
        if not known or scale.harm(beside.measure or 0.0) <= 0:
            return one.heals
        now, before = one.measure or 0.0, beside.measure or 0.0
        enough = scale.limit is None or scale.harm(before) - scale.harm(now) > scale.limit
        return enough and milder(now, before, scale)

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
        if self.left > 1 and not self._gives_all(answer):
            self.model.ahead([one for one in (self._without(answer), self._only(answer)) if self._asked(one[0])])

    def without(self, answer: Trial) -> Experiment:
        """Experiment (a): good values in place of what some nodes give."""
        # a failure that is not about values (a crash) may also arise upstream
        if self._gives_all(answer):
            return Experiment(Outcome.PASS, reason="it gives all outputs")
        return self._made(*self._without(answer))

    def only(self, answer: Trial) -> Experiment:
        """Experiment (b): only what depends on some nodes is computed; all that it reads from elsewhere is good."""
        return self._made(*self._only(answer))

    def below(self, answer: Trial) -> Experiment:
        """Experiment (c): the same, with good values in place of what these nodes give as well."""
        kept = depends_on(self.model.graph, answer.elements, self.healed) - answer.elements
        if not kept:
            return Experiment(Outcome.PASS, reason="nothing depends on it")
        said = f"good values in place of the inputs and outputs of {counted(len(answer), 'node')}"
        return self._made(Trial(kept), f"the whole model, {said}")

    def from_on(self, nodes: Sequence[int]) -> Experiment:
        """Compute some nodes and what depends on them; all that is read from elsewhere is good."""
        kept = depends_on(self.model.graph, nodes, self.healed)
        return self._made(Trial(kept), f"the whole model, computed from {self.model.graph.names[nodes[0]]} on")

    def fenced(self, answer: Trial, parts: Sequence[Trial]) -> Experiment:
        """Experiment (b) on some nodes, with fences around parts of them."""
        kept, label = self._only(answer)
        told = self.model.fenced(kept, parts, f"{label}, no fusion across {counted(len(parts), 'fence')}")
        return told or Experiment(Outcome.UNRESOLVED, reason=REACHED)

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

    def _gives_all(self, healed: Trial) -> bool:
        graph, gone = self.model.graph, healed.elements | self.healed
        return self.model.compares and all(graph.producers.get(name) in gone for name in graph.outputs)

    def _without(self, healed: Trial) -> tuple[Trial, str]:
        gone = healed.elements | self.healed
        label = f"the whole model, good values in place of the outputs of {counted(len(gone), 'node')}"
        return Trial(self.everything - gone), label

    def _only(self, answer: Trial) -> tuple[Trial, str]:
        kept = depends_on(self.model.graph, answer.elements, self.healed)
        return Trial(kept), f"the whole model, good values in place of the inputs of {counted(len(answer), 'node')}"

    def _asked(self, kept: Trial) -> bool:
        return kept != self.model.space.whole

    def _made(self, kept: Trial, label: str) -> Experiment:
        if not self._asked(kept):
            return replace(self.model.whole, reason="it is the whole model")
        self.left -= 1
        return self.model.with_only(kept, label) or Experiment(Outcome.UNRESOLVED, reason=REACHED)
