"""The comparison of recorded values of any kind: what is no tensor is compared tensor by tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from runner.checkers.compare import auto_tolerance, metrics
from runner.checkers.compare.element_blocks import blocks, real
from runner.checkers.compare.metrics import Difference
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import leaf_dtype, structure_text
from runner.schema.checker import CompareChecker, Tolerance


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
