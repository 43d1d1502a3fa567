"""What is installed under an interpreter: verdicts on its releases are worth nothing once that is something else."""

from __future__ import annotations

import hashlib
import subprocess

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
