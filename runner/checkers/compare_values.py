"""Recorded values compared: tensor by tensor, with statistics, and which outputs show nothing or are not finite."""

from __future__ import annotations

import dataclasses
import filecmp
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.checkers import auto_tolerance, metrics
from runner.checkers.failure_text import finite
from runner.checkers.metrics import BLOCK, Angle, Array, Difference, Pair, blocks, quantile, real
from runner.judgment import ModelError
from runner.model.files.parse_without_weights import ExternalFiles, chunks, parse
from runner.model.graph.data_dependence import handed_on
from runner.model.values import recorded
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile, mapped
from runner.model.values.tensor_bytes import STRING, elements, is_external, set_raw
from runner.model.values.value_types import leaf_dtype, structure_text
from runner.schema.checker import CompareChecker, Tolerance
from runner.text import listed
from runner.verdict import NOT_FINITE, Sample, Signature, Verdict
from strategies.search import Outcome


class _UnlikeError(Exception):
    """Two values cannot be laid side by side; the message says why."""


def compare(target: TensorFile, reference: TensorFile, rule: CompareChecker) -> Difference:
    """Compare two recorded values by the rule of the settings.

    The difference of two sequences (optionals, maps) is that of the tensors in them that differ most; it is one of
    shape where they do not hold as many, or are of another type.
    """
    # the floor costs passes of its own
    epsilon = auto_tolerance.EPSILON.get(_dtype(reference), 0.0) if rule.tolerance is Tolerance.auto else 0.0
    if target.structure is None and reference.structure is None:
        return metrics.compare(values.mapped(target), values.mapped(reference), rule, epsilon)
    if target.structure != reference.structure:
        return Difference("shape", f"{_word(target)} instead of {_word(reference)}")
    try:
        pairs = list(_pairs(values.contents(target), values.contents(reference), ""))
    except _UnlikeError as why:
        return Difference("shape", str(why))
    found = [(place, metrics.compare(mine, theirs, rule, epsilon)) for place, mine, theirs in pairs]
    if not found:
        return Difference("")
    place, worst = max([one for one in found if not one[1].nothing] or found, key=lambda one: one[1].rank())
    return dataclasses.replace(worst, detail=f"{place}: {worst.detail}") if worst.detail else worst


def has_inf(file: TensorFile) -> bool:
    """Whether any element is an infinity."""
    found = values.mapped(file) if file.structure is None else values.contents(file)
    arrays = [array for _, array, _ in _pairs(found, found, "")]
    return any(np.isinf(real(block)).any() for array in arrays for block in blocks(array.reshape(-1)))


def _dtype(file: TensorFile) -> int:
    return file.dtype if file.structure is None else leaf_dtype(file.structure)


def _word(file: TensorFile) -> str:
    return "a tensor" if file.structure is None else f"a {structure_text(file.structure)}"


