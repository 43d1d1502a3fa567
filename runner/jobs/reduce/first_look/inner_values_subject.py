"""Subject `inside`: the whole model, taken apart where values are known, so that each part is judged by itself.

The comparison of the check makes a row of each tensor: a first look and `strategy=layerwise` read these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto, helper

from runner.candidate import Candidate, Invalid, Sample
from runner.jobs.reduce.subgraph import Subgraph
from strategies.search_space import Space
from strategies.trial import Trial

MOST_TENSORS = 500
"""Tensors of one run: a runtime takes longer for each output the more there are."""
MOST_BYTES = 1 << 28
"""Bytes of values, of all samples together, that one look may take."""


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
        sizes = {name: sum(sample[name].size for sample in values) for name in known(base, finite=True)}
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
            mark(made, self.base, self.tensors)
        return replace(beside(made, self.base, self.tensors), inside=self.tensors)


def known(base: Subgraph, *, finite: bool = False) -> Iterator[str]:
    """Yield the tensors that nodes make of data and that the reference tells, in topological order.

    What is the same for all data is left out, since runtimes fold it. ``finite``: so is what cannot be fed.
    """
    values = base.recorded.values
    for name in base.graph.producers:
        held = [one for sample in values if (one := sample.get(name)) and one.structure is None]
        told = values and len(held) == len(values) and (not finite or all(one.finite for one in held))
        if told and base.has_reference(name) and name not in base.graph.data_independent:
            yield name


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
