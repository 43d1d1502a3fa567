"""The section ``precision`` of result.json: which layers are high and why, what is low, and what that costs."""

from __future__ import annotations

import math
from typing import Any

from runner.errors import UsageError
from runner.jobs.precision.blocks.written_out_operators import groups
from runner.jobs.precision.both_precisions import Casting
from runner.jobs.precision.fixed_layers import Fixed
from runner.jobs.precision.ranking import Measurements
from runner.jobs.precision.report.low_share import arithmetic, low_share, nodes_of
from runner.jobs.precision.report.why_raised import reason
from runner.loading.load import Loaded
from runner.schema.strategy import PrecisionSettings


def gain(
    strategy: PrecisionSettings,
    casting: Casting,
    known: Measurements,
    loaded: Loaded,
    raised: frozenset[int],
    kept: Fixed,
) -> dict[str, Any]:
    """Return what ``precision`` in result.json holds. ``raised``: all layers that are high, ``kept`` so or found."""
    layers, every = casting.layers, nodes_of(casting)
    names = [one.path for one in every if one.is_high(raised)]
    return {
        "high": strategy.high.value,
        "low": strategy.low.value,
        "selected": [
            {
                "node": layers[index].path,
                "op": layers[index].op_type,
                "nested": layers[index].nested,
                "reason": kept.high.get(index) or reason(casting, known, loaded, index, strategy.low.value),
            }
            for index in sorted(raised)
        ],
        "groups": _groups(casting, known, raised),
        "low_share": low_share(casting, loaded, raised),
        "stays_high": [
            {"node": one.path, "op": one.op, "why": one.why} for one in every if one.index is None and one.high
        ],
        "nodes_to_exclude": names,
        "inlined": {
            layers[index].path: casting.inlined[name]
            for index in sorted(raised)
            for name in layers[index].writes[:1]
            if name in casting.inlined
        },
        "layer_precisions": {
            name: {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[strategy.high.value] for name in names
        },
        "clamped": dict(casting.clamped),
        "flushed": dict(casting.flushed),
    }


def _groups(casting: Casting, known: Measurements, raised: frozenset[int]) -> list[dict[str, Any]]:
    """Return the norms, softmaxes and the like that are written out and of which something is raised.

    ``worst``: the raised node that introduces most error.
    """
    mixer, found = casting.mixer, []
    for group in groups(mixer.model, mixer.types, casting.layers, casting.pair):
        high = [index for index in group.members if index in raised]
        if high:
            paths = {index: casting.layers[index].path for index in group.members}
            worst = max(high, key=lambda index: known.errors.get(index, 0.0))
            found.append(
                {
                    "kind": group.kind,
                    "nodes": list(paths.values()),
                    "raised": [paths[index] for index in high],
                    "whole": group.is_whole(raised),
                    "worst": paths[worst],
                }
            )
    return found


def table(strategy: PrecisionSettings, casting: Casting, loaded: Loaded) -> dict[int, float]:
    """Return what each layer costs in high precision: the user's table, else its arithmetic.

    Raises UsageError for names that are none, and for costs that are no costs.
    """
    if not strategy.costs:
        return arithmetic(casting, loaded)
    known = {layer.path for layer in casting.layers}
    if strangers := [name for name in strategy.costs if name not in known]:
        shown = ", ".join(sorted(known)[:3])
        raise UsageError(
            f"strategy.costs: no node that can run in both precisions is called {strangers[0]!r}; they are {shown}"
            f"{' and others' * (len(known) > 3)}"
        )
    for name, cost in strategy.costs.items():
        if not 0 <= cost < math.inf:
            raise UsageError(f"strategy.costs.{name}={cost}: a cost is a number that is not negative")
    return {index: float(strategy.costs.get(layer.path, 0.0)) for index, layer in enumerate(casting.layers)}
