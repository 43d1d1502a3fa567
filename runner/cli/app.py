"""One command line from start to exit code: Hydra runs in between, and its errors come back here."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from runner.cli.config import argv as arguments
from runner.cli.config import verbs
from runner.cli.config.loader import CONF, loading
from runner.cli.config.user_file import NAME, store_user_file
from runner.cli.explain_errors import exit_code_of, explain
from runner.cli.launcher_memory import LauncherMemory
from runner.cli.signals import Arrived, Phase, terminable
from runner.cli.streams import failure
from runner.cli.task import HydraTask
from runner.cli.terminal import say
from runner.errors import WinnowError
from runner.report.summary import Summary
from runner.schema.register import register
from runner.status import FAILED_JOBS, Status

if TYPE_CHECKING:
    from runner.sweeps.sweep import Sweep


def run(program: str, typed: Sequence[str], sweep: Sweep) -> int:
    """Run what was ``typed`` after the ``program``'s name; return the exit code (docs: exit codes).

    ``sweep``: whoever runs sweeps, if this turns out to be one.
    """
    ended = list[Summary]()

    def phase() -> Phase:
        if sweep.folder is not None:
            return sweep.phase
        return Phase.ended if ended else Phase.starting

    try:
        with terminable(forward=True, phase=phase) as arrived:
            code = _run(program, typed, sweep, ended, arrived)
    finally:
        sweep.release()
    sys.stdout.flush()
    lost = failure()
    if lost and not code and not ended and sweep.folder is None:  # what was asked for is what was printed
        return _complain(f"standard output: {lost.strerror}", 1)
    return code


def _run(program: str, typed: Sequence[str], sweep: Sweep, ended: list[Summary], arrived: Arrived) -> int:
    register()
    if list(typed) == ["--version"]:
        return _version()
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    memory, file = LauncherMemory.received(), ""
    mark = f"#{memory.number} " if memory else ""
    try:
        if memory:  # what a launcher writes is Hydra's own grammar
            memory.restore_file()
            argv, file, command = list(typed), memory.file, memory.command
        else:
            argv, file = _for_hydra(typed)
            name = Path(program).name
            command = (*(("python", "-m", "runner") if name == "__main__.py" else (name,)), *typed)
        sweep.prepare(memory, command)
        hydra_main = hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
        with _hydra_argv([program, *argv]), loading(sweep.begins):
            hydra_main(HydraTask(command, ended, arrived))()
    except WinnowError as error:
        return _complain(str(error), error.exit_code, mark)
    except KeyboardInterrupt as error:
        return _interrupted(error, sweep, ended)
    except SystemExit as error:
        return 0 if error.code in (None, 0) else 2  # Hydra's own exits are about how it was called
    except (HydraException, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
        if full_error:
            traceback.print_exc()
        said = re.sub(rf"(\w+/)?{NAME}", lambda _: file, explain(error, sweep=sweep.asked or memory is not None))
        return _complain(said, exit_code_of(error), mark)
    except Exception as error:  # noqa: BLE001 - a launcher's error may be of any kind
        if full_error or sweep.folder is None:
            traceback.print_exc()
        if sweep.folder is None:
            return _complain(f"internal error: {type(error).__name__}: {error}", 1, mark)
        told = f"the sweep broke off ({type(error).__name__}). To go on: the same command with resume={sweep.folder}"
        _complain(told, FAILED_JOBS)
    if sweep.folder is not None:
        return sweep.finish()
    return ended[-1].exit_code if ended else 0


def _for_hydra(typed: Sequence[str]) -> tuple[list[str], str]:
    """Return what was typed as Hydra reads it, and the user's own file, which it finds from now on."""
    if (line := os.environ.get("COMP_LINE")) and {"-sc", "--shell-completion"} & {*typed}:
        os.environ["COMP_LINE"], names = verbs.completed(line, verbs.strategies())
        say(" ".join(names))
    given = arguments.rewrite(typed)
    if given.file is None:
        return list(given.argv), ""
    named = any(argument.split("=")[0] in {"--config-dir", "-cd"} for argument in given.argv)
    beside = [] if named else ["--config-dir", str(given.file.absolute().parent)]  # groups there are found as well
    return ["--config-name", store_user_file(given.file), *beside, *given.argv], str(given.file)


def _version() -> int:
    try:
        own = version("winnow-onnx")
    except PackageNotFoundError:
        own = "(not installed)"
    say(f"winnow {own}, Hydra {hydra.__version__}")
    return 0


@contextmanager
def _hydra_argv(argv: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and exits by itself on an error unless it is told to raise."""
    before, sys.argv = sys.argv, argv
    full_error = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = before
        if full_error is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error


def _interrupted(error: KeyboardInterrupt, sweep: Sweep, ended: list[Summary]) -> int:
    code = getattr(error, "exit_code", Status.interrupted.exit_code)
    if sweep.folder is None:
        return code if ended else _complain("interrupted", code)  # a job has said it
    sweep.finish()
    return _complain(f"interrupted. To go on: the same command with resume={sweep.folder}", code)


def _complain(message: str, code: int, mark: str = "") -> int:
    """Say what is wrong. ``mark``: of the sweep's job that it is wrong with."""
    say(f"{mark}winnow: {message}", error=True)
    return code
