"""The model as a run takes it: the user's own file, or what `sanitize` makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from runner.errors import UsageError, WinnowError
from runner.schema.root import Settings
from runner.workers.own_operations import operate
from runner.workers.pool import Pool

FOLDER = "sanitized"
STEPS = ("fold", "shapes", "cleanup")


def own_file_only(settings: Settings, does: str = "checks") -> None:
    """Raise UsageError where anything is to be sanitized: the strategy ``does`` something to the user's own file."""
    if any(getattr(settings.sanitize, name) for name in STEPS):
        raise UsageError(
            f"sanitize: strategy={settings.strategy.name} {does} your own file as it is. Sanitize the file before, or "
            "leave sanitize out"
        )


def sanitized(settings: Settings, path: Path, pool: Pool, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the path to read the model from and what was done to it; both as they were if nothing is switched on.

    The sanitized model lies in ``folder``/sanitized until ``remove`` is called. Raises UsageError for a file that is
    wrong and for a step that fails; nothing is left behind then.
    """
    chosen = settings.sanitize
    on = [name for name in STEPS if getattr(chosen, name)]
    remove(folder)
    if not on:
        return path, ()
    if not path.is_file():
        raise UsageError(f"model={path}: no such file")
    args = {
        "model": str(path),
        "out": str(folder / FOLDER),
        "fold": chosen.fold,
        "fold_limit": None if chosen.fold_limit_mb is None else int(chosen.fold_limit_mb * 2**20),
        "shapes": {name: list(dims) for name, dims in settings.inputs.shapes.items()} if chosen.shapes else None,
        "cleanup": chosen.cleanup,
    }
    keys = " ".join(f"sanitize.{name}=true" for name in on)
    try:
        reply = operate(pool, settings, "sanitize", args, f"{keys}: model={path}: it")
    except WinnowError:
        remove(folder)
        raise
    if reply.value is not None:
        return Path(reply.value["path"]), (*reply.value["warnings"], *reply.value["done"])
    remove(folder)
    assert reply.failure
    if reply.failure.type == "SanitizeError":
        raise UsageError(f"{reply.failure.message}; model={path}")
    raise UsageError(f"model={path}: {reply.failure.message}")


def remove(folder: Path) -> None:
    """Remove the sanitized model: once it is read, the run has a copy of its own."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
