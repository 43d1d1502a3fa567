"""Which code runs a job: one implementation for each thing a run can be, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runner.report.summary import Summary
from runner.schema.root import Settings
from runner.schema.strategy import SubjectKind

Implementation = Callable[[Settings, Path, Sequence[str]], Summary]
"""Runs a job: its settings, its folder, and what the user typed."""

IMPLEMENTATIONS: Mapping[SubjectKind, str] = MappingProxyType(
    {
        SubjectKind.subgraph: "runner.jobs.reduce.run:run",
        SubjectKind.command: "runner.jobs.repeat.run:run",
        SubjectKind.precision: "runner.jobs.precision.run:run",
        SubjectKind.engine: "runner.jobs.tactics.repeat:run",
        SubjectKind.tactics: "runner.jobs.tactics.repeat:run",
        SubjectKind.recorded: "runner.jobs.tactics.compare:compare",
    }
)


def implementation(settings: Settings) -> Implementation:
    """Return what runs the job that the settings ask for."""
    module, _, attribute = IMPLEMENTATIONS[settings.strategy.subject].partition(":")
    found: Any = getattr(import_module(module), attribute)
    return found  # type: ignore[no-any-return]
