"""Which code runs a job: the implementation that the strategy's settings name, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from runner.report.summary import Summary
from runner.schema.installed_choices import imported
from runner.schema.root import Settings

Implementation = Callable[[Settings, Path, Sequence[str]], Summary]
"""Runs a job: its settings, its folder, and what the user typed."""


def implementation(settings: Settings) -> Implementation:
    """Return what runs the job that the settings ask for. Raises UsageError where it cannot be imported."""
    strategy = settings.strategy
    found: Implementation = imported(f"strategy={strategy.name}", strategy.implementation)
    return found
