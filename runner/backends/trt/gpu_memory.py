"""Memory of a GPU: CUDA as far as an engine needs it, and where outputs are written.

Needs a GPU and the package cuda-python. Not yet run on one: unverified.
"""

# ruff: noqa: UP006, UP035, PLC0415
# ruff: noqa: UP006, UP035
from __future__ import annotations

import math
from typing import Any, Dict, List, Tuple

import numpy as np

from runner.backends.errors import StageError

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used


# what a pointer that TensorRT is given must be a multiple of
_ALIGNMENT = 256
# errors of a machine without a usable GPU; any other tells of the GPU's state
_NO_GPU = ("cudaErrorNoDevice", "cudaErrorInsufficientDriver", "cudaErrorStubLibrary")
_ASKED_WRONGLY = ("cudaErrorInvalidValue", "cudaErrorInvalidMemcpyDirection")


def runtime() -> Any:
    """Return the module of CUDA's runtime. Raises StageError (setup) where it is not installed."""
    try:
        from cuda.bindings import runtime  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        message = (
            f"running an engine needs the package cuda-python under this interpreter ({error}): "
            "pip install cuda-python. Without a GPU: checker=builds"
        )
        raise StageError("setup", "NotInstalled", message) from error
    return runtime


def ready(cuda: Any) -> None:
    """Start CUDA, with a first allocation, if that is not done; see that the GPU answers.

    An error that some kernel left behind stays in a process: all later calls repeat it, whatever they are about. So it
    must not count against the model that comes next.

    Raises StageError: setup where there is no GPU, untried for a GPU that fails before the model was touched.
    """
    error, count = cuda.cudaGetDeviceCount()
    name = name_of(cuda, error)
    if name in _NO_GPU or (int(error) == 0 and not count):
        message = f"running an engine needs a GPU, and none is usable here ({name}). Without one: checker=builds"
        raise StageError("setup", "NoGpu", message)
    pointer = 0
    if int(error) == 0:
        # freeing nothing starts CUDA and reports an error that an earlier kernel left
        (error,) = cuda.cudaFree(0)
    if int(error) == 0:
        error, pointer = cuda.cudaMalloc(_ALIGNMENT)
    if int(error) == 0:
        (error,) = cuda.cudaFree(pointer)
    if int(error) != 0:
        message = f"the GPU cannot be used: {name_of(cuda, error)}, before the model was touched"
        raise StageError("untried", "GpuNotReady", message)


def name_of(cuda: Any, error: Any) -> str:
    """Return CUDA's own name of an error."""
    name = cuda.cudaGetErrorName(error)[1]
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def done(cuda: Any, result: Any) -> Any:
    """Return the value of a CUDA call.

    Raises StageError if it failed: infer, since the GPU's state is part of the trial; untried where we asked wrongly.
    """
    error, *values = result if isinstance(result, tuple) else (result,)
    if int(error) != 0:
        name = name_of(cuda, error)
        raise StageError("untried" if name in _ASKED_WRONGLY else "infer", name, f"CUDA: {name}")
    return values[0] if values else None


class Memory:
    """What one execution takes, on the GPU and on the host; freed when its ``with`` ends.

    Sizes are bytes. Pointers are multiples of 256. Raises StageError as `done` does.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._taken: List[int] = []
        self._kept: List[Any] = []

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        for pointer in self._taken:
            # an error here is reported before the next execution, by `ready`
            self._cuda.cudaFree(pointer)

    def device(self, size: int, alignment: int = _ALIGNMENT) -> int:
        """Return a pointer to memory on the GPU; no output is without memory, however empty it is."""
        more = alignment if alignment > _ALIGNMENT else 0
        pointer = int(done(self._cuda, self._cuda.cudaMalloc(max(size, 1) + more)))
        self._taken.append(pointer)
        return -(-pointer // alignment) * alignment if more else pointer

    def host(self, size: int) -> Any:
        """Return memory on the host: an array of bytes, which lasts as long as this object."""
        room = np.zeros(max(size, 1) + _ALIGNMENT, np.uint8)
        self._kept.append(room)
        start = -room.ctypes.data % _ALIGNMENT
        return room[start : start + size]

    def upload(self, raw: Any) -> int:
        """Return a pointer to a copy on the GPU of an array of bytes."""
        pointer = self.device(raw.nbytes)
        to = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        done(self._cuda, self._cuda.cudaMemcpy(pointer, raw.ctypes.data, raw.nbytes, to))
        return pointer

    def download(self, pointer: int, size: int) -> Any:
        """Return a copy on the host, an array of bytes."""
        raw = np.empty(size, np.uint8)
        to = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        done(self._cuda, self._cuda.cudaMemcpy(raw.ctypes.data, pointer, size, to))
        return raw


# Where an engine writes its outputs: memory on the GPU, on the host, or such as it asks for while it runs.
#
# An output whose shape depends on data (NonZero, NonMaxSuppression) is of the third sort: TensorRT knows its size when
# it has computed it, asks an allocator for memory and tells the shape. Needs a GPU. Not yet run on one: unverified.

# runs under Python 3.8 (and so without subscripted builtins)


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
