"""Simpler parts of an answer: values, dtypes, attributes, names, shapes.

Simpler values: weights, constants and inputs that a line of Python makes, and one sample in place of several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, TypeProto, defs, numpy_helper

from runner.jobs.reduce.simplification_levels import Feeds, Levels, Simpler, Whole
from runner.model.graph import scopes
from runner.model.graph.cut import CutError
from runner.model.graph.edits import copy_of, set_messages
from runner.model.graph.scopes import NameSupply, domain_of, names_of, rename_graph
from runner.model.values import recorded, tensor_bytes
from runner.model.values.dtypes import BY_NUMBER, STRING, limits_of
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


def plain_values(whole: Whole, array: ArrayOf, folder: Path, *, careful: bool = False) -> Simpler:
    """Replace values that have no recipe. The parts: the samples, where there are several, then weights, then inputs.

    ``array``: of a weight. ``folder``: for values of inputs. ``careful``: nobody can tell a failure that new values
    bring about, so each has to be possible among the old.
    """
    left, several = LARGEST, len(whole.samples) > 1
    # recipes of the tensors at these places of the model, and values of inputs for each sample: a splat, a seeded one
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
    for sample in whole.samples:
        recorded.compute_together(sample.feeds.values())
    for value in whole.model.graph.input:
        files = [sample.feeds[value.name] for sample in whole.samples if value.name in sample.feeds]
        sizes = [0 if file.structure else _size(file.dtype, file.shape) for file in files]
        if not (files and all(sizes) and sum(sizes) <= left):
            continue
        arrays = [recorded.read(file) for file in files]
        if any(recognize(one) is None for one in arrays) and not (careful and not all(map(_are_alike, arrays))):
            inputs[value.name] = _written(value.name, arrays, len(weights) + len(inputs), folder)
            left -= sum(sizes)

    def apply(levels: tuple[int, ...]) -> ModelProto:
        model = copy_of(whole.model)
        every = list(tensors(model))
        for (place, recipes), level in zip(weights.items(), levels[several:], strict=False):
            if level < AS_IT_IS:
                _replace(every[place], recipes[level])
        return model

    def feeds(levels: tuple[int, ...], _: Path) -> Feeds:
        samples = whole.feeds[:1] if several and levels[0] < AS_IT_IS else whole.feeds
        of_inputs = zip(inputs.items(), levels[several + len(weights) :], strict=True)
        lower = [(name, files[level]) for (name, files), level in of_inputs if level < AS_IT_IS]
        return tuple({**fed, **{name: files[at] for name, files in lower}} for at, fed in enumerate(samples))

    return Simpler(Levels((AS_IT_IS,) * (several + len(weights) + len(inputs)), "values"), apply, feeds)


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


def plain_floats(whole: Whole, array: ArrayOf) -> Simpler:
    """Make all other floats plain ones, none where there are nested graphs. ``array``: of a weight.

    They are one part, as operators want their inputs to be of one type.
    """
    graph = whole.model.graph
    seen = {file.dtype for sample in whole.samples for file in sample.feeds.values() if not file.structure}
    seen |= {tensor.data_type for tensor in tensors(whole.model)}
    seen |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    dtypes = seen.intersection(OTHERS) if whole.is_flat else set()

    def apply(levels: tuple[int, ...]) -> ModelProto:
        model = copy_of(whole.model)
        if levels[0]:
            return model
        left = LARGEST
        for tensor in tensors(model):
            if tensor.data_type in dtypes:
                left -= 4 * tensor_bytes.elements(tensor.dims)
                if left < 0:
                    raise CutError(f"the weights would take more than {LARGEST >> 20} MiB")
                made = numpy_helper.from_array(np.asarray(array(tensor)).astype(np.float32))
                tensor.data_type = PLAIN
                tensor_bytes.set_raw(tensor, tensor_bytes.raw_bytes(made))
        del model.graph.value_info[:]
        for value in (*model.graph.input, *model.graph.output):
            if value.type.tensor_type.elem_type in dtypes:
                value.type.tensor_type.elem_type = PLAIN
        for attribute in (one for node in model.graph.node for one in node.attribute):
            if attribute.name in _NAMES_A_DTYPE and attribute.i in dtypes:
                attribute.i = PLAIN
        return model

    def plain(name: str, file: TensorFile, path: Path) -> tuple[str, TensorFile]:
        if file.dtype not in dtypes or file.structure:
            return name, file
        return name, recorded.write(recorded.read(file).astype(np.float32), name, path)

    return Simpler(Levels((1,) if dtypes else (), "dtypes"), apply, lambda _, folder: whole.fed(folder, plain))


# Simpler attributes: those that an operator does not need are left out, which gives them their defaults.


def default_attributes(whole: Whole) -> Simpler:
    """Leave out attributes that are not required, as the standard says; each is a part."""
    versions = {domain_of(one.domain): one.version for one in whole.model.opset_import}
    places: list[tuple[int, str]] = []
    for index, node in enumerate(whole.model.graph.node):
        domain = domain_of(node.domain)
        version = versions.get(domain, 0)
        if node.op_type != "Constant" and defs.has(node.op_type, version, domain):
            known = defs.get_schema(node.op_type, version, domain).attributes
            places += [
                (index, one.name) for one in node.attribute if one.name in known and not known[one.name].required
            ]

    def apply(levels: tuple[int, ...]) -> ModelProto:
        model = copy_of(whole.model)
        gone = {place for place, level in zip(places, levels, strict=True) if not level}
        if gone:  # other strides make other shapes
            del model.graph.value_info[:]
        for index in {index for index, _ in gone}:
            node = model.graph.node[index]
            set_messages(node.attribute, [one for one in node.attribute if (index, one.name) not in gone])
        return model

    return Simpler(Levels((1,) * len(places), "attributes"), apply, lambda levels, folder: whole.feeds)


# Shorter names of tensors. Nodes and outputs keep theirs, which say where in the model the answer lies.

SHORT = 12
"""Characters of names that stay."""


def shorter_names(whole: Whole) -> Simpler:
    """Give all tensors with long names short ones; none where nested graphs may hide one name behind another."""
    graph = whole.model.graph
    kept = {value.name for value in graph.output}
    kept |= {name for sample in whole.samples for name, file in sample.feeds.items() if file.structure}
    supply = NameSupply(names_of(whole.model))
    used = dict.fromkeys(name for node in graph.node for name in (*node.input, *node.output))
    long = [name for name in used if len(name) > SHORT and name not in kept] if whole.is_flat else []
    short = {name: supply.fresh(f"t{at}") for at, name in enumerate(long)}

    def apply(levels: tuple[int, ...]) -> ModelProto:
        model = copy_of(whole.model)
        if not levels[0]:
            rename_graph(model.graph, short, NameSupply(names_of(model)))
        return model

    def renamed(name: str, file: TensorFile, path: Path) -> tuple[str, TensorFile]:
        new = short.get(name, name)
        return new, file if new == name else recorded.write(recorded.read(file), new, path)

    return Simpler(Levels((1,) if short else (), "names"), apply, lambda _, folder: whole.fed(folder, renamed))


# Smaller shapes: batch, sequence, channels. What has to change together has the same size: sizes are what shrinks.
#
# Every axis of inputs and weights that is 64 long, say, becomes 2 long. The values are the first ones, or made by the
# same recipe. Constants that hold shapes follow. Whether the shapes still fit together is left to the reference, which
# has to run the model.

SMALL = 8
"""Shapes in which no size is larger stay as they are."""
_SIZES = {("Reshape", 1), ("Expand", 1), ("ConstantOfShape", 0), ("Resize", 3), ("Slice", 2), ("Split", 1)}
"""Inputs (operator, place) that hold sizes of axes."""
_NUMBERS = {("Resize", 1), ("Resize", 2), ("Upsample", 1)}
"""Floats that are one for each axis, whatever its size."""
_KERNELS = {("Conv", 1), ("ConvTranspose", 1)}
"""Weights whose axes after the second are no sizes of anything else."""
_TOLD_BY = 1 << 16
"""Elements that tell by which recipe the whole was made."""
Operand = tuple[str, int]


def smaller_shapes(whole: Whole, array: ArrayOf) -> Simpler:
    """Cut inputs and weights down, with one part for each size. ``array``: of a weight."""
    smaller = SmallerShapes(whole, array)
    tops = tuple(len(steps) - 1 for steps in smaller.steps.values())
    return Simpler(Levels(tops, "sizes"), smaller.apply, smaller.feeds)


@dataclass(frozen=True)
class SmallerShapes:
    """Cuts inputs and weights down. ``steps``: for each size that may shrink, what it may become, the least first."""

    whole: Whole
    array: ArrayOf

    @cached_property
    def steps(self) -> Mapping[int, tuple[int, ...]]:
        """The sizes that may shrink: none where there are nested graphs, or samples of different shapes."""
        samples = self.whole.samples
        kinds = {tuple((name, file.dtype, file.shape) for name, file in sample.feeds.items()) for sample in samples}
        structured = any(file.structure for sample in samples for file in sample.feeds.values())
        if not self.whole.is_flat or len(kinds) != 1 or structured:
            return {}
        shapes = [file.shape[: self._axes(name)] for name, file in samples[0].feeds.items()]
        shapes += [tuple(tensor.dims)[: self._axes(name, tensor)] for name, tensor in self._tensors(self.whole.model)]
        sizes = sorted({size for shape in shapes for size in shape if size > 1})
        return {size: _steps(size) for size in sizes} if max(sizes, default=0) > SMALL else {}

    def apply(self, levels: tuple[int, ...]) -> ModelProto:
        """Return the model in these sizes."""
        sizes, model = self._sizes(levels), copy_of(self.whole.model)
        if all(size == other for size, other in sizes.items()):
            return model
        left = LARGEST
        for name, tensor in self._tensors(model):
            smaller = self._smaller(name, self.array(tensor), sizes, self._axes(name, tensor))
            if smaller is not None:
                left -= smaller.nbytes
                if left < 0:
                    raise CutError(f"the weights would take more than {LARGEST >> 20} MiB")
                tensor.dims[:] = smaller.shape
                tensor_bytes.set_raw(tensor, tensor_bytes.raw_bytes(numpy_helper.from_array(smaller)))
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "group":
                    attribute.i = sizes.get(attribute.i, attribute.i)
        del model.graph.value_info[:]
        for value in (*model.graph.input, *model.graph.output):
            _resize(value.type, sizes, self._axes(value.name))
        known = {name for sample in self.whole.samples for name in sample.expected}
        for value in model.graph.output:
            if value.name in known:  # the reference tells
                value.type.tensor_type.ClearField("shape")
        return model

    def feeds(self, levels: tuple[int, ...], folder: Path) -> Feeds:
        """Return what it is fed in these sizes."""
        sizes = self._sizes(levels)

        def cut_down(name: str, file: TensorFile, path: Path) -> tuple[str, TensorFile]:
            smaller = self._smaller(name, recorded.mapped(file), sizes, self._axes(name))
            return name, file if smaller is None else recorded.write(smaller, name, path)

        return self.whole.fed(folder, cut_down)

    def _sizes(self, levels: tuple[int, ...]) -> dict[int, int]:
        return {size: steps[level] for (size, steps), level in zip(self.steps.items(), levels, strict=True)}

    def _smaller(self, name: str, array: Array, sizes: Mapping[int, int], axes: int) -> Array | None:
        """The elements that are left of an array; None: all."""
        if self._uses[name] & _SIZES:
            numbers = [sizes.get(int(size), int(size)) for size in array.reshape(-1)] if array.dtype.kind == "i" else []
            found = np.array(numbers, array.dtype).reshape(array.shape) if numbers else array
            return None if (found == array).all() else found
        found = array[tuple(slice(sizes.get(size, size)) for size in array.shape[:axes])]
        if found.shape == array.shape:
            return None
        if found.nbytes > LARGEST:
            raise CutError(f"{name!r} would take more than {LARGEST >> 20} MiB")
        # a part of what was drawn would have none; weights lie in a file, of which only the start is read
        recipe = recognize(array.reshape(-1)[:_TOLD_BY])
        if recipe and recipe.kind is Kind.SEEDED:
            return make(recipe, found.shape, found.dtype)
        return np.ascontiguousarray(found)

    def _tensors(self, model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
        """The weights and constants that can shrink, with the names by which nodes read them."""
        held = [(tensor.name, tensor) for tensor in model.graph.initializer]
        for node in model.graph.node:
            if node.op_type == "Constant":
                held += [(node.output[0], attribute.t) for attribute in node.attribute if attribute.HasField("t")]
        for name, tensor in held:
            if tensor.data_type in BY_NUMBER and tensor.data_type != STRING:
                yield name, tensor

    def _axes(self, name: str, tensor: TensorProto | None = None) -> int:
        """How many axes of a tensor have sizes that may shrink."""
        uses = self._uses[name]
        if uses & (_SIZES | _NUMBERS) or (tensor is not None and _is_list(tensor)):
            return 0
        return 2 if uses & _KERNELS else 99

    @cached_property
    def _uses(self) -> defaultdict[str, set[Operand]]:
        found: defaultdict[str, set[Operand]] = defaultdict(set)
        for node in self.whole.model.graph.node:
            for place, name in enumerate(node.input):
                found[name].add((node.op_type, place))
        return found


def _steps(size: int) -> tuple[int, ...]:
    return (*(1 << power for power in range((size - 1).bit_length())), size)


def _is_list(tensor: TensorProto) -> bool:
    """Whether a constant is a few numbers about axes: which, or how far."""
    small = len(tensor.dims) <= 1 and tensor_bytes.elements(tensor.dims) <= MOST_LITERAL
    return small and tensor.data_type == TensorProto.INT64


def _resize(declared: TypeProto, sizes: Mapping[int, int], axes: int) -> None:
    for dim in list(declared.tensor_type.shape.dim)[:axes]:
        if dim.dim_value:
            dim.dim_value = sizes.get(dim.dim_value, dim.dim_value)
