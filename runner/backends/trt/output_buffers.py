"""Where an engine writes its outputs: memory on the GPU, on the host, or such as it asks for while it runs.

An output whose shape depends on data (NonZero, NonMaxSuppression) is of the third sort: TensorRT knows its size when it
has computed it, asks an allocator for memory and tells the shape. Needs a GPU. Not yet run on one: unverified.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

import math
from typing import Any, Dict, Tuple

from runner.backends.errors import StageError
from runner.backends.trt.cuda_memory import Memory


def extents(dims: Any) -> Tuple[int, ...] | None:
    """Return a shape (-1: not known yet); None for TensorRT's sign that there is none, which has no length."""
    try:
        return tuple(int(size) for size in dims)
    except (TypeError, ValueError):
        return None


def allocator(api: Any) -> Any:
    """Return an ``IOutputAllocator``: `start` before an execution, `result` after it.

    Raises StageError (untried) where this TensorRT has none.
    """
    if not hasattr(api, "IOutputAllocator"):
        message = "an output has a shape that depends on its data, and this TensorRT has no output allocators for that"
        raise StageError("untried", "DataDependentShape", message)

    class Allocator(api.IOutputAllocator):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            api.IOutputAllocator.__init__(self)
            self.error: Exception | None = None

        def start(self, memory: Memory) -> None:
            self.memory = memory
            self.error = None
            self.places: Dict[str, Tuple[int, int]] = {}
            self.shapes: Dict[str, Tuple[int, ...] | None] = {}

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            try:
                pointer = self.memory.device(int(size), max(int(alignment), 1))
            except Exception as error:  # noqa: BLE001 - it would be lost in the library: 0 says that there is none
                self.error = error
                return 0
            self.places[tensor_name] = pointer, int(size)
            return pointer

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shapes[tensor_name] = extents(shape)

        def result(self, name: str, bits: int) -> Tuple[Tuple[int, ...], int]:
            """Return the shape and the pointer.

            Raises StageError: infer where there was no memory, untried for what does not fit together.
            """
            if self.error is not None:
                raise self.error
            shape, (pointer, size) = self.shapes.get(name), self.places.get(name, (0, 0))
            if shape is None or -1 in shape or (math.prod(shape) * bits + 7) // 8 > size:
                told = "none" if shape is None else list(shape)
                message = (
                    f"the shape of the output {name!r} depends on its data, and TensorRT did not tell it: it asked for "
                    f"{size} bytes and told the shape {told}"
                )
                raise StageError("untried", "DataDependentShape", message)
            return shape, pointer

    return Allocator()
