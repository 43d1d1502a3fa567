"""Engines: built from an ONNX file, executed on a GPU for ``compare`` and ``finite``, and told what they are made of.

What TensorRT or CUDA fails at is a failure of stage ``infer``. What they refuse to be given (a shape, an address), or
what does not fit the engine, is ``untried``: nothing was run, so that no model is at fault.

Needs a GPU and the package cuda-python. Not yet run on one: unverified.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH123
from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

import numpy as np

from runner.backends.errors import StageError
from runner.backends.tensor_files import Structure, Tensor, Value
from runner.backends.trt import build
from runner.backends.trt.library import Library, executing, has_gpu, logger, unreadable
from runner.backends.trt.library import load as load_library
from runner.model.values.dtypes import BY_NAME, ElementType

# TensorRT's names of element types, where ONNX has others
_NAMES = {"half": "float16", "bf16": "bfloat16", "fp8": "float8e4m3fn", "fp4": "float4e2m1", "e8m0": "float8e8m0"}
# gives an output's shape and bytes once the engine has run
_Fetch = Callable[[], Tuple[Tuple[int, ...], Any]]


class TensorRt:
    """An engine with its context.

    ``inputs``: all that can be fed; ``structures``: of those that are no tensors (none); ``required``: those without a
    default (all); ``outputs``: names in the engine's order.
    """

    structures: Mapping[str, Structure] = {}

    def __init__(self, context: Any, engine: Any, reader: Any, library: Library, runs: int) -> None:
        # each must outlive what was created from it
        self._context, self._engine, self._reader = context, engine, reader
        self._library, self._runs = library, runs
        self.required, self.outputs = _ends(library, engine)
        self.inputs = frozenset(self.required)
        names = [*self.required, *self.outputs]
        self._kinds = {name: _kind(name, engine.get_tensor_dtype(name)) for name in names}
        # shape tensors, as inputs and as outputs, lie in host memory
        host = library.api.TensorLocation.HOST
        self._on_host = {name for name in names if engine.get_tensor_location(name) == host}
        self._allocator: Any = None

    @staticmethod
    def prepare(settings: Mapping[str, Any]) -> None:
        """Load the library and start CUDA, so that no model's time holds that. Raises StageError (setup, untried)."""
        library = load_library(settings.get("flavor", "auto"))
        ready(runtime())
        for what in ("Builder", "Runtime"):
            build.create(library, what)

    @classmethod
    def load(cls, path: str, settings: Dict[str, Any]) -> TensorRt:
        """Build the engine (or take ``settings["engine"]``, a file) and make it ready.

        Raises StageError: setup, load (the parser), build, infer, or untried.
        """
        library = load_library(settings.get("flavor", "auto"))
        ready(runtime())
        stored, samples = settings.get("engine"), settings.get("samples") or []
        if stored:
            with open(stored, "rb") as file:
                plan = file.read()
        else:
            args = {"backend": settings, "model": path, "samples": samples, "timing_cache": settings.get("caching")}
            plan, _ = build.engine(args, None)
        reader, engine = _read(library, plan)
        context = engine.create_execution_context()
        if context is None:
            raise _failed(library, "the engine gives no context")
        return cls(context, engine, reader, library, int(settings.get("runs", 1)))

    def run(self, outputs: List[str], feeds: Dict[str, Value]) -> Iterator[Tuple[str, Any]]:
        """Execute on ``feeds`` and yield (name, tensor).

        Raises StageError: infer, also where two executions differ; untried for what does not fit the engine.
        """
        results = self._execute(feeds)
        for number in range(1, self._runs):
            again = self._execute(feeds)
            moved = [name for name, tensor in results.items() if not _alike(tensor, again[name])]
            if moved:
                message = f"the same engine gives another {moved[0]} when it is executed again (execution {number + 1})"
                raise StageError("infer", "UnstableExecution", message)
        for name in outputs:
            yield name, results[name]

    def _execute(self, feeds: Mapping[str, Value]) -> Dict[str, Tensor]:
        logger(self._library).messages.start(None)
        cuda = runtime()
        with Memory(cuda) as memory:
            for name, value in feeds.items():
                if name in self.inputs and isinstance(value, Tensor):
                    self._feed(memory, name, value)
            self._infer_shapes()
            places = {name: self._place(memory, name) for name in self.outputs}
            if any(name in self._on_host for name in self.outputs):
                # shapes that are outputs are written here, now that their place is known
                self._infer_shapes()
            if not self._context.execute_async_v3(0):
                if self._allocator is not None and self._allocator.error is not None:
                    raise self._allocator.error
                raise _failed(self._library, "the engine did not run", self._kinds)
            done(cuda, cuda.cudaStreamSynchronize(0))
            return {name: Tensor(self._kinds[name], *fetch()) for name, fetch in places.items()}

    def _feed(self, memory: Memory, name: str, value: Tensor) -> None:
        kind = self._kinds[name]
        if (value.kind, kind) == (BY_NAME["double"], BY_NAME["float"]):
            # TensorRT has no double: its parser makes float of it
            value = Tensor(kind, value.shape, value.raw.view("<f8").astype("<f4").view(np.uint8))
        if value.kind != kind:
            message = f"the input {name!r} takes {kind.name}, and was given {value.kind.name}"
            raise StageError("untried", "WrongType", message)
        self._accepted(self._context.set_input_shape(name, value.shape), f"the shape {list(value.shape)} of {name!r}")
        if name in self._on_host:
            copy = memory.host(value.raw.nbytes)
            copy[:] = value.raw
            pointer = copy.ctypes.data
        else:
            pointer = memory.upload(np.ascontiguousarray(value.raw))
        self._address(name, pointer)

    def _infer_shapes(self) -> None:
        try:
            unset = self._context.infer_shapes()
        except RuntimeError as error:
            message = f"the shapes of the outputs cannot be told: {error}"
            raise _failed(self._library, message, self._kinds) from error
        if unset:
            raise StageError("setup", "MissingFeed", f"no value for the model's input {', '.join(map(repr, unset))}")

    def _place(self, memory: Memory, name: str) -> _Fetch:
        """Give an output a place; return what gets it from there."""
        shape = build.extents(self._context.get_tensor_shape(name))
        if shape is None or (-1 in shape and name in self._on_host):
            raise StageError("untried", "UnknownShape", f"{self._library} tells no shape of the output {name!r}")
        kind = self._kinds[name]
        if -1 in shape:
            return self._allocated_output(memory, name, kind)
        known, size = shape, kind.bytes(math.prod(shape))
        if name in self._on_host:
            room = memory.host(size)
            self._address(name, room.ctypes.data)
            return lambda: (known, room.copy())
        pointer = memory.device(size)
        self._address(name, pointer)
        return lambda: (known, memory.download(pointer, size))

    def _allocated_output(self, memory: Memory, name: str, kind: ElementType) -> _Fetch:
        if self._allocator is None:
            self._allocator = allocator_of(self._library.api)
        allocator = self._allocator
        allocator.start(memory)
        self._accepted(self._context.set_output_allocator(name, allocator), f"an allocator for the output {name!r}")

        def fetch() -> Tuple[Tuple[int, ...], Any]:
            shape, pointer = allocator.result(name, kind.bits)
            return shape, memory.download(pointer, kind.bytes(math.prod(shape)))

        return fetch

    def _address(self, name: str, pointer: int) -> None:
        self._accepted(self._context.set_tensor_address(name, pointer), f"an address for {name!r}")

    def _accepted(self, answer: Any, what: str) -> None:
        """Raise StageError (untried) where TensorRT answered no."""
        if not answer:
            why = " ".join(" ".join(logger(self._library).messages.errors).split())[:300] or "it did not say why"
            raise StageError("untried", "Refused", f"{self._library} refuses {what}: {why}")


