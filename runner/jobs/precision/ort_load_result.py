"""The result of loading a mixed model in a plain ONNX Runtime, and its warnings and fields in result.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.jobs.precision.both_precisions import Casting

Levels = Mapping[str, str]
"""Level of optimization -> why the model is refused there, empty where it loads."""

UNOPTIMIZED = "disable"
_REASON = "raised so that ONNX Runtime loads the model"
_LONGEST = 300


@dataclass(frozen=True)
class Loads:
    """How a mixed model loads. ``levels``: empty where it could not be tried (``untried``: why).

    ``raised``: the layers that are high in it; ``added``: those of them that are for the sake of loading. ``own``: how
    the user's model loads where the mixed one is refused. ``disabled``: the optimizers without which it loads.
    """

    raised: frozenset[int]
    levels: Levels
    added: tuple[int, ...] = ()
    own: Levels = field(default_factory=dict)
    disabled: tuple[str, ...] = ()
    untried: str = ""

    @property
    def refused(self) -> Levels:
        """The levels at which it is refused, with the messages."""
        return {level: why for level, why in self.levels.items() if why}

    @property
    def warning(self) -> str:
        """Say at which levels the model is refused; empty where there is nothing to say."""
        if self.untried:
            return f"whether ONNX Runtime loads mixed.onnx was not tried: {self.untried[:_LONGEST]}"
        if not self.refused:
            return ""
        at, why = ", ".join(self.refused), next(iter(self.refused.values()))[:_LONGEST]
        if len(self.refused) == len(self.levels) and all("NOT_IMPLEMENTED" in told for told in self.refused.values()):
            return f"ONNX Runtime's CPU provider lacks an operator in this precision; mixed.onnx is for a GPU: {why}"
        said = f"plain ONNX Runtime refuses mixed.onnx at graph optimization level {at}: {why}"
        if self.levels.get(UNOPTIMIZED) and not self.own.get(UNOPTIMIZED):
            said += "; without any optimization too: it is no matter of where casts are"
        if all(self.own.get(level) for level in self.refused):
            said += "; it refuses the model that was given there too"
        if self.disabled:
            return f"{said}; it loads with InferenceSession(..., disabled_optimizers={list(self.disabled)})"
        return said

    def with_loads(self, precision: Mapping[str, Any], casting: Casting) -> dict[str, Any]:
        """Return what ``precision`` in result.json holds, with this in it."""
        added = {casting.layers[index].path for index in self.added}
        selected = [
            {**one, "reason": _REASON} if one["node"] in added else one for one in precision.get("selected", ())
        ]
        loads = {
            "levels": {level: why[:_LONGEST] or "ok" for level, why in self.levels.items()},
            "original": {level: why[:_LONGEST] or "ok" for level, why in self.own.items()},
            "raised": [casting.layers[index].path for index in self.added],
            "disabled_optimizers": list(self.disabled),
        }
        return {**precision, "selected": selected, "loads": loads}

    @property
    def blamed(self) -> list[str]:
        """The levels whose optimizations are to blame: without them the model loads."""
        return [] if self.levels.get(UNOPTIMIZED) else list(self.refused)