def _pairs(target: Any, reference: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (where it is, tensor, tensor) for all tensors of two values of the same type. Raises _UnlikeError."""
    if target is None or reference is None:
        if target is not reference:
            raise _UnlikeError(
                f"{place}no value instead of one" if target is None else f"{place}a value instead of none"
            )
    elif isinstance(target, dict):
        if target.keys() != reference.keys():
            raise _UnlikeError(f"{place}other keys than the reference's")
        for key, item in target.items():
            yield from _pairs(item, reference[key], f"{place}[{key!r}]")
    elif isinstance(target, list):
        if len(target) != len(reference):
            raise _UnlikeError(f"{place}{len(target)} elements instead of {len(reference)}")
        for number, (mine, theirs) in enumerate(zip(target, reference, strict=True)):
            yield from _pairs(mine, theirs, f"{place}[{number}]")
    else:
        yield place, target, reference


# How far two tensors are apart in the numbers that people ask for, computed block by block whatever their size.

QUANTILE = 0.99


def statistics(target: Array, reference: Array, block: int = BLOCK) -> dict[str, Any]:
    """Return the numbers, fit for JSON; none for tensors that are no numbers, or cannot be laid side by side.

    Errors are of the elements that are finite in both: ``max``, ``mean``, ``p99`` of the absolute error; ``relative``:
    the largest as a part of the largest absolute value of the reference; ``sqnr`` and ``psnr`` in dB (None where
    nothing differs, or the reference has no signal: zeros, or one value); ``cosine``. Of both tensors how many elements
    are ``nan`` and ``inf``, and the ``range`` of the others (None where there are none): target first.
    """
    if target.shape != reference.shape or {target.dtype.kind, reference.dtype.kind} & set("OSU") or not target.size:
        return {}
    pair = Pair(target.reshape(-1), reference.reshape(-1), block)
    seen = pair.survey()
    angle, largest, total, noise, signal = Angle(seen.largest), 0.0, 0.0, 0.0, 0.0
    unit = min(max(seen.largest), 1e300) or 1.0  # so that no square overflows
    with np.errstate(over="ignore", invalid="ignore"):
        for a, b in pair.kept():
            distance = np.abs(a - b)
            angle.more(a, b)
            largest, total = max(largest, float(distance.max())), total + float(distance.sum())
            noise += float(np.square(distance / unit).sum())
            signal += float(np.square(np.abs(b) / unit).sum())
        p99 = quantile(lambda: _distances(pair), seen.kept, QUANTILE, 4 * block) if seen.kept else 0.0
    sides = [side_of(one, block) for one in (pair.target, pair.reference)]
    low, high = sides[1]["range"] or (0.0, 0.0)
    peak = (high - low) / unit
    return {
        "max": finite(largest),
        "mean": finite(total / max(seen.kept, 1)),
        "p99": finite(p99),
        "relative": finite(largest / seen.largest[1]) if seen.largest[1] else float(largest > 0),
        "sqnr": _decibels(signal, noise),
        "psnr": _decibels(peak * peak * seen.kept, noise),
        "cosine": angle.cosine,
        **{key: [side[key] for side in sides] for key in ("nan", "inf", "range")},
    }


def not_finite(flat: Array, block: int = BLOCK) -> dict[str, int]:
    """Return how many elements of a tensor are ``nan`` and ``inf``."""
    side = side_of(flat, block)
    return {key: side[key] for key in ("nan", "inf")}


def _distances(pair: Pair) -> Iterator[Array]:
    for a, b in pair.kept():
        yield np.abs(a - b)


def side_of(flat: Array, block: int = BLOCK) -> dict[str, Any]:
    """Return how many elements of a tensor are ``nan`` and ``inf``, and the ``range`` of the others (None: none)."""
    nan = inf = 0
    low, high = math.inf, -math.inf
    for stored in blocks(flat, block):
        one = real(stored)
        one = np.abs(one) if one.dtype.kind == "c" else one
        bad = ~np.isfinite(one)
        if bad.any():
            missing = int(np.isnan(one).sum())
            nan, inf, one = nan + missing, inf + int(bad.sum()) - missing, one[~bad]
        if one.size:
            low, high = min(low, float(one.min())), max(high, float(one.max()))
    return {"nan": nan, "inf": inf, "range": [low, high] if low <= high else None}


def _decibels(signal: float, noise: float) -> float | None:
    return 10 * math.log10(signal / noise) if signal and noise else None


# Outputs that show nothing: whatever goes wrong inside a model, a constant looks right.

CONSTANT = "constant"
"""The key of a verdict's metrics that lists such outputs."""
NEITHER = "neither"
"""The same for those whose right values hold a NaN or Inf, which is no mask."""


def blank(
    names: Sequence[str], expected: Sequence[Mapping[str, TensorFile]], samples: Sequence[Sample]
) -> tuple[str, ...]:
    """Return the outputs whose right values, ``expected`` of each sample, show nothing.

    They have no elements, are zero in all samples, or the same in all of several samples whose inputs differ. A single
    sample cannot show what is constant: there an output of several equal elements is taken to be. NaN and Inf are
    another matter, and only tensors are looked at.
    """
    several = any(_fed_otherwise(one.feeds, samples[0].feeds) for one in samples[1:])
    found = []
    for name in names:
        held = [one[name] for one in expected if name in one]
        if held and all(one.structure is None and one.finite for one in held) and _is_blank(held, several=several):
            found.append(name)
    return tuple(found)


def _fed_otherwise(mine: Mapping[str, TensorFile], theirs: Mapping[str, TensorFile]) -> bool:
    return mine.keys() != theirs.keys() or not all(
        filecmp.cmp(mine[name].path, theirs[name].path, shallow=False) for name in mine
    )


def said(told: Mapping[str, Any]) -> list[str]:
    """Say what is wrong with the outputs that the metrics of a verdict list."""
    found = []
    if names := told.get(CONSTANT):
        found.append(
            f"{listed(names)}: all zero, or the same whatever goes in, so {_verb(names, 'show')} nothing. Give inputs "
            "that make a difference (inputs=files inputs.path=..), or several samples (inputs.samples)"
        )
    if names := told.get(NEITHER):
        found.append(
            f"{listed(names)} {_verb(names, 'hold')} a NaN or Inf in the original, or the reference, too: there the "
            "same passes. Give inputs of which it makes none (inputs=files inputs.path=..), or mend it"
        )
    return found


def _verb(names: Sequence[str], verb: str) -> str:
    return f"{verb}s" if len(names) == 1 else verb


def _is_blank(held: Sequence[TensorFile], *, several: bool) -> bool:
    if all(0 in one.shape for one in held):
        return True
    # each map keeps a file handle: one is opened when it is looked at
    if all(one.dtype != STRING for one in held) and not any(_any(recorded.mapped(one)) for one in held):
        return True
    if several and len(held) > 1:
        first = recorded.mapped(held[0])
        return all(_alike(first, recorded.mapped(one)) for one in held[1:])
    return all(array.size > 1 and _is_one_value(array) for array in map(recorded.mapped, held))


def _any(array: Array) -> bool:
    """Whether anything but zeros is in an array."""
    return any(np.any(real(block) if block.dtype.kind == "V" else block) for block in blocks(array.reshape(-1)))


def _alike(one: Array, other: Array) -> bool:
    """Whether two arrays are the same bit by bit, or text by text."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    pairs = zip(blocks(one.reshape(-1)), blocks(other.reshape(-1)), strict=True)
    if one.dtype.kind in "OSU":
        return all(a.tolist() == b.tolist() for a, b in pairs)
    return all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in pairs)


def _is_one_value(array: Array) -> bool:
    flat = array.reshape(-1)
    return all(bool((block == flat[0]).all()) for block in blocks(flat))


# Which outputs of a run hold a NaN or an Inf, and how many of their elements do.

WORDS: Mapping[str, str] = {"nan": "a NaN", "inf": "an Inf"}
"""What is looked for, by the kind of the failure."""
Bad = tuple[int, str, str]
"""The number of a sample, the name of an output, and the kind of what it holds."""


def non_finite(outputs: Mapping[str, TensorFile], *, nan: bool, inf: bool) -> Iterator[tuple[str, str]]:
    """The outputs (name, kind) that hold what is looked for; NaN comes before Inf."""
    for name, tensor in outputs.items():
        if tensor.finite:
            continue
        if nan and tensor.nan:
            yield name, "nan"
        elif inf and (not tensor.nan or has_inf(tensor)):
            yield name, "inf"


_LARGEST_MASK = 16 << 20
"""Elements of a constant that is looked at as a mask."""
_VERY_LOW = -6e4
"""A mask puts it in place of what does not count: -Inf, or once two of them are added or rounded to float16."""


def masked_outputs(path: Path, outputs: Mapping[str, TensorFile]) -> frozenset[str]:
    """Return the outputs whose only infinities are a mask: -Inf, which operators that move values put there.

    ``path``: of the model. It holds that mask: very low numbers, and nothing above zero.
    """
    low = {name for name, held in outputs.items() if not held.finite and not held.nan and held.structure is None}
    low = {name for name in low if not (mapped(outputs[name]) == math.inf).any()}
    if not low:
        return frozenset()
    model = parse(path)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    held |= {one.output[0]: item.t for one in model.graph.node for item in one.attribute if item.name == "value"}
    return frozenset(low) & handed_on(model.graph.node, {name for name, one in held.items() if _is_mask(one, path)})


def _is_mask(tensor: TensorProto, path: Path) -> bool:
    """Whether a constant of the model at ``path`` holds very low numbers, and nothing above zero."""
    if tensor.data_type not in auto_tolerance.EPSILON or elements(tensor.dims) > _LARGEST_MASK:
        return False
    with suppress(ModelError, ValueError, OSError):
        if is_external(tensor):
            set_raw(tensor, b"".join(chunks(*ExternalFiles(path, own=True).region(tensor))))
        array = values.to_array(tensor)
        return array.size > 0 and bool(array.max() <= 0) and bool(array.min() <= _VERY_LOW)
    return False


def failed_by(bad: Sequence[Bad], outputs: Sequence[Mapping[str, TensorFile]], *, told: bool) -> Verdict:
    """Return the failure that these outputs are, named by the first of them, a NaN before an Inf.

    ``outputs``: of each sample. ``told``: a person will read of it, so elements are counted, which reads the tensor.
    """
    number, name, kind = min(bad, key=lambda one: one[2] != "nan")
    numbers: dict[str, Any] = {"output": name, "sample": number, "samples": len(outputs), "failing": len(bad)}
    tensor = outputs[number].get(name)
    if told and tensor is not None and tensor.structure is None:
        array = mapped(tensor)
        counts = not_finite(array.reshape(-1))
        numbers[NOT_FINITE] = {**counts, "elements": array.size, "type": tensor.dtype}
    return Verdict(Outcome.FAIL, Signature("infer", kind), f"{name} has {WORDS[kind]}", numbers)
