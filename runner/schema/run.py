"""Settings of the smaller groups: artifacts, workers, budget, journal, sanitize, result, log."""

from enum import Enum

from runner.schema.settings import PathUse, setting, settings


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
