"""Which tactic each operator got: TensorRT's verbose log of a build with an editable timing cache, as records.

Only this log says which operator a key of the cache belongs to and which tactics there are. Its form is that of
NVIDIA's sample ``sampleEditableTimingCache`` (TensorRT 10.8)::

    Autotuning op matMul1(key: 0x1814870c44ff0f8574df6e3dda04cbd7):
    Sorted table of all evaluated tactics:
    tactic_id, cost(in ms), cost/fastest_cost, prediction_correlation, kernel_name, tactic_hash, tunable_parameter
       3, 0.0112640, 1.00000, 0.50673, sm80_xmma_gemm_f32f32_tf32f32, 0x665ded9abbf88,
    The selected tactic is (tactic hash, cost(in ms)):0x665ded9abbf88,  0.011264

Later versions add the ONNX nodes behind the key: ``... 07cb6a07): [ONNX Layer: node_linear]``. Lines may be cut off,
mixed with those of other threads, and have any prefix (a time, a severity).
"""

# runs under Python 3.8 (and so without subscripted builtins)
# ruff: noqa: UP006, UP035, PTH123
from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Tuple

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
    rf"(?<![\w.])(?P<id>\d+), *(?P<ms>{_NUMBER}), *(?:{_NUMBER}), *-?(?:{_NUMBER}), *"
    r"(?P<kernel>[^,]+?), *(?P<tactic>0x[0-9a-fA-F]{1,16}),"
)
_SELECTED = re.compile(
    rf"The selected tactic is \(tactic hash, cost\(in ms\)\): *(?P<tactic>0x[0-9a-fA-F]{{1,16}}), *(?P<ms>{_NUMBER})?"
)


def hexadecimal(number: int) -> str:
    """Return a tactic's hash as the log writes it."""
    return f"0x{number:x}"


def plain_hash(text: str) -> str:
    """Return a hash in one spelling. Raises ValueError for what is none (64 bits, hexadecimal)."""
    number = int(text, 16)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{text}: a tactic's hash has 64 bits")
    return hexadecimal(number)


@dataclass(frozen=True)
class TimedTactic:
    """A tactic that was timed. ``ms``: milliseconds; ``kernel``: a name."""

    ms: float
    kernel: str


@dataclass
class Record:
    """What one operator was offered and what it got.

    ``op``: the operator's name; ``key``: of the timing cache, in lower case; ``nodes``: the ONNX nodes behind it, where
    they were said; ``rows``: the tactics that were timed, by hash; ``selected``: the hash chosen, None where the log
    ends before it says so.
    """

    op: str
    key: str
    nodes: Tuple[str, ...] = ()
    rows: Dict[str, TimedTactic] = field(default_factory=dict)
    selected: str | None = None
    ms: float | None = None

    def kernel(self, tactic: str | None) -> str:
        """Return the kernel of a tactic that was timed; empty for any other."""
        return self.rows[tactic].kernel if tactic in self.rows else ""


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
        if row and self._open and len(self._open[-1].rows) < MOST_ROWS:
            tactic = plain_hash(row.group("tactic"))
            self._open[-1].rows[tactic] = TimedTactic(float(row.group("ms")), row.group("kernel").strip())

    def _begin(self, head: re.Match[str], rest: str) -> None:
        nodes = tuple(_NODE.findall(rest))
        self._open.append(Record(head.group("name").strip(), head.group("key").lower(), nodes))
        if len(self._open) > MOST_OPEN:
            self._keep(self._open.pop(0))

    def _select(self, tactic: str, ms: str | None) -> None:
        """Close the latest operator that was offered this tactic; where none lists it, the latest one."""
        offered = [one for one in self._open if tactic in one.rows]
        if not self._open or (not offered and self._open[-1].rows):
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
