"""Which of the model's inputs and outputs a reduction keeps whatever is tried, as its settings say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from runner.errors import UsageError
from runner.schema.root import Settings
from runner.schema.strategy import Find, ReduceSettings, chosen
from strategies.search_space import Closure

KEPT: Mapping[str, Closure] = MappingProxyType(
    {"reduce_inputs": Closure.ANCESTORS, "reduce_outputs": Closure.DESCENDANTS}
)
"""What a setting keeps if it is false."""


def closure(settings: Settings) -> Closure:
    """Return what a trial keeps along with its nodes. Raises UsageError where nothing could be reduced."""
    inputs, outputs = (_may_go(settings, name) for name in KEPT)
    if inputs is False and outputs is False:
        raise UsageError(
            "strategy.reduce_inputs=false strategy.reduce_outputs=false: nothing is left to reduce; "
            "set one of them at most"
        )
    if chosen(settings.strategy, ReduceSettings).find is Find.all and False in (inputs, outputs):
        raise UsageError(
            "strategy.find=all leaves out the nodes of an answer wherever they are: neither inputs nor outputs can be "
            "kept: leave out strategy.reduce_inputs=false and strategy.reduce_outputs=false"
        )
    if inputs is False:
        return Closure.ANCESTORS
    return Closure.FREE if outputs is not False else Closure.DESCENDANTS


def fallbacks(settings: Settings) -> frozenset[Closure]:
    """Return what may be kept instead where the check cannot judge cuts: what the user left to `auto`."""
    if chosen(settings.strategy, ReduceSettings).find is Find.all:
        return frozenset()
    return frozenset(kept for name, kept in KEPT.items() if _may_go(settings, name) is None)


def _may_go(settings: Settings, name: str) -> bool | None:
    """Whether the model's inputs or outputs may be reduced; None: as it turns out."""
    value = getattr(settings.strategy, name)
    known = {"true": True, "false": False, "auto": None}
    said = str(value).lower()
    if said not in known:
        raise UsageError(f"strategy.{name}={value}: choose one of {', '.join(known)}")
    return known[said]
