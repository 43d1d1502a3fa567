"""A row of numbers for each tensor that a target handed out: how far it is from what it should be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runner.checkers.candidate_runs import Case
from runner.checkers.compare import metrics
from runner.checkers.compare.tensor_statistics import agreement, statistics
from runner.checkers.failure_measure import LARGEST, finite
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.schema.checker import Metric


@dataclass(frozen=True)
class Compared:
    """One output of one sample: its difference by one metric, and by which tolerance and noise it was judged."""

    sample: int
    output: str
    metric: Metric
    difference: metrics.Difference
    limit: float
    noise: float | None = None

    @property
    def fails(self) -> bool:
        """Whether it is wrong."""
        return self.difference.fails(self.limit)

    @property
    def how_bad(self) -> float:
        """By how much it fails, 0 where it does not; what is no matter of size is worse than anything."""
        if not self.fails:
            return 0.0
        return LARGEST if self.difference.kind not in ("", "mismatch") else finite(self.rank[1])

    @property
    def rank(self) -> tuple[int, float]:
        """The worst output has the largest."""
        return self.difference.rank(self.limit)


Judge = Callable[[int, str, TensorFile, TensorFile], Sequence[Compared]]
"""Judges a tensor of a sample, by each metric: number of the sample, name, the target's value, the good one."""


def table(case: Case, judge: Judge) -> list[dict[str, Any]]:
    """Return a row for each tensor that is known, of the sample and by the metric in which it is worst."""
    theirs = case.reference.outputs if case.has_reference and not case.candidate.marked else ()
    expected = [{**one.expected, **(theirs[at] if theirs else {})} for at, one in enumerate(case.samples)]
    both = list(zip(case.target.outputs, expected, strict=True))
    marked, rows = frozenset(case.candidate.marked), []
    for name in dict.fromkeys(name for ran in case.target.outputs for name in ran):
        each = [
            (one, mine[name], good[name])
            for number, (mine, good) in enumerate(both)
            if name in mine and name in good
            for one in judge(number, name, mine[name], good[name])
        ]
        if each:
            worst = max(each, key=lambda one: (one[0].fails, _is_compared(one[0], one[1]), *one[0].rank))
            rows.append(_row(*worst, output=name not in marked))
    return rows


def _is_compared(one: Compared, mine: TensorFile) -> bool:
    """Whether any element was compared: there may be none, or the settings leave all of them out."""
    return bool(one.difference.kind) or not (one.difference.nothing or 0 in mine.shape)


def _row(one: Compared, mine: TensorFile, good: TensorFile, *, output: bool) -> dict[str, Any]:
    """Return the numbers of one tensor; ``bad``: it fails the check; ``of_limit``: its error, 1 is what passes.

    Where nothing was compared, ``compared`` says so, and the error is 0.
    """
    kind = one.difference.kind or ("mismatch" if one.fails else "")
    row = {
        "tensor": one.output,
        "sample": one.sample,
        "output": output,
        "type": mine.dtype,
        "shape": [*mine.shape],
        "bad": one.fails,
        "kind": kind,
        "error": finite(one.difference.error),
        "limit": finite(one.limit),
        "of_limit": LARGEST if kind not in ("", "mismatch") else finite(one.rank[1]),
    }
    row |= {} if _is_compared(one, mine) else {"compared": False}
    if mine.structure is not None or good.structure is not None:
        return row
    arrays = recorded.mapped(mine), recorded.mapped(good)
    return row | statistics(*arrays) | (agreement(*arrays) if output else {})
