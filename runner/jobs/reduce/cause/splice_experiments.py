"""The two experiments on the whole model, judged at its own outputs; see `prove_cause` for what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from onnx import TypeProto

from runner.judgment import Experiment, Scale
from runner.model.graph.graph_index import Graph
from runner.model.graph.splice_good_values import depends_on
from runner.text import counted
from strategies.outcome import Outcome
from strategies.search_space import Closure, Space
from strategies.trial import Trial

REACHED = "the budget was reached"
USED_UP = "the checks for it were used up: strategy.cause_checks=100, say, allows more"


class WholeModel(Protocol):
    """The model whose failure is studied, and what may be asked about it.

    ``space``: its nodes. ``whole``: what it does as it is. ``compares``: it is judged by the values of its outputs, and
    by nothing else.
    """

    graph: Graph
    space: Space
    whole: Experiment
    compares: bool

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

    def another(self, order: tuple[int, ...], most: int) -> tuple[Trial | None, int]:
        """Look for an answer among some elements; return it, and how many of ``most`` questions that took."""


@dataclass
class Experiments:
    """Makes experiments, each a check of one model. ``left``: questions that may still be asked."""

    model: WholeModel
    left: int

    @property
    def whole(self) -> Experiment:
        """What the whole model does."""
        return self.model.whole

    def as_bad(self, one: Experiment, among: int = 1) -> bool:
        """Whether it fails as badly as the whole model, or as one of so many places that share its failure."""
        return one.as_bad_as(self.whole, among, self.model.scale)

    def level(self, one: Experiment) -> float:
        """Return how bad it came out."""
        return one.level(self.whole, self.model.scale)

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

    def without(self, healed: Trial) -> Experiment:
        """Experiment (a): good values in place of what some nodes give."""
        # a failure that is not about values (a crash) may also arise upstream
        if self._gives_all(healed):
            return Experiment(Outcome.PASS, reason="it gives all outputs")
        return self._made(*self._without(healed))

    def only(self, answer: Trial, healed: Trial | None = None) -> Experiment:
        """Experiment (b): only what depends on some nodes is computed; all that it reads from elsewhere is good.

        ``healed``: these have good outputs, but for the ones asked about.
        """
        return self._made(*self._only(answer, healed))

    def following(self, order: tuple[int, ...]) -> Trial | None:
        """Return another answer among these elements, if there is one and it was found in time."""
        # a closure forbids searching among some of the nodes only
        if not order or self.exhausted or self.model.space.closure is not Closure.FREE:
            return None
        self.left -= 1
        found, asked = self.model.another(order, self.left)
        self.left -= asked
        return found

    def _gives_all(self, healed: Trial) -> bool:
        graph = self.model.graph
        return self.model.compares and all(graph.producers.get(name) in healed for name in graph.outputs)

    def _without(self, healed: Trial) -> tuple[Trial, str]:
        label = f"the whole model, good values in place of the outputs of {counted(len(healed), 'node')}"
        return Trial(self.everything - healed.elements), label

    def _only(self, answer: Trial, healed: Trial | None = None) -> tuple[Trial, str]:
        others = (healed.elements if healed else frozenset()) - answer.elements
        kept = depends_on(self.model.graph, answer.elements, others)
        return Trial(kept), f"the whole model, good values in place of the inputs of {counted(len(answer), 'node')}"

    def _asked(self, kept: Trial) -> bool:
        return kept != self.model.space.whole

    def _made(self, kept: Trial, label: str) -> Experiment:
        if not self._asked(kept):
            return replace(self.whole, reason="it is the whole model")
        self.left -= 1
        return self.model.with_only(kept, label) or Experiment(Outcome.UNRESOLVED, reason=REACHED)
