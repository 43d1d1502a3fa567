"""From an ONNX file to an engine: logger, builder, network, parser, profiles, timing cache."""

# the arguments are called as they are in the library
# ruff: noqa: A002

import json

import onnx
from onnx import TensorProto as T

from stand_in import enums, timings
from stand_in.faults import note, planted, start

# its parser makes float of double
_TYPES = {getattr(T, name): name for name in ("FLOAT", "INT8", "INT32", "INT64", "BOOL", "UINT8")}
_TYPES.update({T.DOUBLE: "FLOAT", T.FLOAT16: "HALF", T.BFLOAT16: "BF16"})
# operator -> the inputs that hold shapes
_SHAPES = {"Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,)}


class Dims(list):
    """A shape; ``None``: that of what is not known, which has no length."""

    def __init__(self, shape=()):
        self.known = shape is not None
        super().__init__(shape or ())

    def __len__(self):
        if not self.known:
            raise ValueError("__len__() should return >= 0")
        return super().__len__()

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])


class ILogger:
    Severity = enums.Severity

    def __init__(self):
        self.made = True

    def log(self, severity, msg):
        raise NotImplementedError


def say(logger, code, kind, text):
    # a subclass that does not call this class's constructor cannot be used
    assert logger.made
    logger.log(enums.Severity.ERROR, f"IStandIn::call: Error Code {code}: {kind} ({text})")


def init_libnvinfer_plugins(logger, namespace):
    note(plugins=True)
    return not planted("no_plugins")


class ITensor:
    def __init__(self, graph, value):
        self.name, kind = value.name, value.type.tensor_type
        self.dtype = enums.DataType[_TYPES[kind.elem_type]]
        known = kind.HasField("shape")
        self.shape = Dims([_size(dim) for dim in kind.shape.dim] if known else None)
        self.is_shape_tensor = value.name in shape_inputs(graph)


def _size(dim):
    return dim.dim_value if dim.HasField("dim_value") else -1


def shape_inputs(graph):
    """Names that an operator reads as a shape."""
    return {
        node.input[place] for node in graph.node for place in _SHAPES.get(node.op_type, ()) if place < len(node.input)
    }


def fed(graph):
    return [value for value in graph.input if value.name not in {one.name for one in graph.initializer}]


class INetworkDefinition:
    def __init__(self, flags):
        self.flags = flags
        self.model = onnx.ModelProto()

    @property
    def num_inputs(self):
        return len(fed(self.model.graph))

    @property
    def num_outputs(self):
        return len(self.model.graph.output)

    @property
    def num_layers(self):
        return len(self.model.graph.node)

    def get_input(self, index):
        return ITensor(self.model.graph, fed(self.model.graph)[index])

    def get_output(self, index):
        return ITensor(self.model.graph, self.model.graph.output[index])

    def get_layer(self, index):
        return self.model.graph.node[index]


class ParserError:
    def __init__(self, node):
        self._node = node

    def code(self):
        return enums.ErrorCode.UNSUPPORTED_NODE

    def desc(self):
        return f"No importer registered for op: {self._node.op_type}"

    def node_name(self):
        return self._node.name

    def node_operator(self):
        return self._node.op_type


class OnnxParser:
    def __init__(self, network, logger):
        self._network, self._logger, self._errors = network, logger, []

    def parse_from_file(self, model):
        made = onnx.load(model)
        for node in made.graph.node:
            if not onnx.defs.has(node.op_type, node.domain):
                self._errors.append(ParserError(node))
                return False
        self._network.model = onnx.shape_inference.infer_shapes(made)
        return True

    @property
    def num_errors(self):
        return len(self._errors)

    def get_error(self, index):
        return self._errors[index]

    def set_flag(self, flag):
        pass


class IOptimizationProfile:
    def __init__(self, logger):
        self._logger, self.ranges = logger, {}

    def set_shape(self, input, min, opt, max):
        if planted("profile_shape"):
            say(self._logger, 3, "API Usage Error", "Parameter check failed, condition: planted")
            raise RuntimeError("Shape provided for min is inconsistent with other shapes.")
        self.ranges[input] = [list(min), list(opt), list(max)]

    def set_shape_input(self, input, min, opt, max):
        pass


class IBuilderConfig:
    def __init__(self, logger):
        self._logger, self._cache = logger, None
        self.flags, self.profiles = 0, []
        self.profiling_verbosity = enums.ProfilingVerbosity.LAYER_NAMES_ONLY
        self.builder_optimization_level = 3

    def set_flag(self, flag):
        self.flags |= 1 << int(flag)

    def clear_flag(self, flag):
        self.flags &= ~(1 << int(flag))

    def get_flag(self, flag):
        return bool(self.flags & 1 << int(flag))

    def set_memory_pool_limit(self, pool, pool_size):
        pass

    def set_tactic_sources(self, tactic_sources):
        return True

    def add_optimization_profile(self, profile):
        if planted("profile"):
            say(self._logger, 3, "API Usage Error", "Parameter check failed, condition: profile->isValid()")
            return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, serialized_timing_cache):
        if bytes(serialized_timing_cache) and planted("cache_unreadable"):
            return None
        return timings.ITimingCache(serialized_timing_cache)

    def set_timing_cache(self, cache, ignore_mismatch):
        if planted("cache") or (cache.entries and planted("cache_of_another_gpu")):
            say(self._logger, 3, "API Usage Error", "the timing cache was made on another device")
            return False
        self._cache = cache
        return True

    def get_timing_cache(self):
        return self._cache


class IPluginRegistry:
    def load_library(self, plugin_path):
        return object()


class Builder:
    def __init__(self, logger):
        self._logger = logger
        start()
        if planted("no_builder"):
            say(logger, 6, "API Usage Error", "CUDA initialization failure with error: 999")
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def create_network(self, flags=0):
        return INetworkDefinition(flags)

    def create_builder_config(self):
        return IBuilderConfig(self._logger)

    def create_optimization_profile(self):
        return IOptimizationProfile(self._logger)

    def get_plugin_registry(self):
        return IPluginRegistry()

    def build_serialized_network(self, network, config):
        inputs = [network.get_input(number) for number in range(network.num_inputs)]
        if planted("build"):
            say(self._logger, 10, "Internal Error", "Could not find any implementation for node planted")
            return None
        if any(-1 in tensor.shape for tensor in inputs) and not config.profiles:
            say(self._logger, 4, "API Usage Error", "Network has dynamic or shape inputs, but no optimization profile")
            return None
        strong = enums.NetworkDefinitionCreationFlag["STRONGLY_TYPED"]
        fp16 = getattr(enums.BuilderFlag, "FP16", None)
        if fp16 is not None and network.flags & 1 << strong and config.get_flag(fp16):
            say(self._logger, 3, "API Usage Error", "kFP16 is set, and the network is strongly typed")
            return None
        editable = config.get_flag(enums.BuilderFlag.EDITABLE_TIMING_CACHE)
        slow = timings.choose(network, config, self._logger) if editable else []
        if slow is None:
            return None
        header = {
            "release": enums.release,
            "slow": slow,
            "ranges": config.profiles[0].ranges if config.profiles else {},
        }
        return timings.IHostMemory(json.dumps(header).encode() + b"\0" + network.model.SerializeToString())
