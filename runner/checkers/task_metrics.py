"""Metrics people judge a model by: agreement, accuracy, mIoU, detections, perplexity, KL, SQNR, over all samples.

Each takes pairs of arrays, one pair a sample: what the target gives, and what is right (the reference's value, or the
labels), and returns one number. Shares are larger for a better model; of divergences the smaller is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from runner.checkers.failure_text import finite
from runner.checkers.metrics import BLOCK, Array, Difference, Pair, real
from runner.exit_codes import UsageError
from runner.samples.files import npz_arrays
from runner.schema.checker import CompareChecker, Metric

Pairs = Sequence[tuple[Array, Array]]
Side = Sequence[Mapping[str, Array]]
"""Of each sample the values by name."""
TOP = 5
"""So many of the largest values of each row are compared, besides the largest."""


def agreement(target: Array, reference: Array) -> dict[str, float]:
    """Return in which part of the rows (along the last axis) the largest value stands in the same place.

    ``top5``: which part of the five largest is the same; only where a row has more than five. A row that holds a NaN
    never agrees. Of what is no table of real numbers nothing is returned.
    """
    if target.shape != reference.shape or not target.ndim or target.shape[-1] < 2 or not target.size:
        return {}
    if {target.dtype.kind, reference.dtype.kind} & set("OSUbc"):
        return {}
    width, first, several = target.shape[-1], 0.0, 0.0
    for pair in _rows(target, reference):
        told = ~(np.isnan(pair[0]) | np.isnan(pair[1])).any(1)
        a, b = (np.nan_to_num(one[told]) for one in pair)
        first += float((a.argmax(1) == b.argmax(1)).sum())
        if width > TOP:
            best = [np.argpartition(one, -TOP, axis=1)[:, -TOP:] for one in (a, b)]
            several += float((best[0][:, :, None] == best[1][:, None, :]).sum()) / TOP
    rows = target.size // width
    return {"top1": first / rows, **({"top5": several / rows} if width > TOP else {})}


def _rows(first: Array, *others: Array) -> Iterator[list[Array]]:
    """Yield the rows of arrays (along the last axis of the first) side by side, as real numbers, in blocks."""
    count = first.size // first.shape[-1]
    tables, step = [one.reshape(count, -1) for one in (first, *others)], max(1, BLOCK // first.shape[-1])
    for start in range(0, count, step):
        yield [real(one[start : start + step]) for one in tables]


def top(k: int, pairs: Pairs) -> float:
    """Return the share of rows (along the last axis) whose k largest values stand where the reference's do."""
    rows = [right.size // right.shape[-1] for _, right in pairs]
    shares = [agreement(*pair).get(f"top{k}", 0.0) for pair in pairs]
    return float(np.average(shares, weights=rows)) if any(rows) else math.nan


def accuracy(pairs: Pairs) -> float:
    """Return the share of the labels that are given; negative labels are not counted."""
    mine, right = _classes(pairs)
    return float((mine == right).mean()) if right.size else math.nan


def mean_iou(pairs: Pairs) -> float:
    """Return the intersection over union of each class, as a mean over the classes; negative labels are not counted."""
    mine, right = _classes(pairs)
    ious = [((mine == one) & (right == one)).sum() / ((mine == one) | (right == one)).sum() for one in np.unique(right)]
    return float(np.mean(ious)) if ious else math.nan


def perplexity(pairs: Pairs) -> float:
    """Return exp of the mean of -log p(label), for logits ``[.., tokens]``; negative labels are not counted."""
    total, count = 0.0, 0
    for logits, labels in pairs:
        if logits.shape[:-1] != labels.shape:
            raise _misfit(logits, labels)
        for rows, wanted in _rows(logits, labels):
            kept = wanted[:, 0] >= 0
            total -= float(np.take_along_axis(_log_softmax(rows[kept]), wanted[kept].astype(np.int64), 1).sum())
            count += int(kept.sum())
    return float(np.exp(total / count)) if count else math.nan


def divergence(pairs: Pairs) -> float:
    """Return the mean Kullback-Leibler divergence, in nats, of softmax(target) from softmax(reference), over rows."""
    each = [_divergence(*map(_log_softmax, rows)) for pair in pairs for rows in _rows(*pair)]
    return float(np.maximum(0, np.concatenate(each).mean())) if each else math.nan  # rounding makes it a little less


def _divergence(mine: Array, right: Array) -> Array:
    # of what the reference masks, with -inf, nothing is asked
    found: Array = np.where(right == -np.inf, 0.0, np.exp(right) * (right - mine)).sum(1)
    return found


def sqnr(pairs: Pairs) -> float:
    """Return the signal to quantization noise ratio of all samples together, in dB."""
    signal = noise = 0.0
    for mine, right in pairs:
        for a, b in (map(real, both) for both in Pair(mine.reshape(-1), right.reshape(-1)).stored()):
            signal, noise = signal + float(np.square(b).sum()), noise + float(np.square(a - b).sum())
    return 10 * float(np.log10(signal / noise)) if noise else math.inf


def _classes(pairs: Pairs) -> tuple[Array, Array]:
    """Return the class that each label is about, and the label; classes are integers, or the largest along an axis."""
    found = [np.zeros((2, 0), np.int64)]
    for mine, right in pairs:
        axis = -1 if mine.shape[:-1] == right.shape else 1
        if mine.shape != right.shape:
            if mine.ndim != right.ndim + 1 or np.delete(mine.shape, axis).tolist() != [*right.shape]:
                raise _misfit(mine, right)
            mine = np.where(np.isnan(real(mine)).any(axis), -1, real(mine).argmax(axis))  # noqa: PLW2901
        found.append(np.stack([mine[right >= 0], right[right >= 0]]).astype(np.int64))
    mine, right = np.concatenate(found, axis=1)
    return mine, right


def _misfit(mine: Array, labels: Array) -> UsageError:
    return UsageError(
        f"checker.labels: labels of shape {[*labels.shape]} do not fit an output of shape {[*mine.shape]}"
    )


def _log_softmax(rows: Array) -> Array:
    shifted = rows - rows.max(1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


# Sets of detections, whose order and number may differ.

Detected = tuple[Array, Array, Array]
"""Detections of one image: corners ``[n, 4]`` (x1, y1, x2, y2), scores ``[n]``, classes ``[n]``."""
Detections = Sequence[tuple[Detected, Detected]]
"""Of each image: what the target found, and what is right."""


def images(held: Mapping[str, Array], names: Sequence[str]) -> Iterator[Detected]:
    """Yield the detections of each image, without rows of padding: four zeros, or a score of 0 or less.

    ``names``: of corners ``[(images,) n, 4]``, scores and classes, or of one table with columns x1, y1, x2, y2, score,
    class. Labels need no scores.
    """
    boxes = held[names[0]].astype(np.float64)
    boxes = boxes.reshape(-1, *boxes.shape[-2:])
    count, every = boxes.shape[:2], np.ones(boxes.shape[:2])
    beside = [held.get(name, every).reshape(count) for name in names[1:]]
    beside = beside or [boxes[..., at] for at in range(4, min(boxes.shape[2], 6))]
    scores, classes = [*beside, every, every][:2] if beside else (every, every)
    for corners, score, kind in zip(boxes[..., :4], scores, classes, strict=True):
        kept = corners.any(-1) & (score > 0)
        yield corners[kept], score[kept], kind[kept]


def matched(found: Detections, least: float) -> float:
    """Return 2 matches / (detections of both sides): same class, IoU of at least ``least``, each used once."""
    hits = sum(int(np.sum(_hits(mine, right, least))) for mine, right in found)
    every = sum(len(mine[1]) + len(right[1]) for mine, right in found)
    return 2 * hits / every if every else 1.0


def mean_precision(found: Detections, least: float) -> float:
    """Return the mean over classes of the area under the precision-recall curve, at an IoU of ``least``."""
    areas = []
    for kind in np.unique(np.concatenate([right[2] for _, right in found])):
        both = [[tuple(part[one[2] == kind] for part in one) for one in pair] for pair in found]
        wanted = sum(len(right[1]) for _, right in both)
        scores = np.concatenate([mine[1] for mine, _ in both])
        hits = np.concatenate([_hits(mine, right, least) for mine, right in both])[np.argsort(-scores, kind="stable")]
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        best = np.maximum.accumulate(precision[::-1])[::-1]
        areas.append(float(best[hits].sum()) / wanted)
    return float(np.mean(areas)) if areas else math.nan


def _hits(mine: Detected, right: Detected, least: float) -> Array:
    """Return which of the target's detections have a right one of their own, the surest choosing first."""
    hits, free = np.zeros(len(mine[1]), bool), np.ones(len(right[1]), bool)
    for at in np.argsort(-mine[1], kind="stable"):
        ious = np.where(free & (right[2] == mine[2][at]), _iou(mine[0][at], right[0]), -1.0)
        if ious.size and ious.max() >= least:
            hits[at], free[ious.argmax()] = True, False
    return hits


def _iou(box: Array, others: Array) -> Array:
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(1)
    areas = (others[:, 2:] - others[:, :2]).prod(1) + (box[2:] - box[:2]).prod()
    made: Array = shared / np.maximum(areas - shared, 1e-300)
    return made


# The metrics by name, and how a value is held against its bound.


@dataclass(frozen=True)
class TaskMetric:
    """``measure``: of all samples. ``bound``: the usual one; of labels: how much worse than the reference.

    ``larger``: larger is better. ``labels``: it is measured against labels, and not against the reference's values.
    ``detections``: it takes sets of detections and the IoU that counts as found. ``width``: so many values has a row.
    """

    measure: Callable[..., float]
    bound: float
    larger: bool = True
    labels: bool = False
    detections: bool = False
    width: int = 0

    def difference(
        self, name: str, metric: Metric, value: float, right: float | None, rule: CompareChecker
    ) -> Difference:
        """Return how far ``value`` is from what is allowed; ``right``: the reference's own, of labels."""
        near = self.bound if right is None else right - self.bound if self.larger else right * (1 + self.bound)
        bound = rule.bounds.get(metric.value, near)
        known = "" if right is None else f"; the reference: {right:.4g}"
        said = f"{name}: {metric.value} {value:.4g} ({'least' if self.larger else 'most'} allowed: {bound:.4g}{known})"
        if math.isnan(value):
            return Difference("nan", said)
        error, limit = (
            (_noise(one) if metric is Metric.sqnr else 1 - one if self.larger else one) for one in (value, bound)
        )
        if right is not None and metric.value not in rule.bounds:  # what the reference gets wrong, nobody else can mend
            lost = 1 - right if self.larger else right
            error, limit = max(0.0, error - lost), limit - lost
        return Difference("", said, finite(error), finite(limit), value=finite(value), measured=True)


def _noise(decibels: float) -> float:
    """Return the noise as a part of the signal, by amplitude."""
    return float(10 ** (-min(max(decibels, -600.0), 600.0) / 20))


TASKS: Mapping[Metric, TaskMetric] = {
    Metric.top1: TaskMetric(lambda pairs: top(1, pairs), 0.99, width=2),
    Metric.top5: TaskMetric(lambda pairs: top(TOP, pairs), 0.95, width=TOP + 1),
    Metric.kl: TaskMetric(divergence, 0.01, larger=False, width=2),
    Metric.sqnr: TaskMetric(sqnr, 20.0),
    Metric.detections: TaskMetric(matched, 0.95, detections=True),
    Metric.accuracy: TaskMetric(accuracy, 0.01, labels=True),
    Metric.miou: TaskMetric(mean_iou, 0.01, labels=True),
    Metric.perplexity: TaskMetric(perplexity, 0.01, larger=False, labels=True),
    Metric.map: TaskMetric(mean_precision, 0.01, labels=True, detections=True),
}


def read_labels(path: Path | None) -> Mapping[str, Array]:
    """Return the labels in an npz, by output. Raises UsageError where it cannot be read."""
    try:
        return {name: read() for name, read in npz_arrays(path, lambda *_: None).items()} if path else {}
    except Exception as error:  # a damaged archive raises half a dozen classes
        raise UsageError(f"checker.labels={path}: {error}. Give an npz with an array for each output") from error


_NO_BETTER = 0.1
"""Part of the way from chance to a perfect accuracy up to which labels are perhaps those of other inputs."""


@dataclass(frozen=True)
class Tasks:
    """Judges the outputs of a model by task metrics. ``labels``: by output, the rows of all samples in their order.

    ``guessed``: outputs of which the reference's own accuracy is hardly better than chance.
    """

    rule: CompareChecker
    metrics: tuple[Metric, ...]
    labels: Mapping[str, Array]
    guessed: set[str] = field(default_factory=set)

    def of(self, name: str, shape: Sequence[int], *, real: bool) -> list[Metric]:
        """Return the metrics that judge an output; ``real``: it holds real numbers. Others are judged by value."""

        def judges(task: TaskMetric) -> bool:
            if task.detections or task.labels:
                return name in (self.rule.boxes[:1] if task.detections else self.labels)
            return real and [0, *shape][-1] >= task.width

        return [one for one in self.metrics if judges(TASKS[one])]

    @property
    def named(self) -> frozenset[str]:
        """The outputs that are judged, where each metric is about some; none: all are."""
        by_name = all(TASKS[one].labels or TASKS[one].detections for one in self.metrics)
        return frozenset((*self.labels, *self.rule.boxes)) if by_name else frozenset()

    def judge(self, metric: Metric, name: str, mine: Side, right: Side, numbers: Sequence[int | None]) -> Difference:
        """Judge an output of all samples. ``mine``, ``right``: what the target gives, and the reference, by sample.

        ``numbers``: of the samples, in the order of the labels; None: one that has none.
        """
        task = TASKS[metric]
        unlike = [(one[name].shape, good[name].shape) for one, good in zip(mine, right, strict=True)]
        if not task.detections and (wrong := [pair for pair in unlike if pair[0] != pair[1]]):
            return Difference("shape", "shape {} instead of {}".format(*map(list, wrong[0])))
        known = [self._known(task, name, *one) if task.labels else one[0] for one in zip(right, numbers, strict=True)]

        def measured(side: Side) -> float:
            if not task.detections:
                return task.measure([(held[name], good[name]) for held, good in zip(side, known, strict=True)])
            found, sets = ([one for held in each for one in images(held, self.rule.boxes)] for each in (side, known))
            if len(sets) != len(found):
                raise UsageError(f"checker.boxes: {len(found)} images are judged, and {len(sets)} are known")
            return task.measure(list(zip(found, sets, strict=True)), self.rule.overlap)

        with np.errstate(all="ignore"):
            theirs = measured(right) if task.labels else None
            if metric is Metric.accuracy and theirs is not None:
                kinds = len({int(one) for held in known for one in np.unique(held[name]) if one >= 0})
                if kinds > 1 and theirs < (1 + _NO_BETTER * (kinds - 1)) / kinds:
                    self.guessed.add(name)
            return task.difference(name, metric, measured(mine), theirs, self.rule)

    def _known(
        self, task: TaskMetric, name: str, right: Mapping[str, Array], number: int | None
    ) -> Mapping[str, Array]:
        """Return the labels of a sample; of one that has none the reference's own answers.

        All samples have as many rows (images), which is how those of one are found.
        """
        good, names = right[name], self.rule.boxes if task.detections else [name]
        rows = 1 if task.detections and good.ndim == 2 else good.shape[0]
        held = {one: self.labels[one] for one in names if one in self.labels}
        if number is None:
            axis = -1 if task.detections or held[name].shape[1:] == good.shape[1:-1] else 1
            return right if task.detections or good.ndim == held[name].ndim else {name: good.argmax(axis)}
        if short := [len(one) for one in held.values() if len(one) < (number + 1) * rows]:
            raise UsageError(f"checker.labels: {short[0]} rows for {name!r}, and the samples have more")
        return {one: labels[number * rows : (number + 1) * rows] for one, labels in held.items()}
