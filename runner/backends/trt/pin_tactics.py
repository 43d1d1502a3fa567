"""Tactics of a build: what is recorded of them, and how they are pinned. Between ``build`` and the editable cache.

A request has the keys ``load`` (files of serialized caches; empty: start with none), ``save`` (where the cache goes
after the build, or null), ``pins`` ({key: hash}) and ``error_on_miss`` (nothing may be timed).
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035
from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping

from runner.backends.errors import StageError
from runner.backends.trt.editable_timing_cache import CacheEntry, TimingCache, lacking, switch_on
from runner.backends.trt.load_library import Library, load
from runner.backends.trt.tactics_log import Record, TacticsLog
from runner.backends.values.tensor_proto import write_pieces


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
