"""The operation ``engine_layers``: what an engine file is made of, as TensorRT's own inspector tells it."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PTH123
from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping

from runner.backends.errors import StageError
from runner.backends.trt import build, errors
from runner.backends.trt.load_library import has_gpu, load
from runner.backends.trt.messages import logger


def engine_layers(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return what the engine at ``args["engine"]`` holds; ``args["flavor"]``: of the library that reads it.

    ``library``, ``memory`` (bytes that a run takes besides weights), ``inputs`` and ``outputs`` (name, dtype, shape, a
    "?" for a dimension that is not fixed), ``layers`` (name, and of an engine with detailed profiling verbosity type,
    tactic and data types). Raises StageError (setup) without TensorRT or a GPU, and for what cannot be read.
    """
    library = load(args.get("flavor", "auto"))
    logger(library).messages.start(None)
    reader = build.create(library, "Runtime")
    with open(args["engine"], "rb") as file:
        engine = reader.deserialize_cuda_engine(file.read())
    if engine is None:
        said = logger(library).messages
        if not has_gpu() and "cudaError" in " ".join(said.errors):
            raise StageError("setup", "NoGpu", f"{library} reads engines on a GPU only, and there is none here")
        raise errors.unreadable(said.errors, said.printed())
    names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
    fed = {name for name in names if engine.get_tensor_mode(name) == library.api.TensorIOMode.INPUT}
    memory = [getattr(engine, name, 0) for name in ("device_memory_size_v2", "device_memory_size")]
    return {
        "library": str(library),
        "memory": int(max(memory)),
        "inputs": [_tensor(engine, name) for name in names if name in fed],
        "outputs": [_tensor(engine, name) for name in names if name not in fed],
        "layers": layers_in(_told(library.api, engine)),
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


def _told(api: Any, engine: Any) -> str:
    make = getattr(engine, "create_engine_inspector", None)  # not before TensorRT 8.2
    return str(make().get_engine_information(api.LayerInformationFormat.JSON)) if make else ""


def _tensor(engine: Any, name: str) -> Dict[str, Any]:
    kind = engine.get_tensor_dtype(name)
    shape = ["?" if size < 0 else int(size) for size in engine.get_tensor_shape(name)]
    return {"name": name, "dtype": str(getattr(kind, "name", kind)).lower(), "shape": shape}
