"""Tactics of a build: recorded from the log, pinned by the editable timing cache, reused by the shared one.

A request has the keys ``load`` (files of serialized caches; empty: start with none), ``save`` (where the cache goes
after the build, or null), ``pins`` ({key: hash}) and ``error_on_miss`` (nothing may be timed).
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035, PTH123
from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from runner.backends.errors import StageError
from runner.backends.tensor_files import write_pieces
from runner.backends.trt.library import Library, load

# The timing cache: trials reuse what the baseline measured, so that tactics do not wander from build to build.
#
# TensorRT for RTX has no tactics to time, and its cache does nothing: it is never touched there. Where it works needs
# a GPU, on which this has not been run.


def attach(library: Library, args: Mapping[str, Any], config: Any) -> Any:
    """Give ``config`` the cache of ``args["timing_cache"]["load"]``, or an empty one; None where there is none.

    Raises StageError (setup) for a file of the user's that is refused.
    """
    wanted = args.get("timing_cache")
    if own := args["backend"].get("timing_cache"):
        _usable(library, str((wanted or {}).get("load") or own))
    if not wanted or library.flavor == "tensorrt_rtx":
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
    path = (args.get("timing_cache") or {}).get("save")
    held = config.get_timing_cache() if cache is not None else None
    if path and held is not None:
        write_pieces([memoryview(held.serialize())], path)


# Which tactic each operator got: TensorRT's verbose log of a build with an editable timing cache, as records.
#
# Only this log says which operator a key of the cache belongs to and which tactics there are. Its form is that of
# NVIDIA's sample ``sampleEditableTimingCache`` (TensorRT 10.8)::
#
#     Autotuning op matMul1(key: 0x1814870c44ff0f8574df6e3dda04cbd7):
#     Sorted table of all evaluated tactics:
#     tactic_id, cost(in ms), cost/fastest_cost, prediction_correlation, kernel_name, tactic_hash, tunable_parameter
#        3, 0.0112640, 1.00000, 0.50673, sm80_xmma_gemm_f32f32_tf32f32, 0x665ded9abbf88,
#     The selected tactic is (tactic hash, cost(in ms)):0x665ded9abbf88,  0.011264
#
# Later versions add the ONNX nodes behind the key: ``... 07cb6a07): [ONNX Layer: node_linear]``. Lines may be cut off,
# mixed with those of other threads, and have any prefix (a time, a severity).

MOST_RECORDS = 100_000
MOST_ROWS = 4096
MOST_OPEN = 16
"""Operators whose table may still go on: more do not fit between the lines of one."""
LONGEST_LINE = 1 << 16
KEY = re.compile(r"0x[0-9a-fA-F]{32}")
"""The text of a key: 34 characters, as ``TimingCacheKey.parse`` wants them."""

_OPERATOR = "Autotuning op "
_HEAD = re.compile(r"Autotuning op (?P<name>.+?)\(key: (?P<key>0x[0-9a-fA-F]{32})\)")
_NODE = re.compile(r"\[ONNX Layer: (.*?)\](?=\x1e|\[ONNX Layer: |\s*$)")
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|inf"
_ROW = re.compile(
    rf"(?<![\w.])\d+, *(?:{_NUMBER}), *(?:{_NUMBER}), *-?(?:{_NUMBER}), *"
    r"(?P<kernel>[^,]+?), *(?P<tactic>0x[0-9a-fA-F]{1,16}),"
)
_SELECTED = re.compile(
    rf"The selected tactic is \(tactic hash, cost\(in ms\)\): *(?P<tactic>0x[0-9a-fA-F]{{1,16}}), *(?P<ms>{_NUMBER})?"
)


def plain_hash(text: str) -> str:
    """Return a hash in one spelling. Raises ValueError for what is none (64 bits, hexadecimal)."""
    number = int(text, 16)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{text}: a tactic's hash has 64 bits")
    return f"0x{number:x}"


@dataclass
class Record:
    """What one operator was offered and what it got.

    ``op``: the operator's name; ``key``: of the timing cache, in lower case; ``nodes``: the ONNX nodes behind it, where
    they were said; ``kernels``: of the tactics that were timed, by hash; ``selected``: the hash chosen, None where the
    log ends before it says so.
    """

    op: str
    key: str
    nodes: Tuple[str, ...] = ()
    kernels: Dict[str, str] = field(default_factory=dict)
    selected: str | None = None
    ms: float | None = None


class TacticsLog:
    """Hears a log line by line; memory is bounded whatever comes."""

    def __init__(self) -> None:
        self._open: List[Record] = []
        self._records: Dict[Tuple[str, str], Record] = {}

    @property
    def records(self) -> List[Record]:
        """All operators in the order in which they were decided; those that were not come last."""
        undecided = [one for one in self._open if (one.op, one.key) not in self._records]
        return [*self._records.values(), *undecided]

    def hear(self, text: str) -> None:
        """Take a message, of one line or several."""
        if "0x" not in text:
            return
        # not splitlines: it also splits at \x1e, which separates two nodes
        for line in text.split("\n"):
            self._line(line[:LONGEST_LINE])

    def _line(self, line: str) -> None:
        if _OPERATOR in line:
            head = _HEAD.search(line)
            if head:
                self._begin(head, line[head.end() :])
            return
        selected = _SELECTED.search(line)
        if selected:
            self._select(plain_hash(selected.group("tactic")), selected.group("ms"))
            return
        row = _ROW.search(line)
        if row and self._open and len(self._open[-1].kernels) < MOST_ROWS:
            self._open[-1].kernels[plain_hash(row.group("tactic"))] = row.group("kernel").strip()

    def _begin(self, head: re.Match[str], rest: str) -> None:
        nodes = tuple(_NODE.findall(rest))
        self._open.append(Record(head.group("name").strip(), head.group("key").lower(), nodes))
        if len(self._open) > MOST_OPEN:
            self._keep(self._open.pop(0))

    def _select(self, tactic: str, ms: str | None) -> None:
        """Close the latest operator that was offered this tactic; where none lists it, the latest one."""
        offered = [one for one in self._open if tactic in one.kernels]
        if not self._open or (not offered and self._open[-1].kernels):
            return  # the first line or the table of this operator is lost
        chosen = (offered or self._open)[-1]
        self._open.remove(chosen)
        chosen.selected, chosen.ms = tactic, float(ms) if ms else None
        self._keep(chosen)

    def _keep(self, record: Record) -> None:
        place = (record.op, record.key)
        known = place in self._records
        if (known and record.selected is not None) or (not known and len(self._records) < MOST_RECORDS):
            # an operator that is timed again counts as it was decided last
            self._records.pop(place, None)
            self._records[place] = record


def parse_file(path: str) -> List[Record]:
    """Return the records of a log file; bytes that are no text are replaced. Raises OSError."""
    log = TacticsLog()
    with open(path, encoding="utf-8", errors="replace") as file:
        # a binary file may have no line ends at all
        while line := file.readline(LONGEST_LINE):
            log.hear(line)
    return log.records


# The editable timing cache: reading and setting which tactic each operator gets.
#
# TensorRT 10.8 and later, and 11, have it; TensorRT for RTX has the names but no tactics (its cache does nothing), so
# it is never touched there. What it can do is asked of the module, never told from a version.
#
# Keys and hashes are text: a key is ``0x`` and 32 hexadecimal digits, a hash as the log writes it. A cache with
# entries needs a GPU: what is done to entries has not been run on one and is unverified. That the calls exist and take
# what they are given was seen with an empty cache (the builder of TensorRT for RTX has the same code, without a GPU).

INVALID = (1 << 64) - 1
"""The hash that stands for no tactic (``kINVALID_TACTIC_HASH``)."""

Choices = Dict[str, Tuple[str, float]]
"""By key: a tactic's hash, and its milliseconds."""


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
    if "EDITABLE_TIMING_CACHE" not in library.members("BuilderFlag"):
        return f"{library} has no editable timing cache (TensorRT 10.8 was the first)"
    return None


