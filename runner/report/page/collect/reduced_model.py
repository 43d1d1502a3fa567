"""The reduced model of a page: its graph, and good and wrong values of what it is fed and gives."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from runner.candidate import Sample
from runner.model.graph.graph_index import Graph as Index
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.report.page.collect.graph import columns
from runner.report.page.collect.known import Known, Target
from runner.report.page.collect.tensor_types import types_of, value_text
from runner.report.page.collect.values import tensors
from runner.report.page.data import Graph, Tensor
from runner.report.summary import Summary
from runner.text import counted

log = logging.getLogger(__name__)
WHERE = "the reduced model"


@dataclass(frozen=True)
class Reduced:
    """``seconds``: that the target took for the values on the page; ``left``: what is left out, and why."""

    graph: Graph
    tensors: list[Tensor]
    seconds: float
    left: tuple[str, ...]


def reduced_of(folder: Path, summary: Summary, model: ModelProto, sample: Sample, target: Target | None) -> Reduced:
    """Return the graph of the model that was handed over with its values. ``sample``: what it is fed."""
    index = Index.of(model)
    wrong, seconds = _wrong(folder, summary, sample, target)
    good = {**sample.feeds, **sample.expected}
    names = dict.fromkeys((*index.outputs, *index.inputs))
    found, left = tensors(WHERE, [name for name in names if name in good or name in wrong], good, wrong)
    types = types_of(index, Known())
    types |= {name: value_text(value) for name, value in {**wrong, **good}.items() if not types.get(name)}
    said = (f"values of {counted(left, 'tensor')} are not shown",) if left else ()
    return Reduced(columns(index, types, summary.culprits), found, seconds, said)


def _wrong(
    folder: Path, summary: Summary, sample: Sample, target: Target | None
) -> tuple[Mapping[str, TensorFile], float]:
    """Return what the target makes of the reduced model, and how long that took."""
    started = time.monotonic()
    if target is None or not summary.model:
        return {}, 0.0
    try:
        return target(folder / summary.model, sample), time.monotonic() - started
    except Exception as error:
        log.debug("values for the page: %s", error, exc_info=True)
        return {}, time.monotonic() - started


def kept_sample(folder: Path, model: ModelProto) -> Sample:
    """Return the values in the data set that lies beside a model which was handed over."""
    weights = {weight.name for weight in model.graph.initializer}
    fed = [one.name for one in model.graph.input if one.name not in weights]
    sides = []
    for kind, names in (("input", fed), ("output", [one.name for one in model.graph.output])):
        held = {}
        for number in range(len(names)):
            path = folder / "test_data_set_0" / f"{kind}_{number}.pb"
            value = _read(path)
            if value:
                held[value.name] = value
        sides.append(held)
    return Sample(*sides)


def _read(path: Path) -> TensorFile | None:
    """Return the tensor of a file; None where there is none."""
    try:
        tensor = recorded.load(path)
    except (OSError, ValueError):
        return None
    return TensorFile(tensor.name, path, tensor.data_type, tuple(tensor.dims))
