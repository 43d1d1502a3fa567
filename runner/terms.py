"""The terms of a reduction, as its settings put them: what is kept whatever is tried, and what is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runner.errors import UsageError
from runner.schema.root import Settings
from runner.schema.strategy import Find
from strategies.space import Closure


def closure(settings: Settings) -> Closure:
    """Return what a trial keeps along with its nodes. Raises UsageError where nothing could be reduced."""
    strategy = settings.strategy
    if not strategy.reduce_inputs and not strategy.reduce_outputs:
        raise UsageError(
            "strategy.reduce_inputs=false strategy.reduce_outputs=false: nothing is left to reduce; "
            "set one of them at most"
        )
    if strategy.find is Find.all and not (strategy.reduce_inputs and strategy.reduce_outputs):
        raise UsageError(
            "strategy.find=all leaves out the nodes of an answer wherever they are: neither inputs nor outputs can be "
            "kept: leave out strategy.reduce_inputs=false and strategy.reduce_outputs=false"
        )
    if not strategy.reduce_inputs:
        return Closure.ANCESTORS
    return Closure.FREE if strategy.reduce_outputs else Closure.DESCENDANTS


def used(settings: Settings, at: Callable[[str], Path]) -> list[Path]:
    """Return the files and folders that a run reads, which may be an earlier one's results.

    ``at`` gives a path of the configuration, from where the user stands.
    """
    inputs = getattr(settings.inputs, "path", None)
    named = (settings.model, settings.reference.model, *(inputs if isinstance(inputs, list) else [inputs]))
    return [at(path) for path in named if path]
