"""ONNX Runtime, with any installed provider."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, UP045, PLC0415, PTH100, PTH111, PTH113
from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from runner.backends.emulation.rounding import do_not_optimize, rounded
from runner.backends.errors import StageError, choose
from runner.backends.ort.optimizer_names import known_optimizers
from runner.backends.ort.ort_values import from_ort_value, from_python, to_ort_value
from runner.backends.ort.plugin_providers import devices
from runner.backends.take_model_apart import neighbors, optimized, take_apart
from runner.backends.values.value_structure import Value, parse

Inside = Tuple[Dict[str, int], Optional[List[str]]]
"""Tensors at which a model is taken apart, with their types, and those that are outputs then (None: all)."""
_NAMED = re.compile("Name:'([^']+)'")
_STATUS = re.compile(r"^\s*\[ONNXRuntimeError\] : \d+ : (\w+)(?: : (.*))?$", re.DOTALL)
# name of a level -> its member of GraphOptimizationLevel; "layout" is younger than the others
LEVELS = {
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

    ``inputs``: all that can be fed; ``structures``: of these; ``required``: those without a default; ``outputs``:
    names in the model's order. ``nodes``: what those of the optimized model read and give, where that is looked into.
    """

    def __init__(self, session: Any, nodes: Dict[str, Tuple[List[str], List[str]]]) -> None:
        self._session = session
        self._nodes = nodes
        types = {value.name: value.type for value in session.get_inputs()}
        self.required = [name for name, text in types.items() if not text.startswith("optional(")]
        types.update({value.name: value.type for value in session.get_overridable_initializers()})
        self.inputs = frozenset(types)
        self.structures = {name: parse(text) for name, text in types.items()}
        self._outputs = {value.name: parse(value.type) for value in session.get_outputs()}
        self.outputs = list(self._outputs)

    @staticmethod
    def prepare(_settings: Any = None) -> None:
        """Import the runtime. Raises StageError (setup) if it is not installed or cannot be loaded."""
        try:
            import onnxruntime
        except Exception as error:
            message = f"backend=onnxruntime needs the package onnxruntime under this interpreter: {error}"
            raise StageError("setup", "NotInstalled", message) from error
        # errors come back as exceptions; warnings about every candidate would bury the rest of a log
        onnxruntime.set_default_logger_severity(3)

    @staticmethod
    def seed(number: int) -> None:
        """Have the nodes without a seed of the sessions that follow draw the same in each."""
        import onnxruntime

        onnxruntime.set_seed(number)

    @classmethod
    def load(cls, path: str, settings: Dict[str, Any]) -> OnnxRuntime:
        """Create a session with the settings of the backend group.

        ``settings["inside"]``: {tensor: element type} at which the model is taken apart once it is optimized;
        ``settings["wanted"]``: those of them that are outputs then, where not all are.
        Raises StageError: setup for a setting that this installation does not have, load for what it says about the
        model.
        """
        import onnxruntime

        providers = [_provider(one) for one in settings.get("providers") or ["CPUExecutionProvider"]]
        libraries = settings.get("provider_libraries") or {}
        available = [*onnxruntime.get_available_providers(), *libraries]
        for name, _ in providers:
            if name not in available:
                raise choose("providers", name, available)
        options = _options(settings)
        plugged = devices({name: str(libraries[name]) for name, _ in providers if name in libraries})
        for name, given in providers:
            if name in plugged:
                options.add_provider_for_devices(plugged[name], given)
        built_in = [(name, given) for name, given in providers if name not in plugged]
        try:
            # a list of providers would replace those added by device
            chosen = {} if plugged else {"providers": built_in}
            rounding = settings.get("rounding")
            disabled = known_optimizers(settings.get("disabled_optimizers") or ()) or None

            def create(model: Any) -> Any:
                return onnxruntime.InferenceSession(model, sess_options=options, disabled_optimizers=disabled, **chosen)

            model: Any = path
            nodes: Dict[str, Tuple[List[str], List[str]]] = {}
            inside = settings.get("inside") or {}, settings.get("wanted")
            if rounding in ("on", "strict"):
                model = _rounded(path, options, rounding, inside)
            elif inside[0]:
                model, nodes = _opened(path, options, create, inside)
            session = create(model)
        except StageError:
            raise
        except Exception as error:
            raise _failed("load", error) from error
        # without this a session that fails on a device silently goes on without that device
        session.disable_fallback()
        for name, _ in providers:
            if name not in session.get_providers():
                running = ", ".join(session.get_providers())
                message = f"providers={name} is installed but did not start; running: {running}"
                raise StageError("setup", "ProviderDidNotStart", message)
        return cls(session, nodes)

    def run(self, outputs: List[str], feeds: Dict[str, Value]) -> Iterator[Tuple[str, Any]]:
        """Run on ``feeds`` and yield (name, tensor), (name, (value, structure)) for what is none, or (name, why not).

        Raises StageError (setup, infer).
        """
        # an optional without a value is not fed at all
        values = {
            name: to_ort_value(value, self.structures.get(name)) for name, value in feeds.items() if value is not None
        }
        # only `run` takes maps, and it returns all outputs as Python objects
        plain = any(isinstance(value, dict) for value in values.values())
        try:
            if plain:
                results = self._session.run(outputs, values)
            else:
                results = self._session.run_with_ort_values(outputs, values)
        except Exception as error:
            failure = _failed("infer", error)
            raise StageError("infer", failure.kind, str(failure) + self._where(str(error))) from error
        return self._values(outputs, results, values, plain)

    def _where(self, text: str) -> str:
        """Return where the node stands that an error names, if the optimizations have made it."""
        named = _NAMED.search(text)
        if not named or named.group(1) not in self._nodes:
            return ""
        reads, gives = (", ".join(map(repr, filter(None, names))) for names in self._nodes[named.group(1)])
        return f" (it stands between {reads} and {gives})"

    def _values(
        self, outputs: List[str], results: List[Any], fed: Dict[str, Any], plain: bool
    ) -> Iterator[Tuple[str, Any]]:
        """Yield what ``run`` says; ``fed`` has to live as long: a sequence may share the memory of its tensors."""
        results = list(results)
        for name in outputs:
            # let go of each as soon as it is written: the caller is done with one when it asks for the next
            value = results.pop(0)
            yield name, (from_python if plain else from_ort_value)(value, self._outputs[name])


