"""What the rows of all tensors say: which is wrong first, whose own error is largest, and where to look."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx

from runner.files import write_text
from runner.jobs.reduce.first_look import between
from runner.judgment import NON_FINITE
from runner.model.graph.graph_index import Graph
from runner.report.diagnosis_sections import kind_of
from runner.report.result_parts import FirstWrong, LargestOwn

Row = Mapping[str, Any]
MOST_SUSPECTS = 20


def own_error(row: Row) -> float:
    """Return the error of a tensor that is made of good values, as a part of the largest value that it should have."""
    return float(row["error"] if "relative" not in row else row["relative"])


def sizes_that_are_right(graph: Graph, rows: Mapping[str, Row]) -> set[str]:
    """Return the tensors that no data reach and that are right: nothing need be fed in their place."""
    return {name for name, row in rows.items() if name in graph.data_independent and not row["bad"]}


def within(graph: Graph, own: Mapping[str, Row], rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return the errors that nodes make of good values, where any tensor inside the model could be fed.

    Else what is left are outputs of the model with all of its error, except those that one node makes of the inputs.
    ``rows``: of tensors as the whole model makes them.
    """
    if not own.keys() <= graph.output_set:
        return {**own}
    ends = {*own, *sizes_that_are_right(graph, rows)}
    return {name: row for name, row in own.items() if len(between(graph, name, ends)) == 1}


def overflows(row: Row) -> bool:
    """Whether the target's tensor holds a NaN or Inf that is not meant; the Inf of a mask stands among equal values."""
    if "nan" not in row or not (row["nan"][0] or row["inf"][0]):
        return False
    held = row["range"][0]
    return bool(row["nan"][0]) or (held is not None and held[0] < held[1])


@dataclass(frozen=True)
class Findings:
    """``rows``: of tensors as the whole model makes them; ``own``: as their nodes make them of good values.

    ``hides``: rows of one run do not fit those of another: what is wrong there is another thing where marks hide it.
    """

    graph: Graph
    rows: Mapping[str, Row]
    own: Mapping[str, Row]
    hides: bool = False

    @cached_property
    def wrong_first(self) -> list[tuple[str, tuple[int, ...]]]:
        """The tensors that are wrong while those that they are made of are right, with the nodes that make them.

        In topological order. Where marks hide the failure, those that are wrong though made of good values, if any are.
        """
        wrong = [name for name in self.graph.producers if self.rows.get(name, {}).get("bad")]
        sources = [name for name in wrong if not any(self.rows[above]["bad"] for above in self._known_above(name))]
        shown = [(name, self._makers(name, self.rows)) for name in sources]
        bad = [name for name in self.graph.producers if self.own.get(name, {}).get("bad")]
        apart = [(name, self._makers(name, self.own)) for name in bad]
        first, second = (apart, shown) if self.hides else (shown, apart)
        return [one for one in first if one[1]] or [one for one in second if one[1]]

    @property
    def first_bad(self) -> FirstWrong | None:
        """The first of these."""
        if not self.wrong_first:
            return None
        name, _ = self.wrong_first[0]
        row = self.rows[name] if self.rows.get(name, {}).get("bad") else self.own[name]
        own = self.own.get(name)
        return FirstWrong(name, self._maker(name), kind_of(row), row["error"], own_error(own) if own else None)

    @property
    def reference_is_wrong(self) -> bool:
        """Whether the first wrong tensor is finite on the target, and not on the reference."""
        name = self.wrong_first[0][0] if self.wrong_first else ""
        row = self.rows.get(name) or self.own.get(name) or {}
        mine, theirs = (sum(row[key][side] for key in NON_FINITE if key in row) for side in (0, 1))
        return bool(theirs and not mine)

    @property
    def largest_own(self) -> LargestOwn | None:
        """The tensor whose error is largest when its nodes are run on good values, if it is more than is allowed.

        ``nodes``: those that the runtime has made one of (none are told where they are too many to say anything);
        ``node``: of these the first that is wrong in the whole, or the last.
        """
        name = max((name for name in self.own if self.own[name]["bad"]), key=self._of_limit, default=None)
        if name is None:
            return None
        own = self.own[name]
        nodes = self._makers(name, self.own)
        if len(nodes) == len(self.graph.nodes):  # of the model's own inputs: that is the failure itself
            return None
        wrong = [at for at in nodes if any(self.rows.get(one, {}).get("bad") for one in self.graph.nodes[at].outputs)]
        node = self.graph.nodes[wrong[0]].name if wrong else self._maker(name)
        return LargestOwn(name, node, self._names(nodes), kind_of(own), own_error(own))

    @property
    def culprits(self) -> tuple[str, ...]:
        """The nodes that make the first bad tensor out of good ones."""
        return self._names(self.wrong_first[0][1]) if self.wrong_first else ()

    @property
    def suspects(self) -> tuple[str, ...]:
        """Nodes, most likely first: the culprits, what is wrong first elsewhere, the largest own errors that count."""
        found = dict.fromkeys(self.culprits)
        later = sorted(self.wrong_first[1:], key=lambda one: -self._of_limit(one[0]))
        bad = sorted((name for name in self.own if self.own[name]["bad"]), key=lambda name: -self._of_limit(name))
        for nodes in (*(nodes for _, nodes in later), *(self._makers(name, self.own) for name in bad)):
            found |= dict.fromkeys(self._names(nodes))
        return tuple(found)[:MOST_SUSPECTS]

    def _of_limit(self, name: str) -> float:
        return float(self.own.get(name, {}).get("of_limit", 0.0))

    def _known_above(self, name: str) -> Iterator[str]:
        """Yield the nearest known tensors that one is made of."""
        waiting, seen = [name], {name}
        while waiting:
            for above in self.graph.nodes[self.graph.producers[waiting.pop()]].inputs:
                if above in self.graph.producers and above not in seen:
                    seen.add(above)
                    if above in self.rows:
                        yield above
                    else:
                        waiting.append(above)

    def _makers(self, name: str, known: Mapping[str, Row]) -> tuple[int, ...]:
        return between(self.graph, name, {*known, *sizes_that_are_right(self.graph, self.rows)})

    def _maker(self, name: str) -> str:
        return self.graph.nodes[self.graph.producers[name]].name

    def _names(self, nodes: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.graph.nodes[index].name for index in nodes)


