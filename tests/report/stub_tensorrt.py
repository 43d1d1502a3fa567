"""A stand-in for TensorRT and CUDA, for repro.py alone: engines run on the evaluator of ONNX, in this process's memory.

It mirrors what its author read of the API. That it runs here says nothing of a GPU: none has run this.
"""

from __future__ import annotations

from pathlib import Path

TENSORRT = """
import ctypes, enum, os
import numpy as np, onnx
from onnx.reference import ReferenceEvaluator
__version__ = "10.0.stub"

class ILogger:
    class Severity(enum.Enum):
        INTERNAL_ERROR, ERROR, WARNING = 0, 1, 2
    def __init__(self): pass
class DataType(enum.Enum):
    FLOAT, HALF, INT64 = 0, 1, 2
NetworkDefinitionCreationFlag = enum.IntEnum("NetworkDefinitionCreationFlag", "STRONGLY_TYPED")
BuilderFlag = enum.Enum("BuilderFlag", "FP16 TF32")
TensorIOMode = enum.Enum("TensorIOMode", "INPUT OUTPUT")
TensorLocation = enum.Enum("TensorLocation", "DEVICE HOST")
def nptype(one): return {"FLOAT": np.float32, "HALF": np.float16, "INT64": np.int64}[one.name]
def init_libnvinfer_plugins(logger, namespace): return True

class Network:
    num_inputs = 0
class Builder:
    def __init__(self, logger): self.logger = logger
    def create_network(self, flags): return Network()
    def create_builder_config(self): return self
    def set_flag(self, flag): pass
    def create_optimization_profile(self): return None
    def build_serialized_network(self, network, config):
        if os.environ.get("STUB") == "build":
            self.logger.log(ILogger.Severity.ERROR, "IBuilder::build: Error Code 4: API Usage Error (no way)")
            return None
        return network.path
class OnnxParser:
    num_errors = 0
    def __init__(self, network, logger): self.network = network
    def parse_from_file(self, path): self.network.path = path; return True
class Runtime:
    def __init__(self, logger): self.logger = logger
    def deserialize_cuda_engine(self, plan): return Engine(plan, self.logger)
class Engine:
    def __init__(self, path, logger):
        self.evaluator, self.logger = ReferenceEvaluator(onnx.load(path)), logger
        graph = self.evaluator.proto_.graph
        self.inputs = {v.name: v for v in graph.input}
        self.names = [*self.inputs, *(v.name for v in graph.output)]
        self.num_io_tensors = len(self.names)
    def get_tensor_name(self, number): return self.names[number]
    def get_tensor_mode(self, name): return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT
    def get_tensor_dtype(self, name): return DataType.FLOAT
    def get_tensor_location(self, name):
        return TensorLocation.HOST if os.environ.get("STUB") == "host" else TensorLocation.DEVICE
    def is_shape_inference_io(self, name): return False
    def create_execution_context(self): return Context(self)
class Context:
    def __init__(self, engine): self.engine, self.places, self.shapes, self.times = engine, {}, {}, 0
    def set_input_shape(self, name, shape): self.shapes[name] = shape; return os.environ.get("STUB") != "refuses"
    def set_tensor_address(self, name, place): self.places[name] = place; return True
    def infer_shapes(self): return []
    def get_tensor_shape(self, name):
        return (-1,) if os.environ.get("STUB") == "dynamic" else next(iter(self.shapes.values()))
    def execute_async_v3(self, stream):
        self.times += 1
        if os.environ.get("STUB") == "execute":
            self.engine.logger.log(ILogger.Severity.ERROR, "enqueueV3: Error Code 1: Cuda Runtime (boo)")
            return False
        def read(name):
            size = int(np.prod(self.shapes[name])) * 4
            return np.frombuffer(ctypes.string_at(self.places[name], size), np.float32).reshape(self.shapes[name])
        feeds = {name: read(name) for name in self.engine.inputs}
        for name, array in zip(self.engine.evaluator.output_names, self.engine.evaluator.run(None, feeds)):
            array = array + self.times if os.environ.get("STUB") == "unstable" else array
            data = np.ascontiguousarray(array).tobytes()
            ctypes.memmove(self.places[name], data, len(data))
        return True
"""
CUDA = """
import ctypes, enum, os
held = {}
class cudaMemcpyKind(enum.Enum):
    cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost = 1, 2
def cudaGetDeviceCount(): return (0, 0 if os.environ.get("STUB") == "no gpu" else 1)
def cudaMalloc(size):
    if os.environ.get("STUB") == "memory": return 2, None
    buffer = ctypes.create_string_buffer(size)
    held[ctypes.addressof(buffer)] = buffer
    return 0, ctypes.addressof(buffer)
def cudaFree(place): del held[int(place)]; return (0,)
def cudaMemcpy(to, source, size, kind): ctypes.memmove(to, source, size); return (0,)
def cudaStreamSynchronize(stream): return (700,) if os.environ.get("STUB") == "sticky" else (0,)
def cudaGetErrorName(error): return 0, {2: b"cudaErrorMemoryAllocation", 700: b"cudaErrorIllegalAddress"}[error]
"""


def install(python: Path) -> None:
    """Put both beside the packages of a fresh interpreter."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (site / "tensorrt.py").write_text(TENSORRT)
    (site / "cuda" / "bindings").mkdir(parents=True)
    (site / "cuda" / "bindings" / "runtime.py").write_text(CUDA)
