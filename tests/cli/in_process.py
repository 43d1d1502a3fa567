"""A command line in the tests' own process: for what is refused before a job begins, composing is all that it costs."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from runner.cli.app import run
from runner.cli.compose import FILES
from runner.sweeps.sweep import Sweep


def said(folder: Path, *words: str) -> tuple[int, str, str]:
    """Type ``winnow words`` in a folder; return the exit code, and what was written to the two streams."""
    out, err, before = StringIO(), StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run("winnow", words, Sweep())
    finally:
        os.chdir(before)
        FILES.clear()
    return code, out.getvalue(), err.getvalue()
