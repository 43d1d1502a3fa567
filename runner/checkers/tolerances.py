"""The rules by which outputs are compared; tolerances between noise and error, or too coarse.

`checker.tolerance=auto`: a tolerance between the noise of good runs and the error of the failing model.

Noise: the reference runs a candidate twice, the second time with every floating-point feed moved by one unit in its
last place, up or down by a seeded coin; what that does to an output is its noise, at least a few units in the last
place of its type. The error of the failing model is that of its worst output. The limit for an output of a candidate
is the geometric mean of its noise and that error: in the middle between the two on a logarithmic scale, since both
spread over decades.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from onnx import TensorProto

from runner.checkers.metrics import EPSILON, Array, blocks, real, side_of
from runner.checkers.task_metrics import TASKS
from runner.exit_codes import UsageError
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.schema.checker import AutoChecker, CheckerSettings, CompareChecker, Metric, Tolerance
from runner.text import close
from runner.verdict import Sample

OTHERS = ""
"""Stands for all outputs, and tensors inside the model, that have no tolerance of their own."""
_DEFAULTS = CompareChecker()


@dataclass(frozen=True)
class Rules:
    """``rtol``, ``atol``: by output, and under `OTHERS`. ``metrics``: a tensor differs if it does by any of them.

    ``tasks``: metrics of all samples, for the outputs of the whole model. Where nothing else was asked for, ``metrics``
    is `Metric.scale`, for tensors inside the model and outputs that no task metric is about.
    """

    settings: CompareChecker
    metrics: tuple[Metric, ...]
    tasks: tuple[Metric, ...]
    asked: bool
    rtol: Mapping[str, float]
    atol: Mapping[str, float]

    @staticmethod
    def of(settings: CompareChecker) -> Rules:
        """Read the settings. Raises UsageError for a metric or a tolerance that is none."""
        chosen = _metrics(settings.metric)
        tasks = tuple(one for one in chosen if one in TASKS)
        if (len(chosen) > 1 or tasks) and settings.tolerance is Tolerance.auto:
            raise UsageError(
                f"checker.metric={_listed(chosen)} checker.tolerance=auto: noise is measured by one metric"
                f"{', of values' * bool(tasks)}. Give one, or the tolerances: checker.tolerance=fixed checker.rtol=.. "
                "checker.cosine=.."
            )
        for key, needed in (("labels", "labels"), ("boxes", "detections")):
            wanting = [one.value for one in tasks if getattr(TASKS[one], needed)]
            if bool(wanting) != bool(getattr(settings, key)):
                why = f"checker.metric={wanting[0]} needs it" if wanting else "no metric that was chosen reads it"
                raise UsageError(f"checker.{key}={getattr(settings, key) or ''}: {why}")
        if unknown := [name for name in settings.bounds if name not in {one.value for one in tasks}]:
            known = ", ".join(one.value for one in tasks) or "none, as metrics of values have tolerances"
            raise UsageError(f"checker.bounds: {unknown[0]}: no such metric was chosen; those with bounds are {known}")
        values = tuple(one for one in chosen if one not in tasks)
        tolerances = (_tolerances(key, getattr(settings, key)) for key in ("rtol", "atol"))
        return Rules(settings, values or (Metric.scale,), tasks, bool(values), *tolerances)

    def of_output(self, name: str) -> tuple[CompareChecker, ...]:
        """Return the rules of one output: of one metric each, tolerances are numbers."""
        rtol, atol = (table.get(name, table[OTHERS]) for table in (self.rtol, self.atol))
        return tuple(replace(self.settings, metric=one, rtol=rtol, atol=atol) for one in self.metrics)


def rules_of(checker: CheckerSettings) -> Rules:
    """Return the rules of any checker; one that does not compare has those of ``checker=compare`` as it comes."""
    if isinstance(checker, AutoChecker):
        return Rules.of(CompareChecker(name="auto", metric=Metric.scale, rtol=checker.rtol, atol=checker.atol))
    return Rules.of(checker if isinstance(checker, CompareChecker) else CompareChecker())


def check_outputs(checker: CheckerSettings, outputs: Collection[str]) -> None:
    """Raise UsageError for a tolerance of an output that the model does not have."""
    rules = rules_of(checker)
    for key, table in (("rtol", rules.rtol), ("atol", rules.atol)):
        unknown = [name for name in table if name != OTHERS and name not in outputs]
        if unknown:
            raise UsageError(
                f"checker.{key}: the model has no output {unknown[0]!r}{close(unknown[0], outputs)}; its outputs are "
                f'{", ".join(outputs)}. Tensors inside the model, and all other outputs, are ""'
            )


def _metrics(given: Any) -> tuple[Metric, ...]:
    words = given if isinstance(given, (list, tuple)) else [given]
    try:
        chosen = tuple(dict.fromkeys(Metric(word) for word in words))
    except ValueError:
        chosen = ()
    if not chosen:
        raise UsageError(
            f"checker.metric={_listed(words)}: choose one of {', '.join(one.value for one in Metric)}, or several: "
            "checker.metric=[scale,cosine]"
        )
    return chosen


def _tolerances(key: str, given: Any) -> dict[str, float]:
    """Read a number, or a mapping from outputs to numbers (as text too: Hydra's grammar has no empty key)."""
    table = given
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            table = yaml.safe_load(given)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise _no_tolerance(key, given) from None
    if not isinstance(table, Mapping):
        table = {OTHERS: table}
    try:
        read = {str(name): float(value) for name, value in table.items() if not isinstance(value, bool)}
    except (TypeError, ValueError):
        raise _no_tolerance(key, given) from None
    if len(read) < len(table) or any(math.isnan(value) or value < 0 for value in read.values()):
        raise _no_tolerance(key, given)
    return {OTHERS: float(getattr(_DEFAULTS, key)), **read}


def _no_tolerance(key: str, given: object) -> UsageError:
    return UsageError(
        f"checker.{key}={given}: it must be a number that is at least 0, or one for each of some outputs and for all "
        f"others: checker.{key}='{{logits: 1e-2, \"\": 1e-3}}'"
    )


def _listed(words: Any) -> str:
    shown = [word.value if isinstance(word, Metric) else str(word) for word in words]
    return shown[0] if len(shown) == 1 else f"[{','.join(shown)}]"


# below this many times the noise an error cannot be told from it
CLEAR = 10.0

# types whose neighboring numbers have neighboring bit patterns (sign and magnitude)
_NUDGED = frozenset(EPSILON) - {int(TensorProto.COMPLEX64), int(TensorProto.COMPLEX128)}


def limit(noise: float, failing: float) -> float:
    """The limit for an output with this noise (not 0), given the failing model's error, in the same unit."""
    return math.sqrt(noise * failing)


def nudged(feeds: Mapping[str, TensorFile], folder: Path) -> dict[str, TensorFile]:
    """The same feeds with each finite, non-zero floating-point number moved to a neighbor; the name seeds the coin.

    Files are written into ``folder``. Feeds of other types stay the files that they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    moved = {}
    for position, (name, feed) in enumerate(feeds.items()):
        if feed.dtype not in _NUDGED:
            moved[name] = feed
            continue
        array = recorded.mapped(feed)
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
        generator = np.random.Generator(np.random.PCG64(seed))
        moved[name] = recorded.write(nudge(array, generator), name, folder / f"nudged_{position}.pb")
    return moved


def nudge(array: Array, generator: np.random.Generator) -> Array:
    """Every number of an IEEE-like type moved by one unit in its last place; zeros, infinities and NaN stay."""
    # of the whole array this is the only copy; a block takes as many coins of the generator as it has numbers
    result = np.array(array).reshape(-1)
    for block in blocks(result):
        bits = block.view(np.dtype(f"u{block.dtype.itemsize}"))
        step = generator.integers(0, 2, bits.shape, dtype=np.int8) * 2 - 1
        up, down = bits + bits.dtype.type(1), bits - bits.dtype.type(1)
        moved = np.where(step > 0, up, down).astype(bits.dtype)
        with np.errstate(invalid="ignore"):  # a NaN that signals
            before, after = real(block), real(moved.view(block.dtype))
        stays = (before == 0) | ~np.isfinite(before) | ~np.isfinite(after)
        block[:] = np.where(stays, bits, moved).view(block.dtype)
    return result.reshape(array.shape)


# Outputs for which a tolerance is large in their own units: what passes by it may be of no use.
#
# By ``metric=scale`` (and ``fraction``) every element of an output may be off by a part of its largest value. That
# fits outputs whose elements count by their size. It does not fit boxes of 4000 px that are 6 px wide, scores of 1
# beside coordinates of 640, temperatures around 300 that differ by 2, or logits of which a mask has made some -3e38.

OWN_UNITS = 256.0
"""Values beyond are taken for pixels, counts and the like, which mean something by one; images have 8 bits."""
_ROWS = 8
_COORDINATES = 4
_BOXES = 0.95
"""So many of the rows have to be like boxes."""
_MOST_BESIDE = 7
"""So many columns have boxes with a score, a class and a number; with more, of all classes, there are far more rows."""
_MOST_COLUMNS = 256
_MOST_SHOWN = 3
_MOST_ELEMENTS = 1 << 20
"""Some eight arrays of float64 are made of them: 64 MB."""
# what of a box, or of the spread of values, an error may take without a word, and what is proposed to take
_NOTICED, _PROPOSED = 0.1, 0.05
_LEAST = 1e-6
"""No tolerance below is proposed: nothing keeps it."""


def coarse(checker: CheckerSettings, samples: Sequence[Sample]) -> tuple[str, ...]:
    """Return what is to be said of outputs whose right values, ``expected`` of the samples, ask for another tolerance.

    Nothing is for a check that does not compare by a fixed tolerance, or that judges each element by its own size.
    """
    if not isinstance(checker, AutoChecker | CompareChecker):
        return ()
    rules = rules_of(checker)
    by_largest = {Metric.scale, Metric.fraction} & {*rules.metrics} and Metric.elementwise not in rules.metrics
    if rules.settings.tolerance is not Tolerance.fixed or not by_largest or rules.tasks:
        return ()
    names = dict.fromkeys(name for sample in samples for name in sample.expected)
    found = [one for name in filter(rules.settings.selects, names) for one in _of_output(name, rules, samples)]
    return (_said(found, rules),) if found else ()


def _of_output(name: str, rules: Rules, samples: Sequence[Sample]) -> Iterator[tuple[str, str, float]]:
    """Yield the output's name, why the error that passes is much for it, and the rtol that fits; nothing: it fits."""
    files = [sample.expected[name] for sample in samples if name in sample.expected]
    if any(file.structure is not None for file in files):
        return
    # a file is mapped when it is looked at: each map keeps a file handle
    arrays = (one for one in map(recorded.mapped, files) if one.dtype.kind == "f" or one.dtype.name == "bfloat16")
    sizes = ((_largest(array), array) for array in arrays)
    largest, worst = max(sizes, key=lambda one: one[0], default=(0.0, None))
    if worst is None or not largest:
        return
    rtol, atol = (table.get(name, table[OTHERS]) for table in (rules.rtol, rules.atol))
    passes = rtol * largest + atol
    found = next(_reasons(_real(worst), largest, passes), None)
    # what atol alone lets pass is as the user wants it
    if found is not None and passes > 2 * atol:
        why = f"has values up to {largest:.4g}, so an error of {passes:.3g} passes everywhere in it"
        yield name, f"{name} {why} (checker.rtol is a fraction of the largest value): {found[0]}", found[1] / largest


def _reasons(array: Array, largest: float, passes: float) -> Iterator[tuple[str, float]]:
    """Yield why an error is much for an array, and what would not be, the best reason first."""
    flat = np.abs(array[np.isfinite(array)])
    flat = flat[flat > 0]
    if not flat.size:
        return
    extent = _extent(array)
    if extent and passes > _NOTICED * extent:
        yield f"it looks like boxes, half of which are no larger than {extent:.3g}", _PROPOSED * extent
    if largest > OWN_UNITS:
        if flat.size >= _ROWS and (usual := float(np.median(flat))) < passes:
            yield f"half of its values are no larger than {usual:.3g}", passes * usual / largest
        if (small := _smallest_column(array)) and small < passes:
            yield f"some of its columns have no value larger than {small:.3g}", passes * small / largest
    spread = float(np.subtract(*np.percentile(array[np.isfinite(array)], [95, 5])))
    # around something, that is, and not a few large ones among small ones
    if array.size >= _ROWS and 0 < spread < passes < float(np.median(flat)):
        yield f"its values differ by {spread:.3g} only", _PROPOSED * spread
    if largest > OWN_UNITS and passes > 1:
        yield "if its values are pixels or counts, that may be much", 1.0


def _extent(array: Array) -> float:
    """Return the median of the widths and heights, if an array looks like boxes; 0 where it does not.

    Boxes have four coordinates in the last axis, or the last but one, maybe with more behind them: two corners, or a
    center with a width and a height.
    """
    for table in _tables(array):
        rows, columns = table.shape
        if columns < _COORDINATES or rows < max(_ROWS, 4 * columns if columns > _MOST_BESIDE else 0):
            continue
        corners = table[:, :_COORDINATES]
        # rows of padding are none
        corners = corners[np.isfinite(corners).all(axis=1) & (corners != 0).any(axis=1)]
        if corners.shape[0] < _ROWS:
            continue
        first, second = corners[:, :2], corners[:, 2:]
        places = float(np.median(np.subtract(*np.percentile(first, [90, 10], axis=0))))
        sides = second - first
        if _are_sides(sides, float(np.median(sides)), places):
            return float(np.median(sides))
        # widths that stand alone: nearly all are smaller than where the boxes are, or it is a few large numbers among
        # many small ones
        large = float(np.percentile(second, 90))
        if float(np.median(first)) > large and _are_sides(second, large, places):
            return float(np.median(second))
    return 0.0


def _are_sides(sides: Array, large: float, places: float) -> bool:
    """Whether nearly all are positive, and a large one is less than boxes lie apart."""
    return bool(np.mean(sides > 0) > _BOXES) and 2 * large < places


def _smallest_column(array: Array) -> float:
    """Return the largest value of the column that has the smallest, over the last two axes; 0: there are no columns.

    Columns of nothing but zeros are none.
    """
    tables = [one for one in _tables(array) if one.shape[0] >= _ROWS and 2 <= one.shape[1] <= _MOST_COLUMNS]
    largest = [most for table in tables for most in np.abs(np.where(np.isfinite(table), table, 0)).max(axis=0)]
    return float(min((most for most in largest if most > 0), default=0.0))


def _tables(array: Array) -> Iterator[Array]:
    """Yield the array as tables whose columns are along its last axis, and along the last but one."""
    if array.ndim >= 2:
        yield array.reshape(-1, array.shape[-1])
        yield np.moveaxis(array, -2, -1).reshape(-1, array.shape[-2])


def _said(found: Sequence[tuple[str, str, float]], rules: Rules) -> str:
    """Say it of the outputs together: one option sets the tolerances of all."""
    heads = [why for _, why, _ in found[:_MOST_SHOWN]]
    more = [f"{len(found) - len(heads)} more outputs are like that"] if len(found) > len(heads) else []
    head = "; ".join([*heads, *more])
    proposed = {name: _rounded_down(fits) for name, _, fits in found}
    if any(number < _LEAST for number in proposed.values()):
        return f"{head}. Judge each value by its own size: checker=compare checker.metric=elementwise"
    table = {**{name: rtol for name, rtol in rules.rtol.items() if name != OTHERS}, **proposed}
    inside = ", ".join(f"{_key(name)}: {value:g}" for name, value in table.items())
    option = shlex.quote(f'checker.rtol={{{inside}, "": {rules.rtol[OTHERS]:g}}}')
    return f"{head}. {'A tolerance of its own' if len(found) == 1 else 'Tolerances of their own'}: {option}"


def _key(name: str) -> str:
    """Return a name as YAML takes it."""
    return name if name.replace("_", "").isalnum() and not name[0].isdigit() else '"' + name.replace('"', '\\"') + '"'


def _rounded_down(number: float) -> float:
    """Return 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(number))
    return float(f"{next(step for step in (5, 2, 1) if step * power <= number * 1.0000001) * power:g}")


def _real(array: Array) -> Array:
    """Return an array, or the first rows of a large one, in a type that computes."""
    if array.size > _MOST_ELEMENTS:
        columns = array.shape[-1] if array.ndim > 1 else 1
        rows = array.reshape(-1, columns)[: max(_ROWS, _MOST_ELEMENTS // columns)]
        array = rows if array.ndim > 1 else rows.reshape(-1)
    return array.astype(np.float64)


def _largest(array: Array) -> float:
    return float(max(map(abs, side_of(array.reshape(-1))["range"] or [0.0])))
