"""Fingerprints of tensors: a few elements at places that depend on the size alone, enough to know a tensor again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.quantized import Reading

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


def distance(mine: Fingerprint, theirs: Fingerprint, rounding: float = 0.0) -> float:
    """Return how far a print is from another of its shape, in parts of the other's largest number; inf: not at all.

    ``rounding``: the part of each number that its type rounds off, which does not count. Nor does the share MOST_ODD of
    the elements that differ most. Elements that are not finite on either side are left out, unless they are more than
    half.
    """
    a, b = mine.numbers, theirs.numbers
    if a.shape != b.shape or not mine.fits(theirs):
        return float("inf")
    finite = np.isfinite(a) & np.isfinite(b)
    if not a.size or finite.sum() * 2 < a.size:
        return 0.0 if a.size and np.array_equal(a, b, equal_nan=True) else float("inf")
    errors = np.maximum(np.abs(a[finite] - b[finite]) - rounding * np.abs(b[finite]), 0.0)
    place = errors.size - 1 - int(MOST_ODD * errors.size)
    error = float(np.partition(errors, place)[place])
    return error / theirs.scale if theirs.scale else (0.0 if error == 0 else float("inf"))


def agree(mine: Fingerprint, theirs: Fingerprint, rounding: float = 0.0) -> bool:
    """Whether two prints can be of one tensor. ``rounding``: as `distance` takes it."""
    return distance(mine, theirs, rounding) <= CLOSE


def print_of(arrays: Sequence[Array]) -> Fingerprint:
    """Return the fingerprint of a tensor, given what it holds in each sample."""
    return Fingerprint(
        tuple(tuple(one.shape) for one in arrays), _kind(arrays[0]), np.concatenate([_some(a) for a in arrays])
    )


def prints_of(
    samples: Sequence[Mapping[str, TensorFile]],
    names: Iterable[str],
    readings: Mapping[str, Sequence[Reading]] | None = None,
) -> dict[str, Fingerprint]:
    """Return the fingerprints of those of ``names`` that are tensors in all samples.

    ``readings``: of integers that stand for floats, whose fingerprints these have.
    """
    found = {}
    for name in names:
        files = [sample[name] for sample in samples if name in sample]
        if files and len(files) == len(samples) and all(one.structure is None for one in files):
            arrays = [recorded.read(one) for one in files]
            for reading in (readings or {}).get(name, ())[:1]:
                arrays = list(map(reading.floats, arrays))
            found[name] = print_of(arrays)
    return found


@dataclass
class Weights:
    """The fingerprints of a model's initializers, made when they are asked for; files are not read whole.

    ``readings``: of those that are integers and stand for floats.
    """

    graph: Graph
    store: Store
    readings: Mapping[str, Sequence[Reading]] = field(default_factory=dict)
    _known: dict[tuple[str, bool], Fingerprint | None] = field(default_factory=dict, init=False)

    def get(self, name: str, *, turned: bool = False) -> Fingerprint | None:
        """Return the fingerprint of an initializer; None where it is none, is sparse or no number.

        ``turned``: with its last two axes exchanged.
        """
        if (name, turned) not in self._known:
            array = self.array(name)
            if array is not None and name in self.readings:
                array = self.readings[name][0].floats(array)
            if array is not None and turned and array.ndim > 1:
                array = np.swapaxes(array, -1, -2)
            self._known[name, turned] = None if array is None or array.dtype.kind in "OSU" else print_of([array])
        return self._known[name, turned]

    def array(self, name: str) -> Array | None:
        """Return a dense initializer; None where there is none."""
        tensor = self.graph.initializers.get(name)
        return self.store.array(tensor) if isinstance(tensor, TensorProto) else None


def _kind(array: Array) -> str:
    if array.dtype.kind in "iu" or "int" in array.dtype.name:
        return "i"
    return "f" if array.dtype.kind in "fV" else "s" if array.dtype.kind in "OSU" else array.dtype.kind


def _some(array: Array) -> Array:
    if array.dtype.kind in "OSU":
        return np.empty(0)
    if array.size > SAMPLED:
        places = np.random.Generator(np.random.PCG64(array.size)).integers(0, array.size, SAMPLED)
        flat = array[np.unravel_index(places, array.shape)]  # which copies nothing, in whatever order the axes lie
    else:
        flat = array.reshape(-1)
    with np.errstate(invalid="ignore"):
        kept: Array = (
            flat.astype(np.complex128).view(np.float64) if array.dtype.kind == "c" else flat.astype(np.float64)
        )
    return kept


# An index of fingerprints: which tensors hold nearly what one does, without a look at all elements of all of them.

PROBES, ODD_PROBES = 16, 4
"""Elements by which prints are told apart at first, and how many of these may be odd."""
REACH = 2.0
"""How much further off these may be: by the other's scale two fingerprints are closer than by one's own."""
CLEARLY = 3.0
"""How much further off another tensor must be, unless it holds the same as the nearest."""
TWINS = 1e-6
"""Parts of the scale within which two tensors of one model hold the same."""
MOST_NEAR = 64
"""Tensors that may be as close as the nearest; of more, none can be told."""


class FingerprintIndex:
    """The fingerprints of many tensors, to find those that agree with one.

    Tensors that hold the very same are looked at once. A few elements rule nearly all others out.
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
        self._groups = {key: (many, _probes_of([prints[one[0]] for one in many])) for key, many in groups.items()}

    def near(self, held: Fingerprint) -> list[tuple[float, tuple[str, ...]]]:
        """Return the tensors that hold what ``held`` does, with the distance of each, nearest first.

        Those that hold the very same stand together. Others that are CLEARLY further off than the nearest are left out.
        """
        names, probes = self._groups.get((held.kind, held.shapes), ([], np.empty(0)))
        if not names or not held.telling:
            return []
        with np.errstate(invalid="ignore"):
            off = np.abs(probes - _probes_of([held]))
        places = np.flatnonzero((off > REACH * CLOSE * held.scale).sum(axis=0) <= ODD_PROBES)
        if not places.size:
            return []
        off = off[:, places]
        off[np.isnan(off)] = 0  # no number agrees with any
        off = np.partition(off, -1 - ODD_PROBES, axis=0)[-1 - ODD_PROBES]
        # the nearest by them tells how far another may be
        reach = min(max(CLEARLY * self._distance(held, names[places[off.argmin()]]), TWINS), CLOSE)
        like = [names[at] for at in places[off <= REACH * reach * held.scale]]
        if len(like) > MOST_NEAR:  # few elements tell them apart, or none; all elements may
            theirs = np.stack([self._prints[one[0]].numbers for one in like])
            scales = np.array([[self._prints[one[0]].scale] for one in like])
            with np.errstate(invalid="ignore"):
                far = np.abs(theirs - held.numbers) > 1.001 * reach * scales
            # one with numbers that are not finite may always be it
            within = ~np.isfinite(theirs).all(axis=1) | (far.mean(axis=1) <= MOST_ODD)
            like = [one for one, is_within in zip(like, within, strict=True) if is_within]
        if not 0 < len(like) <= MOST_NEAR:
            return []
        found = sorted((self._distance(held, one), one) for one in like)
        limit = min(max(CLEARLY * found[0][0], TWINS), CLOSE)
        return [one for one in found if one[0] <= limit]

    def _distance(self, held: Fingerprint, names: tuple[str, ...]) -> float:
        return distance(held, self._prints[names[0]])


def _probes_of(prints: Sequence[Fingerprint]) -> Array:
    """Return the elements by which prints of one size are told apart at first, a column for each print."""
    places = np.unique(np.linspace(0, prints[0].numbers.size - 1, PROBES).astype(int))
    return np.stack([one.numbers[places] for one in prints], axis=1)