class TacticControl:
    """The tactics of one build. Unverified (needs a GPU).

    Of several caches the first has the last word on a key. ``log`` hears what TensorRT says. Raises StageError (setup)
    where they cannot be controlled.
    """

    def __init__(self, library: Library, request: Mapping[str, Any], config: Any) -> None:
        reason = why_not(library)
        if reason:
            raise StageError("setup", "NoTactics", reason)
        if getattr(config, "builder_optimization_level", None) == 0:
            message = "config.builder_optimization_level=0: TensorRT ignores the timing cache there; choose 1 to 5"
            raise StageError("setup", "BadSetting", message)
        self.log = TacticsLog()
        self._request, self._config = request, config
        # for pinned builds no timing at all, and no kernels of earlier ones
        pinned = ("ERROR_ON_TIMING_CACHE_MISS", "DISABLE_COMPILATION_CACHE") if request.get("error_on_miss") else ()
        for name, flag in library.members("BuilderFlag").items():
            if name in ("EDITABLE_TIMING_CACHE", *pinned):
                config.set_flag(flag)
        contents = [Path(path).read_bytes() for path in request.get("load") or []]
        caches = [config.create_timing_cache(data) for data in list(filter(None, contents)) or [b""]]
        if None in caches or not all(caches[0].combine(other, False) for other in caches[1:]):
            raise _unusable()
        refused = pin(library.api, caches[0], request.get("pins") or {})
        if refused:
            raise StageError("build", "PinRefused", f"the timing cache has no such key: {', '.join(refused[:5])}")
        if not config.set_timing_cache(caches[0], False):
            raise _unusable()

    def finish(self) -> Dict[str, Any]:
        """Return what the build used (see `account`), and save the cache."""
        cache = self._config.get_timing_cache()
        if cache is None:
            raise _unusable()
        if self._request.get("save"):
            write_pieces([memoryview(cache.serialize())], self._request["save"])
        return account(choices(cache), self.log.records)


