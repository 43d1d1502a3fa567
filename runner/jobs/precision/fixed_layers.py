"""Layers that a precision search leaves alone: those that stay high, those that stay low, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase

from runner.jobs.precision.layers import Layer
from runner.jobs.precision.ranking import SENTINEL, Measurements
from runner.jobs.precision.setup import PrecisionModel
from runner.judgment import UsageError
from runner.schema.strategy import PrecisionSettings, Untaken

_RULE = re.compile(r"\s*(range|error)\s*(>=?)\s*([-+.\deE]+)\s*")


@dataclass(frozen=True)
class Fixed:
    """``high``: why a layer stays high, by its index. ``low``: those that stay low.

    ``untaken``: layers in branches that no sample took, whatever becomes of them.
    """

    high: Mapping[int, str] = field(default_factory=dict)
    low: frozenset[int] = frozenset()
    untaken: tuple[int, ...] = ()

    @property
    def raised(self) -> frozenset[int]:
        """The layers that are high in every trial."""
        return frozenset(self.high)

    def is_searched(self, index: int) -> bool:
        """Whether a layer may be raised or not."""
        return index not in self.high and index not in self.low


def fixed_layers(strategy: PrecisionSettings, casting: PrecisionModel, known: Measurements) -> Fixed:
    """Return what the settings and the measurements say. Raises UsageError for patterns and rules that are none."""
    layers = casting.layers
    kept = _matching("exclude", strategy.exclude, layers)
    low = frozenset(_matching("include", strategy.include, layers))
    if both := sorted(low & kept.keys()):
        raise UsageError(
            f"strategy.exclude and strategy.include both name {layers[both[0]].path}: the first keeps a node in "
            f"{strategy.high.value}, the second in {strategy.low.value}"
        )
    high = dict(kept)
    for index, why in _measured(strategy.at_least, layers, known):
        if index not in low:
            high.setdefault(index, why)
    untaken = tuple(sorted(known.untaken))
    if strategy.untaken is Untaken.high:
        for index in untaken:
            if index not in low:
                high.setdefault(index, "in a branch or loop that no sample took")
    return Fixed(high, low, untaken)


def _matching(key: str, patterns: Sequence[str], layers: Sequence[Layer]) -> dict[int, str]:
    """Return the layers whose name or operator a pattern matches, with that pattern."""
    found: dict[int, str] = {}
    for pattern in patterns:
        matched = [
            index
            for index, layer in enumerate(layers)
            if layer.path == pattern or fnmatchcase(layer.path, pattern) or fnmatchcase(layer.op_type, pattern)
        ]
        if not matched:
            names = sorted({layer.path for layer in layers} | {layer.op_type for layer in layers})
            close = get_close_matches(pattern, names, 1)
            raise UsageError(
                f"strategy.{key}: no node that can run in both precisions has {pattern!r} as its name or operator"
                + (f"; did you mean {close[0]!r}?" if close else "")
                + " (* and ? stand for anything, as in a shell)"
            )
        for index in matched:
            found.setdefault(index, f"strategy.{key}={pattern}")
    return found


def _measured(rules: Sequence[str], layers: Sequence[Layer], known: Measurements) -> Iterator[tuple[int, str]]:
    for rule in rules:
        match = _RULE.fullmatch(rule)
        try:
            limit = float(match[3]) if match else None
        except ValueError:
            limit = None
        if match is None or limit is None:
            raise UsageError(
                f"strategy.at_least: {rule!r} is no rule; give what was measured and a number, 'range > 512' (the "
                "largest magnitude that a node reads or makes) or 'error > 0.01' (what it introduces, relative)"
            )
        if not known.errors and not known.ranges:
            raise UsageError(
                f"strategy.at_least={rule}: nothing was measured of this model (see the warnings), so no node can be "
                "kept high by it; name nodes or operators instead: strategy.exclude=[Softmax]"
            )
        for index, layer in enumerate(layers):
            if match[1] == "error":
                value = known.errors.get(index, 0.0)
            else:
                ranges = (known.range_of(layer, name) for name in (*layer.reads, *layer.writes))
                # values that stand for minus infinity do not count as magnitudes
                value = max((one for one in ranges if one < SENTINEL), default=0.0)
            if value > limit or (match[2] == ">=" and value == limit):
                yield index, f"strategy.at_least: {match[1]} {value:.3g} {match[2]} {limit:g}"
