"""The parent of a converted model, `reference.model`: read, run, and asked what the child's tensors should hold."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from runner.checkers.compare_values import compare
from runner.checkers.tolerances import Rules, rules_of
from runner.judgment import UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.nested.hoist import HoistError, hoist, kind_of
from runner.model.values.recorded import TensorFile
from runner.reference.body_values import Level, in_place, ordered_bodies
from runner.reference.fingerprints import Weights
from runner.reference.good_values import UnfitError, cast
from runner.reference.lineage import Lineage, ParentValues, RecordedModel, matched_inputs, read_map
from runner.reference.models import ingest, recorder, recording_backend
from runner.reference.recording import Recorded
from runner.samples.declared_inputs import Declared, declared
from runner.schema.backend import BackendSettings, map_of
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings
from runner.text import listed
from runner.verdict import Sample
from runner.workers.pool import Pool

# Why a weight is wrong: what a conversion made of it, told from its partner in the original by the values alone.
#
# A weight that a conversion got wrong is most often the right numbers in a wrong place, sign, size or type. Each kind
# is one question about the two arrays; the first that explains all elements is the answer, from the most to the least
# specific. Nothing here runs, reads or writes anything.

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_NEAR = 1e-5
"""Part of the largest value by which equal numbers may differ: float32 that was computed in another order."""
_LOW: Mapping[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
_MOST_AXES, _GATES = 6, (4, 3)
_LEVELS = (256, 16)
"""Of an integer type of 8 bits, and of 4."""
_LEAST_CUT = 0.01
"""Part of the elements that stand at an end where values were cut off."""


@dataclass(frozen=True)
class Change:
    """What happened to a weight.

    ``kind``: transposed, permuted, gates, scaled, negated, swapped, rounded, cut off, zero. ``axis``: along which axis,
    or None. ``said``: in words, behind "it is".
    """

    kind: str
    said: str
    axis: int | None = None


def change_of(mine: Array, good: Array, others: Mapping[str, Array] | None = None) -> Change | None:
    """Return what makes ``mine`` of ``good``; None: nothing does, or the two are alike.

    ``mine``, ``good``: of any shape, dtype float or integer. ``others``: further weights of the original by name, of
    which ``mine`` may be one.
    """
    mine, good = (np.asarray(one).astype(np.float64) for one in (mine, good))
    if not mine.size or not np.isfinite(good).all() or (mine.shape == good.shape and _alike(mine, good)):
        return None
    for ask in (_zero, _transposed):
        if found := ask(mine, good):
            return found
    for name, other in (others or {}).items():
        if other.shape == mine.shape and other.size > 1 and _alike(mine, other.astype(np.float64)):
            return Change("swapped", f"the values of {name}")
    if mine.shape != good.shape:
        return None
    asked: tuple[Callable[[Array, Array], Change | None], ...] = (_scaled, _permuted, _rounded, _cut_off, _scaled_along)
    return next((found for ask in asked if (found := ask(mine, good))), None)


def _alike(mine: Array, good: Array, near: float = _NEAR) -> bool:
    largest = np.max(np.abs(good), initial=0.0)
    return bool(np.isfinite(mine).all() and np.max(np.abs(mine - good), initial=0.0) <= near * largest)


def _zero(mine: Array, good: Array) -> Change | None:
    return Change("zero", "zero throughout") if not mine.any() and good.any() else None


def _transposed(mine: Array, good: Array) -> Change | None:
    """Whether the axes stand in another order, or the values were read in the order of one."""
    if 2 <= good.ndim <= _MOST_AXES and mine.ndim == good.ndim:
        for order in itertools.permutations(range(good.ndim)):
            turned = good.transpose(order)
            if list(order) != sorted(order) and turned.shape == mine.shape and _alike(mine, turned):
                named = "transposed" if good.ndim == 2 else f"transposed, its axes in the order {list(order)}"
                return Change("transposed", named)
            laid = turned.ravel()
            if list(order) != sorted(order) and laid.size == mine.size and _alike(mine.ravel(), laid):
                return Change("transposed", "transposed in memory: the values in the order of another layout")
    return None


def _scaled(mine: Array, good: Array) -> Change | None:
    factor = _factor(mine, good)
    if factor is None:
        return None
    if abs(factor + 1) <= _NEAR:
        return Change("negated", "negated")
    return Change("scaled", f"scaled by {factor:.4g}")


def _factor(mine: Array, good: Array) -> float | None:
    """Return the number that makes one of the other; None: none does."""
    square = float((good * good).sum())
    factor = float((mine * good).sum()) / square if square else 0.0
    return factor if factor and _alike(mine, factor * good) else None


def _scaled_along(mine: Array, good: Array) -> Change | None:
    """Whether each slice along an axis has a factor of its own; some may be 1."""
    for axis in range(good.ndim if good.ndim > 1 else 0):
        rows, right = (np.moveaxis(one, axis, 0).reshape(good.shape[axis], -1) for one in (mine, good))
        if rows.shape[1] < 2 or rows.shape[0] < 2:
            continue
        factors = [_factor(*pair) if pair[1].any() else 1.0 for pair in zip(rows, right, strict=True)]
        wrong = [one for one in factors if one is not None and abs(one - 1) > _NEAR]
        if None not in factors and wrong:
            if all(abs(one + 1) <= _NEAR for one in wrong):
                return Change("negated", f"negated in {len(wrong)} places along axis {axis}", axis)
            many = f"by {min(wrong):.4g} to {max(wrong):.4g}" if len(wrong) > 1 else f"by {wrong[0]:.4g} in one place"
            return Change("scaled", f"scaled {many} along axis {axis}", axis)
    return None


def _permuted(mine: Array, good: Array) -> Change | None:
    for axis in range(good.ndim):
        rows, right = (np.moveaxis(one, axis, 0).reshape(good.shape[axis], -1) for one in (mine, good))
        order = _order(rows, right)
        if order is None or len(order) < 2:
            continue
        for gates in _GATES:
            if moved := _of_blocks(order, gates):
                return Change("gates", f"in another order of its {gates} gates, {moved}, along axis {axis}", axis)
        if order == [*range(len(order))][::-1]:
            return Change("permuted", f"reversed along axis {axis}", axis)
        return Change("permuted", f"permuted along axis {axis}", axis)
    return None


def _order(rows: Array, right: Array) -> list[int] | None:
    """Return which good row each is; None: they are not the same rows."""
    largest, free, found = np.max(np.abs(right), initial=0.0), np.ones(len(right), bool), []
    for row in rows:
        off = np.max(np.abs(right - row), axis=1)
        off[~free] = np.inf
        at = int(np.argmin(off))
        if not off[at] <= _NEAR * largest:
            return None
        free[at] = False
        found.append(at)
    return found


def _of_blocks(order: list[int], gates: int) -> list[int] | None:
    """Return the order of so many blocks of equal length, each whole; None: the rows moved otherwise."""
    length, rest = divmod(len(order), gates)
    if rest or length < 2:
        return None
    starts = order[::length]
    if any(
        order[at] != starts[at // length] + at % length or order[at - at % length] % length for at in range(len(order))
    ):
        return None
    return [one // length for one in starts]


def _rounded(mine: Array, good: Array) -> Change | None:
    """Whether the values are the good ones in a type of fewer bits, or in the steps of an integer type."""
    for name, dtype in _LOW.items():
        with np.errstate(all="ignore"):
            rounded = good.astype(np.float32).astype(dtype).astype(np.float64)
        if np.isfinite(rounded).all() and np.array_equal(mine.astype(np.float32), rounded.astype(np.float32)):
            return Change("rounded", f"rounded to {name}")
    values = np.unique(mine)
    steps = np.diff(values)
    step = float(steps.min()) if steps.size else 0.0
    for levels in _LEVELS[::-1]:
        if 2 <= values.size <= levels < mine.size and step > 0:
            whole = mine / step
            if np.abs(whole - np.rint(whole)).max() <= 1e-3 and np.abs(mine - good).max() <= 0.51 * step:
                return Change("rounded", f"rounded to int{8 if levels == 256 else 4} in steps of {step:.3g}")
    return None


def _cut_off(mine: Array, good: Array) -> Change | None:
    low, high = float(mine.min()), float(mine.max())
    at_ends = (good > high * (1 + _NEAR) if high > 0 else good > high + _NEAR) | (good < low - _NEAR * abs(low))
    if not at_ends.any() or at_ends.mean() < min(_LEAST_CUT, 1 / mine.size):
        return None
    if _alike(mine, np.clip(good, low, high)):
        largest = float(np.max(np.abs(good)))
        return Change("cut off", f"cut off at {low:.4g} and {high:.4g}, where its values reach {largest:.4g}")
    return None


log = logging.getLogger(__name__)
_MOST_OTHERS, _MOST_ELEMENTS = 64, 1 << 24
"""Weights that one may have been swapped with, and elements of one that is looked at."""


@dataclass(frozen=True)
class Inherited:
    """What a parent leaves to its child.

    ``recorded``: good values for the child. ``digest``: of the parent and of what was matched with what. ``origins``:
    the name of the parent's node that makes what a node of the child makes, by its name. ``parent``: as it ran.
    ``partners``: the parent's tensor by the child's, of those that have the same elements in the same shape.
    """

    recorded: Recorded
    digest: str
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    parent: RecordedModel
    partners: Mapping[str, str]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What the parent is fed, and what its outputs are, as far as these were recorded."""
        graph = self.parent.graph
        return tuple(Sample.of(one, graph.inputs, graph.outputs) for one in self.parent.values)

    @property
    def parent_types(self) -> dict[str, int]:
        """The element types of the parent's tensors, as it ran."""
        weights = {name: getattr(tensor, "data_type", 0) for name, tensor in self.parent.graph.initializers.items()}
        return weights | {name: one.dtype for sample in self.parent.values for name, one in sample.items()}


