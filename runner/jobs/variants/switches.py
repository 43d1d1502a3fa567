"""Variants of the target: switches that are on or off, and the model under one after another.

Switches: what a runtime does unless it is told not to, and how its settings say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, TensorRtBackend
from runner.verdict import Candidate, Sample, Variant
from strategies.search import Space, Trial


class Change(Enum):
    """What becomes of a setting where a switch is off."""

    add = "add"
    drop = "drop"
    put = "put"


@dataclass(frozen=True)
class Switch:
    """One thing that can be switched off.

    ``key``: the setting of the target, "" for a switch of the user's command. ``entry``: what is added to its list,
    dropped from it, or the key under which ``off`` is put.
    """

    name: str
    key: str = ""
    change: Change = Change.put
    entry: str = ""
    off: Any = None

    def __str__(self) -> str:
        return self.name


#: what a session does besides its optimizers: name, setting, its key, what turns it off
_OF_A_SESSION = (
    ("memory pattern", "session_options", "enable_mem_pattern", "False"),
    ("memory reuse", "session_options", "enable_mem_reuse", "False"),
    ("CPU memory arena", "session_options", "enable_cpu_mem_arena", "False"),
    ("prepacked weights", "config_entries", "session.disable_prepacking", "1"),
    ("QDQ fusions", "config_entries", "session.disable_quant_qdq", "1"),
    ("double QDQ removal", "config_entries", "session.disable_double_qdq_remover", "1"),
    ("function inlining ahead of time", "config_entries", "session.disable_aot_function_inlining", "1"),
)


def session_switches(target: OnnxRuntimeBackend, optimizers: Iterable[str]) -> tuple[Switch, ...]:
    """Return the optimizers of an ONNX Runtime and what else its session does, but for what the user has set."""
    given = {*target.session_options, *target.config_entries, *target.disabled_optimizers}
    named = [Switch(name, "disabled_optimizers", Change.add, name) for name in optimizers if name not in given]
    more = [Switch(name, key, Change.put, entry, off) for name, key, entry, off in _OF_A_SESSION if entry not in given]
    return (*named, *more)


def builder_switches(target: TensorRtBackend) -> tuple[Switch, ...]:
    """Return what the user lets a builder do: flags, tactic sources, preview features, the level of optimization."""
    flags = [Switch(f"flag {name}", "flags", Change.drop, name) for name in target.flags]
    sources = [Switch(f"source {name}", "tactic_sources", Change.drop, name) for name in target.tactic_sources or ()]
    features = [
        Switch(f"preview feature {name}", "preview_features", Change.put, name, False)
        for name, on in target.preview_features.items()
        if on
    ]
    level = "builder_optimization_level"
    return (*flags, *sources, *features, Switch(level, "config", Change.put, level, 0))


def changes(settings: BackendSettings, off: Iterable[Switch]) -> dict[str, Any]:
    """Return the settings that are otherwise where these switches are off."""
    changed: dict[str, Any] = {}
    for switch in off:
        if not switch.key:
            continue
        now = changed.get(switch.key, getattr(settings, switch.key))
        if switch.change is Change.add:
            changed[switch.key] = [*now, switch.entry]
        elif switch.change is Change.drop:
            changed[switch.key] = [one for one in now if one != switch.entry]
        else:
            changed[switch.key] = {**now, switch.entry: switch.off}
    return changed


def overrides(changed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return changed settings as a user types them."""
    return tuple(f"target.{key}={_shown(value)}" for key, value in changed.items())


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {one}" for key, one in value.items()) + "}"
    return f"[{', '.join(map(str, value))}]"


# The model as it is under one variant of its target after another: the subject of `strategy=passes` and `versions`.

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class WholeModel(Generic[Choice]):
    """A trial is some of the ``choices``; the text of each is its name. ``model``: the user's file."""

    model: Path | None
    choices: tuple[Choice, ...]
    samples: tuple[Sample, ...]

    @cached_property
    def space(self) -> Space:
        """The choices in their order, without structure."""
        return Space(tuple(range(len(self.choices))))

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the choices by name."""
        return tuple(str(self.choices[number]) for number in trial)

    def under(self, variant: Variant, trial: Trial, folder: Path) -> Candidate:
        """Return the model as a variant of the target runs it."""
        return Candidate(self.model, folder, trial, self.samples, variant=variant)
