"""The values that go into a control, and those that should come out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import TensorProto

from runner.candidate import Sample
from runner.model.graph.control_model import Control
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile


def samples_of(made: Control, known: Sequence[Mapping[str, TensorFile]], folder: Path) -> tuple[Sample, ...]:
    """Return a sample of a control for each one in ``known``; an input that is not known there gets a value made up."""
    folder.mkdir(parents=True, exist_ok=True)
    extra: dict[str, TensorFile] = {}
    for value in made.cut.model.graph.input:
        kind = value.type.tensor_type
        if value.name in made.cut.inputs and not any(value.name in sample for sample in known) and kind.elem_type:
            shape = tuple(dim.dim_value or 1 for dim in kind.shape.dim)
            path = folder / f"{len(extra)}.pb"
            extra[value.name] = recorded.seeded(value.name, kind.elem_type, shape, seed=1, path=path)
    held = {
        name: recorded.write(source, name, folder / f"held{place}.pb")
        for place, (name, source) in enumerate(made.given.items())
        if isinstance(source, TensorProto)
    }
    found = []
    for sample in known:
        feeds = {name: value for name in made.cut.inputs if (value := sample.get(name, extra.get(name)))}
        handed = {name: feeds[source] for name, source in made.given.items() if isinstance(source, str)}
        found.append(Sample(feeds, {**handed, **held}))
    return tuple(found)
