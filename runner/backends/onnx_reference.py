"""The reference evaluator of the onnx package: numpy semantics, where fp16 really rounds and overflows."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from runner.backends.arrays import declared_as, from_array, to_array
from runner.backends.errors import StageError
from runner.backends.tensors import Tensor


class OnnxReference:
    """One loaded model.

    ``inputs``: all that can be fed; ``required``: those without a default; ``outputs``: names in the model's order.
    """

    providers = ("onnx_reference",)

    def __init__(self, evaluator: Any, required: List[str], declared: Dict[str, int]) -> None:
        self._evaluator = evaluator
        self._declared = declared
        self.inputs = frozenset(evaluator.input_names)
        self.required = required
        self.outputs = list(evaluator.output_names)
        self._custom = _custom_types()

    @staticmethod
    def prepare() -> None:
        """Import the package. Raises StageError (setup) if it is not installed or older than 1.13."""
        try:
            import onnx.reference  # noqa: F401
        except ImportError as error:
            message = f"backend=onnx_reference needs the package onnx (1.13 or newer) under this interpreter: {error}"
            raise StageError("setup", "NotInstalled", message) from error

    @classmethod
    def load(cls, path: str, settings: Dict[str, Any]) -> OnnxReference:
        """Load the model with its external data. ``settings``: has no more than the name. Raises StageError (load)."""
        import onnx
        from onnx.reference import ReferenceEvaluator

        try:
            # by path, since the evaluator of some versions opens the file itself and then does not find external data
            model = onnx.load(path)
            evaluator = ReferenceEvaluator(model)
        except Exception as error:
            raise StageError("load", type(error).__name__, str(error) or repr(error)) from error
        defaults = {tensor.name for tensor in model.graph.initializer}
        defaults.update(tensor.values.name for tensor in model.graph.sparse_initializer)
        required = [value.name for value in model.graph.input if value.name not in defaults]
        return cls(evaluator, required, {value.name: value.type.tensor_type.elem_type for value in model.graph.output})

    def run(self, outputs: List[str], feeds: Dict[str, Tensor]) -> Iterator[Tuple[str, Any]]:
        """Run on ``feeds`` and yield (name, tensor) or (name, why there is none). Raises StageError (infer)."""
        arrays = {name: to_array(tensor, self._custom) for name, tensor in feeds.items()}
        try:
            with np.errstate(all="ignore"):
                results = self._evaluator.run(outputs, arrays)
        except Exception as error:
            raise StageError("infer", type(error).__name__, str(error) or repr(error)) from error
        return self._tensors(outputs, results)

    def _tensors(self, outputs: List[str], results: List[Any]) -> Iterator[Tuple[str, Any]]:
        results = list(results)
        for name in outputs:
            # let go of each as soon as it is written
            value = results.pop(0)
            try:
                yield name, declared_as(from_array(value), self._declared.get(name, 0))
            except TypeError as error:
                yield name, str(error)


def _custom_types() -> bool:
    """Whether this onnx package has dtypes of its own for what numpy lacks (before it moved to ml_dtypes)."""
    try:
        import onnx.reference.custom_element_types
    except ImportError:
        return False
    return hasattr(onnx.reference.custom_element_types, "bfloat16")
