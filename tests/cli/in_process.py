"""A command line in the tests' own process: where no job begins, or a stand-in does, composing is all that it costs."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from runner.cli import arguments
from runner.cli.app import run
from runner.cli.arguments import Arguments
from runner.cli.compose import FILES
from runner.sweeps.sweep import Sweep


def rewrite(typed: Sequence[str]) -> Arguments:
    """Return what is typed as Hydra reads it."""
    return arguments.rewrite(arguments.options(typed))


def said(folder: Path, *words: str) -> tuple[int, str, str]:
    """Type ``winnow words`` in a folder; return the exit code, and what was written to the two streams."""
    out, err, before, root = StringIO(), StringIO(), Path.cwd(), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run(words, Sweep())
    finally:
        os.chdir(before)
        FILES.clear()
        for handler in set(root.handlers) - set(handlers):  # a job's own
            handler.close()
        root.handlers[:], root.level = handlers, level
    return code, out.getvalue(), err.getvalue()
