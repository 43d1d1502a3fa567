"""An index that flips within rounding: two scores are so near that rounding decides which of them is the larger.

ArgMax, TopK and NonMaxSuppression then give another index, though no operator is wrong. Both experiments hold for
such an operator and what computes its scores: whatever is rounded otherwise there flips the index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from runner.checkers.metrics import EPSILON, FLOOR_ULPS
from runner.engine.check_trials import Judge
from runner.engine.session_question import Cause
from runner.jobs.reduce.subgraph import subgraph
from runner.judgment import CauseStatus
from runner.model.graph.graph_index import Graph, Node
from runner.model.values.dtypes import BY_NUMBER
from runner.model.values.recorded import TensorFile, read
from runner.verdict import FLIPPED
from strategies.search import Outcome, Trial

Array = np.ndarray[Any, Any]
_SCORES = {"ArgMax": 0, "ArgMin": 0, "TopK": 0, "NonMaxSuppression": 1}
"""The operators that choose by scores, and the place of these among what they read."""
_SAME_ORDER = {"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}


def unless_flipped(judge: Judge, cause: Cause | None, answer: Trial) -> Cause | None:
    """Return what is known about the cause of an answer: nothing is proven where an index flips within rounding."""
    note = flipped(judge, answer) if cause else ""
    if cause is None or not note or cause.status is CauseStatus.UNTESTED:
        return cause
    return replace(cause, status=CauseStatus.NOT_PROVEN, causes=(), reason=note)


def flipped(judge: Judge, answer: Trial) -> str:
    """Say which index an answer flips within the rounding of its scores; "": none, or not by rounding alone."""
    subject = subgraph(judge)
    known = next((one for one in judge.counted(answer) if one.outcome is Outcome.FAIL), None)
    if known is None or not (flips := known.metrics.get(FLIPPED)):
        return ""
    chooser, number = _chooser(subject.graph, known.metrics["output"], answer), known.metrics["sample"]
    samples = subject.judging(subject.cut(answer))
    if chooser is None or number >= len(samples):
        return ""
    alone = judge.counted(Trial(answer.elements - {chooser.index}))
    if any(one.outcome is not Outcome.PASS for one in alone):
        return ""  # the scores themselves are wrong
    return _within_rounding(subject.graph, chooser, samples[number], flips)


def _chooser(graph: Graph, name: str, answer: Trial) -> Node | None:
    """Return the node of an answer that chose the elements of a tensor, by scores that the answer computes too."""
    while (index := graph.producers.get(name)) in answer and index is not None:
        node = graph.nodes[index]
        if node.domain or (node.op_type not in _SAME_ORDER and node.op_type not in _SCORES):
            return None
        if node.op_type in _SCORES:
            scored = graph.producers.get(graph.protos[index].input[_SCORES[node.op_type]]) in answer
            return node if scored and name == graph.protos[index].output[node.op_type == "TopK"] else None
        name = node.inputs[0]
    return None


def _within_rounding(graph: Graph, node: Node, sample: Mapping[str, TensorFile], flips: list[Any]) -> str:
    proto = graph.protos[node.index]
    scored, chosen = proto.input[_SCORES[node.op_type]], proto.output[node.op_type == "TopK"]
    held, good = sample.get(scored), sample.get(chosen)
    if held is None or good is None or held.dtype not in EPSILON:
        return ""
    scores, indices = read(held), read(good)
    at = -1 if node.op_type in ("TopK", "NonMaxSuppression") else 0
    at = next((one.i for one in proto.attribute if one.name == "axis"), at) % scores.ndim
    told, largest = "", -1.0
    for place, mine, theirs in flips:
        row = _row(scores, indices, at, place, nms=node.op_type == "NonMaxSuppression")
        if row is None or not (0 <= mine < row.size and 0 <= theirs < row.size):
            return ""
        gap = abs(float(row[mine]) - float(row[theirs]))
        if not gap <= FLOOR_ULPS * EPSILON[held.dtype] * float(np.abs(row).max()):  # nor a NaN
            return ""
        if gap > largest:
            largest, told = gap, f"index {mine} instead of {theirs}: their scores in {scored} differ by {gap:.2g}"
    more = f", the largest gap of {len(flips)} such indices" if len(flips) > 1 else ""
    rounding = f"which is less than the rounding of the {BY_NUMBER[held.dtype].numpy_name} inputs"
    return f"{node.name} gives {told}{more}, {rounding}: either may be right, and no operator is shown to be wrong"


def _row(scores: Array, indices: Array, axis: int, place: int, *, nms: bool) -> Array | None:
    """Return the scores of which the element number ``place`` of the indices is one's place."""
    numbers: Array = scores.astype(np.float64)
    if nms:  # each row of the indices: batch, class, box
        row, column = divmod(place, 3)
        found: Array = numbers[tuple(indices.reshape(-1, 3)[row, :2])]
        return found if column == 2 else None
    shape = [*scores.shape[:axis], indices.size * scores.shape[axis] // max(scores.size, 1), *scores.shape[axis + 1 :]]
    if math.prod(shape) != indices.size:
        return None
    where = [*np.unravel_index(place, shape)]
    where.pop(axis)
    along: Array = np.moveaxis(numbers, axis, -1)[tuple(where)]
    return along
