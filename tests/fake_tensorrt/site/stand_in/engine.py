"""An engine: what it says of its tensors, and its execution on the "GPU" of `stand_in.cuda`."""

import ctypes
import json
import sys
from math import prod
from types import SimpleNamespace

import ml_dtypes  # noqa: F401 - numpy learns bfloat16
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from stand_in import enums
from stand_in.cuda import GPU, cudaError_t
from stand_in.faults import argument, note, planted
from stand_in.network import Dims, ITensor, fed, say, shape_inputs

_NUMPY = {"FLOAT": "f4", "HALF": "f2", "BF16": "bfloat16", "INT8": "i1", "INT32": "i4", "INT64": "i8"}
_NUMPY.update(BOOL="?", UINT8="u1")
_BY_DATA = ("NonZero", "NonMaxSuppression", "Unique", "Compress")


def nptype(trt_type):
    return np.dtype(_NUMPY[trt_type.name]).type


class EngineInspector:
    def __init__(self, graph):
        self._graph = graph

    def get_engine_information(self, format):  # noqa: A002 - the library's name
        assert format is enums.LayerInformationFormat.JSON
        layers = [
            {
                "Name": node.name,
                "LayerType": node.op_type,
                "Outputs": [{"Name": name, "Format/Datatype": "Row major linear FP32"} for name in node.output],
                "TacticName": f"kernel_of_{node.op_type}",
            }
            for node in self._graph.node
        ]
        return json.dumps({"Layers": layers, "Bindings": []})


class IOutputAllocator:
    def __init__(self):
        self.made = True


class Runtime:
    def __init__(self, logger):
        self._logger = logger

    def deserialize_cuda_engine(self, serialized_engine):
        header, _, model = bytes(serialized_engine).partition(b"\0")
        if planted("deserialize"):
            say(self._logger, 1, "Serialization", "Serialization assertion plan->header.magicTag == kPLAN failed.")
            return None
        if planted("another_gpu"):
            say(
                self._logger,
                6,
                "API Usage Error",
                "The engine cannot run on this GPU, which has compute capability 9.0. Supported compute capabilities: "
                "8.0 8.6 8.9 12.0 12.1 >12.0. TensorRT-RTX does not support this compute capability, so the engine "
                "cannot be rebuilt for it. In throwUnlessComputeCapSupported at /_src/runtime/dispatch/runtime.cpp:84",
            )
            return None
        return ICudaEngine(self._logger, json.loads(header), onnx.ModelProto.FromString(model))


class ICudaEngine:
    def __init__(self, logger, header, model):
        self._logger, self._ranges, self._model = logger, header["ranges"], model
        self._slow = header["slow"]
        graph = model.graph
        self._inputs = {value.name: ITensor(graph, value) for value in fed(graph)}
        self._outputs = {value.name: ITensor(graph, value) for value in graph.output}
        self._tensors = {**self._inputs, **self._outputs}
        shapes = {name for node in graph.node if node.op_type == "Shape" for name in node.output}
        self._host = {name for name in self._inputs if name in shape_inputs(graph)} | (shapes & set(self._outputs))
        if planted("host"):
            self._host.add(argument("host"))
        self._by_data = _reached(graph, _BY_DATA) & set(self._outputs)

    @property
    def num_io_tensors(self):
        return len(self._tensors)

    def get_tensor_name(self, index):
        return list(self._tensors)[index]

    def get_tensor_mode(self, name):
        return enums.TensorIOMode["INPUT" if name in self._inputs else "OUTPUT"]

    def get_tensor_dtype(self, name):
        if planted("unknown_type"):
            return SimpleNamespace(name="FP2")
        if planted("input_type") and name in self._inputs:
            return enums.DataType.HALF
        return self._tensors[name].dtype

    def get_tensor_location(self, name):
        return enums.TensorLocation["HOST" if name in self._host else "DEVICE"]

    def get_tensor_shape(self, name):
        return self._tensors[name].shape

    @property
    def device_memory_size_v2(self):
        return 4096

    def create_engine_inspector(self):
        return EngineInspector(self._model.graph)

    def is_shape_inference_io(self, name):
        return name in self._host

    def create_execution_context(self, strategy=0):
        if planted("context"):
            say(self._logger, 2, "OutOfMemory", "Requested size was 4294967296 bytes.")
            return None
        return IExecutionContext(self)


def _reached(graph, operators):
    """Return the names of all that is computed from what these operators make."""
    reached = set()
    for node in graph.node:
        if node.op_type in operators or reached & set(node.input):
            reached |= set(node.output)
    return reached


