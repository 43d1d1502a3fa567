"""The whole configuration of a run, and settings of its smaller groups."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any

from omegaconf import MISSING

from runner.schema.backend import BackendSettings
from runner.schema.checker import CheckerSettings
from runner.schema.inputs import InputsSettings
from runner.schema.settings import PathUse, setting, settings
from runner.schema.strategy import StrategySettings

# Settings of the smaller groups: artifacts, workers, budget, journal, sanitize, result, log.


class Keep(str, Enum):
    """Which candidates are kept, sorted into good/, bad/, different/ and unresolved/."""

    all = "all"
    bad = "bad"
    best = "best"
    none = "none"


@settings
class ArtifactSettings:
    """What is kept of each iteration."""

    keep: Keep = Keep.best
    paths: list[str] = setting([], path=PathUse.PATTERN)
    folder: str | None = setting(None, path=PathUse.FOLDER)
    materialize: bool = False
    disk_budget_mb: int = setting(4096, least=0)


class LeaseMode(str, Enum):
    """Which processes get a GPU of their own."""

    auto = "auto"
    gpu = "gpu"
    none = "none"


@settings
class WorkerSettings:
    """How many checks run at once, in what limits, and on which GPUs."""

    count: int = setting(1, least=1, most=1024)
    memory_mb: int | None = setting(None, least=1)
    timeout: float = setting(600.0, least=0.001)
    gpus: list[str] | None = None
    lease: LeaseMode = LeaseMode.auto
    lease_folder: str | None = setting(None, path=PathUse.FOLDER)
    cpu_slots: int | None = setting(None, least=1, most=4096)


@settings
class BudgetSettings:
    """When to stop early; the best answer so far is verified and handed over."""

    checks: int | None = setting(None, least=0)
    seconds: float | None = setting(None, least=0)


@settings
class JournalSettings:
    """Which verdicts may be reused."""

    reuse: list[str] = setting([], path=PathUse.FOLDER)
    share: bool = True


@settings
class SanitizeSettings:
    """What is done to the model before anything else."""

    fold: bool = False
    fold_limit_mb: float | None = setting(16.0, least=0)
    shapes: bool = False
    cleanup: bool = False


@settings
class ResultSettings:
    """Where the answer goes besides the run folder, and how large weights are saved."""

    path: str | None = setting(None, path=PathUse.WRITE | PathUse.MODEL)
    min_good: str | None = setting(None, path=PathUse.WRITE | PathUse.MODEL)
    find_min_good: bool = True
    external_data: str | None = None
    external_data_threshold: int = setting(1024, least=0)
    external_data_one_file: bool = True


@settings
class LogSettings:
    """How the log looks."""

    format: list[str] = setting([])
    file: str | None = setting(None, path=PathUse.WRITE)


# Settings of the `cut` section: how the nodes that are kept become a model of their own.


class CutPolicy(str, Enum):
    """How a value from outside the kept nodes enters a candidate."""

    auto = "auto"
    input = "input"
    constant = "constant"
    seeded = "seeded"


class OutputPolicy(str, Enum):
    """Which values of the kept nodes become outputs."""

    frontier = "frontier"
    sinks = "sinks"


class ShapeInference(str, Enum):
    """Where shapes come from that were not recorded."""

    onnx = "onnx"
    symbolic = "symbolic"
    off = "off"


class RecordMode(str, Enum):
    """When the values of cut tensors are recorded."""

    auto = "auto"
    all = "all"
    lazy = "lazy"
    off = "off"


@settings
class CutSettings:
    """Where the values and shapes of cut tensors come from."""

    policy: CutPolicy = CutPolicy.auto
    outputs: OutputPolicy = OutputPolicy.frontier
    record: RecordMode = RecordMode.auto
    memory: str | None = setting(None, in_context=False)
    disk: str | None = setting(None, in_context=False)
    shapes: ShapeInference = ShapeInference.onnx

    @property
    def records(self) -> bool:
        """Whether values are recorded; which of them are kept makes no difference to a verdict."""
        return self.record is not RecordMode.off


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
