"""The reduced model of a page: its graph, and good and wrong values of what it is fed and gives."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from onnx import ModelProto, ValueInfoProto

from runner.candidate import Sample
from runner.model.graph.graph_index import Graph as Index
from runner.model.graph.scopes import initializers
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_bytes import is_external
from runner.report.page.collect.graph_columns import columns
from runner.report.page.collect.run_material import Run, RunMaterial
from runner.report.page.collect.tensor_types import types_of, value_text
from runner.report.page.collect.tensor_values import differing, tensors
from runner.report.page.data import PageGraph, PageTensor
from runner.report.summary import Summary
from runner.text import counted

log = logging.getLogger(__name__)
WHERE = "the reduced model, on the inputs kept with it"
MOST_INNER, LARGEST_MARKED = 48, 32 << 20
"""Tensors inside a reduced model, and bytes of its file, up to which these are looked at."""


@dataclass(frozen=True)
class Reduced:
    """``seconds``: that further runs took for the values on the page; ``left``: what is left out, and why."""

    graph: PageGraph
    tensors: list[PageTensor]
    seconds: float
    left: tuple[str, ...]


def reduced_of(folder: Path, summary: Summary, model: ModelProto, sample: Sample, run: Run | None) -> Reduced:
    """Return the graph of the model that was handed over with its values. ``sample``: what it is fed."""
    index, started = Index.of(model), time.monotonic()
    good: Mapping[str, TensorFile] = {**sample.feeds, **sample.expected}
    wrong: Mapping[str, TensorFile] = {}
    with TemporaryDirectory() as scratch:
        if run is not None and summary.model:
            try:
                wrong, inner = _run(run, index, folder / summary.model, sample, Path(scratch))
                good = {**inner, **good}
            except Exception as error:
                log.debug("values for the page: %s", error, exc_info=True)
        seconds = time.monotonic() - started if run is not None else 0.0
        names = dict.fromkeys((*index.outputs, *index.inputs, *index.producers))
        found, left = tensors(WHERE, [name for name in names if name in good or name in wrong], good, wrong)
    types = types_of(index, RunMaterial())
    types |= {name: value_text(value) for name, value in {**wrong, **good}.items() if not types.get(name)}
    said = (f"values of {counted(left, 'tensor')} are not shown",) if left else ()
    return Reduced(columns(index, types, (*summary.culprits, *summary.nested)), found, seconds, said)


def _run(
    run: Run, index: Index, path: Path, sample: Sample, scratch: Path
) -> tuple[Mapping[str, TensorFile], Mapping[str, TensorFile]]:
    """Return what the target makes of the reduced model, and the good values of the tensors inside.

    Those inside are told only where the model's own outputs are the same with them as outputs, too.
    """
    wrong = run("target", path, sample, scratch / "outputs")
    inner = [name for name in index.producers if name not in index.output_set]
    elsewhere = any(map(is_external, initializers(index.model)))  # weights beside the file would have to be copied
    if not wrong or elsewhere or not 0 < len(inner) <= MOST_INNER or path.stat().st_size > LARGEST_MARKED:
        return wrong, {}
    marked = ModelProto()
    marked.CopyFrom(index.model)
    marked.graph.output.extend(index.value_info.get(name) or ValueInfoProto(name=name) for name in inner)
    place = scratch / "marked.onnx"
    place.write_bytes(marked.SerializeToString())
    shown = run("target", place, sample, scratch / "inside")
    if not wrong.keys() <= shown.keys() or any(differing(wrong[name], shown[name]) != 0 for name in wrong):
        return wrong, {}
    good = run("reference", place, sample, scratch / "good")
    return shown, {name: good[name] for name in inner if name in good}


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
