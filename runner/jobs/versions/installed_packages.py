"""What is installed: under an interpreter (a verdict does not hold once that has changed), and in a folder by name."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from runner.errors import UsageError
from runner.workers.interpreter import environment_for

_LIST = """
import sys
from importlib import metadata
print(sys.version)
print(sorted({(str(one.metadata["Name"]), one.version) for one in metadata.distributions()}))
"""


def installed_under(python: str) -> str:
    """Return a digest of an interpreter's version and packages. Raises UsageError where it does not run."""
    try:
        done = subprocess.run(
            [python, "-c", _LIST], capture_output=True, env=environment_for(python), timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"{python} cannot say what is installed there: {error}") from error
    return hashlib.sha256(done.stdout).hexdigest()


def import_names(site: Path) -> tuple[str, ...]:
    """Return by what names the packages in a folder are imported, as their metadata say; "sys" where they do not."""
    told = [name for path in site.glob("*.dist-info/top_level.txt") for name in path.read_text("utf-8").split()]
    if not told:
        files = [line.partition(",")[0] for path in site.glob("*.dist-info/RECORD") for line in _lines(path)]
        told = [name.removesuffix("/__init__.py") for name in files if name.endswith("/__init__.py")]
        told += [name.removesuffix(".py") for name in files if name.endswith(".py")]
    return tuple(sorted({name for name in told if name.isidentifier()})) or ("sys",)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", errors="replace").splitlines()
