"""The section ``precision`` of result.json: which layers are high and why, what is low, and what that costs."""

from __future__ import annotations

from typing import Any

from runner.jobs.precision.both_precisions import Casting
from runner.jobs.precision.prepare_search import Material
from runner.jobs.precision.ranking import Measurements
from runner.jobs.precision.report.low_share import low_share, nodes_of
from runner.jobs.precision.report.why_raised import reason
from runner.jobs.precision.search_units import blocks


def precision_section(material: Material, raised: frozenset[int]) -> dict[str, Any]:
    """Return what ``precision`` in result.json holds. ``raised``: all layers that are high, kept so or found."""
    strategy, casting, kept = material.strategy, material.casting, material.kept
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
                "reason": kept.high.get(index) or reason(material, index),
            }
            for index in sorted(raised)
        ],
        "groups": _groups(casting, material.known, raised),
        "low_share": low_share(casting, material.loaded, raised),
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
    """Return the blocks of several nodes of which something is raised.

    ``worst``: the raised node that introduces most error.
    """
    found = []
    for scope, members in blocks(casting.mixer.model, casting.mixer.types, casting.layers).items():
        high = [index for index in members if index in raised]
        if high and len(members) > 1:
            worst = max(high, key=lambda index: known.errors.get(index, 0.0))
            found.append(
                {
                    "scope": scope,
                    "nodes": [casting.layers[index].path for index in members],
                    "raised": [casting.layers[index].path for index in high],
                    "whole": len(high) == len(members),
                    "worst": casting.layers[worst].path,
                }
            )
    return found
