"""An imagined target with a fault: any candidate of a model is evaluated in memory, and judged against good values.

A candidate is what `runner.model.graph` makes of a set of nodes: a cut, which is fed good values and hands out what the
rest of the model or its caller reads, or a splice, the whole model with good values in place of what some nodes give.
Which tensors a candidate hands out is decided by the project's own code; the arithmetic alone is simulated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.random_faults.graphs import KERNELS, Array, RandomModel
from runner.model.graph.cut import Expose, exposed, splice
from runner.model.graph.graph_index import Graph, Node

TOLERANCE = 0.01
"""How far a tensor may be off, as a part of its largest value."""
LARGEST = 1e300
Errors = NDArray[np.float64]
Samples = Literal["first", "worst"]
"""Which sample a check speaks of: the first one that fails (a command is called for each), or the worst of all."""


@dataclass(frozen=True)
class Wrong:
    """How a kernel is wrong: by a factor, or only by what lies beyond a limit."""

    slope: float
    limit: float | None = None

    def of(self, value: Array) -> Array:
        """Return what the kernel makes of a right value."""
        if self.limit is None:
            return value * np.float32(1 + self.slope)
        return value + np.float32(self.slope) * np.maximum(value - np.float32(self.limit), 0)


@dataclass(frozen=True)
class Rules:
    """What is wrong with a target.

    ``kernels``: by the name of a node. ``fusion``: operators of a chain that it replaces by one kernel, which is wrong
    by ``fused``, wherever the chain's inner tensors are read by nobody else and are no outputs of the candidate. What
    gives a constant is folded before that, and is in no chain.
    """

    kernels: Mapping[str, Wrong] = field(default_factory=dict)
    fusion: tuple[str, ...] = ()
    fused: Wrong | None = None

    def wrong(self, nodes: Sequence[Node], outputs: Collection[str], constant: Collection[str]) -> dict[str, Wrong]:
        """Return by output tensor how a candidate's nodes are wrong."""
        found = {node.outputs[0]: self.kernels[node.name] for node in nodes if node.name in self.kernels}
        if self.fused:
            chains = fused(self.fusion, nodes, outputs, constant)
            found.update((chain[-1].outputs[0], self.fused) for chain in chains)
        return found


def fused(
    operators: Sequence[str], nodes: Iterable[Node], outputs: Collection[str], constant: Collection[str]
) -> list[tuple[Node, ...]]:
    """Return the chains of a candidate that a runtime fuses, none of which shares a node with another."""
    readers: dict[str, list[Node]] = {}
    every = [node for node in nodes if node.outputs[0] not in constant]
    for node in every:
        for name in set(node.inputs):
            readers.setdefault(name, []).append(node)
    taken: set[int] = set()
    found = []
    for first in every:
        chain = [first] if first.op_type == operators[0] else []
        while chain and len(chain) < len(operators):
            inner = chain[-1].outputs[0]
            after = readers.get(inner, [])
            fits = len(after) == 1 and inner not in outputs and after[0].op_type == operators[len(chain)]
            chain = [*chain, after[0]] if fits else []
        if chain and taken.isdisjoint(node.index for node in chain):
            taken.update(node.index for node in chain)
            found.append(tuple(chain))
    return found


@dataclass(frozen=True)
class Judged:
    """What a check says: whether a candidate fails, and its error in tolerances."""

    fails: bool
    measure: float


@dataclass(frozen=True, eq=False)
class Target:
    """Evaluates candidates of one model."""

    made: RandomModel
    rules: Rules = field(default_factory=Rules)
    samples: Samples = "worst"

    @property
    def graph(self) -> Graph:
        """The model's index."""
        return self.made.graph

    def cut(self, keep: Collection[int], expose: Expose = "frontier") -> Judged:
        """Judge a set of nodes, fed good values, at what it hands out."""
        indices = sorted(keep)
        return self._judged(indices, exposed(self.graph, indices, expose))

    def splice(self, keep: Collection[int], parts: Sequence[Collection[int]] = ()) -> Judged:
        """Judge the whole model at its own outputs, with good values in place of what the nodes give that are gone.

        ``parts``: nothing is fused across their borders.
        """
        gone = {node.index for node in self.graph.nodes}.difference(keep)
        made = splice(self.graph, gone)
        given = [name for node in made.front for name in node.output]
        return self._judged(list(made.keep), exposed(self.graph, made.keep, "own", given, made.shown), parts)

    def errors(self, keep: Sequence[int], outputs: Collection[str], wrong: Mapping[str, Wrong]) -> Errors:
        """Return the error of a candidate by sample, in tolerances: that of its worst output."""
        worst = np.zeros(self.made.samples)
        made = self._computed(keep, wrong)
        for name in outputs:
            if name in made:
                worst = np.maximum(worst, self._error(name, made[name]))
        return worst

    def _judged(self, keep: Sequence[int], outputs: Sequence[str], parts: Sequence[Collection[int]] = ()) -> Judged:
        nodes, part_of = self.graph.nodes, {index: at for at, part in enumerate(parts, 1) for index in part}
        crossing = {
            name
            for index in keep
            for name in nodes[index].inputs
            if part_of.get(self.graph.producers.get(name, -1), 0) != part_of.get(index, 0)
        }
        wrong = self.rules.wrong([nodes[index] for index in keep], crossing.union(outputs), self.made.constant)
        return judged(self.errors(keep, outputs, wrong), self.samples)

    def _computed(self, keep: Sequence[int], wrong: Mapping[str, Wrong]) -> dict[str, Array]:
        """Compute what differs from the good values."""
        made: dict[str, Array] = {}
        good = self.made.good
        with np.errstate(all="ignore"):
            for index in keep:
                node = self.graph.nodes[index]
                name = node.outputs[0]
                changed = any(read in made for read in node.inputs)
                if changed:
                    reads = self.made.reads[index]
                    value = KERNELS[node.op_type](*[made[read] if read in made else good[read] for read in reads])
                elif name in wrong:
                    value = good[name]
                else:
                    continue
                made[name] = wrong[name].of(value) if name in wrong else value
        return made

    def _error(self, name: str, value: Array) -> Errors:
        shape = (1 if name in self.made.constant else self.made.samples, -1)
        good = self.made.good[name].reshape(shape)
        with np.errstate(all="ignore"):
            error = (np.abs(value.reshape(shape) - good).max(1) / np.abs(good).max(1)).astype(np.float64) / TOLERANCE
        return np.where(np.isfinite(error), error, LARGEST)


def judged(errors: Errors, samples: Samples) -> Judged:
    """Return what a check says of the errors by sample."""
    if samples == "worst":
        worst = float(errors.max())
        return Judged(worst > 1, worst)
    failing = np.flatnonzero(errors > 1)
    told = float(errors[failing[0]] if failing.size else errors[-1])
    return Judged(told > 1, told)
