"""One command line from start to exit code: Hydra runs in between, and its errors come back here."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import traceback
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from runner.cli import arguments, hydra_main, run_again
from runner.cli.bounded_yaml import read_yaml
from runner.cli.compose import NAME, register, store_user_file
from runner.cli.explain_errors import exit_code_of, explain
from runner.cli.hydra_main import JobOfSweep
from runner.cli.next_command import command, resume_command, shown_path
from runner.cli.run_folders import standing_in
from runner.cli.signals import Arrived, Phase, failure, terminable
from runner.cli.task import HydraTask
from runner.cli.terminal import put, say
from runner.exit_codes import FAILED_JOBS, ModelError, Status, UsageError, WinnowError
from runner.report.summary import RESULT_NAME, Summary
from runner.schema.backend import OnnxRuntimeBackend, Optimization
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.text import program_name, program_words

if TYPE_CHECKING:
    from runner.sweeps.sweep import Sweep

_HELP = frozenset({"--help", "-h"})
LOOKS = frozenset({"open", "status", "diff"})


def run(typed: Sequence[str], sweep: Sweep) -> int:
    """Run what was ``typed`` after the program's name; return the exit code (docs: exit codes).

    ``sweep``: whoever runs sweeps, if this turns out to be one.
    """
    ended = list[Summary]()

    def phase() -> Phase:
        if sweep.folder is not None:
            return sweep.phase
        return Phase.ended if ended else Phase.starting

    try:
        with terminable(forward=True, phase=phase) as arrived:
            code = _run(typed, sweep, ended, arrived)
    finally:
        sweep.release()
    sys.stdout.flush()
    lost = failure()
    if lost and not code and not ended and sweep.folder is None:  # what was asked for is what was printed
        return _complain(f"standard output: {lost.strerror}", 1)
    return code


def _run(typed: Sequence[str], sweep: Sweep, ended: list[Summary], arrived: Arrived) -> int:
    register()
    full_error = os.environ.get("HYDRA_FULL_ERROR") == "1"
    job, file, stand = JobOfSweep.received(), "", None
    mark = f"#{job.config.hydra.job.num} " if job else ""
    try:
        if job:
            sweep.prepare(job.command)
            job.run(HydraTask(job.command, ended, arrived, sweep.record), sweep.begins)
        elif (code := _answered(typed)) is not None:
            return code
        else:
            given, file, stand = _for_hydra(arguments.options(typed))
            words = (*program_words(), *typed)
            sweep.prepare(words)
            with standing_in(stand):
                task = HydraTask(words, ended, arrived, sweep.record, as_json=given.json)
                hydra_main.run(given, task, sweep.begins)
    except WinnowError as error:
        sweep.withdraw()
        return _complain(str(error), error.exit_code, mark)
    except KeyboardInterrupt as error:
        return _interrupted(error, sweep, ended)
    except SystemExit as error:
        return 0 if error.code in (None, 0) else 2  # Hydra's own exits are about how it was called
    except (HydraException, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
        if full_error:
            traceback.print_exc()
        sweep.withdraw()
        said = re.sub(rf"(\w+/)?{NAME}", lambda _: file, explain(error, sweep=sweep.asked or job is not None))
        return _complain(said, exit_code_of(error), mark)
    except Exception as error:  # noqa: BLE001 - a launcher's error may be of any kind
        if full_error or sweep.folder is None:
            traceback.print_exc()
        if sweep.folder is None:
            return _complain(f"internal error: {type(error).__name__}: {error}", 1, mark)
        onward = resume_command(sweep.folder)
        _complain(f"the sweep broke off ({type(error).__name__}). To go on: {onward}", FAILED_JOBS)
    if sweep.folder is not None:
        return sweep.finish()
    return ended[-1].exit_code if ended else 0


def _answered(typed: Sequence[str]) -> int | None:
    """Answer what is asked of Winnow, or of runs that have ended; None: it is about a run that is to begin."""
    if not typed or _HELP & {*typed}:  # where nothing was asked for, nothing is refused, and no folder is made
        from runner.cli.help import help_text  # noqa: PLC0415 - a run needs none

        say(help_text(typed))
        return 0 if typed else Status.usage.exit_code
    if list(typed) == ["--version"]:
        from runner.report.page.run_page import version  # noqa: PLC0415 - as above

        say(f"winnow {version() or '(not installed)'}, Hydra {hydra.__version__}")
        return 0
    if typed[0] == "ls":
        from runner.cli.list_runs import list_runs  # noqa: PLC0415 - no other command needs it

        return list_runs(typed[1:])
    if typed[0] == "inputs":
        return _inputs_file(typed[1:])
    if typed[0] in LOOKS:
        from runner.cli.list_runs import look  # noqa: PLC0415 - as above

        return look(typed[0], typed[1:])
    given = arguments.options(typed)
    again = run_again.meant(given)
    answer = again.answer() if again else None
    return _show_again(answer, again.folder, as_json=given.json) if again and answer else None


def _inputs_file(words: Sequence[str]) -> int:
    """Print the file that says what the inputs of a model are like; return the exit code: 3, where one is refused.

    The reference (ONNX Runtime without optimizations) is asked, as a triage asks it: it runs the model once, and other
    sizes are tried where it refuses. A file that this wrote is only asked about with ``--check``. Raises UsageError for
    other words.
    """
    # a run needs none of these here
    from runner.jobs.processes import processes  # noqa: PLC0415
    from runner.model.files.parse_without_weights import parse  # noqa: PLC0415
    from runner.model.graph.graph_index import Graph  # noqa: PLC0415
    from runner.samples.ask_reference import taken, template  # noqa: PLC0415

    files = [word for word in words if word != "--check"]
    if len(files) != 1 or files[0].startswith("-"):
        raise UsageError(f"inputs: give a model, or a file that this wrote: {program_name()} inputs net.onnx [--check]")
    model, given, check = files[0], RandomInputs(), "--check" in words
    if written := arguments.is_yaml_file(model):
        model, given = _inputs_in(Path(model).expanduser())
    path = Path(model).expanduser().absolute()
    try:
        graph = Graph.of(parse(path))
    except (OSError, DecodeError, ModelError) as error:
        raise UsageError(f"inputs {model}: it cannot be read: {error}") from None
    refused = ""
    if check or not written:
        reference = OnnxRuntimeBackend(optimization=Optimization.none)
        settings = Settings(model=str(path), inputs=given, target=reference, reference=reference)
        with tempfile.TemporaryDirectory() as scratch, processes(settings, Path(scratch)) as running:
            found = taken(settings, reference, graph, path, running.pool, Path(scratch) / "attempts", given_too=True)
        given = found.offered or found.inputs
        refused = "" if found.offered else found.refused or found.unclear
    put(template(model, graph, given).rstrip())
    if refused:
        say(f"{program_name()}: the reference does not run the model on these inputs: {refused}", error=True)
    elif check:
        say("the reference runs the model on these inputs", error=True)
    return Status.could_not_judge.exit_code if check and refused else 0


def _inputs_in(path: Path) -> tuple[str, RandomInputs]:
    """Return the model and the inputs that a file names."""
    told: Any = read_yaml(path)
    inputs = told.get("inputs") if isinstance(told, Mapping) else None
    known = {item.name for item in fields(RandomInputs)}
    if not isinstance(inputs, Mapping) or not isinstance(told.get("model"), str) or not known >= {*inputs}:
        raise UsageError(f"inputs {path}: it has to name a model, and of inputs {', '.join(sorted(known))} only")
    given = {key: value for key, value in inputs.items() if value is not None}
    return str(path.parent / Path(told["model"]).expanduser()), replace(RandomInputs(), **given)


def _for_hydra(given: Namespace) -> tuple[Namespace, str, Path | None]:
    """Return what was typed as Hydra reads it, the user's own file, which it finds from now on, and where to stand."""
    if given.json and given.multirun:
        raise UsageError("--json: it is for one run. A sweep writes sweep.json into its folder")
    if again := run_again.meant(given):
        return again.for_hydra()
    if (line := os.environ.get("COMP_LINE")) and given.shell_completion:
        os.environ["COMP_LINE"], names = arguments.completed(line, arguments.strategies())
        say(" ".join(names))
    read = arguments.rewrite(given)
    given.overrides = [*read.overrides, *(["verbosity=silent"] if given.json else [])]
    if read.file is None:
        return given, "", None
    given.config_name = store_user_file(read.file)
    given.config_dir = given.config_dir or str(read.file.absolute().parent)  # groups there are found as well
    return given, str(read.file), None


