"""The interpreter that a worker runs under: where it is, and what it finds in its environment."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from runner.workers.reply import WorkerStartError


def find_python(python: str | None) -> str:
    """Return the interpreter of this name: a path, a program on PATH, a virtual environment's folder; None is this one.

    Raises WorkerStartError if there is none.
    """
    if python is None:
        return sys.executable
    path = Path(python).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = shutil.which(str(path)) if "/" in str(path) or python.startswith("~") else shutil.which(python)
    if found is None:
        message = (
            f"there is no interpreter python={python}: give a path, a program on PATH or a virtual environment's folder"
        )
        raise WorkerStartError(message)
    return found if Path(found).is_absolute() else str(Path.cwd() / found)


def environment_for(python: str) -> dict[str, str]:
    """Return the job's environment; another interpreter must not find this one's modules through it."""
    environment = dict(os.environ)
    if python != sys.executable:
        for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"):
            environment.pop(name, None)
    return environment
