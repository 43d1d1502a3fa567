"""Backend ``digits``: workers import it, under the interpreter that ``target.python`` names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from runner.backends.numpy_arrays import from_array
from runner.backends.onnx_reference import OnnxReference
from runner.backends.tensor_files import Tensor


class DigitsBackend(OnnxReference):
    """The reference evaluator, whose outputs are rounded. ``digits``: how many are kept."""

    digits = 3

    @classmethod
    def load(cls, path: str, settings: dict[str, Any]) -> DigitsBackend:
        """Load a model. Raises StageError."""
        model = super().load(path, settings)
        assert isinstance(model, DigitsBackend)
        model.digits = settings["digits"]
        return model

    def run(self, outputs: list[str], feeds: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Run on one sample and yield (name, tensor). Raises StageError."""
        for name, value in super().run(outputs, feeds):
            yield name, self._rounded(value) if isinstance(value, Tensor) else value

    def _rounded(self, value: Tensor) -> Tensor:
        array = value.array()
        if array.dtype.kind != "f":
            return value
        kept = np.array([f"{number:.{self.digits}g}" for number in array.flat], array.dtype)
        return from_array(kept.reshape(array.shape))