# The rows of all tensors beside the report: `layerwise.csv` for spreadsheets, `layerwise.json` for programs.

CSV, JSON = "layerwise.csv", "layerwise.json"
FILES = (CSV, JSON)
_FORMULA = ("=", "+", "-", "@")
_COLUMNS = (
    *("tensor", "node", "operator", "output", "type", "shape", "sample", "bad", "kind", "compared", "error", "limit"),
    *("of_limit", "max", "mean", "p99", "relative", "sqnr", "psnr", "cosine", "top1", "top5", "nan", "reference_nan"),
    *("inf", "reference_inf", "low", "high", "reference_low", "reference_high", "own", "own_of_limit", "own_bad"),
)


def full_rows(
    graph: Graph, rows: Mapping[str, Mapping[str, Any]], own: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return a row for each known tensor, in topological order: what it is, and its own error beside what it holds."""
    found = []
    for name, index in graph.producers.items():
        if name not in rows and name not in own:
            continue
        node, alone = graph.nodes[index], own.get(name)
        row = dict(rows.get(name) or {"tensor": name})
        if not row.get("compared", True):
            row["error"] = row["of_limit"] = None
        row |= {"node": node.name, "operator": node.op_type}
        if "type" in row:
            row["type"] = onnx.TensorProto.DataType.Name(row["type"]).lower()
        if alone:
            row |= {f"own_{key}": alone[key] for key in ("of_limit", "bad")}
            row["own"] = own_error(alone)
        found.append(row)
    return found


def write(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write both files. Raises OSError where that is impossible."""
    write_text(folder / JSON, json.dumps({"tensors": rows}, indent=1, allow_nan=False) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_flat, rows))
    write_text(folder / CSV, text.getvalue())


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in row.items() if key in _COLUMNS}
    for key in ("nan", "inf"):
        if key in row:
            flat[key], flat[f"reference_{key}"] = row[key]
    for side, key in zip(row.get("range") or (), ("", "reference_"), strict=False):
        flat |= dict(zip((f"{key}low", f"{key}high"), side or (), strict=False))
    if "shape" in row:
        flat["shape"] = "x".join(map(str, row["shape"]))
    return {key: _text(value) if isinstance(value, str) else value for key, value in flat.items()}


def _text(value: str) -> str:
    """Return a name from a file as text that no spreadsheet takes for a formula, without control characters."""
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line
