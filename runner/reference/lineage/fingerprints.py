"""Fingerprints of tensors: a few elements at places that depend on the size alone, enough to know a tensor again."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto

from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded, tensor_bytes
from runner.model.values.recorded import TensorFile
from runner.model.values.tensor_file import NUMPY

Array = np.ndarray[Any, Any]

SAMPLED = 512
"""Elements that are looked at, of each tensor and sample."""
CLOSE = 0.02
"""Part of the largest number by which two prints of one tensor may differ: half precision and 8 bits stay below."""
MOST_ODD = 0.02
"""Share of elements that may differ more: those that a quantization clips, or that are on the edge of a step."""
PROBES, FIRST = 16, 3
"""Elements by which fingerprints are told apart at first; of the first few, all but one must agree."""
REACH = 2.0
"""How much further off these may be: by the other's scale two fingerprints are closer than by one's own."""
CLEARLY = 3.0
"""How much further off another tensor must be, unless it holds the same as the nearest."""
REACHES = tuple(CLOSE / CLEARLY**power for power in range(9, -1, -1))
"""How far is looked, in turn, until one is found: so nobody goes through all that is within CLOSE."""
MOST_NEAR = 64
"""Tensors that may be as close as the nearest by their probes; of more, none is told from the others."""
TELLING = 8
"""Different numbers that a print must hold to be told from others."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """What a tensor held.

    ``shapes``: one for each sample. ``kind``: as numpy's, but ``f`` for all reals and ``i`` for all integers.
    ``numbers``: the elements looked at, float64, of all samples in a row; empty for strings.
    """

    shapes: tuple[tuple[int, ...], ...]
    kind: str
    numbers: Array

    @cached_property
    def telling(self) -> bool:
        """Whether another tensor is not likely to have the same print by chance."""
        return self.kind == "f" and len(np.unique(self.numbers)) >= TELLING

    @cached_property
    def content(self) -> bytes:
        """A digest that only prints of the very same share."""
        return hashlib.sha256(repr((self.kind, self.shapes)).encode() + self.numbers.tobytes()).digest()

    @cached_property
    def scale(self) -> float:
        """The largest finite number."""
        finite = np.abs(self.numbers[np.isfinite(self.numbers)])
        return float(finite.max()) if finite.size else 0.0

    @cached_property
    def first(self) -> Fingerprint:
        """The print of the first sample alone."""
        if len(self.shapes) == 1:
            return self
        size = min(math.prod(self.shapes[0]), SAMPLED)
        return Fingerprint(self.shapes[:1], self.kind, self.numbers[:size])

    def fits(self, other: Fingerprint) -> bool:
        """Whether the shapes and the kinds are the same."""
        return self.kind == other.kind and self.shapes == other.shapes

    def holds_as_many(self, other: Fingerprint) -> bool:
        """Whether it is as many elements of the same kind, whatever their shape."""
        sizes = [[math.prod(shape) for shape in one.shapes] for one in (self, other)]
        return self.kind == other.kind and sizes[0] == sizes[1]


def distance(mine: Fingerprint, theirs: Fingerprint) -> float:
    """Return how far a print is from another of its shape, in parts of the other's largest number; inf: not at all.

    The share MOST_ODD of the elements that differ most does not count. Elements that are not finite on either side
    are left out, unless they are more than half.
    """
    a, b = mine.numbers, theirs.numbers
    if a.shape != b.shape or not mine.fits(theirs):
        return float("inf")
    finite = np.isfinite(a) & np.isfinite(b)
    if not a.size or finite.sum() * 2 < a.size:
        return 0.0 if a.size and np.array_equal(a, b, equal_nan=True) else float("inf")
    errors = np.abs(a[finite] - b[finite])
    place = errors.size - 1 - int(MOST_ODD * errors.size)
    error = float(np.partition(errors, place)[place])
    return error / theirs.scale if theirs.scale else (0.0 if error == 0 else float("inf"))


def agree(mine: Fingerprint, theirs: Fingerprint) -> bool:
    """Whether two prints can be of one tensor."""
    return distance(mine, theirs) <= CLOSE


def print_of(arrays: Sequence[Array]) -> Fingerprint:
    """Return the fingerprint of a tensor, given what it holds in each sample."""
    return Fingerprint(
        tuple(tuple(one.shape) for one in arrays), _kind(arrays[0]), np.concatenate([_some(a) for a in arrays])
    )


def prints_of(samples: Sequence[Mapping[str, TensorFile]], names: Iterable[str]) -> dict[str, Fingerprint]:
    """Return the fingerprints of those of ``names`` that are tensors in all samples."""
    found = {}
    for name in names:
        files = [sample[name] for sample in samples if name in sample]
        if files and len(files) == len(samples) and all(one.structure is None for one in files):
            found[name] = print_of([recorded.read(one) for one in files])
    return found


class FingerprintIndex:
    """The fingerprints of many tensors, to find those that agree with one.

    Tensors that hold the very same are looked at once. A few elements, sorted, rule nearly all others out.
    """

    def __init__(self, prints: Mapping[str, Fingerprint]) -> None:
        alike: dict[bytes, list[str]] = {}
        for name, one in prints.items():
            if one.telling:
                alike.setdefault(one.content, []).append(name)
        groups: dict[Any, list[tuple[str, ...]]] = {}
        for names in alike.values():
            one = prints[names[0]]
            groups.setdefault((one.kind, one.shapes), []).append(tuple(sorted(names)))
        self._prints = prints
        self._groups = {key: _Group.of(many, prints) for key, many in groups.items()}

    def near(self, held: Fingerprint) -> list[tuple[float, tuple[str, ...]]]:
        """Return the tensors that hold what ``held`` does, with the distance of each, nearest first.

        Those that hold the very same stand together. Others that are CLEARLY further off than the nearest are left out.
        """
        group = self._groups.get((held.kind, held.shapes))
        if group is None or not held.telling:
            return []
        for reach in REACHES:
            found = self._within(group, held, reach)
            limit = CLEARLY * found[0][0] if found else 0.0
            if limit > reach:
                found = self._within(group, held, min(limit, CLOSE))
            if found is None:
                break
            if found:
                return [one for one in found if one[0] <= max(limit, REACHES[0])]
        return []

    def _within(self, group: _Group, held: Fingerprint, reach: float) -> list[tuple[float, tuple[str, ...]]] | None:
        """Return the tensors within reach, nearest first; None: they are too many."""
        like = group.like(held, reach)
        if len(like) > MOST_NEAR:
            return None
        every = ((distance(held, self._prints[names[0]]), names) for names in like)
        return sorted(one for one in every if one[0] <= reach)


@dataclass(frozen=True, eq=False)
class _Group:
    """Tensors of one shape. ``probes``: a row for each probe: all tensors are looked at side by side.

    ``order``, ``ordered``: the places of the first few probes' elements, and these, ascending.
    """

    names: list[tuple[str, ...]]
    probes: Array
    order: Array
    ordered: Array

    @staticmethod
    def of(names: list[tuple[str, ...]], prints: Mapping[str, Fingerprint]) -> _Group:
        held = [prints[alike[0]].numbers for alike in names]
        probes = np.stack([numbers[list(_probes(numbers.size))] for numbers in held], axis=1)
        order = np.argsort(probes[:FIRST], axis=1)
        return _Group(names, probes, order, np.take_along_axis(probes[:FIRST], order, axis=1))

    def like(self, held: Fingerprint, near: float) -> list[tuple[str, ...]]:
        """Return the tensors of which few probes are off; of the first few, no more than one may be."""
        wanted, reach = held.numbers[list(_probes(held.numbers.size))][:, None], REACH * near * held.scale
        with np.errstate(invalid="ignore"):
            some = self._some(wanted[:FIRST, 0], reach)
            off = ~(np.abs(self.probes[:FIRST, some] - wanted[:FIRST]) <= reach) & np.isfinite(wanted[:FIRST])
            some = some[off.sum(axis=0) <= 1]
            off = np.abs(self.probes[:, some] - wanted) > reach
        return [self.names[at] for at in dict.fromkeys(some[off.sum(axis=0) <= PROBES // 4].tolist())]

    def _some(self, wanted: Array, reach: float) -> Array:
        """Return the places of all tensors that agree in one or both of two probes: those that rule out the most."""
        within = []
        for row, number, order in zip(self.ordered, wanted, self.order, strict=True):
            if np.isfinite(number):  # any other number agrees with all
                first = np.searchsorted(row, number - 1.001 * reach)
                within.append(order[first : np.searchsorted(row, number + 1.001 * reach, side="right")])
        if len(within) < FIRST - 1:
            return np.arange(len(self.names))
        return np.concatenate(sorted(within, key=len)[: FIRST - 1])


@functools.cache
def _probes(size: int) -> tuple[int, ...]:
    """Return the places of the elements by which prints of this size are told apart at first."""
    return tuple(np.unique(np.linspace(0, size - 1, PROBES).astype(int)).tolist())


@dataclass
class Weights:
    """The fingerprints of a model's initializers, made when they are asked for; files are not read whole."""

    graph: Graph
    store: Store
    _known: dict[str, Fingerprint | None] = field(default_factory=dict, init=False)

    def get(self, name: str) -> Fingerprint | None:
        """Return the fingerprint of an initializer; None where it is none, is sparse or no number."""
        if name not in self._known:
            self._known[name] = self._print(name)
        return self._known[name]

    def array(self, name: str) -> Array | None:
        """Return a dense initializer; None where there is none."""
        tensor = self.graph.initializers.get(name)
        if not isinstance(tensor, TensorProto):
            return None
        if tensor_bytes.is_external(tensor):
            whole = ModelProto(graph=GraphProto(initializer=[tensor]))
            self.store.inline(whole)
            tensor = whole.graph.initializer[0]
        found: Array = recorded.to_array(tensor)
        return found

    def _print(self, name: str) -> Fingerprint | None:
        tensor = self.graph.initializers.get(name)
        if isinstance(tensor, TensorProto) and tensor_bytes.is_external(tensor) and tensor.data_type in NUMPY:
            _, offset, _ = tensor_bytes.reference(tensor)
            kind = np.dtype(NUMPY[tensor.data_type]).newbyteorder("<")
            mapped = np.memmap(self.store.weights, kind, "r", offset, tuple(tensor.dims))
            return print_of([mapped])
        array = self.array(name)
        return None if array is None or array.dtype.kind in "OSU" else print_of([array])


def _kind(array: Array) -> str:
    if array.dtype.kind in "iu" or "int" in array.dtype.name:
        return "i"
    return "f" if array.dtype.kind in "fV" else "s" if array.dtype.kind in "OSU" else array.dtype.kind


def _some(array: Array) -> Array:
    if array.dtype.kind in "OSU":
        return np.empty(0)
    flat = array.reshape(-1)
    if flat.size > SAMPLED:
        flat = flat[np.random.Generator(np.random.PCG64(flat.size)).integers(0, flat.size, SAMPLED)]
    with np.errstate(invalid="ignore"):
        kept: Array = (
            flat.astype(np.complex128).view(np.float64) if array.dtype.kind == "c" else flat.astype(np.float64)
        )
    return kept
