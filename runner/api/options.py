"""What every question of a program takes besides the model and the check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, TypeAlias, TypedDict

from runner.api.given import Inputs
from runner.jobs.listener import CheckEvent
from runner.schema.backend import BackendSettings
from runner.schema.checker import CheckerSettings
from runner.schema.cut import CutSettings
from runner.schema.run import (
    ArtifactSettings,
    BudgetSettings,
    JournalSettings,
    ResultSettings,
    SanitizeSettings,
    WorkerSettings,
)
from runner.schema.strategy import StrategySettings

Keys: TypeAlias = Mapping[str, Any]
"""Keys of a section as in a YAML file; of a group also ``name``, the option."""


class Options(TypedDict, total=False):
    """The keys of `conf/`, with the same defaults, and two that only a program has.

    A group (strategy, checker, target, reference, artifacts, workers) is the name of an option, a dict of its keys
    (``name``: the option) or settings; a section is a dict of its keys or settings. ``inputs``: files, arrays by name,
    a list of such samples, a function, or settings. ``folder``: where the run writes, ``outputs/DATE/TIME`` if not
    given. ``resume``: the folder of a run to go on with. ``progress``: is called with a `CheckEvent` each time.
    """

    inputs: Inputs
    strategy: str | Keys | StrategySettings
    checker: str | Keys | CheckerSettings
    target: str | Keys | BackendSettings
    reference: str | Keys | BackendSettings
    cut: Keys | CutSettings
    artifacts: str | Keys | ArtifactSettings
    workers: str | Keys | WorkerSettings
    budget: Keys | BudgetSettings
    journal: Keys | JournalSettings
    sanitize: Keys | SanitizeSettings
    result: Keys | ResultSettings
    plan: bool
    resume: str | PathLike[str]
    folder: str | PathLike[str]
    progress: Callable[[CheckEvent], Any]
