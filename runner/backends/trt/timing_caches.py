"""Tactics of a build: pinned by the editable timing cache, and reused by the shared one.

A request has the keys ``load`` (files of serialized caches; empty: start with none), ``save`` (where the cache goes
after the build, or null), ``pins`` ({key: hash}) and ``error_on_miss`` (nothing may be timed).
"""

# ruff: noqa: UP035
# ruff: noqa: UP006, UP035
from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from runner.backends.errors import StageError
from runner.backends.tensor_files import write_pieces
from runner.backends.trt.library import Library, load
from runner.backends.trt.tactics_log import Record, TacticsLog, hexadecimal

# The timing cache: trials reuse what the baseline measured, so that tactics do not wander from build to build.
#
# TensorRT for RTX has no tactics to time, and its cache does nothing: it is never touched there. Where it works needs
# a GPU, on which this has not been run.

# runs under Python 3.8 (and so without subscripted builtins)


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


# The editable timing cache: reading and setting which tactic each operator gets.
#
# TensorRT 10.8 and later, and 11, have it; TensorRT for RTX has the names but no tactics (its cache does nothing), so
# it is never touched there. What it can do is asked of the module (``hasattr``), never told from a version.
#
# Keys and hashes are text: a key is ``0x`` and 32 hexadecimal digits, a hash as the log writes it. A cache with
# entries needs a GPU: what is done to entries has not been run on one and is unverified. That the calls exist and take
# what they are given was seen with an empty cache (the builder of TensorRT for RTX has the same code, without a GPU).

# runs under Python 3.8 (and so without subscripted builtins)


INVALID = (1 << 64) - 1
"""The hash that stands for no tactic (``kINVALID_TACTIC_HASH``)."""
_TYPES = ("TimingCacheKey", "TimingCacheValue", "ITimingCache")
_METHODS = ("queryKeys", "query", "update", "combine", "serialize")
_FLAGS = ("EDITABLE_TIMING_CACHE", "ERROR_ON_TIMING_CACHE_MISS")


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache. ``tactic``: a hash; ``ms``: milliseconds."""

    tactic: str
    ms: float


def lacking(api: Any) -> List[str]:
    """Return what this TensorRT lacks of an editable timing cache; empty where it is whole."""
    flags = getattr(getattr(api, "BuilderFlag", None), "__members__", {})
    found = [f"BuilderFlag.{name}" for name in _FLAGS if name not in flags]
    found += [name for name in _TYPES if not hasattr(api, name)]
    cache = getattr(api, "ITimingCache", None)
    return found + [f"ITimingCache.{name}" for name in _METHODS if cache is not None and not hasattr(cache, name)]


def switch_on(api: Any, config: Any, *, error_on_miss: bool) -> None:
    """Set the builder's flags: an editable cache; for pinned builds no timing at all, and no kernels of earlier ones.

    Unverified (needs a GPU).
    """
    flags = api.BuilderFlag.__members__
    config.set_flag(flags["EDITABLE_TIMING_CACHE"])
    if error_on_miss:
        config.set_flag(flags["ERROR_ON_TIMING_CACHE_MISS"])
        if "DISABLE_COMPILATION_CACHE" in flags:
            config.set_flag(flags["DISABLE_COMPILATION_CACHE"])


class TimingCache:
    """A cache of ``config``. What it does to entries is unverified (needs a GPU).

    ``contents``: serialized caches, the first of which has the last word on a key that several have. Raises StageError
    (setup) where one was made by another version or for another GPU.
    """

    def __init__(self, api: Any, config: Any, contents: Sequence[bytes]) -> None:
        self._api = api
        self._config = config
        first, *others = [data for data in contents if data] or [b""]
        self._cache = config.create_timing_cache(first)
        if self._cache is None:
            raise _unusable()
        for data in others:
            other = config.create_timing_cache(data)
            if other is None or not self._cache.combine(other, False):
                raise _unusable()
        self._attached = False

    def attach(self) -> None:
        """Give the cache to the builder's configuration. Raises StageError (setup)."""
        if not self._config.set_timing_cache(self._cache, False):
            raise _unusable()
        self._attached = True

    def choices(self) -> Dict[str, CacheEntry]:
        """Return {key: what it holds}; after a build, what the build used."""
        cache, found = self._held(), {}
        for key in cache.queryKeys():
            value = cache.query(key)
            tactic, ms = int(value.tacticHash), float(value.timingMSec)
            if tactic != INVALID and not math.isnan(ms) and ms >= 0:
                found[str(key).lower()] = CacheEntry(hexadecimal(tactic), ms)
        return found

    def pin(self, pins: Mapping[str, str]) -> List[str]:
        """Set {key: hash}; return the keys that the cache does not have, or refuses."""
        now = self.choices()
        refused = []
        for key, tactic in pins.items():
            held = now.get(key.lower())
            # a time is needed; which one does not matter, since the operator is not timed again
            value = self._api.TimingCacheValue(int(tactic, 16), held.ms if held and held.ms > 0 else 1.0)
            if held is None or not self._cache.update(self._api.TimingCacheKey.parse(key.lower()), value):
                refused.append(key)
        return refused

    def serialized(self) -> bytes:
        """Return the cache as bytes; after a build, with what the build added."""
        return bytes(memoryview(self._held().serialize()))

    def _held(self) -> Any:
        cache = self._config.get_timing_cache() if self._attached else self._cache
        if cache is None:
            raise _unusable()
        return cache