def _read(library: Library, plan: Any) -> Tuple[Any, Any]:
    """Return what reads engines, and an engine. Raises StageError (setup, infer) for what cannot be read."""
    said = logger(library).messages
    said.start(None)
    reader = build.create(library, "Runtime")
    engine = reader.deserialize_cuda_engine(plan)
    if engine is None:
        if not has_gpu() and "cudaError" in " ".join(said.errors):
            raise StageError("setup", "NoGpu", f"{library} reads engines on a GPU only, and there is none here")
        raise unreadable(said.errors, said.printed())
    return reader, engine


def _ends(library: Library, engine: Any) -> Tuple[List[str], List[str]]:
    """Return the names of an engine's inputs and outputs."""
    names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
    fed = [name for name in names if engine.get_tensor_mode(name) == library.api.TensorIOMode.INPUT]
    return fed, [name for name in names if name not in fed]


def _failed(library: Library, what: str, names: Iterable[str] = ()) -> StageError:
    said = logger(library).messages
    return executing(what, said.errors, said.printed(), names)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and np.array_equal(one.raw, other.raw)


def _kind(name: str, dtype: Any) -> ElementType:
    """Return the type of a tensor. Raises StageError (untried) for one that is not known here."""
    called = str(getattr(dtype, "name", dtype))
    kind = BY_NAME.get(_NAMES.get(called.lower(), called.lower()))
    if kind is None:
        raise StageError("untried", "UnknownType", f"{name!r} has the type {called.upper()}, which is not known here")
    return kind


