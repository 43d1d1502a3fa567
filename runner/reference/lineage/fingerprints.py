"""Fingerprints of tensors: a few elements at places that depend on the size alone, enough to know a tensor again."""

from __future__ import annotations

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
