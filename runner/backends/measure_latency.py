"""The operation ``latency``: how long models take, run in turn so that what the machine does besides hits all alike.

Arguments: ``models``: [{"backend": as for ``run``, "model": path}]; ``samples``: as for ``run``, the first one is fed;
``runs``: how often each is timed; ``caching``: timings of an earlier build of an engine, or None.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

import time
from statistics import median
from typing import Any, Callable, Dict, List

from runner.backends.run_model import feeds, loaded, prepare_backend

_WARM_UP = 3


def prepare(args: Dict[str, Any]) -> None:
    """Import the runtime."""
    prepare_backend(args["models"][0]["backend"])


def latency(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``ms``: the median milliseconds of each model. Raises StageError: setup, load or infer."""
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
