"""The operations ``run`` and ``latency``: load a model, run it on each sample, write what comes out.

Arguments of ``run``: ``backend``: {"name": .., "implementation": "module:attribute", settings}; ``model``: path;
``samples``: [{input name: path}], each the path of a TensorProto file, or of a SequenceProto, OptionalProto or MapProto
where the model declares one; ``out``: a folder for the outputs; ``pack``: an output of at most so many bytes goes into
one file with others of its sample, since thousands of files take longer than what is in them; ``write``: names of the
other outputs that are written, of the rest only is told what they are (without it, all are); ``seed``: of what the
model draws, None: it is drawn anew. A backend is a class with ``load``, ``run`` and ``prepare``, and ``seed`` where it
can fix that; its errors are StageError.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, UP045, PTH103, PTH118, PTH123, PTH202
from __future__ import annotations

import contextlib
import importlib
import os
import time
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from runner.backends import tensor_files
from runner.backends.errors import StageError
from runner.backends.tensor_files import Tensor, Value

SEED = 1
"""What a runtime's random numbers begin with, in each session."""
_DRAWS = (b"Random", b"Multinomial", b"Bernoulli", b"Dropout")
# a larger file is not looked into: its samples are run in one session
_LARGEST = 1 << 26


def prepare_backend(settings: Dict[str, Any]) -> Any:
    """Import a runtime; return the class of its backend. Raises StageError (setup)."""
    module, _, attribute = settings["implementation"].partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise StageError("setup", "MissingBackend", f"{settings.get('name')}: {module}:{attribute}: {error}") from None
    found.prepare(settings)
    return found


def prepare(args: Dict[str, Any]) -> None:
    """Import the runtimes, so that the time of the first call does not hold that."""
    for one in args.get("models", [args]):
        prepare_backend(one["backend"])


def loaded(
    settings: Dict[str, Any], path: str, samples: List[Dict[str, str]], caching: Any, seed: Optional[int] = SEED
) -> Any:
    """Load a model. ``samples``, ``caching``: what an engine is built for, shapes and timings of an earlier build.

    Raises StageError: setup or load.
    """
    found = prepare_backend(settings)
    if seed is not None and hasattr(found, "seed"):
        found.seed(seed)
    return found.load(path, {**settings, "samples": samples, "caching": caching})


def run(args: Dict[str, Any]) -> Dict[str, Any]:
    """Run a model on each sample; see the module's text. Raises StageError: setup, load or infer."""
    given = args["backend"], args["model"], args["samples"], args.get("timing_cache"), args.get("seed", SEED)
    model = loaded(*given)
    anew = len(args["samples"]) > 1 and given[-1] is not None and _may_draw(args["model"])
    os.makedirs(args["out"], exist_ok=True)
    skipped: Dict[str, str] = {}
    samples = []
    for number, paths in enumerate(args["samples"]):
        start = os.path.join(args["out"], str(number))
        if number and anew:  # a session goes on drawing, and a check may have one for each sample
            model = loaded(*given)
        with open(f"{start}.pack", "wb") if "pack" in args else contextlib.nullcontext() as pack:
            results = model.run(list(model.outputs), feeds(model, paths))
            samples.append(_save(results, start, skipped, pack, args))
            del results
    return {"samples": samples, "skipped": skipped}


def _may_draw(path: str) -> bool:
    if os.path.getsize(path) > _LARGEST:
        return False
    with open(path, "rb") as file:
        content = file.read()
    return any(word in content for word in _DRAWS)


def feeds(model: Any, paths: Dict[str, str]) -> Dict[str, Value]:
    """Return the values for a model's inputs. Raises StageError (setup) for one that is missing."""
    missing = [name for name in model.required if name not in paths]
    if missing:
        given = ", ".join(sorted(paths)) or "none"
        message = f"no value for the model's input {', '.join(map(repr, missing))}; values were given for: {given}"
        raise StageError("setup", "MissingFeed", message)
    kinds = model.structures
    return {
        name: tensor_files.read_container(path, kinds.get(name)) for name, path in paths.items() if name in model.inputs
    }


def _save(
    results: Iterator[Tuple[str, Any]], start: str, skipped: Dict[str, str], pack: Any, args: Dict[str, Any]
) -> Dict[str, Any]:
    """Write what comes out to files whose paths begin with ``start``; note what cannot be written.

    ``pack``: an open file for what takes at most ``args["pack"]`` bytes, or None.
    """
    saved = {}
    wanted = None if args.get("write") is None else frozenset(args["write"])
    for index, (name, result) in enumerate(results):
        if isinstance(result, str):
            skipped[name] = result
            continue
        # never the tensor's name: it may hold any character
        value, structure = (result, None) if isinstance(result, Tensor) else result
        path, content = f"{start}_{index}.pb", tensor_files.container_pieces(value, structure, name)
        saved[name] = tensor_files.describe_container(value, structure, name, path)
        size = sum(map(len, content))
        if pack is not None and size <= args["pack"]:
            saved[name]["packed"] = [pack.name, pack.tell(), size]
            pack.writelines(content)
        elif wanted is None or name in wanted:
            tensor_files.write_pieces(content, path)
        else:
            saved[name]["length"] = size
    return saved


_WARM_UP = 3


def latency(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``ms``: the median milliseconds of each model. Raises StageError: setup, load or infer.

    They run in turn so that what the machine does besides hits all alike. ``models``: [{"backend": as for ``run``,
    "model": path}]; ``samples``: as for ``run``, the first one is fed; ``runs``: how often each is timed; ``caching``:
    timings of an earlier build of an engine, or None.
    """
    timed = [_runner(one, args) for one in args["models"]]
    for run in timed * _WARM_UP:
        run()
    seconds: List[List[float]] = [[] for _ in timed]
    for _ in range(args["runs"]):
        for held, run in zip(seconds, timed):  # noqa: B905 - Python 3.8 has no strict
            held.append(run())
    return {"ms": [median(held) * 1000 for held in seconds]}


def _runner(one: Dict[str, Any], args: Dict[str, Any]) -> Callable[[], float]:
    """Return what runs a loaded model once and says how many seconds that took."""
    model = loaded(one["backend"], one["model"], args["samples"], args.get("caching"))
    fed = feeds(model, args["samples"][0])

    def run() -> float:
        started = time.perf_counter()
        for _ in model.run(list(model.outputs), fed):
            pass
        return time.perf_counter() - started

    return run