def inherit(
    settings: Settings,
    graph: Graph,
    store: Store,
    samples: Sequence[Mapping[str, TensorFile]],
    pool: Pool,
    folder: Path,
    parent: tuple[Graph, Store] | None = None,
) -> Inherited:
    """Run both models of a child and its parent and return what the child's tensors should hold, for each sample.

    ``graph``, ``store``: the child. ``samples``: values of its inputs. ``parent``: None: it is read. Raises UsageError
    where the two have nothing to do with each other, and for what is wrong with the parent or the map.
    """
    if parent is None:
        path, theirs = Path(settings.reference.model or "").expanduser().absolute(), Store(folder / "store")
        sha256 = ingest("reference.model", path, theirs, settings, pool)["sha256"]
        other = Graph.load(theirs.structure)
    else:
        (other, theirs), sha256 = parent, ""
    told = read_map(map_of(settings.reference), graph, other)
    types = declared(other)
    inputs = matched_inputs(declared(graph), types, told)
    feeds = _fed(settings, types, inputs, samples, folder)
    ran = recorder(settings, recording_backend(settings), other, theirs, pool, folder / "parent").record(feeds)
    elder = RecordedModel(other, theirs, ran.values)
    child = _run(settings, graph, store, pool, folder / "child", samples)
    rules = rules_of(settings.checker)
    lineage = Lineage(
        RecordedModel(graph, store, child.values),
        elder,
        told,
        inputs,
        lambda one, place, values: _run(settings, one, store, pool, place, values),
        lambda mine, good: not any(compare(mine, good, one).fails() for one in rules.of_output(good.name)),
        folder,
    )
    found = lineage.descend()
    recorded = replace(
        ran,
        values=found.values,
        partners=frozenset(found.partners),
        unfit=found.unfit,
        wrong=found.wrong,
        error=_error(graph.outputs, child, found, rules),
        seconds=ran.seconds + child.seconds,
    )
    cuts = not isinstance(settings.strategy, PrecisionSettings)
    said, origins = _said(graph, found, cuts), _origins(graph, other, found)
    partners = {name: one.tensor for name, one in found.partners.items() if not one.reshaped}
    return Inherited(recorded, _digest(sha256, found), origins, said, elder, partners)


