"""Golden values: what another model (an fp32 original beside its converted child) holds in the tensors it shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.inputs.fit import tensor
from runner.model import values
from runner.model.values import TensorFile


def cast(sample: Mapping[str, TensorFile], dtypes: Mapping[str, int], folder: Path) -> dict[str, TensorFile]:
    """Return the tensors that ``dtypes`` names, in those ONNX element types.

    A value of another type is rounded to it and written into ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = {}
    for at, (name, dtype) in enumerate(dtypes.items()):
        result[name] = sample[name]
        if sample[name].dtype != dtype:
            rounded = tensor(values.read(sample[name]), name, dtype)
            result[name] = values.write(rounded, name, folder / f"{at}.pb")
    return result


def overlay(
    own: Sequence[Mapping[str, TensorFile]], others: Sequence[Mapping[str, TensorFile]], folder: Path
) -> tuple[dict[str, TensorFile], ...]:
    """Return ``own`` with the values of ``others`` for tensors of the same name and shape, in the type of ``own``."""
    result = []
    for number, (sample, other) in enumerate(zip(own, others, strict=True)):
        shared = {
            name: mine.dtype for name, mine in sample.items() if name in other and other[name].shape == mine.shape
        }
        result.append({**sample, **cast(other, shared, folder / str(number))})
    return tuple(result)
