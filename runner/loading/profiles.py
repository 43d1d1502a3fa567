"""Inputs as the profiles of a TensorRT target say that they move: the shapes to optimize for first, then both ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from runner.errors import UsageError
from runner.inputs.declared_inputs import Declared, declared, refuse_unknown
from runner.inputs.fit_to_declared import tensor
from runner.inputs.source import samples
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.schema.backend import TensorRtBackend
from runner.schema.inputs import InputsSettings, RandomInputs
from runner.schema.root import Settings
from runner.workers.pool import Pool

_PROFILES, _VALUES = "target.profiles", "target.shape_values"


def profiled_samples(
    settings: Settings, graph: Graph, pool: Pool, folder: Path
) -> tuple[tuple[dict[str, TensorFile], ...], list[str]]:
    """Return the samples for a model's inputs, and warnings about those that lie outside the profiles.

    Random ones are drawn for the shapes (and hold the shape values) to optimize for, and once more for the least and
    the largest ones: tensors at cuts then move as they would. Raises what `samples` does, and UsageError for profiles
    that do not fit the model.
    """
    inputs, target = settings.inputs, settings.target
    if not isinstance(target, TensorRtBackend) or not (target.profiles or target.shape_values):
        return samples(inputs, graph, pool, folder), []
    known = declared(graph)
    refuse_unknown(_PROFILES, target.profiles, known)
    refuse_unknown(_VALUES, target.shape_values, known)
    for name, ranges in target.profiles.items():
        for end in ("min", "opt", "max"):
            if why := known[name].mismatch(known[name].dtype, _end(f"{_PROFILES}.{name}", ranges, end)):
                raise UsageError(f"{_PROFILES}.{name}={ranges}: {end} {why}")
    found: tuple[dict[str, TensorFile], ...] = ()
    for number, (asked, held) in enumerate(_asked(inputs, target)):
        drawn = samples(asked, graph, pool, folder / f"end_{number}" if number else folder)
        found += tuple(_holding(sample, held, known) for sample in drawn)
    return found, [*_outside(target, found)]


def _asked(inputs: InputsSettings, target: TensorRtBackend) -> Iterator[tuple[InputsSettings, dict[str, list[int]]]]:
    """Yield what is to be drawn, and the values that inputs then hold."""
    if not isinstance(inputs, RandomInputs):
        yield inputs, {}
        return
    for end in ("opt", "min", "max"):
        shapes = {name: _end(f"{_PROFILES}.{name}", one, end) for name, one in target.profiles.items()}
        held = {name: _end(f"{_VALUES}.{name}", one, end) for name, one in target.shape_values.items()}
        if end == "opt":
            # the shapes that are given are the user's choice of a first sample
            yield replace(inputs, shapes={**shapes, **inputs.shapes}), held
        else:
            yield replace(inputs, shapes={**inputs.shapes, **shapes}, samples=1), held


def _end(key: str, ranges: Any, end: str) -> list[int]:
    """Return one end of a range: a mapping's entry, or the one list that holds for all."""
    chosen = ranges.get(end) if isinstance(ranges, Mapping) else ranges
    if isinstance(chosen, list) and len(chosen) == 3 and all(isinstance(one, list) for one in chosen):
        chosen = chosen[("min", "opt", "max").index(end)]
    if not isinstance(chosen, list) or not all(isinstance(size, int) and not isinstance(size, bool) for size in chosen):
        raise UsageError(
            f"{key}={ranges}: give whole numbers, for all at once, [1, 3], or {{min: [1, 3], opt: [4, 3], "
            "max: [8, 3]}, with min <= opt <= max"
        )
    if key.startswith(_PROFILES) and any(size < 0 for size in chosen):
        raise UsageError(f"{key}={ranges}: a shape has no negative size")
    return chosen


def _holding(
    sample: dict[str, TensorFile], held: Mapping[str, Sequence[int]], known: Mapping[str, Declared]
) -> dict[str, TensorFile]:
    """Return a sample in which inputs hold these values."""
    for name, numbers in held.items():
        old = sample[name]
        size = int(np.prod(old.shape, dtype=np.int64))
        if size != len(numbers) and len(old.shape) != 1:
            raise UsageError(
                f"{_VALUES}.{name}={list(numbers)}: the input {known[name]} holds {size} values, not {len(numbers)}"
            )
        shape = (len(numbers),) if len(old.shape) == 1 else old.shape
        if why := known[name].mismatch(known[name].dtype, shape):
            raise UsageError(f"{_VALUES}.{name}={list(numbers)}: {name!r} then {why}")
        array = tensor(np.asarray(numbers).reshape(shape), name, known[name].dtype)
        sample[name] = recorded.write(array, name, old.path)
    return sample


def _outside(target: TensorRtBackend, found: Sequence[Mapping[str, TensorFile]]) -> Iterator[str]:
    for name, ranges in target.profiles.items():
        low, high = (_end(f"{_PROFILES}.{name}", ranges, end) for end in ("min", "max"))
        for number, sample in enumerate(found):
            shape = sample[name].shape if name in sample else ()
            if len(shape) == len(low) and any(not a <= size <= b for a, size, b in zip(low, shape, high, strict=True)):
                yield (
                    f"sample {number} of the input {name} is {list(shape)}, outside {_PROFILES}.{name} "
                    f"({low} to {high}): an engine built for it does not take this sample"
                )
