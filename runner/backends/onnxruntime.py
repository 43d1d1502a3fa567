"""ONNX Runtime: running models, plugin providers, optimizers by name, load levels, schemas of its own operators."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, UP045, PLC0415, PTH107, PTH110, PTH123
from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from runner.backends.errors import StageError, choose, library_path, naming, set_attribute
from runner.backends.nested_graphs import MADE, all_graphs, bodies, take_apart
from runner.backends.onnxruntime_values import from_ort_value, from_python, to_ort_value
from runner.backends.rounding import do_not_optimize, rounded
from runner.backends.tensor_files import Value
from runner.backends.tensor_files import parse_structure as parse

# Execution providers of ONNX Runtime that come as plugin libraries (TensorRT for RTX is one), from 1.22 on.
#
# A plugin's provider is chosen by its devices. Without one that it can use (a GPU) it does not start: starting one has
# not been seen here, unverified.

_registered: Set[str] = set()  # ONNX Runtime's own registry is one a process


def devices(libraries: Mapping[str, str]) -> Dict[str, List[Any]]:
    """Register {provider: library} and return each provider's devices.

    A library is a path, or a Python package that tells it (``get_library_path``). Raises StageError (setup) for a
    library that cannot be loaded, for a provider without a device, and where ONNX Runtime takes no plugins.
    """
    import onnxruntime

    if libraries and not hasattr(onnxruntime, "register_execution_provider_library"):
        message = f"provider_libraries: ONNX Runtime {onnxruntime.__version__} takes no plugins; 1.22 and newer do"
        raise StageError("setup", "UnknownSetting", message)
    found: Dict[str, List[Any]] = {}
    for provider, library in libraries.items():
        path = library_path(f"provider_libraries.{provider}", library)
        if path not in _registered:
            with naming(f"provider_libraries.{provider}={library} cannot be loaded"):
                onnxruntime.register_execution_provider_library(provider, path)
            _registered.add(path)
        found[provider] = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
        if not found[provider]:
            known = sorted({device.ep_name for device in onnxruntime.get_ep_devices()})
            message = (
                f"providers={provider} finds no device here that it can use; providers with devices: {', '.join(known)}"
            )
            raise StageError("setup", "ProviderDidNotStart", message)
    return found


# The optimizers of the installed ONNX Runtime: graph transformers and rewrite rules that can be disabled by name.

_ENDS = (
    rb"Fusion|Elimination|Transformer|Optimizer|Folding|Sharing|Remover|Rewrite|Approximation|Quantization|"
    rb"Consolidation|Decomposition|Replacement|DummyDq|ToInitializer"
)
# names as they are registered
_NAME = re.compile(rb"\0((?:Fuse|Eliminate)[A-Z]\w{2,40}|[A-Z]\w{2,60}?(?:%b)\w{0,8})(?=\0)" % _ENDS)
# names of the classes, under which most are registered; of a short name the compiler leaves no string
_CLASS = re.compile(rb"\0N11onnxruntime\d{1,2}([A-Z]\w{2,60}?(?:%b))E(?=\0)" % _ENDS)
_NO_NAME = re.compile(r"N\d+onnxruntime|Add[A-Z]|Apply|Generate|Fuse(Initializer|SubGraph)|GraphTransf|\w+_$")

# names that are no strings of their own in the library: short ones are inlined, others share a longer one's end
_HIDDEN = (
    "AttentionFusion",
    "ConcatSliceElimination",
    "ConvActivationFusion",
    "DoubleQDQPairsRemover",
    "EnsureUniqueDQForNodeUnit",
    "GatherSliceToSplitFusion",
    "GeluFusion",
    "LayerNormFusion",
    "MatMulAddFusion",
    "MatMulNBitsFusion",
    "PropagateCastOps",
    "ShapeToInitializer",
    "SkipLayerNormFusion",
    "TransposeOptimizer",
)


def optimizers(_args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``names`` of what may be an optimizer that can be disabled: the runtime lists none, its library has them.

    Some of the names are none: disabling those does nothing.
    """
    return {"names": sorted(_possible())}


def known_optimizers(names: Iterable[str]) -> List[str]:
    """Return ``names``. Raises StageError (setup) for one that the library does not hold.

    ONNX Runtime itself takes any name, and ignores those that it does not know.
    """
    wanted = [str(name) for name in names]
    unknown = [name for name in wanted if name not in _possible()] if wanted else []
    library = _library() if unknown else b""
    for name in unknown:
        if b"\0" + name.encode() + b"\0" not in library:
            raise choose("disabled_optimizers", name, _possible())
    return wanted


@lru_cache(maxsize=1)  # it takes half a second
def _possible() -> FrozenSet[str]:
    library = _library()
    found = {match.decode() for pattern in (_NAME, _CLASS) for match in pattern.findall(library)} | set(_HIDDEN)
    return frozenset(name for name in found if not _NO_NAME.match(name))


def _library() -> bytes:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    with open(state.__file__, "rb") as file:
        return file.read()


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
        made = _optimized(path, options, create)
    take_apart(made, *inside)
    return bytes(made.SerializeToString()), _neighbors(made)


