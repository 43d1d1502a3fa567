"""Units: what a precision search raises at once, and which layers that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from runner.jobs.precision.blocks.find_blocks import blocks
from runner.jobs.precision.both_precisions import Casting
from runner.jobs.precision.cast.layers import Layer
from runner.jobs.precision.fixed_layers import Fixed
from runner.schema.strategy import Unit
from strategies.precision import Prior


@dataclass(frozen=True)
class Units:
    """``members``: the layers of each unit. ``searched``: the units that may be raised or not, in the model's order."""

    members: tuple[tuple[int, ...], ...]
    searched: tuple[int, ...]

    @cached_property
    def _unit_of(self) -> dict[int, int]:
        return {layer: unit for unit in self.searched for layer in self.members[unit]}

    def of(self, layers: Iterable[int]) -> tuple[int, ...]:
        """Return the searched units of layers, each once, in the order of their first layer."""
        return tuple(dict.fromkeys(self._unit_of[layer] for layer in layers if layer in self._unit_of))

    def parents(self, of_layers: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        """Return the units that each unit reads from, given the same of layers."""
        return tuple(
            tuple(sorted({*self.of(parent for layer in layers for parent in of_layers[layer])} - {unit}))
            for unit, layers in enumerate(self.members)
        )

    def prior(self, of_layers: Prior, costs: dict[int, float] | None = None) -> Prior:
        """Return what is known beforehand of layers for their units; ``costs``: of layers, cheap units come first."""
        price = self.costs(costs or {})
        return Prior(self.of(of_layers.suspects), tuple(sorted(self.of(of_layers.ranking), key=price.__getitem__)))

    def kinds(self, layers: tuple[Layer, ...], parents: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        """Return the searched units that play the same part: like operators between like ones, in each block."""
        above: list[list[str]] = [[] for _ in layers]
        below: list[list[str]] = [[] for _ in layers]
        for index, makers in enumerate(parents):
            for maker in makers:
                above[index].append(layers[maker].op_type)
                below[maker].append(layers[index].op_type)
        found: dict[object, list[int]] = {}
        for unit in self.searched:
            part = [
                (layers[at].op_type, tuple(sorted(above[at])), tuple(sorted(below[at]))) for at in self.members[unit]
            ]
            found.setdefault(tuple(part), []).append(unit)
        return tuple(tuple(units) for units in found.values())

    def costs(self, of_layers: dict[int, float]) -> dict[int, float]:
        """Return what each unit costs, given the same of layers."""
        return {unit: sum(of_layers.get(layer, 0.0) for layer in self.members[unit]) for unit in self.searched}


def units(unit: Unit, casting: Casting, fixed: Fixed) -> Units:
    """Return each layer as a unit, or the blocks; a layer that is not searched is part of none."""
    layers, mixer = casting.layers, casting.mixer
    if unit is Unit.node:
        alone = [(index,) for index in range(len(layers))]
        return Units(tuple(alone), tuple(index for index in range(len(layers)) if fixed.is_searched(index)))
    whole = blocks(mixer.model, mixer.types, layers, casting.pair)
    searched = (tuple(index for index in block if fixed.is_searched(index)) for block in whole)
    members = tuple(sorted(block for block in searched if block))
    return Units(members, tuple(range(len(members))))