def inherit_inside(
    settings: Settings, above: Inherited, owner: str, graph: Graph, store: Store, pool: Pool, folder: Path
) -> Inherited:
    """Return what a parent tells of a child in which a body stands in its owner's place: the same body stands so in it.

    ``above``: what it tells of the child as it was. ``owner``: the child's. Raises HoistError where that is not known.
    """
    elder = above.parent
    level = Level(elder.graph, elder.store, Recorded(elder.values), {})
    owners = [node.index for node in elder.graph.nodes if node.name == above.origins.get(owner)]
    inner = [body for body in ordered_bodies(level, owners) if in_place(level, body)]
    if not owners or (kind_of(elder.graph, owners[0]) is not None and not inner):
        raise HoistError(f"no good values are known inside {owner}: it has no partner in reference.model")
    other = Graph.of(hoist(elder.graph, inner[0], types=level.all_types).model) if inner else elder.graph
    samples = [{name: one[name] for name in graph.inputs if name in one} for one in above.recorded.values]
    folder.mkdir(parents=True)
    return inherit(settings, graph, store, samples, pool, folder, (other, elder.store))


def whole_samples(
    settings: Settings, graph: Graph, pool: Pool, samples: Sequence[Mapping[str, TensorFile]], folder: Path
) -> tuple[Sample, ...]:
    """Return samples for a model that stays whole, with what a parent of its own is fed in their place.

    Raises UsageError where the two have nothing to do with each other, unless the check runs code of the user's: that
    may need no reference.
    """
    given, parent = settings.model, settings.reference.model
    alone = tuple(Sample(sample) for sample in samples)
    if not samples or settings.target.model or not given or not parent or same_file(given, parent):
        return alone
    try:
        store = Store(folder / "store")
        ingest("reference.model", Path(parent).expanduser().absolute(), store, settings, pool)
        other = Graph.load(store.structure)
        types = declared(other)
        inputs = matched_inputs(declared(graph), types, read_map(map_of(settings.reference), graph, other))
        feeds = _fed(settings, types, inputs, samples, folder)
    except UsageError as error:
        if not settings.checker.runs_own_code:
            raise
        log.info("reference.model: %s", error)
        return alone
    finally:
        shutil.rmtree(folder / "store", ignore_errors=True)
    return tuple(replace(one, reference=fed) for one, fed in zip(alone, feeds, strict=True))


