"""The whole configuration of a run."""

from dataclasses import field
from typing import Any

from omegaconf import MISSING

from runner.schema.backend import BackendSettings
from runner.schema.checker import CheckerSettings
from runner.schema.cut import CutSettings
from runner.schema.inputs import InputsSettings
from runner.schema.run import (
    ArtifactSettings,
    BudgetSettings,
    JournalSettings,
    LogSettings,
    ResultSettings,
    SanitizeSettings,
    WorkerSettings,
)
from runner.schema.settings import PathUse, setting, settings
from runner.schema.strategy import StrategySettings

GONE = {
    "audit": "as it tested Winnow's own cuts, which Winnow's tests do",
    "in_process": "as a check runs in a worker; to debug it, call it on what was found: "
    "check(str(found.model_path), found.inputs, found.expected)",
}
"""Why a key is no more."""


@settings
class Settings:
    """What `conf/config.yaml` composes."""

    model: str | None = setting(None, path=PathUse.READ | PathUse.MODEL)
    strategy: StrategySettings = MISSING
    checker: CheckerSettings = MISSING
    target: BackendSettings = MISSING
    reference: BackendSettings = MISSING
    inputs: InputsSettings = MISSING
    cut: CutSettings = field(default_factory=CutSettings)
    artifacts: ArtifactSettings = field(default_factory=ArtifactSettings)
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    sanitize: SanitizeSettings = field(default_factory=SanitizeSettings)
    result: ResultSettings = field(default_factory=ResultSettings)
    log: LogSettings = field(default_factory=LogSettings)
    verbosity: Any = "info"
    plan: bool = False
    cwd: str | None = setting(None, path=PathUse.FOLDER)
    resume: str | None = setting(None, path=PathUse.FOLDER)
    recorded: dict[str, Any] = field(default_factory=dict)