class IExecutionContext:
    def __init__(self, engine):
        self.engine = engine
        self._logger = engine._logger
        self._shapes, self._addresses, self._allocators = {}, {}, {}
        self._executions = 0

    def set_input_shape(self, name, shape):
        declared, shape = list(self.engine._inputs[name].shape), list(shape)
        low, _, high = self.engine._ranges.get(name) or [[max(size, 0) for size in declared]] * 3
        fits = len(shape) == len(low) and all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
        if planted("set_input_shape") or not fits:
            text = f"Set dimension {shape} for tensor {name} does not satisfy any optimization profiles."
            say(self._logger, 3, "API Usage Error", text)
            return False
        self._shapes[name] = shape
        return True

    def set_tensor_address(self, name, memory):
        if name not in self.engine._tensors or planted("set_tensor_address") or memory % 256:
            say(self._logger, 3, "API Usage Error", f"Given invalid tensor name or address: {name}.")
            return False
        self._addresses[name] = memory
        return True

    def set_output_allocator(self, name, output_allocator):
        assert output_allocator.made
        self._allocators[name] = output_allocator
        return True

    def infer_shapes(self):
        if planted("infer_shapes"):
            say(self._logger, 4, "Internal Error", "reshape: changes volume. Reshaping [8,64] to [7].")
            raise RuntimeError("Error in inferring shapes.")
        missing = [name for name in self.engine._inputs if name not in self._shapes]
        missing += [name for name in self.engine._host & set(self.engine._inputs) if name not in self._addresses]
        for name in self.engine._host & set(self.engine._outputs):
            if not missing and name in self._addresses:
                self._write_host(name, self._computed()[name])
        return sorted(set(missing))

    def get_tensor_shape(self, name):
        if planted("output_shape") and name in self.engine._outputs:
            return Dims(None)
        if name in self._shapes:
            return Dims(self._shapes[name])
        if name in self.engine._by_data:
            return Dims([-1 if size == -1 else size for size in self.engine._outputs[name].shape])
        declared = self.engine._outputs[name].shape
        if declared.known and -1 not in declared:
            return declared
        return Dims(self._computed()[name].shape)

    def execute_async_v3(self, stream_handle):
        note(begins=True)
        try:
            return self._execute(stream_handle)
        finally:
            note(ends=True)

    def _execute(self, stream):
        if planted("execute"):
            say(self._logger, 1, "Cuda Runtime", "invalid configuration argument")
            return False
        if any(name not in self._addresses for name in self.engine._inputs):
            say(self._logger, 3, "API Usage Error", "Address is not set for an input tensor.")
            return False
        if any(node.op_type == argument("illegal_in") for node in self.engine._model.graph.node):
            GPU.hurt(cudaError_t.cudaErrorIllegalAddress)  # what is asynchronous is seen at the end
            return True
        self._executions += 1
        for name, value in self._computed().items():
            if name in self.engine._by_data:
                if not self._ask_for(name, value, stream):
                    return False
            elif name in self.engine._host:
                self._write_host(name, value)
            elif name not in self._addresses:
                say(self._logger, 3, "API Usage Error", f"Address is not set for output tensor {name}.")
                return False
            else:
                GPU.write(self._addresses[name], value.tobytes())
        return True

    def _ask_for(self, name, value, stream):
        """Call the allocator as the bindings do: what it raises is printed, and there is no memory then."""
        allocator = self._allocators.get(name)
        pointer = 0
        if allocator is not None:
            GPU.full = planted("no_memory_later")
            size = 1 if planted("asks_for_little") else max(value.nbytes, 1)
            try:
                pointer = allocator.reallocate_output_async(name, 0, size, int(argument("alignment") or 256), stream)
            except Exception as error:  # noqa: BLE001 - so do the bindings
                sys.stderr.write(f"[ERROR] Exception caught in reallocateOutputAsync(): {error}\n")
            GPU.full = False
        if not pointer:
            say(self._logger, 2, "OutOfMemory", f"no memory for the output {name}")
            return False
        assert pointer % int(argument("alignment") or 1) == 0
        if not planted("asks_for_little"):
            GPU.write(pointer, value.tobytes())
        if not planted("tells_no_shape"):
            allocator.notify_shape(name, Dims(value.shape))
        return True

    def _write_host(self, name, value):
        assert not GPU.holds(self._addresses[name], 1), "this output is to lie on the host"
        data = value.tobytes()
        ctypes.memmove(self._addresses[name], data, len(data))

    def _computed(self):
        """Return all outputs for what lies at the inputs' addresses."""
        feeds = {}
        for name, tensor in self.engine._inputs.items():
            dtype = np.dtype(_NUMPY[tensor.dtype.name])
            size = prod(self._shapes[name]) * dtype.itemsize
            pointer = self._addresses[name]
            data = ctypes.string_at(pointer, size) if name in self.engine._host else GPU.read(pointer, size)
            feeds[name] = np.frombuffer(data, dtype).reshape(self._shapes[name])
        bad = argument("bad_tactic")
        model = _wrong(self.engine._model, argument("wrong"), bad if bad in self.engine._slow else "")
        for value in model.graph.input:
            # double was made float
            if value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE:
                feeds[value.name] = feeds[value.name].astype("f8")
        values = ReferenceEvaluator(model).run(None, feeds)
        found = {}
        for (name, tensor), value in zip(self.engine._outputs.items(), values, strict=True):
            made = np.asarray(value).astype(_NUMPY[tensor.dtype.name])
            if planted("unstable") and self._executions % 2 and made.dtype.kind == "f":
                made = made + np.ones_like(made)
            found[name] = made
        return found


def _wrong(model, operator, named):
    """Return a model in which what an operator, or the node of a name, makes is off by 1000."""
    if not operator and not named:
        return model
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    nodes = list(wrong.graph.node)
    del wrong.graph.node[:]
    wrong.graph.initializer.append(numpy_helper.from_array(np.float32(1000), "off"))
    for node in nodes:
        wrong.graph.node.append(node)
        if node.op_type == operator or node.name == (named or None):
            output = node.output[0]
            wrong.graph.node[-1].output[0] = f"{output}_right"
            wrong.graph.node.append(helper.make_node("Add", [f"{output}_right", "off"], [output]))
    return wrong
