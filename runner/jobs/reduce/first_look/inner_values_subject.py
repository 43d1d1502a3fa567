"""Subject `inside`: the whole model, taken apart where values are known, so that each part is judged by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto, helper

from runner.candidate import Candidate, Invalid, Sample
from runner.jobs.reduce.subgraph import Subgraph
from strategies.search_space import Space
from strategies.trial import Trial

MOST_BYTES = 1 << 28
"""Bytes of values, of all samples together, that one look may take."""
MOST_TENSORS = 500
"""Tensors that one look may take: a runtime takes longer for each output the more there are."""


@dataclass(frozen=True)
class InnerValues:
    """``tensors``: those that are looked at, of the model that ``base`` cuts candidates out of.

    ``handed_out``: they are outputs of the candidate, for a builder: an engine tells the shapes of its outputs alone.
    """

    base: Subgraph
    tensors: tuple[str, ...]
    handed_out: bool = False

    @staticmethod
    def of(base: Subgraph, *, handed_out: bool = False) -> InnerValues:
        """Look at as many as the budget allows, evenly spread."""
        values = base.recorded.values
        # what stands for the whole may be the user's file, and nothing is written beside that
        base = replace(base, as_file=False)
        sizes = {
            name: sum(sample[name].size for sample in values)
            for name in _judgeable(base)
            if values
            and all(name in sample and sample[name].structure is None and sample[name].finite for sample in values)
        }
        for step in range(1, len(sizes) + 1):
            names = list(sizes)[::step]
            if len(names) <= MOST_TENSORS and sum(map(sizes.__getitem__, names)) <= MOST_BYTES:
                return InnerValues(base, tuple(names), handed_out)
        return InnerValues(base, ())

    @property
    def space(self) -> Space:
        """The elements of the model."""
        return self.base.space

    def identity(self) -> dict[str, str]:
        """Return what the model is, and what is looked at."""
        return {**self.base.identity(), "kind": "inside", "tensors": " ".join(self.tensors)}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the names of the nodes."""
        return self.base.names(trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Return the candidate of ``trial``, with what its inner tensors should hold."""
        made = self.base.make(trial, folder)
        if isinstance(made, Invalid):
            return made
        if self.handed_out and made.model:
            model = ModelProto.FromString(made.model.read_bytes())
            shown = {output.name for output in model.graph.output}
            types = self.base.types_of_all
            named = [helper.make_value_info(name, types[name]) for name in self.tensors if name not in shown]
            model.graph.output.extend(named)
            made.model.write_bytes(model.SerializeToString())
        samples = tuple(
            Sample(one.feeds, {**one.expected, **{name: values[name] for name in self.tensors}})
            for one, values in zip(made.samples, self.base.recorded.values, strict=True)
        )
        return replace(made, samples=samples, inside=self.tensors)


def _judgeable(base: Subgraph) -> Iterator[str]:
    """Return what nodes make that the reference tells, but not what is the same for all data: runtimes fold that."""
    for node in base.graph.nodes:
        for name in node.outputs:
            if base.has_reference(name) and name not in base.graph.data_independent:
                yield name
