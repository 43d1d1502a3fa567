"""What a proof of a cause asks for: a model that can be checked with good values in place of what its nodes give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from onnx import TypeProto

from runner.judgment import Experiment
from runner.model.graph.graph_index import Graph
from strategies.search_space import Space
from strategies.trial import Trial


class WholeModel(Protocol):
    """The model whose failure is studied, and what may be asked about it.

    ``whole``: what it does as it is. ``compares``: it is judged by its outputs' values, and by nothing else.
    """

    @property
    def graph(self) -> Graph:
        """Its graph, whose nodes are the elements."""
        ...

    @property
    def space(self) -> Space:
        """Its elements, and which sets of them may be searched."""
        ...

    @property
    def types(self) -> Mapping[str, TypeProto]:
        """The types of its tensors, as far as they are known."""
        ...

    @property
    def whole(self) -> Experiment:
        """What it does as it is."""
        ...

    @property
    def compares(self) -> bool:
        """Whether it is judged by the values of its outputs, and by nothing else."""
        ...

    @property
    def spent(self) -> bool:
        """Whether the budget of the run is."""
        ...

    def ahead(self, asked: Sequence[tuple[Trial, str]]) -> None:
        """Begin several checks at once, where that is possible: nodes that stay as they are, and a label."""
        ...

    def with_only(self, kept: Trial, label: str) -> Experiment | None:
        """Check it with good values in place of what all other nodes give; None: the budget is spent."""
        ...

    def another(self, order: tuple[int, ...], most: int) -> tuple[Trial | None, int]:
        """Look for an answer among some elements; return it, and how many of ``most`` questions that took."""
        ...
