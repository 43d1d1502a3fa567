"""ONNX Runtime, with any installed provider."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415, PTH100, PTH111, PTH113
from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from runner.backends.dtypes import BY_NAME, STRING, ElementType
from runner.backends.errors import StageError, choose
from runner.backends.tensors import Tensor

_STATUS = re.compile(r"^\s*\[ONNXRuntimeError\] : \d+ : (\w+)(?: : (.*))?$", re.DOTALL)
_LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}


def _failed(stage: str, error: Exception) -> StageError:
    """Return the error with the status that ONNX Runtime gives in its message, else with the exception's class."""
    text = str(error) or repr(error)
    match = _STATUS.match(text)
    if match:
        return StageError(stage, match.group(1), (match.group(2) or text).strip())
    return StageError(stage, type(error).__name__, text)


class OnnxRuntime:
    """One session.

    ``inputs``: all that can be fed; ``required``: those without a default; ``outputs``: names in the model's order.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._types = {value.name: value.type for value in session.get_inputs()}
        self.required = list(self._types)
        self._types.update({value.name: value.type for value in session.get_overridable_initializers()})
        self.inputs = frozenset(self._types)
        self.outputs = [value.name for value in session.get_outputs()]
        self.providers = session.get_providers()

    @staticmethod
    def prepare() -> None:
        """Import the runtime. Raises StageError (setup) if it is not installed or cannot be loaded."""
        try:
            import onnxruntime
        except Exception as error:
            message = f"backend=onnxruntime needs the package onnxruntime under this interpreter: {error}"
            raise StageError("setup", "NotInstalled", message) from error
        # errors come back as exceptions; warnings about every candidate would bury the rest of a log
        onnxruntime.set_default_logger_severity(3)

    @classmethod
    def load(cls, path: str, settings: Dict[str, Any]) -> OnnxRuntime:
        """Create a session with the settings of the backend group.

        Raises StageError: setup for a setting that this installation does not have, load for what it says about the
        model.
        """
        import onnxruntime

        providers = settings.get("providers") or ["CPUExecutionProvider"]
        available = onnxruntime.get_available_providers()
        for provider in providers:
            if _provider_name(provider) not in available:
                raise choose("providers", _provider_name(provider), available)
        options = _options(settings)
        try:
            session = onnxruntime.InferenceSession(path, sess_options=options, providers=[*map(_provider, providers)])
        except Exception as error:
            raise _failed("load", error) from error
        # without this a session that fails on a device silently goes on without that device
        session.disable_fallback()
        for provider in providers:
            if _provider_name(provider) not in session.get_providers():
                running = ", ".join(session.get_providers())
                message = f"providers={_provider_name(provider)} is installed but did not start; running: {running}"
                raise StageError("setup", "ProviderDidNotStart", message)
        return cls(session)

    def run(self, outputs: List[str], feeds: Dict[str, Tensor]) -> Iterator[Tuple[str, Any]]:
        """Run on ``feeds`` and yield (name, tensor) or (name, why there is none). Raises StageError (setup, infer)."""
        values = {name: _ort_value(tensor) for name, tensor in feeds.items()}
        try:
            results = self._session.run_with_ort_values(outputs, values)
        except Exception as error:
            raise _failed("infer", error) from error
        return self._tensors(outputs, results)

    @staticmethod
    def _tensors(outputs: List[str], results: List[Any]) -> Iterator[Tuple[str, Any]]:
        results = list(results)
        for name in outputs:
            # let go of each as soon as it is written: the caller is done with one when it asks for the next
            value = results.pop(0)
            yield name, _tensor(value)


def _provider_name(provider: Any) -> str:
    return str(provider) if isinstance(provider, str) else str(next(iter(provider)))


def _provider(provider: Any) -> Any:
    """Return what ONNX Runtime takes: a name, or (name, options) for ``{name: {..}}`` or ``[name, {..}]``."""
    if isinstance(provider, dict):
        name, options = next(iter(provider.items()))
        return name, dict(options or {})
    return provider if isinstance(provider, str) else (provider[0], dict(provider[1]))


def _options(settings: Dict[str, Any]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = int(settings.get("threads", 1))
    level = settings.get("optimization", "all")
    levels = onnxruntime.GraphOptimizationLevel
    known = {name: getattr(levels, attribute) for name, attribute in _LEVELS.items() if hasattr(levels, attribute)}
    if level not in known:
        raise choose("optimization", str(level), known)
    options.graph_optimization_level = known[level]
    for name, text in (settings.get("session_options") or {}).items():
        _set_option(options, name, text)
    # any key is taken: ONNX Runtime itself does not know which exist
    for key, text in (settings.get("config_entries") or {}).items():
        options.add_session_config_entry(str(key), str(text))
    for library in settings.get("custom_ops") or []:
        _register(options, str(library))
    return options


def _set_option(options: Any, name: str, text: Any) -> None:
    valid = [key for key in dir(options) if not key.startswith("_") and not callable(getattr(options, key))]
    if name not in valid:
        raise choose("session_options", name, valid)
    now = getattr(options, name)
    members = getattr(type(now), "__members__", None)
    word = str(text)
    if members is not None:
        if word not in members:
            raise choose(f"session_options.{name}", word, members)
        value = members[word]
    elif isinstance(now, bool):
        if word.lower() not in ("true", "false", "1", "0"):
            raise choose(f"session_options.{name}", word, ("true", "false"))
        value = word.lower() in ("true", "1")
    else:
        value = text
        if isinstance(now, int):
            try:
                value = int(word)
            except ValueError:
                raise choose(f"session_options.{name}", word, ("a whole number",)) from None
    try:
        setattr(options, name, value)
    except Exception as error:
        raise StageError("setup", "BadSessionOption", f"session_options.{name}={text}: {error}") from error


def _register(options: Any, library: str) -> None:
    if library == "onnxruntime_extensions":
        try:
            from onnxruntime_extensions import get_library_path  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise StageError("setup", "NotInstalled", f"custom_ops={library}: {error}") from error
        library = get_library_path()
    library = os.path.expanduser(library)
    if not os.path.isfile(library):
        message = f"custom_ops={library}: there is no such file; give the path of a shared library"
        raise StageError("setup", "NoSuchLibrary", message)
    try:
        options.register_custom_ops_library(os.path.abspath(library))
    except Exception as error:
        raise StageError("setup", "BadLibrary", f"custom_ops={library}: {error}") from error


def _ort_value(tensor: Tensor) -> Any:
    """Return the tensor as an OrtValue on the CPU, also of types that numpy lacks."""
    import onnxruntime

    kind = tensor.kind
    if kind.native and kind.number != STRING:
        return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.array())
    make = getattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type", None)
    if kind.bits >= 8 and make is not None:
        return make(tensor.array(), kind.number)
    return _ort_value_by_model(tensor)


def _ort_value_by_model(tensor: Tensor) -> Any:
    """Return an OrtValue that a model of one initializer gives out: the way that every version has for every type."""
    import onnx
    import onnxruntime

    name = "value"
    kind = tensor.kind
    proto = onnx.TensorProto(dims=tensor.shape, data_type=kind.number, name=name)
    if kind.number == STRING:
        proto.string_data.extend(tensor.strings)
    else:
        proto.raw_data = tensor.raw.tobytes()
    output = onnx.helper.make_tensor_value_info(name, kind.number, list(tensor.shape))
    graph = onnx.GraphProto(name="g", initializer=[proto], output=[output])
    opset = {21: 21, 22: 21, 23: 23, 24: 24, 25: 25, 26: 25}.get(kind.number, 19 if kind.number >= 17 else 13)
    model = onnx.ModelProto(ir_version=8, graph=graph, opset_import=[onnx.OperatorSetIdProto(domain="", version=opset)])
    model.ir_version = {13: 8, 19: 9, 21: 10, 23: 11, 24: 12, 25: 13}[opset]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run_with_ort_values([name], {})[0]
    except Exception as error:
        message = f"onnxruntime {onnxruntime.__version__} cannot be fed with {kind.name}: {error}"
        raise StageError("setup", "FeedNotSupported", message) from error


def _tensor(value: Any) -> Any:
    """Return the tensor of an output, or the reason why it is none."""
    if not value.has_value():
        return "an optional without a value"
    if not value.is_tensor():
        return f"no tensor but {value.data_type()}"
    kind = _kind(value.data_type())
    if kind is None:
        return f"an element type that is not known here: {value.data_type()}"
    shape = tuple(int(size) for size in value.shape())
    tensor = Tensor(kind, shape)
    if kind.number == STRING:
        try:
            texts = value.numpy().reshape(-1)
        except UnicodeDecodeError as error:
            return f"strings that are no UTF-8: {error}"
        return Tensor(kind, shape, None, tuple(str(text).encode(errors="surrogateescape") for text in texts))
    if value.device_name().lower() != "cpu":
        array = np.ascontiguousarray(value.numpy())
        return Tensor(kind, shape, array.reshape(-1).view(np.uint8))
    size = kind.bytes(tensor.count)
    if size == 0:
        return Tensor(kind, shape, np.empty(0, np.uint8))
    # the bytes where they lie: numpy has no type for some of them. The array holds on to the value
    unused = size * 8 - tensor.count * kind.bits
    buffer: Any = (ctypes.c_uint8 * size).from_address(value.data_ptr())
    buffer.owner = value
    raw = np.frombuffer(buffer, np.uint8)
    if unused:
        # kernels leave what they like in the unused bits of the last byte: equal tensors are to be equal files
        raw = raw.copy()
        raw[-1] &= 0xFF >> unused
    return Tensor(kind, shape, raw)


def _kind(text: str) -> ElementType | None:
    match = re.match(r"^tensor\((\w+)\)$", text)
    return BY_NAME.get(match.group(1)) if match else None
