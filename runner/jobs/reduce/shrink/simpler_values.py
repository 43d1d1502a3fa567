"""Simpler values: weights, constants and inputs that a line of Python makes, and one sample in place of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from runner.jobs.reduce.shrink.levels import Levels
from runner.jobs.reduce.shrink.shrunk_subject import Feeds, Whole
from runner.model.graph import scopes
from runner.model.graph.protobuf_edits import copy_of
from runner.model.values import recorded, tensor_bytes
from runner.model.values.dtypes import limits_of
from runner.model.values.recipes import MOST_LITERAL, SEEDS, Array, Kind, Recipe, make, recognize, scale_of
from runner.model.values.recorded import TensorFile

SPLAT, SEEDED, AS_IT_IS = range(3)
"""The levels of a tensor. Of several samples the first alone is on both lower ones."""
LARGEST = 32 << 20
"""Bytes of new values that a model gets at most; as much as candidates carry inside (see `read_model`)."""

ArrayOf = Callable[[TensorProto], Array]


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the dense tensors of a model in which weights may lie, in an order that copies of it share."""
    yield from scopes.initializers(model)
    for body in (model.graph.node, *(function.node for function in model.functions)):
        for node in scopes.all_nodes(body):
            yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


@dataclass(frozen=True)
class SimplerValues:
    """Replaces values that have no recipe. ``folder``: for those of inputs.

    ``weights``: recipes of the tensors at these places of the model, a splat and a seeded one. ``inputs``: values of
    inputs, for each sample, on these two levels.
    """

    whole: Whole
    weights: dict[int, tuple[Recipe, Recipe]]
    inputs: dict[str, tuple[list[TensorFile], list[TensorFile]]]
    name: str = "values"

    @staticmethod
    def of(whole: Whole, array: ArrayOf, folder: Path, *, careful: bool = False) -> SimplerValues:
        """Look for values without a recipe. ``array``: of a weight.

        ``careful``: nobody can tell a failure that new values bring about, so each has to be possible among the old.
        """
        left = LARGEST
        weights: dict[int, tuple[Recipe, Recipe]] = {}
        inputs: dict[str, tuple[list[TensorFile], list[TensorFile]]] = {}
        for place, tensor in enumerate(tensors(whole.model)):
            size = _size(tensor.data_type, tuple(tensor.dims))
            if not size or size > left:
                continue
            values = array(tensor)
            if recognize(values) is None and not (careful and not _are_alike(values)):
                weights[place] = _recipes(values, len(weights))
                left -= size
        for value in whole.model.graph.input:
            files = [sample.feeds[value.name] for sample in whole.samples if value.name in sample.feeds]
            sizes = [0 if file.structure else _size(file.dtype, file.shape) for file in files]
            if not (files and all(sizes) and sum(sizes) <= left):
                continue
            arrays = [recorded.read(file) for file in files]
            if any(recognize(one) is None for one in arrays) and not (careful and not all(map(_are_alike, arrays))):
                inputs[value.name] = _written(value.name, arrays, len(weights) + len(inputs), folder)
                left -= sum(sizes)
        return SimplerValues(whole, weights, inputs)

    @property
    def levels(self) -> Levels:
        """The samples first, where there are several, then weights, then inputs."""
        parts = (len(self.whole.samples) > 1) + len(self.weights) + len(self.inputs)
        return Levels((AS_IT_IS,) * parts, self.name)

    def apply(self, levels: tuple[int, ...]) -> tuple[ModelProto, Feeds]:
        """Return the model with the values of these levels, and what it is fed."""
        several = len(self.whole.samples) > 1
        samples = self.whole.samples if not several or levels[0] == AS_IT_IS else self.whole.samples[:1]
        of_tensors = levels[several:]
        model = copy_of(self.whole.model)
        every = list(tensors(model))
        for (place, recipes), level in zip(self.weights.items(), of_tensors, strict=False):
            if level < AS_IT_IS:
                _replace(every[place], recipes[level])
        feeds = [dict(sample.feeds) for sample in samples]
        for (name, files), level in zip(self.inputs.items(), of_tensors[len(self.weights) :], strict=True):
            for number, fed in enumerate(feeds):
                if level < AS_IT_IS:
                    fed[name] = files[level][number]
        return model, tuple(feeds)


def _size(dtype: int, shape: tuple[int, ...]) -> int:
    """The bytes of values that may be replaced; 0 for others."""
    if dtype not in tensor_bytes.BITS or limits_of(dtype) is None or min(shape, default=1) < 1:
        return 0
    return (tensor_bytes.byte_size(dtype, shape) or 0) if tensor_bytes.elements(shape) > MOST_LITERAL else 0


def _are_alike(array: Array) -> bool:
    """Whether drawn values, and ones, are of the kind that an array holds: of both signs, or from zero on."""
    if array.dtype.kind in "iub":
        return bool(array.min() == 0 and array.max() >= 1)
    wide = array.astype(np.float64)
    return bool(np.isfinite(wide).all() and wide.min() < 0 and wide.max() >= 1)


def _recipes(array: Array, number: int) -> tuple[Recipe, Recipe]:
    """The recipes of the two lower levels. No two tensors share a seed, as far as there are seeds."""
    one = 1 if array.dtype.kind not in "iub" else min(1, int(array.max()))  # no index that is out of range
    seed = SEEDS[number % len(SEEDS)]
    return Recipe(Kind.SPLAT, (one,)), Recipe(Kind.SEEDED, seed=seed, scale=scale_of(array))


def _written(name: str, arrays: list[Array], number: int, folder: Path) -> tuple[list[TensorFile], list[TensorFile]]:
    folder.mkdir(parents=True, exist_ok=True)
    found: tuple[list[TensorFile], list[TensorFile]] = ([], [])
    for at, array in enumerate(arrays):
        for level, recipe in enumerate(_recipes(array, number + at)):
            path = folder / f"{number}_{at}_{level}.pb"
            found[level].append(recorded.write(make(recipe, array.shape, array.dtype), name, path))
    return found


def _replace(tensor: TensorProto, recipe: Recipe) -> None:
    kind = np.dtype(recorded.to_array(TensorProto(data_type=tensor.data_type, dims=[0], raw_data=b"")).dtype)
    made = numpy_helper.from_array(make(recipe, tuple(tensor.dims), kind))
    tensor_bytes.set_raw(tensor, tensor_bytes.raw_bytes(made))