def choices(cache: Any) -> Choices:
    """Return what a cache holds; after a build, what the build used."""
    found = {}
    for key in cache.queryKeys():
        value = cache.query(key)
        tactic, ms = int(value.tacticHash), float(value.timingMSec)
        if tactic != INVALID and not math.isnan(ms) and ms >= 0:
            found[str(key).lower()] = f"0x{tactic:x}", ms
    return found


def pin(api: Any, cache: Any, pins: Mapping[str, str]) -> List[str]:
    """Set {key: hash}; return the keys that the cache does not have, or refuses."""
    now = choices(cache)
    refused = []
    for key, tactic in pins.items():
        # a time is needed; which one does not matter, since the operator is not timed again
        _, ms = now.get(key.lower(), ("", 0.0))
        value = api.TimingCacheValue(int(tactic, 16), ms or 1.0)
        if key.lower() not in now or not cache.update(api.TimingCacheKey.parse(key.lower()), value):
            refused.append(key)
    return refused


def _unusable() -> StageError:
    message = (
        "TensorRT refuses the timing cache: it belongs to another GPU, version or configuration. Record tactics again "
        "where they are to be pinned: strategy=tactic_repeat"
    )
    return StageError("setup", "TimingCache", message)


def account(cache: Choices, records: List[Record]) -> Dict[str, Any]:
    """Return ``choices`` (a list of mappings) and ``timed``: keys of operators that were timed (none, with pins).

    The cache says what was chosen, the log which operator that is.
    """
    told = {record.key: record for record in records}
    keys = [*cache, *(key for key, record in told.items() if key not in cache and record.selected)]
    return {
        "choices": [_choice(cache.get(key), told.get(key, Record("", key))) for key in keys],
        "timed": [record.key for record in records if record.kernels],
    }


def _choice(held: Tuple[str, float] | None, record: Record) -> Dict[str, Any]:
    tactic, ms = held or (record.selected, record.ms)
    return {
        "layer": record.op,
        "key": record.key,
        "tactic": tactic,
        "kernel": record.kernels.get(tactic or "", ""),
        "ms": ms,
        "nodes": list(record.nodes),
        "timed": len(record.kernels),
    }
