"""What the rows of all tensors say: which is wrong first, whose own error is largest, and where to look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from runner.jobs.reduce.first_look.nodes_between import between
from runner.model.graph.graph_index import Graph
from runner.report.sections.layers_section import NON_FINITE, kind_of

Row = Mapping[str, Any]
MOST_SUSPECTS = 20


def own_error(row: Row) -> float:
    """Return the error of a tensor that is made of good values, as a part of the largest value that it should have."""
    return float(row["error"] if "relative" not in row else row["relative"])


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
        shown = [(name, self._makers(name, self.rows)) for name in self.graph.producers if self._is_source(name)]
        bad = [name for name in self.graph.producers if self.own.get(name, {}).get("bad")]
        apart = [(name, self._makers(name, self.own)) for name in bad]
        first, second = (apart, shown) if self.hides else (shown, apart)
        return [one for one in first if one[1]] or [one for one in second if one[1]]

    @property
    def first_bad(self) -> dict[str, Any] | None:
        """The first of these."""
        if not self.wrong_first:
            return None
        name, _ = self.wrong_first[0]
        row = self.rows[name] if self.rows.get(name, {}).get("bad") else self.own[name]
        own = self.own.get(name)
        return {
            "tensor": name,
            "node": self._maker(name),
            "kind": kind_of(row),
            "error": row["error"],
            "own": own_error(own) if own else None,
        }

    @property
    def reference_is_wrong(self) -> bool:
        """Whether the first wrong tensor is finite on the target, and not on the reference."""
        name = self.wrong_first[0][0] if self.wrong_first else ""
        row = self.rows.get(name) or self.own.get(name) or {}
        mine, theirs = (sum(row[key][side] for key in NON_FINITE if key in row) for side in (0, 1))
        return bool(theirs and not mine)

    @property
    def largest_own(self) -> dict[str, Any] | None:
        """The tensor whose error is largest when its nodes are run on good values, if it is more than is allowed.

        ``nodes``: those that the runtime has made one of (none are told where they are too many to say anything);
        ``node``: of these the first that is wrong in the whole, or the last.
        """
        name = max((name for name in self.own if self.own[name]["bad"]), key=self._of_limit, default=None)
        if name is None:
            return None
        own = self.own[name]
        nodes = self._makers(name, self.own)
        wrong = [at for at in nodes if any(self.rows.get(one, {}).get("bad") for one in self.graph.nodes[at].outputs)]
        node = self.graph.nodes[wrong[0]].name if wrong else self._maker(name)
        found = {"tensor": name, "node": node, "nodes": list(self._names(nodes))}
        return {**found, "kind": kind_of(own), "own": own_error(own)}

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

    def _is_source(self, name: str) -> bool:
        """Whether a tensor is wrong, and none of those known ones that it is made of."""
        if not self.rows.get(name, {}).get("bad"):
            return False
        return not any(self.rows[above]["bad"] for above in self._known_above(name))

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
        return between(self.graph, name, known)

    def _maker(self, name: str) -> str:
        return self.graph.nodes[self.graph.producers[name]].name

    def _names(self, nodes: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.graph.nodes[index].name for index in nodes)
