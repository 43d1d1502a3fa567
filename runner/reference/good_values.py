"""Good values, and which non-finite ones are meant.

Good values: what a tensor of the parent holds, in the type of the child's tensor whose partner it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.model.graph.data_dependence import FILLS, PUTS
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.model.values.dtypes import FLOATS, is_integer
from runner.model.values.recorded import TensorFile, finite_of, to_array
from runner.model.values.tensor_bytes import beyond, clipped
from runner.reference.fingerprints import agree, print_of
from runner.reference.quantized import Reading
from runner.samples.declared_inputs import tensor, type_name

CLEARLY_OFF = 2.0
"""How much closer to a value one reading of integers must come than the next, to be the right one."""
_LARGER = 100
"""A mask is so many times as large as all else."""
_ONE_NUMBER = 1e-3
"""Relative distance up to which numbers that do not fit count as one and the same: a mask, added to scores."""


@dataclass(frozen=True)
class GoodValue:
    """``file``: the value in the child's type. ``unfit``: why it must not be fed, "" if it may."""

    file: TensorFile
    unfit: str = ""


class UnfitError(ValueError):
    """A number is beyond the range of the type that it is wanted in; the message says which tensor, and the type."""


def cast(
    sample: Mapping[str, TensorFile],
    dtypes: Mapping[str, int],
    folder: Path,
    meant: Mapping[str, Reading] | None = None,
) -> dict[str, TensorFile]:
    """Return the tensors that ``dtypes`` names, in those ONNX element types.

    ``meant``: what those that are integers stand for, where floats are wanted.

    A value of another type is rounded to it and written into ``folder``. Raises UnfitError for numbers that the type
    cannot hold, unless they are a mask (one large negative number over and over).
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = {}
    for at, (name, dtype) in enumerate(dtypes.items()):
        result[name] = sample[name]
        if dtype and sample[name].structure is None and sample[name].dtype != dtype:
            array = recorded.read(sample[name])
            if meant and name in meant and dtype in FLOATS:
                array = meant[name].floats(array)
            over = beyond(array, dtype)
            if over.any() and (is_integer(dtype) or not _is_mask(array[over])):
                held = array[over].reshape(-1)[0]
                raise UnfitError(f"{name!r} holds {held!s}, which {type_name(dtype)} cannot hold")
            rounded = tensor(clipped(array, dtype) if is_integer(dtype) else array, name, dtype)
            result[name] = recorded.write(rounded, name, folder / f"{at}.pb")
    return result


def good_value(
    theirs: TensorFile,
    name: str,
    dtype: int,
    own: TensorFile | None,
    path: Path,
    *,
    reshaped: bool = False,
    readings: Sequence[Reading] = (),
) -> GoodValue:
    """Return the parent's value as that of the child's tensor ``name`` of this type; it is written to ``path``.

    ``own``: what the child itself made of it. ``reshaped``: the value takes the shape of that. ``readings``: of
    integers that stand for floats, see `_quantized`.

    Numbers beyond the type's range become its ends, which shows where the child overflows, but is no value to go on
    with. A mask is: one large negative number over and over; it becomes -Inf where the child has infinities too.
    """
    reshaped = reshaped and own is not None and own.shape != theirs.shape
    if theirs.structure is not None or (dtype in (theirs.dtype, TensorProto.STRING) and not reshaped):
        return GoodValue(recorded.renamed(theirs, name, path))
    array = recorded.read(theirs)
    if reshaped and own is not None:
        array = array.reshape(own.shape)
    if readings:
        return _quantized(array, name, dtype, readings, path)
    with np.errstate(over="ignore", invalid="ignore"):
        over = beyond(array, dtype)
        mask = bool(over.any()) and not is_integer(dtype) and _is_mask(array[over])
        if is_integer(dtype) or (over.any() and not (mask and own is not None and not own.finite)):
            array = clipped(array, dtype)
        file = recorded.write(tensor(array, name, dtype), name, path)
    if mask or not over.any():
        return GoodValue(file)
    return GoodValue(file, f"the good value of {name!r} does not fit into {type_name(dtype)}")


def _quantized(
    array: np.ndarray[Any, Any], name: str, dtype: int, readings: Sequence[Reading], path: Path
) -> GoodValue:
    """Return the integers that stand for a value; no value to go on with, where they do not give it back.

    Of several readings the right one comes closer to the value: a wrong one cuts it off, or has larger steps.
    """
    off = [one.off(array, dtype) for one in readings]
    best = readings[off.index(min(off))]
    steps = best.integers(array, dtype)
    file = recorded.write(tensor(steps, name, dtype), name, path)
    if len(off) > 1 and sorted(off)[1] < CLEARLY_OFF * min(off):
        return GoodValue(file, f"the nodes before and after {name!r} disagree about its scale and zero point")
    if agree(print_of([best.floats(steps)]), print_of([array])):
        return GoodValue(file)
    return GoodValue(file, f"the good value of {name!r} exceeds the range of its scale and zero point")


def beside_mask(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return which elements a mask (one large negative number over and over) does not take out; None: there is none."""
    if array.dtype.kind != "f" or not array.size or not np.isfinite(array).all() or array.min() >= 0:
        return None
    left = array > array.min() * (1 - _ONE_NUMBER)
    rest = float(np.abs(array[left]).max(initial=0.0))
    return left if left.any() and _is_mask(array[~left]) and rest * _LARGER < -float(array.min()) else None


