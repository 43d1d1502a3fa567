"""The operation ``build``: an ONNX file in, an engine out, with what TensorRT said on the way.

Arguments: ``backend``: settings; ``model``: path; ``samples``: [{input: path of a TensorProto file}], of which shapes
are taken; ``out``: a folder for ``model.engine``, ``build.log`` and ``layers.json``; ``keep``: which of ``engine``,
``log`` and ``layers`` are written there; ``timing_cache``: {"load": path or null, "save": path or null}, or null;
``tactics``: see `runner.backends.trt.tactics`, or null.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PTH103, PTH118, PTH123
from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from runner.backends.errors import StageError
from runner.backends.trt import build_options
from runner.backends.trt import tactics as of_tactics
from runner.backends.trt.library import Library, Messages, building, has_gpu, load, logger, parsing

_FILES = {"engine": "model.engine", "log": "build.log", "layers": "layers.json"}
_METADATA = re.compile(r"^\w+ (?P<layer>.*?) metadata: (?P<nodes>\[ONNX Layer: .*)$", re.DOTALL)
_NODE = re.compile(r"\[ONNX Layer: (.*?)\](?=\x1e|\[ONNX Layer: |\s*$)", re.DOTALL)


def prepare(args: Dict[str, Any]) -> None:
    """Load the library and start its builder, and with it CUDA, so that no build's time holds that."""
    create(load(args["backend"].get("flavor", "auto")), "Builder")


def create(library: Library, what: str) -> Any:
    """Return a Builder, or a Runtime. Raises StageError (setup) where there is none to be had."""
    speaker, why = logger(library), ""
    try:
        found = getattr(library.api, what)(speaker)
    except (TypeError, RuntimeError) as error:  # raised by the bindings where it cannot be created
        found, why = None, str(error)
    if found is None:
        why = " ".join(" ".join([*speaker.messages.errors, why]).split())[:300]
        raise StageError("setup", f"No{what}", f"{library} gives no {what.lower()}: {why}")
    return found


def build(args: Dict[str, Any]) -> Dict[str, Any]:
    """Build an engine; see the module's text. Raises StageError: setup, load (the parser) or build."""
    os.makedirs(args["out"], exist_ok=True)
    paths = {name: os.path.join(args["out"], file) for name, file in _FILES.items() if name in (args.get("keep") or ())}
    plan, told = engine(args, paths.get("log"))
    if "engine" in paths:
        with open(paths["engine"], "wb") as binary:
            binary.write(memoryview(plan))
    if "layers" in paths:
        with open(paths["layers"], "w", encoding="utf-8") as text:
            json.dump(told["layers"], text, indent=1)
    return told


def engine(args: Mapping[str, Any], log: str | None) -> Tuple[Any, Dict[str, Any]]:
    """Parse and build ``args["model"]``; everything that was said is written to ``log``. Raises StageError.

    Return the engine in TensorRT's own buffer, and its ``layers``, ``outputs`` (shape, -1: dynamic, and type by name),
    the ``seconds`` that this took, and ``tactics``, if they were asked for.
    """
    settings = args["backend"]
    library = load(settings.get("flavor", "auto"))
    speaker = logger(library)
    messages: Messages = speaker.messages
    messages.start(log)
    try:
        return _engine(library, settings, args, speaker)
    finally:
        messages.stop()


def _engine(
    library: Library, settings: Mapping[str, Any], args: Mapping[str, Any], speaker: Any
) -> Tuple[Any, Dict[str, Any]]:
    api, said = library.api, speaker.messages
    start = time.perf_counter()
    builder = create(library, "Builder")
    build_options.plugins(settings, builder, said)
    network = builder.create_network(build_options.network_flags(library, settings))
    config = builder.create_builder_config()
    build_options.configure(library, settings, config)
    tactics = of_tactics.TacticControl(library, args["tactics"], config) if args.get("tactics") else None
    if tactics is not None:
        said.listener = tactics.log.hear
    caching = None if tactics else of_tactics.attach(library, args, config)
    parser = api.OnnxParser(network, speaker)
    build_options.set_flags(library, settings, "parser_flags", "OnnxParserFlag", parser.set_flag)
    if not parser.parse_from_file(str(args["model"])):
        raise _not_parsed(parser, said, network)
    build_options.add(library, settings, args.get("samples") or [], (builder, network, config))
    outputs = _outputs(network)
    names = _names(network)
    parsed = time.perf_counter()
    said.errors.clear()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise building(said.errors, said.printed(), names, gpu=has_gpu())
    seconds = {"parse": parsed - start, "build": time.perf_counter() - parsed}
    of_tactics.save(caching, args, config)
    told = {"layers": fused(said.layers), "outputs": outputs, "seconds": seconds}
    return plan, {**told, "tactics": tactics.finish() if tactics else None}


def _not_parsed(parser: Any, said: Messages, network: Any) -> StageError:
    if not parser.num_errors:
        return parsing("Unexplained", "", "\n".join(said.errors) or "the parser did not say why", _names(network))
    first = parser.get_error(0)
    code = first.code()
    described = str(first.desc())
    operator = str(first.node_operator()) if hasattr(first, "node_operator") else ""
    return parsing(str(getattr(code, "name", code)), operator, described, _names(network), _node_name(first))


def _node_name(error: Any) -> str:
    """Return the name that the parser calls the node (its own for a nameless one), where it has a way to say it."""
    named = re.match(r"\s*(?:Invalid|Unsupported) Node - (\S+)", str(error.desc()))
    return named.group(1) if named else str(error.node_name() if hasattr(error, "node_name") else "")


def _names(network: Any) -> List[str]:
    """Return the names of layers, inputs and outputs, which messages repeat."""
    names = {network.get_layer(number).name for number in range(network.num_layers)}
    names |= {network.get_input(number).name for number in range(network.num_inputs)}
    names |= {network.get_output(number).name for number in range(network.num_outputs)}
    return sorted(names)


def extents(dims: Any) -> Tuple[int, ...] | None:
    """Return a shape (-1: not known yet); None for TensorRT's sign that there is none, which has no length."""
    try:
        return tuple(int(size) for size in dims)
    except (TypeError, ValueError):
        return None


def _outputs(network: Any) -> Dict[str, Dict[str, Any]]:
    found = {}
    for number in range(network.num_outputs):
        tensor = network.get_output(number)
        shape = extents(tensor.shape)
        found[tensor.name] = {
            "shape": None if shape is None else list(shape),
            "dtype": str(getattr(tensor.dtype, "name", tensor.dtype)).lower(),
        }
    return found


def fused(lines: Sequence[str]) -> List[Dict[str, Any]]:
    """Return the engine's layers with the ONNX nodes that went into each, from the detailed log.

    A layer that is considered twice is listed once, with its last nodes.
    """
    layers: Dict[str, List[str]] = {}
    for line in lines:
        match = _METADATA.match(line)
        if match:
            layers[match.group("layer")] = _NODE.findall(match.group("nodes"))
    return [{"layer": layer, "nodes": nodes} for layer, nodes in layers.items()]