# Memory of a GPU: CUDA as far as an engine needs it.

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


def allocator_of(api: Any) -> Any:
    """Return an ``IOutputAllocator``: `start` before an execution, `result` after it."""

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
            self.shapes[tensor_name] = build.extents(shape)

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


# The operation ``engine_layers``: what an engine file is made of, as TensorRT's own inspector tells it.


def engine_layers(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return what the engine at ``args["engine"]`` holds; ``args["flavor"]``: of the library that reads it.

    ``library``, ``memory`` (bytes that a run takes besides weights), ``inputs`` and ``outputs`` (name, dtype, shape, a
    "?" for a dimension that is not fixed), ``layers`` (name, and of an engine with detailed profiling verbosity type,
    tactic and data types). Raises StageError (setup) without TensorRT or a GPU, and for what cannot be read.
    """
    library = load_library(args.get("flavor", "auto"))
    with open(args["engine"], "rb") as file:
        _reader, engine = _read(library, file.read())
    inputs, outputs = _ends(library, engine)
    told = engine.create_engine_inspector().get_engine_information(library.api.LayerInformationFormat.JSON)
    memory = [getattr(engine, name, 0) for name in ("device_memory_size_v2", "device_memory_size")]
    return {
        "library": str(library),
        "memory": int(max(memory)),
        "inputs": [_tensor(engine, name) for name in inputs],
        "outputs": [_tensor(engine, name) for name in outputs],
        "layers": layers_in(str(told)),
    }


def layers_in(text: str) -> List[Dict[str, Any]]:
    """Return the layers that the text of an inspector names; of a text that is no JSON, its lines."""
    try:
        told = json.loads(text).get("Layers", [])
    except (ValueError, AttributeError):
        told = [line for line in map(str.strip, text.splitlines()) if line]
    return [_layer(one) for one in told]


def _layer(told: Any) -> Dict[str, Any]:
    if not isinstance(told, Mapping):
        return {"name": str(told), "type": "", "tactic": "", "dtypes": []}
    outputs = [one for one in told.get("Outputs") or () if isinstance(one, Mapping)]
    return {
        "name": str(told.get("Name", "")),
        "type": str(told.get("LayerType", "")),
        "tactic": str(told.get("TacticName") or told.get("TacticValue") or ""),
        "dtypes": [str(one.get("Format/Datatype", "")) for one in outputs],
    }


def _tensor(engine: Any, name: str) -> Dict[str, Any]:
    kind = engine.get_tensor_dtype(name)
    shape = ["?" if size < 0 else int(size) for size in engine.get_tensor_shape(name)]
    return {"name": name, "dtype": str(getattr(kind, "name", kind)).lower(), "shape": shape}
