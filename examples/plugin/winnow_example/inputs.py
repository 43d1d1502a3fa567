"""Inputs ``constant``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import helper

from runner.exit_codes import UsageError
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.samples.declared_inputs import Declared, tensor
from runner.workers.pool import Pool
from winnow_example.settings import Constant


def constant(
    settings: Constant, inputs: Mapping[str, Declared], pool: Pool, folder: Path
) -> tuple[dict[str, TensorFile], ...]:
    """Return one sample, whose dynamic dimensions are 1. Raises UsageError for an input that is no tensor."""
    sample = {}
    for position, (name, one) in enumerate(inputs.items()):
        if one.structure is not None or one.dims is None:
            raise UsageError(f"inputs=constant: the model's input {name!r} is no tensor of a known rank")
        shape = [dim if isinstance(dim, int) else 1 for dim in one.dims]
        array = np.full(shape, settings.value, helper.tensor_dtype_to_np_dtype(one.dtype))
        sample[name] = recorded.write(tensor(array, name, one.dtype), name, folder / f"input_{position}.pb")
    return (sample,)
