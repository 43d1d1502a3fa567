"""The operation ``run``: load a model once, run it on each sample, write what comes out.

Arguments: ``backend``: {"name": .., "implementation": "module:attribute", settings}; ``model``: path; ``samples``:
[{input name: path}], each the path of a TensorProto file, or of a SequenceProto, OptionalProto or MapProto where the
model declares one; ``out``: a folder for the outputs, or null to look at them only (``path`` is then ""); ``outputs``:
names, or null for all of the model's; ``inline``: also return small tensors as base64 under "data". A backend is a
class with ``load``, ``run`` and ``prepare``; its errors are StageError.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PTH103, PTH118
from __future__ import annotations

import base64
import importlib
import os
import time
from typing import Any, Dict, Iterator, Tuple

from runner.backends.errors import StageError, choose
from runner.backends.values import containers
from runner.backends.values.tensor_proto import Tensor
from runner.backends.values.value_structure import Value

_INLINE_BYTES = 1 << 16


def _backend(settings: Dict[str, Any]) -> Any:
    module, _, attribute = settings["implementation"].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise StageError("setup", "MissingBackend", f"{settings.get('name')}: {module}:{attribute}: {error}") from None


def prepare(args: Dict[str, Any]) -> None:
    """Import the runtime, so that the time of the first call does not hold it."""
    _backend(args["backend"]).prepare(args["backend"])


def run(args: Dict[str, Any]) -> Dict[str, Any]:
    """Run a model on each sample; see the module's text. Raises StageError: setup, load or infer."""
    start = time.perf_counter()
    backend = _backend(args["backend"])
    backend.prepare(args["backend"])
    # what an engine is built for: shapes of the samples, timings of an earlier build
    asked = {"samples": args["samples"], "caching": args.get("timing_cache")}
    model = backend.load(args["model"], {**args["backend"], **asked})
    loaded = time.perf_counter()
    wanted = args.get("outputs")
    if wanted is not None:
        unknown = [name for name in wanted if name not in model.outputs]
        if unknown:
            raise choose("outputs", unknown[0], model.outputs)
    else:
        wanted = list(model.outputs)
    skipped: Dict[str, str] = {}
    samples, seconds = [], []
    out = args.get("out")
    if out is not None:
        os.makedirs(out, exist_ok=True)
    for number, paths in enumerate(args["samples"]):
        feeds = _feeds(model, paths)
        begin = time.perf_counter()
        results = model.run(wanted, feeds)
        seconds.append(time.perf_counter() - begin)
        samples.append(_save(results, number, out, bool(args.get("inline")), skipped))
    return {
        "samples": samples,
        "skipped": skipped,
        "load_seconds": loaded - start,
        "run_seconds": seconds,
        "providers": list(model.providers),
    }


def _feeds(model: Any, paths: Dict[str, str]) -> Dict[str, Value]:
    missing = [name for name in model.required if name not in paths]
    if missing:
        given = ", ".join(sorted(paths)) or "none"
        message = f"no value for the model's input {', '.join(map(repr, missing))}; values were given for: {given}"
        raise StageError("setup", "MissingFeed", message)
    kinds = model.structures
    return {name: containers.read(path, kinds.get(name)) for name, path in paths.items() if name in model.inputs}


def _save(
    results: Iterator[Tuple[str, Any]],
    number: int,
    out: str | None,
    inline: bool,
    skipped: Dict[str, str],
) -> Dict[str, Any]:
    saved = {}
    for index, (name, result) in enumerate(results):
        if isinstance(result, str):
            skipped[name] = result
            continue
        # never the tensor's name: it may hold any character
        value, structure = (result, None) if isinstance(result, Tensor) else result
        if out is None:
            entry = containers.describe(value, structure, name, "")
        else:
            entry = containers.write(value, structure, name, os.path.join(out, f"{number}_{index}.pb"))
        if inline and isinstance(result, Tensor) and result.raw is not None and result.raw.size <= _INLINE_BYTES:
            entry["data"] = base64.b64encode(result.raw.tobytes()).decode()
        saved[name] = entry
    return saved
