"""The editable timing cache: reading and setting which tactic each operator gets.

TensorRT 10.8 and later, and 11, have it; TensorRT for RTX has the names but no tactics (its cache does nothing), so it
is never touched there. What it can do is asked of the module (``hasattr``), never told from a version.

Keys and hashes are text: a key is ``0x`` and 32 hexadecimal digits, a hash as the log writes it. A cache with entries
needs a GPU: what is done to entries has not been run on one and is unverified. That the calls exist and take what they
are given was seen with an empty cache (the builder of TensorRT for RTX has the same code, without a GPU).
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence

from runner.backends.errors import StageError
from runner.backends.trt.tactics_log import hexadecimal

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
