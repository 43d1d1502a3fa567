"""Outputs that are odd by themselves: zero or constant, so that they show nothing, or with a NaN or Inf."""

from __future__ import annotations

import filecmp
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from runner.checkers import auto_tolerance
from runner.checkers.compare_values import has_inf, not_finite
from runner.checkers.metrics import Array, blocks, real
from runner.judgment import ModelError
from runner.model.files.parse_without_weights import ExternalFiles, chunks, parse
from runner.model.graph.data_dependence import handed_on
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile, mapped
from runner.model.values.tensor_bytes import STRING, elements, is_external, set_raw
from runner.text import listed
from runner.verdict import NOT_FINITE, Sample, Signature, Verdict
from strategies.search import Outcome

# Outputs that show nothing: whatever goes wrong inside a model, a constant looks right.

CONSTANT = "constant"
"""The key of a verdict's metrics that lists such outputs."""
NEITHER = "neither"
"""The same for those whose right values hold a NaN or Inf, which is no mask."""
NO_OUTPUT_TELLS = "no output tells anything"
"""How a reason begins where there are no others."""


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
        be, so = ("is", "it shows") if len(names) == 1 else ("are", "they show")
        found.append(
            f"{listed(names)} {be} all zero, or the same whatever goes in, so {so} nothing. Give inputs that make a "
            "difference (inputs=files inputs.path=..), or several samples (inputs.samples)"
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
    if all(one.dtype != STRING for one in held) and not any(_any(mapped(one)) for one in held):
        return True
    if several and len(held) > 1:
        first = mapped(held[0])
        return all(_alike(first, mapped(one)) for one in held[1:])
    return all(array.size > 1 and _is_one_value(array) for array in map(mapped, held))


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
        array = recorded.to_array(tensor)
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
