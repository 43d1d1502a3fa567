"""The error of each layer's output against the reference: with everything low, and in the model handed over."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from runner.errors import WinnowError
from runner.jobs.precision.prepare_search import Material
from runner.jobs.precision.ranking import SENTINEL
from runner.jobs.precision.report.why_raised import unmeasured
from runner.loading.models import recorder, recording_backend
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile
from runner.schema.backend import BackendSettings

log = logging.getLogger(__name__)

Row = Mapping[str, Any]
Feeds = Sequence[Mapping[str, TensorFile]]


def layer_errors(material: Material, raised: frozenset[int], folder: Path) -> list[Row]:
    """Return a row for each layer, in the model's order, from one run of the target on each model.

    ``error_low`` and ``error_mixed``: the largest difference to the recorded tensor, relative to its largest value,
    over all samples; null: not finite, as ``not_finite`` lists it, or not known. Where the file itself is not as good
    as that, the model with everything raised tells what a tensor should be. ``introduced``: see `Measurements`;
    ``why``: why that is no number. ``range``: the largest magnitude of the tensor with everything in high precision;
    null: not measured, or not finite. The values of a ``nested`` layer, in a branch or a loop, are not recorded: both
    errors are null. Nothing is returned where the target is an engine: it has no inner tensors.
    """
    settings, casting, loaded = material.settings, material.casting, material.loaded
    samples = [one.feeds for one in material.subject.samples]
    if not settings.target.holds_inner_values or not samples:
        return []
    names = {index: layer.writes[0] for index, layer in enumerate(casting.layers) if layer.writes}
    recorded = {index: name for index, name in names.items() if not casting.layers[index].nested}
    wanted = set(recorded.values())

    def values_of(elements: frozenset[int], name: str, backend: BackendSettings, feeds: Feeds) -> Feeds:
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        mixer = replace(casting.mixer, keep_io=True) if name == "good" else casting.mixer
        path = place / "structure.onnx"
        path.write_bytes(mixer.mixed(elements).SerializeToString())
        graph, out = Graph.load(path), place / "values"
        return recorder(settings, backend, graph, loaded.store, material.pool, out).record(feeds).values

    try:
        good: Feeds = material.division.searched
        if casting.is_lossy and wanted:
            everything = frozenset(range(len(casting.layers)))
            inputs = [{name: one[name] for name in loaded.graph.inputs if name in one} for one in good]
            good = values_of(everything, "good", recording_backend(settings), inputs)
        low, mixed = (
            _errors(values_of(elements, name, settings.target, samples), good, wanted) if wanted else {}
            for elements, name in ((frozenset[int](), "low"), (raised, "mixed"))
        )
    except (WinnowError, OSError) as error:
        log.warning("the error of each layer is not known: %s", error)
        return []
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [
        {
            "node": casting.layers[index].path,
            "op": casting.layers[index].op_type,
            "raised": index in raised,
            "nested": index not in recorded,
            "introduced": _plain(material.known.errors.get(index)),
            "why": unmeasured(material, index) or None,
            "range": _plain(material.known.measured_range(casting.layers[index], name)),
            "error_low": _plain(low.get(known)),
            "error_mixed": _plain(mixed.get(known)),
            "not_finite": [key for key, table in (("low", low), ("mixed", mixed)) if math.isinf(table.get(known, 0.0))],
        }
        for index, name in names.items()
        for known in (recorded.get(index, ""),)
    ]


def _errors(found: Feeds, good: Feeds, wanted: set[str]) -> dict[str, float]:
    errors: dict[str, float] = {}
    for mine, best in zip(found, good, strict=False):
        for name in wanted & mine.keys() & best.keys():
            if (distance := _distance(mine[name], best[name])) is not None:
                errors[name] = max(errors.get(name, 0.0), distance)
    return errors


def _distance(mine: TensorFile, good: TensorFile) -> float | None:
    """Return the largest difference relative to the largest good value; infinity where something is not finite.

    None: there is nothing to be compared (no elements, other shapes, or no tensors).
    """
    if mine.structure is not None or good.structure is not None or mine.shape != good.shape:
        return None
    first, second = (values.read(one).astype(np.float32) for one in (mine, good))
    if not first.size:
        return None
    with np.errstate(all="ignore"):
        # equal values, and masks that stand for minus infinity, have no error
        same = (first == second) | (np.abs(second) >= np.float32(SENTINEL))
        error = np.max(np.where(same, 0, np.abs(first - second)))
        scale = np.max(np.where(np.isfinite(second) & (np.abs(second) < np.float32(SENTINEL)), np.abs(second), 0))
    return float(error / scale) if scale and math.isfinite(error) else (0.0 if error == 0 else math.inf)


def _plain(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
