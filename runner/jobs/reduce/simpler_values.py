"""Simpler parts of an answer: values, dtypes, attributes, names.

Simpler values: weights, constants and inputs that a line of Python makes, and one sample in place of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, defs, numpy_helper

from runner.jobs.reduce.shrunk_subject import Feeds, Levels, Whole
from runner.model.graph import scopes
from runner.model.graph.cut import CutError
from runner.model.graph.edits import copy_of
from runner.model.graph.scopes import NameSupply, domain_of, names_of, rename_graph
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


# Simpler dtypes: what is float16, bfloat16 or float64 becomes float32.

PLAIN = TensorProto.FLOAT
OTHERS = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_NAMES_A_DTYPE = ("to", "dtype")
"""Attributes that hold an element type."""


@dataclass(frozen=True)
class PlainFloats:
    """Makes all other floats plain ones. ``dtypes``: those that occur; ``array``: of a weight."""

    whole: Whole
    array: ArrayOf
    folder: Path
    dtypes: tuple[int, ...]
    name: str = "dtypes"

    @staticmethod
    def of(whole: Whole, array: ArrayOf, folder: Path) -> PlainFloats:
        """Look for such tensors: none where there are nested graphs."""
        graph = whole.model.graph
        found = {file.dtype for sample in whole.samples for file in sample.feeds.values() if not file.structure}
        found |= {tensor.data_type for tensor in tensors(whole.model)}
        found |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        return PlainFloats(whole, array, folder, tuple(one for one in OTHERS if one in found and whole.is_flat))

    @property
    def levels(self) -> Levels:
        """One part, all of them: operators want their inputs to be of one type."""
        return Levels((1,) if self.dtypes else (), self.name)

    def apply(self, levels: tuple[int, ...]) -> tuple[ModelProto, Feeds]:
        """Return the model in these types, and what it is fed. Raises CutError for large weights."""
        model = copy_of(self.whole.model)
        if levels[0]:
            return model, self.whole.feeds
        left = LARGEST
        for tensor in tensors(model):
            if tensor.data_type in self.dtypes:
                left -= 4 * tensor_bytes.elements(tensor.dims)
                if left < 0:
                    raise CutError(f"the weights would take more than {LARGEST >> 20} MiB")
                made = numpy_helper.from_array(np.asarray(self.array(tensor)).astype(np.float32))
                tensor.data_type = PLAIN
                tensor_bytes.set_raw(tensor, tensor_bytes.raw_bytes(made))
        del model.graph.value_info[:]
        for value in (*model.graph.input, *model.graph.output):
            if value.type.tensor_type.elem_type in self.dtypes:
                value.type.tensor_type.elem_type = PLAIN
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name in _NAMES_A_DTYPE and attribute.i in self.dtypes:
                    attribute.i = PLAIN
        return model, self._fed

    @cached_property
    def _fed(self) -> Feeds:
        self.folder.mkdir(parents=True, exist_ok=True)
        return tuple(map(self._feeds, range(len(self.whole.samples))))

    def _feeds(self, number: int) -> dict[str, recorded.TensorFile]:
        fed = dict(self.whole.samples[number].feeds)
        for place, (name, file) in enumerate(fed.items()):
            if file.dtype in self.dtypes and not file.structure:
                plain = recorded.read(file).astype(np.float32)
                fed[name] = recorded.write(plain, name, self.folder / f"{number}_{place}.pb")
        return fed


# Simpler attributes: those that an operator does not need are left out, which gives them their defaults.

Place = tuple[int, str]
"""A node, by its place in the graph, and an attribute of it."""


@dataclass(frozen=True)
class DefaultAttributes:
    """Leaves attributes out. ``places``: those that may be; the standard says which."""

    whole: Whole
    places: tuple[Place, ...]
    name: str = "attributes"

    @staticmethod
    def of(whole: Whole) -> DefaultAttributes:
        """Look for attributes that are not required."""
        versions = {domain_of(one.domain): one.version for one in whole.model.opset_import}
        found: list[Place] = []
        for index, node in enumerate(whole.model.graph.node):
            domain = domain_of(node.domain)
            version = versions.get(domain, 0)
            if node.op_type == "Constant" or not defs.has(node.op_type, version, domain):
                continue
            known = defs.get_schema(node.op_type, version, domain).attributes
            found += [(index, one.name) for one in node.attribute if one.name in known and not known[one.name].required]
        return DefaultAttributes(whole, tuple(found))

    @property
    def levels(self) -> Levels:
        """One part for each attribute."""
        return Levels((1,) * len(self.places), self.name)

    def apply(self, levels: tuple[int, ...]) -> tuple[ModelProto, Feeds]:
        """Return the model without the attributes on level 0, and what it is fed."""
        model = copy_of(self.whole.model)
        gone = {place for place, level in zip(self.places, levels, strict=True) if not level}
        if gone:  # other strides make other shapes
            del model.graph.value_info[:]
        for index in {index for index, _ in gone}:
            node = model.graph.node[index]
            kept = [one for one in node.attribute if (index, one.name) not in gone]
            del node.attribute[:]
            node.attribute.extend(kept)
        return model, self.whole.feeds


# Shorter names of tensors. Nodes and outputs keep theirs, which say where in the model the answer lies.

SHORT = 12
"""Characters of names that stay."""


@dataclass(frozen=True)
class ShorterNames:
    """Gives all tensors with long names short ones. ``names``: the new ones; ``folder``: for values of inputs.

    What the model is fed is written once: a check may read it while a repeat of it is made.
    """

    whole: Whole
    names: dict[str, str]
    folder: Path
    name: str = "names"

    @staticmethod
    def of(whole: Whole, folder: Path) -> ShorterNames:
        """Look for long names: none where there are nested graphs, which may hide one name behind another."""
        graph = whole.model.graph
        kept = {value.name for value in graph.output}
        kept |= {name for sample in whole.samples for name, file in sample.feeds.items() if file.structure}
        if not whole.is_flat:
            return ShorterNames(whole, {}, folder)
        supply = NameSupply(names_of(whole.model))
        used = dict.fromkeys(name for node in graph.node for name in (*node.input, *node.output))
        long = [name for name in used if len(name) > SHORT and name not in kept]
        return ShorterNames(whole, {name: supply.fresh(f"t{at}") for at, name in enumerate(long)}, folder)

    @property
    def levels(self) -> Levels:
        """One part, all names."""
        return Levels((1,) if self.names else (), self.name)

    def apply(self, levels: tuple[int, ...]) -> tuple[ModelProto, Feeds]:
        """Return the model with these names, and what it is fed."""
        model = copy_of(self.whole.model)
        if levels[0]:
            return model, self.whole.feeds
        rename_graph(model.graph, self.names, NameSupply(names_of(model)))
        return model, self._fed

    @cached_property
    def _fed(self) -> Feeds:
        self.folder.mkdir(parents=True, exist_ok=True)
        return tuple(map(self._feeds, range(len(self.whole.samples))))

    def _feeds(self, number: int) -> dict[str, recorded.TensorFile]:
        fed = {}
        for place, (name, file) in enumerate(self.whole.samples[number].feeds.items()):
            new, path = self.names.get(name, name), self.folder / f"{number}_{place}.pb"
            fed[new] = file if new == name else recorded.write(recorded.read(file), new, path)
        return fed
