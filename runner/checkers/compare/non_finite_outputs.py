"""Which outputs of a run hold a NaN or an Inf, and how many of their elements do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.checkers.compare.compare_values import has_inf
from runner.checkers.compare.tensor_statistics import not_finite
from runner.model.values.recorded import TensorFile, mapped
from runner.verdict import NOT_FINITE, Signature, Verdict
from strategies.outcome import Outcome

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