def _unusable() -> StageError:
    message = (
        "TensorRT refuses the timing cache: it belongs to another GPU, version or configuration. Record tactics again "
        "where they are to be pinned: strategy=tactic_repeat"
    )
    return StageError("setup", "TimingCache", message)


# runs under Python 3.8 (and so without subscripted builtins)


def tactics_support(args: Dict[str, Any]) -> Dict[str, Any]:
    """Say whether tactics can be recorded and pinned here: ``flavor``, ``version``, ``why_not`` (null: they can).

    Arguments: ``backend``: settings. No GPU is needed. Raises StageError (setup) where TensorRT is not installed.
    """
    library = load(args["backend"].get("flavor", "auto"))
    return {"flavor": library.flavor, "version": library.version, "why_not": why_not(library)}


def why_not(library: Library) -> str | None:
    """Return why this TensorRT has no tactics to record; None where it has."""
    if library.flavor == "tensorrt_rtx":
        return f"{library} times no tactics when it builds: there are none to record or to pin"
    missing = lacking(library.api)
    if missing:
        return f"{library} has no editable timing cache (TensorRT 10.8 was the first): it lacks {', '.join(missing)}"
    return None


class TacticControl:
    """The tactics of one build. Unverified (needs a GPU).

    ``log`` hears what TensorRT says. Raises StageError (setup) where they cannot be controlled.
    """

    def __init__(self, library: Library, request: Mapping[str, Any], config: Any) -> None:
        reason = why_not(library)
        if reason:
            raise StageError("setup", "NoTactics", reason)
        if getattr(config, "builder_optimization_level", None) == 0:
            message = "config.builder_optimization_level=0: TensorRT ignores the timing cache there; choose 1 to 5"
            raise StageError("setup", "BadSetting", message)
        self.log = TacticsLog()
        self._request = request
        switch_on(library.api, config, error_on_miss=bool(request.get("error_on_miss")))
        self._cache = TimingCache(library.api, config, [Path(path).read_bytes() for path in request.get("load") or []])
        refused = self._cache.pin({str(key): str(tactic) for key, tactic in (request.get("pins") or {}).items()})
        if refused:
            raise StageError("build", "PinRefused", f"the timing cache has no such key: {', '.join(refused[:5])}")
        self._cache.attach()

    def finish(self) -> Dict[str, Any]:
        """Return what the build used (see `account`), and save the cache."""
        path = self._request.get("save")
        if path:
            write_pieces([self._cache.serialized()], path)
        return account(self._cache.choices(), self.log.records)


def account(cache: Mapping[str, CacheEntry], records: List[Record]) -> Dict[str, Any]:
    """Return ``choices`` (a list of mappings) and ``timed``: keys of operators that were timed (none, with pins).

    The cache says what was chosen, the log which operator that is.
    """
    told = {record.key: record for record in records}
    keys = [*cache, *(key for key, record in told.items() if key not in cache and record.selected)]
    return {
        "choices": [_choice(key, cache.get(key), told.get(key, Record("", key))) for key in keys],
        "timed": [record.key for record in records if record.rows],
    }


def _choice(key: str, held: CacheEntry | None, record: Record) -> Dict[str, Any]:
    tactic = held.tactic if held else record.selected
    return {
        "layer": record.op,
        "key": key,
        "tactic": tactic,
        "kernel": record.kernel(tactic),
        "ms": held.ms if held else record.ms,
        "nodes": list(record.nodes),
        "timed": len(record.rows),
    }