def same_file(one: str, other: str) -> bool:
    """Whether two paths, as the user wrote them, are those of one file."""
    return Path(one).expanduser().resolve() == Path(other).expanduser().resolve()


def _fed(
    settings: Settings,
    types: Mapping[str, Declared],
    inputs: Mapping[str, str],
    samples: Sequence[Mapping[str, TensorFile]],
    folder: Path,
) -> list[Mapping[str, TensorFile]]:
    """Return for each sample what the parent is fed. ``types``: of its inputs; ``inputs``: the child's by these."""
    dtypes = {name: one.dtype for name, one in types.items()}
    feeds: list[Mapping[str, TensorFile]] = []
    for number, sample in enumerate(samples):
        named = {name: sample[mine] for name, mine in inputs.items()}
        try:
            feeds.append(cast(named, dtypes, folder / f"feeds{number}"))
        except UnfitError as error:
            raise UsageError(
                f"reference.model={settings.reference.model}: its input {error}, so it cannot run on the model's "
                "inputs. Give such that both models can hold: inputs.ranges='{name: [least, largest]}' or inputs=files"
            ) from None
    return feeds


def _run(
    settings: Settings,
    graph: Graph,
    store: Store,
    pool: Pool,
    folder: Path,
    samples: Sequence[Mapping[str, TensorFile]],
) -> Recorded:
    """Run a graph of the child's, on the reference if it is at home in the same installation, else on the target.

    What the one cannot run is given to the other.
    """
    sides: list[BackendSettings] = [recording_backend(settings), settings.target]
    if not settings.target.holds_inner_values:
        sides.pop()
    elif settings.reference.python != settings.target.python:
        sides.reverse()
    first = recorder(settings, sides[0], graph, store, pool, folder / "first").record(samples)
    if not first.unrunnable or sides[0].to_json() == sides[-1].to_json():
        return first
    left = [node.index for node in graph.nodes if any(not set(node.outputs) <= one.keys() for one in first.values)]
    second = recorder(settings, sides[-1], graph, store, pool, folder / "second").record(first.values, left)
    return replace(second, seconds=first.seconds + second.seconds)