def _optimized(path: str, options: Any, create: Callable[[str], Any]) -> Any:
    """Return the model of a file as ONNX Runtime would run it, and set ``options`` so that it stays as it is.

    ``create``: makes a session with them. An output that is added before the optimizations keeps nodes from being
    fused, and hides what they do; one that is added to their result does not.
    """
    import onnx

    # beside the file: that is where its weights are looked for
    place = path + ".optimized"
    options.optimized_model_filepath = place
    try:
        create(path)
        model = onnx.load(place, load_external_data=False)
    finally:
        options.optimized_model_filepath = ""
        if os.path.exists(place):
            os.remove(place)
    do_not_optimize(options, path)
    return model


def _neighbors(model: Any) -> Dict[str, Tuple[List[str], List[str]]]:
    """Return what each node reads and gives, by its name."""
    return {
        node.name: (list(node.input), [name.partition(MADE)[0] for name in node.output])
        for node in model.graph.node
        if node.name
    }


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
        set_attribute(options, "session_options", name, text)
    # any key is taken: ONNX Runtime itself does not know which exist
    for key, text in (settings.get("config_entries") or {}).items():
        options.add_session_config_entry(str(key), str(text))
    for library in settings.get("custom_ops") or []:
        with naming(f"custom_ops={library}"):
            options.register_custom_ops_library(library_path("custom_ops", str(library)))
    return options


# Whether a plain ONNX Runtime loads a model: at each level of its graph optimizations, on its CPU provider.


def loads(args: Dict[str, Any]) -> Dict[str, Any]:
    """Load the model at ``args["model"]``; return ``levels``: {level: why it was refused, empty where it loads}.

    ``args["levels"]``: those that are wanted (all without it), the lowest is called disable, after ORT_DISABLE_ALL;
    ``args["disabled"]``: optimizers that are disabled; ``args["custom_ops"]``: libraries of the user's own operators.
    """
    import onnxruntime

    there = [name for name, member in LEVELS.items() if hasattr(onnxruntime.GraphOptimizationLevel, member)]
    settings = {"disabled_optimizers": args.get("disabled"), "custom_ops": args.get("custom_ops")}
    levels = {name: "none" if name == "disable" else name for name in args.get("levels") or ["disable", *there[1:]]}
    refusals = {name: _refusal(args["model"], {**settings, "optimization": of}) for name, of in levels.items()}
    return {"levels": refusals}


def _refusal(path: str, settings: Dict[str, Any]) -> str:
    try:
        OnnxRuntime.load(path, settings)
    except StageError as error:
        if error.stage == "setup":
            raise
        return str(error.__cause__).strip() or error.kind
    return ""


# What ONNX Runtime says of the operators that ONNX does not define: which types their inputs and outputs may have.


def contrib_schemas(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``schemas`` of the nodes of the structure at ``args["model"]`` that the ``onnx`` package does not know.

    ``schemas``: [{"domain", "op", "inputs", "outputs"}], an input or output being {"variable": a name that it shares
    with those of its type, "types": all that it may be, "variadic", "homogeneous"}. Operators with nested graphs are
    left out: their schemas say nothing of what is inside. Empty where ONNX Runtime does not tell its schemas.
    """
    import onnx

    with open(args["model"], "rb") as file:
        model = onnx.ModelProto.FromString(file.read())
    versions = {_domain(entry.domain): entry.version for entry in model.opset_import}
    unknown = {
        (domain, op) for domain, op in _operators(model) if not onnx.defs.has(op, versions.get(domain, 0), domain)
    }
    unknown -= {(_domain(function.domain), function.name) for function in model.functions}
    return {"schemas": _schemas(unknown, versions) if unknown else []}


def _schemas(unknown: Set[Tuple[str, str]], versions: Dict[str, int]) -> List[Dict[str, Any]]:
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        known = state.get_all_operator_schema()
    except (ImportError, AttributeError):  # a build without schemas: its operators keep their types
        return []
    newest: Dict[Tuple[str, str], Any] = {}
    for schema in known:
        key = (_domain(schema.domain), schema.name)
        if key not in unknown or schema.since_version > versions.get(key[0], 0):
            continue
        if key not in newest or newest[key].since_version < schema.since_version:
            newest[key] = schema
    return [_plain(key, schema) for key, schema in sorted(newest.items())]


def _plain(key: Tuple[str, str], schema: Any) -> Dict[str, Any]:
    allowed = {one.type_param_str: [str(name) for name in one.allowed_type_strs] for one in schema.type_constraints}

    def plain(formal: Any) -> Dict[str, Any]:
        return {
            "variable": str(formal.typeStr),
            "types": allowed.get(formal.typeStr, [str(formal.typeStr)]),
            "variadic": str(formal.option).endswith("Variadic"),
            "homogeneous": bool(formal.isHomogeneous),
        }

    return {
        "domain": key[0],
        "op": key[1],
        "inputs": [plain(formal) for formal in schema.inputs],
        "outputs": [plain(formal) for formal in schema.outputs],
    }


def _operators(model: Any) -> Iterator[Tuple[str, str]]:
    """Yield (domain, operator) of all nodes without nested graphs."""
    for graph in all_graphs(model):
        for node in graph.node:
            if next(bodies(node), None) is None:
                yield _domain(node.domain), node.op_type


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
