"""The timing cache: trials reuse what the baseline measured, so that tactics do not wander from build to build.

TensorRT for RTX has no tactics to time, and its cache does nothing: it is never touched there. Where it works needs a
GPU, on which this has not been run.
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP035
from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

from runner.backends.errors import StageError
from runner.backends.trt.load_library import Library
from runner.backends.values.tensor_proto import write_pieces


def attach(library: Library, args: Mapping[str, Any], config: Any) -> Any:
    """Give ``config`` the cache of ``args["timing_cache"]["load"]``, or an empty one; None where there is none.

    Raises StageError (setup) for a file of the user's that is refused.
    """
    wanted = args.get("timing_cache")
    if own := args["backend"].get("timing_cache"):
        _usable(library, str((wanted or {}).get("load") or own))
    if not wanted or library.flavor == "tensorrt_rtx" or not hasattr(config, "create_timing_cache"):
        return None
    path = wanted.get("load")
    data = Path(path).read_bytes() if path and Path(path).is_file() else b""
    # a run's cache that another kind of GPU has measured is of no use: start with an empty one
    for content in (data, b""):
        cache = config.create_timing_cache(content)
        if cache is not None and config.set_timing_cache(cache, ignore_mismatch=False):
            return cache
        if own:
            break
    told = f"timing_cache={path}" if own else "an empty timing cache"
    message = f"{told}: {library} refuses it: it belongs to another GPU, version or configuration; leave it out"
    raise StageError("setup", "TimingCache", message)


def _usable(library: Library, path: str) -> None:
    """Refuse a cache of the user's that could have no effect. Raises StageError (setup)."""
    if library.flavor == "tensorrt_rtx":
        message = f"timing_cache={path}: {library} times no tactics, so it has no such cache: leave timing_cache out"
        raise StageError("setup", "BadSetting", message)
    if not Path(path).is_file():
        message = (
            f"timing_cache={path}: there is no such file; give one that trtexec --timingCacheFile or a build has "
            "written, or leave timing_cache out: a run's builds then share that of its first"
        )
        raise StageError("setup", "BadSetting", message)


def save(cache: Any, args: Mapping[str, Any], config: Any) -> None:
    """Write the cache to ``args["timing_cache"]["save"]``, whole or not at all."""
    wanted = args.get("timing_cache") or {}
    path = wanted.get("save")
    if cache is None or not path:
        return
    held = config.get_timing_cache()
    if held is None:
        return
    write_pieces([memoryview(held.serialize())], path)