def _rounded(path: str, options: Any, rounding: str, inside: Inside) -> bytes:
    """Return a model that rounds after each operator of a low precision; its weights stay in their files.

    ``rounding``: on, or strict, which rounds inside operators too. ``inside``: how it is taken apart.
    """
    try:
        import onnx
    except ImportError as error:
        message = f"rounding={rounding} needs the package onnx under this interpreter: {error}"
        raise StageError("setup", "NotInstalled", message) from error
    model = onnx.load(path, load_external_data=False)
    take_apart(model, *inside)
    try:
        rounded(model, strict=rounding == "strict")
    except ValueError as error:
        raise StageError("setup", "CannotRound", f"rounding={rounding}: {error}") from error
    # optimizations would drop the pairs of casts that round
    do_not_optimize(options, path)
    return bytes(model.SerializeToString())


def _opened(
    path: str, options: Any, create: Callable[[Any], Any], inside: Inside
) -> Tuple[bytes, Dict[str, Tuple[List[str], List[str]]]]:
    """Return a model that is taken apart, and what its nodes read and give."""
    import onnx
    import onnxruntime

    if options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL:
        made = onnx.load(path, load_external_data=False)
        do_not_optimize(options, path)
    else:
        made = optimized(path, options, create)
    take_apart(made, *inside)
    return bytes(made.SerializeToString()), neighbors(made)


def _provider(provider: Any) -> Tuple[str, Dict[str, Any]]:
    """Return (name, options) of a provider: its name, ``{name: {..}}`` or ``[name, {..}]``."""
    if isinstance(provider, str):
        return provider, {}
    name, options = next(iter(provider.items())) if isinstance(provider, dict) else provider
    return str(name), dict(options or {})


def _options(settings: Dict[str, Any]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = int(settings.get("threads", 1))
    level = settings.get("optimization", "all")
    levels = onnxruntime.GraphOptimizationLevel
    known = {name: getattr(levels, attribute) for name, attribute in LEVELS.items() if hasattr(levels, attribute)}
    if level not in known:
        raise choose("optimization", str(level), known)
    options.graph_optimization_level = known[level]
    for name, text in (settings.get("session_options") or {}).items():
        _set_option(options, name, text)
    # any key is taken: ONNX Runtime itself does not know which exist
    for key, text in (settings.get("config_entries") or {}).items():
        options.add_session_config_entry(str(key), str(text))
    for library in settings.get("custom_ops") or []:
        register(options, str(library))
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


def register(options: Any, library: str) -> None:
    """Register a library of custom operators, a path or ``onnxruntime_extensions``. Raises StageError (setup)."""
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