def _interrupted(error: KeyboardInterrupt, sweep: Sweep, ended: list[Summary]) -> int:
    code = getattr(error, "exit_code", Status.interrupted.exit_code)
    if sweep.folder is None:
        return code if ended else _complain("interrupted", code)  # a job has said it
    sweep.finish()
    return _complain(f"interrupted. To go on: {resume_command(sweep.folder)}", code)


def _show_again(answer: Summary, folder: Path, *, as_json: bool) -> int:
    """Show the last screen of a run that has ended, and how it is run again; return the run's own exit code."""
    if as_json:
        put((folder / RESULT_NAME).read_text(encoding="utf-8").rstrip("\n"))
        return answer.exit_code
    from runner.cli.last_screen import say_ended  # noqa: PLC0415 - no other command needs it here

    say_ended(answer, folder)
    if answer.status == Status.interrupted:  # its next command goes on
        return answer.exit_code
    replay = folder / "replay.yaml"
    again = f"To run it again: {command(shown_path(replay))} [KEY=VALUE]; to" if replay.is_file() else "To"
    onward = f"go on with another budget or other workers: {resume_command(folder)} KEY=VALUE"
    say(f"This run has ended. {again} {onward}")
    return answer.exit_code


def _complain(message: str, code: int, mark: str = "") -> int:
    """Say what is wrong. ``mark``: of the sweep's job that it is wrong with."""
    say(f"{mark}winnow: {message}", error=True)
    return code