def _error(outputs: Sequence[str], child: Recorded, found: ParentValues, rules: Rules) -> float:
    """Return how wrong the worst output of a child is where all its tensors are shown, in tolerances."""
    differences = (
        compare(mine[name], good[name], rule)
        for mine, good in zip(child.values, found.values, strict=True)
        for name in outputs
        if name in found.partners and name in mine and name in good
        for rule in rules.of_output(name)
    )
    return max((math.inf if one.kind not in ("", "mismatch") else one.rank()[1] for one in differences), default=0.0)


def _digest(sha256: str, found: ParentValues) -> str:
    pairs = sorted((name, one.tensor) for name, one in found.partners.items())
    return hashlib.sha256(json.dumps([sha256, pairs]).encode()).hexdigest()


def _origins(graph: Graph, other: Graph, found: ParentValues) -> dict[str, str]:
    """Return the parent's node by the child's that makes the same."""
    makers = {
        node.name: other.producers.get(found.partners[name].tensor)
        for node in reversed(graph.nodes)
        for name in reversed(node.outputs)
        if name in found.partners
    }
    return {name: other.nodes[index].name for name, index in makers.items() if index is not None}


def changed_weights(above: Inherited, graph: Graph, store: Store, names: Collection[str]) -> tuple[str, ...]:
    """Return what a conversion made of the weights that these nodes read, a sentence each, as far as that is known."""
    mine, theirs = Weights(graph, store), Weights(above.parent.graph, above.parent.store)
    partners = {
        node.name: proto for node, proto in zip(above.parent.graph.nodes, above.parent.graph.protos, strict=True)
    }
    said = []
    for node, proto in zip(graph.nodes, graph.protos, strict=True):
        partner = partners.get(above.origins.get(node.name, "")) if node.name in names else None
        for own, good in zip(proto.input, partner.input if partner else (), strict=False):
            held = _numbers(mine, own), _numbers(theirs, good)
            if held[0] is not None and held[1] is not None:
                shape = list(held[0].shape)
                every = theirs.graph.initializers.items()
                others = (name for name, one in every if name != good and list(getattr(one, "dims", ())) == shape)
                like = ((name, _numbers(theirs, name)) for name in islice(others, _MOST_OTHERS))
                told = change_of(*held, {name: one for name, one in like if one is not None})
                said += [f"{own} is {told.said}, compared with {good} of the original"] if told else []
    return tuple(said)


def _numbers(weights: Weights, name: str) -> Any:
    """Return a weight of numbers that is not too large; None for any other."""
    tensor = weights.graph.initializers.get(name)
    dims = getattr(tensor, "dims", None)
    array = weights.array(name) if dims is not None and math.prod(dims) <= _MOST_ELEMENTS else None
    return array if array is not None and array.dtype.kind not in "OSUb" else None


def _said(graph: Graph, found: ParentValues, cuts: bool) -> tuple[str, ...]:
    """Say how the tensors were matched: in the log, and as a warning where it is not simply by name.

    ``cuts``: tensors inside are judged, or fed.
    """
    counts = found.counted()
    total = sum(counts.values())
    parts = [f"{count} by {how}" for how, count in counts.items() if count and how != "none"]
    known = total - counts["none"]
    how = f" ({', '.join(parts)})" if parts else ""
    text = f"reference.model: {known} of {total} tensors have a partner in it{how}"
    if found.alone:
        text += f"; not compared, for lack of one: {listed(found.alone)}"
    if found.wrong:
        log.info("fed the original's values, something else is computed by: %s", listed(found.wrong))
    said = []
    if cuts and (found.alone or counts["value"] or counts["position"]):
        said.append(text)
    else:
        log.info("%s", text)
    if cuts and (unfit := [name for name in found.unfit if name in graph.producers]):
        said.append(f"the nodes before and after {listed(unfit)} are judged together: {found.unfit[unfit[0]]}")
    if missing := [name for name in graph.outputs if name not in found.partners]:
        said.append(f"the outputs {listed(missing)} are not judged: reference.model has no partner for them")
    return tuple(said)
