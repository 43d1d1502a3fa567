"""Running an engine, for ``compare`` and ``finite``: built from the ONNX file, then executed on a GPU.

Needs a GPU and the package cuda-python. Not yet run on one: unverified.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH123
from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from runner.backends.dtypes import BY_NUMBER
from runner.backends.errors import StageError
from runner.backends.structure import Structure, Value
from runner.backends.tensors import Tensor
from runner.backends.trt import build, errors
from runner.backends.trt.library import load as load_library
from runner.backends.trt.said import logger

# TensorRT's element types by name -> the ONNX element type's number
_ONNX = {
    "FLOAT": 1,
    "UINT8": 2,
    "INT8": 3,
    "INT32": 6,
    "INT64": 7,
    "BOOL": 9,
    "HALF": 10,
    "BF16": 16,
    "FP8": 17,
    "INT4": 22,
    "FP4": 23,
}


class TensorRt:
    """An engine with its context.

    ``inputs``: all that can be fed; ``structures``: of those that are no tensors (none); ``required``: those without a
    default (all); ``outputs``: names in the engine's order.
    """

    providers = ("tensorrt",)
    structures: Mapping[str, Structure] = {}

    def __init__(self, engine: Any, context: Any, built: build.Built, runs: int) -> None:
        self._engine, self._context, self._built, self._runs = engine, context, built, runs
        api = built.library.api
        names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
        fed = [name for name in names if engine.get_tensor_mode(name) == api.TensorIOMode.INPUT]
        self.inputs = frozenset(fed)
        self.required = fed
        self.outputs = [name for name in names if name not in self.inputs]

    @staticmethod
    def prepare() -> None:
        """Do nothing yet: which TensorRT is to be imported stands in the settings."""

    @classmethod
    def load(cls, path: str, settings: Dict[str, Any]) -> TensorRt:
        """Build the engine (or take ``settings["engine"]``, a file) and make it ready.

        Raises StageError: setup, load (the parser), build, or infer.
        """
        load_library(settings.get("flavour", "auto"))
        _gpu(_cuda())
        args = {"backend": settings, "model": path, "samples": settings.get("samples") or []}
        stored = settings.get("engine")
        if stored:
            with open(stored, "rb") as file:
                built = build.Built(load_library(settings.get("flavour", "auto")), memoryview(file.read()), {}, [], {})
        else:
            built = build.engine({**args, "timing_cache": settings.get("caching")}, None)
        library = load_library(settings.get("flavour", "auto"))
        speaker = logger(library)
        speaker.said.start(None)
        runtime = library.api.Runtime(speaker)
        engine = runtime.deserialize_cuda_engine(built.plan)
        context = None if engine is None else engine.create_execution_context()
        if context is None:
            failed = errors.building(speaker.said.errors, speaker.said.printed(), ())
            raise StageError("infer", failed.kind, str(failed))
        return cls(engine, context, built, int(settings.get("runs", 1)))

    def run(self, outputs: List[str], feeds: Dict[str, Value]) -> Iterator[Tuple[str, Any]]:
        """Execute on ``feeds`` and yield (name, tensor).

        Raises StageError (infer), also where two executions differ.
        """
        results = self._execute(feeds)
        for number in range(1, self._runs):
            again = self._execute(feeds)
            moved = [name for name, tensor in results.items() if not np.array_equal(tensor.raw, again[name].raw)]
            if moved:
                message = f"the same engine gives another {moved[0]} when it is executed again (execution {number + 1})"
                raise StageError("infer", "UnstableExecution", message)
        for name in outputs:
            yield name, results[name]

    def _execute(self, feeds: Mapping[str, Value]) -> Dict[str, Tensor]:
        cuda = _cuda()
        held: List[int] = []
        try:
            return self._on_device(cuda, feeds, held)
        finally:
            for pointer in held:
                cuda.cudaFree(pointer)

    def _on_device(self, cuda: Any, feeds: Mapping[str, Value], held: List[int]) -> Dict[str, Tensor]:
        keep = []  # inputs that hold shapes are read from the host for as long as the call runs
        for name, value in feeds.items():
            if name not in self.inputs or not isinstance(value, Tensor):
                continue
            self._context.set_input_shape(name, value.shape)
            raw = np.ascontiguousarray(value.raw)
            keep.append(raw)
            if self._engine.is_shape_inference_io(name):
                self._context.set_tensor_address(name, raw.ctypes.data)
                continue
            pointer = self._memory(cuda, held, raw.nbytes)
            _done(
                cuda, cuda.cudaMemcpy(pointer, raw.ctypes.data, raw.nbytes, cuda.cudaMemcpyKind.cudaMemcpyHostToDevice)
            )
            self._context.set_tensor_address(name, pointer)
        unset = self._context.infer_shapes()
        if unset:
            raise StageError("setup", "MissingFeed", f"no value for the model's input {', '.join(map(repr, unset))}")
        places = {name: self._place(cuda, name, held) for name in self.outputs}
        if not self._context.execute_async_v3(0):
            speaker = logger(self._built.library)
            failed = errors.building(speaker.said.errors, speaker.said.printed(), ())
            raise StageError("infer", failed.kind, str(failed))
        _done(cuda, cuda.cudaStreamSynchronize(0))
        return {name: self._fetch(cuda, name, pointer) for name, pointer in places.items()}

    def _place(self, cuda: Any, name: str, held: List[int]) -> int:
        shape = tuple(self._context.get_tensor_shape(name))
        size = self._context.get_max_output_size(name) if -1 in shape else self._kind(name).bytes(_count(shape))
        pointer = self._memory(cuda, held, size)
        self._context.set_tensor_address(name, pointer)
        return pointer

    def _fetch(self, cuda: Any, name: str, pointer: int) -> Tensor:
        shape = tuple(int(size) for size in self._context.get_tensor_shape(name))
        kind = self._kind(name)
        if -1 in shape:
            raise StageError("infer", "DataDependentShape", f"the output {name!r} has a shape that depends on its data")
        raw = np.empty(kind.bytes(_count(shape)), np.uint8)
        _done(cuda, cuda.cudaMemcpy(raw.ctypes.data, pointer, raw.nbytes, cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost))
        return Tensor(kind, shape, raw)

    def _kind(self, name: str) -> Any:
        dtype = self._engine.get_tensor_dtype(name)
        return BY_NUMBER[_ONNX[str(getattr(dtype, "name", dtype)).upper()]]

    @staticmethod
    def _memory(cuda: Any, held: List[int], size: int) -> int:
        pointer = _done(cuda, cuda.cudaMalloc(max(size, 1)))
        held.append(pointer)
        return int(pointer)


def _count(shape: Tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= int(size)
    return count


def _cuda() -> Any:
    try:
        from cuda.bindings import runtime  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        message = (
            f"running an engine needs the package cuda-python under this interpreter ({error}): "
            "pip install cuda-python. Without a GPU: checker=builds"
        )
        raise StageError("setup", "NotInstalled", message) from error
    return runtime


def _gpu(cuda: Any) -> None:
    error, count = cuda.cudaGetDeviceCount()
    if int(error) != 0 or not count:
        why = cuda.cudaGetErrorString(error)[1]
        why = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise StageError(
            "setup",
            "NoGpu",
            f"running an engine needs a GPU, and none is usable here ({why}). Without one: checker=builds",
        )


def _done(cuda: Any, result: Any) -> Any:
    """Return the value of a CUDA call. Raises StageError (infer) if it failed: the GPU's state is part of the trial."""
    error, *values = result if isinstance(result, tuple) else (result,)
    if int(error) != 0:
        name = cuda.cudaGetErrorName(error)[1]
        name = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        raise StageError("infer", name, f"CUDA: {name}")
    return values[0] if values else None
