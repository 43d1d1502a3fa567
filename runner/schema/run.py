"""Settings of the smaller groups: artifacts, workers, budget, journal, sanitize, result, log."""

from __future__ import annotations

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
    # files, folders or globs that a check leaves behind; moved to good/, bad/ ... after each iteration
    paths: list[str] = setting([], path=PathUse.PATTERN)
    # null: artifacts/ in the run folder
    folder: str | None = setting(None, path=PathUse.FOLDER)
    # write sorted candidates with weights of their own, even large ones
    materialize: bool = False
    # MiB that all sorted artifacts may use together
    disk_budget_mb: int = setting(4096, least=0)


class LeaseMode(str, Enum):
    """Which processes get a GPU of their own."""

    # those of Winnow that use one
    auto = "auto"
    # the user's commands and functions, too
    gpu = "gpu"
    # none; other jobs must not use the GPUs meanwhile
    none = "none"


@settings
class WorkerSettings:
    """How many checks run at once, in what limits, and on which GPUs."""

    count: int = setting(1, least=1, most=1024)
    # resident MiB for a worker that records, infers shapes or reads a model; null: most of what there is
    memory_mb: int | None = setting(None, least=1)
    # seconds for the same
    timeout: float = setting(600.0, least=0.001)
    # GPUs that may be used: nvidia-smi's numbers or UUIDs; null: all that CUDA_VISIBLE_DEVICES allows
    gpus: list[str] | None = None
    # which processes get a GPU of their own
    lease: LeaseMode = LeaseMode.auto
    # folder of the lock files; null: one that all users of the machine share
    lease_folder: str | None = setting(None, path=PathUse.FOLDER)
    # builds that may run on the CPU at once, all jobs together; null: as many as there are CPUs
    cpu_slots: int | None = setting(None, least=1, most=4096)


@settings
class BudgetSettings:
    """When to stop early; the best answer so far is verified and handed over."""

    checks: int | None = setting(None, least=0)
    seconds: float | None = setting(None, least=0)


@settings
class JournalSettings:
    """Which verdicts may be reused."""

    # run folders (or journal files) whose verdicts of the same context are reused
    reuse: list[str] = setting([], path=PathUse.FOLDER)
    # jobs of one sweep share their verdicts at once
    share: bool = True


@settings
class SanitizeSettings:
    """What is done to the model before anything else."""

    # compute what does not depend on the inputs, once
    fold: bool = False
    # MiB beyond which such a value stays computed; null: no limit
    fold_limit_mb: float | None = setting(16.0, least=0)
    # write inputs.shapes into the model's inputs
    shapes: bool = False
    # remove nodes that no output depends on, and tensors that nothing reads
    cleanup: bool = False


@settings
class ResultSettings:
    """Where the answer goes besides the run folder, and how large weights are saved."""

    path: str | None = setting(None, path=PathUse.WRITE | PathUse.MODEL)
    min_good: str | None = setting(None, path=PathUse.WRITE | PathUse.MODEL)
    # look for the largest passing candidate below the answer (it costs one more check)
    find_min_good: bool = True
    # weights in a file of their own beside the saved model; null: only where the model needs it (> 2 GiB)
    external_data: str | None = None
    # bytes from which a tensor goes there
    external_data_threshold: int = setting(1024, least=0)
    # false: one file for each tensor
    external_data_one_file: bool = True


@settings
class LogSettings:
    """How the log looks."""

    # any of timestamp, line_info, no_colors
    format: list[str] = setting([])
    # a second log file; the run folder always has one
    file: str | None = setting(None, path=PathUse.WRITE)