def _is_mask(found: np.ndarray[Any, Any]) -> bool:
    wide = found.astype(np.float64)
    if wide.size < 2 or wide.max() >= 0:
        return False
    low, high = float(wide.min()), float(wide.max())
    return high - low <= _ONE_NUMBER * -low


# Which non-finite values belong to a failure, and which are meant.
#
# An attention mask holds -Inf on purpose: the softmax after it takes it out again. An overflow reaches the model's
# output. So a non-finite tensor is part of the failure if a chain of non-finite tensors leads from it to a non-finite
# output of the model.
#
# The chain ends where a softmax makes a NaN of an Inf that the model's own constants put there: the mask that has
# filled a whole row with -Inf is not at fault, and holds what it was given. Other operators take no mask: of an
# infinite bias or embedding a normalization makes a NaN as well, and there it is the weight.

_MASKED = ("Softmax", "Attention")
"""Words in the names of the operators that take what is masked."""


@dataclass(frozen=True)
class Taint:
    """``tainted``: on the way to a non-finite output. ``harmless``: non-finite as well, but it leads nowhere."""

    tainted: frozenset[str]
    harmless: frozenset[str]


def taint_of_all(graph: Graph, samples: tuple[Mapping[str, TensorFile], ...]) -> Taint:
    """Sort the non-finite tensors of recorded runs with all tensors: tainted in one is tainted."""
    put = _constant_infinities(graph)
    bad: set[str] = set()
    tainted: set[str] = set()
    for sample in samples:
        found = {name for name, tensor in sample.items() if not tensor.finite}
        meant = _only_put(graph, sample, found, put)
        seen: set[str] = set()
        waiting = [name for name in graph.outputs if name in found]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                node = graph.producer(name)
                masked = node and name in sample and sample[name].nan and any(one in node.op_type for one in _MASKED)
                made = [source for source in (node.inputs if node else ()) if source in found]
                waiting += [source for source in made if not (masked and source in meant)]
        bad |= found
        tainted |= seen
    return Taint(frozenset(tainted), frozenset(bad - tainted))


def _constant_infinities(graph: Graph) -> frozenset[str]:
    """Return the constants of the model that hold -Inf, no Inf and no NaN: with these a mask takes elements out."""
    found = set()
    for name, held in graph.initializers.items():
        if isinstance(held, TensorProto):
            finite, nan = finite_of(held)
            found |= set() if finite or nan or bool((to_array(held) == math.inf).any()) else {name}
    return frozenset(found)


def _only_put(
    graph: Graph, sample: Mapping[str, TensorFile], found: set[str], constants: frozenset[str]
) -> frozenset[str]:
    """Return the tensors that hold an Inf, and no NaN, only because an operator has put a constant there."""
    put: set[str] = set()
    for node in graph.nodes:
        sources = {name for name in node.inputs if name in found or name in constants}
        fills = node.op_type in FILLS and not node.domain
        if (sources and sources <= put | constants and node.op_type in PUTS and not node.domain) or fills:
            put |= {name for name in node.outputs if name in found and not sample[name].nan}
    return frozenset(put)
