"""What Hydra calls for each job: settings out of the composed configuration, the job, and a result whatever happens."""

from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from runner.cli import job_notes, logs, run_folders
from runner.cli.check_given import check_given
from runner.cli.compose import HydraRecord, register, to_settings
from runner.cli.explain_errors import whose_bug
from runner.cli.paths import rooted
from runner.cli.run_folders import FolderTakenError, holding, standing_in
from runner.cli.signals import Arrived, Terminated, held, terminable
from runner.cli.terminal import put, say
from runner.disk_space import FULL, Room
from runner.exit_codes import ENDED_WELL, TERMINATED, Status, UsageError, WinnowError
from runner.jobs.finished_jobs import asked_of
from runner.journal.replay_yaml import TYPED, typed_groups
from runner.report.summary import RESULT_NAME, MistakeError, Summary, read_result
from runner.schema.root import Settings

_log = logging.getLogger("winnow")
# limits of a process or a machine that are reached: files, processes, memory
_SPENT = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
_OF_THE_DISK = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO})


@dataclass(frozen=True)
class HydraTask:
    """The task of one `hydra.main`.

    ``command``: what the user typed; ``ended``: summaries of this process's jobs; ``arrived``: signals so far;
    ``record``: what the run's folder said before Hydra wrote there; ``as_json``: the result is printed in place of the
    last screen.
    """

    command: tuple[str, ...]
    ended: list[Summary] = field(default_factory=list)
    arrived: Arrived = field(default_factory=Arrived)
    record: HydraRecord = field(default_factory=HydraRecord)
    as_json: bool = False

    def __call__(self, config: DictConfig) -> None:
        """Run one job. Raises nothing (Hydra would end a sweep for it) but an interruption of a sweep."""
        register()
        folder = Path(HydraConfig.get().runtime.output_dir)
        job = None if OmegaConf.is_missing(HydraConfig.get().job, "num") else int(HydraConfig.get().job.num)
        # as the sweep planned it
        typed = cast("list[str]", OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False))
        overrides = list(map(str, typed))
        silent = written = refused = taken = False
        cut_off, answered = _cut_off(folder), job is not None and job_notes.ended_well(folder)
        asked: Mapping[str, Any] | None = None
        try:
            with terminable() as signals, holding(folder, sweep=job is not None) as foreign:
                settings = _settings(config, folder, job, foreign, self.command, overrides)
                chosen = logs.levels(settings.verbosity)
                silent = chosen.silent
                log = partial(logs.configure, settings.log, chosen, job)
                before = job_notes.earlier(folder, config) if job is not None and settings.resume else None
                if before is not None:
                    job_notes.confirm(folder, overrides)
                    self._keep(before, None if silent else f"#{job}", folder)
                    return
                job_notes.forget(folder)
                if job is not None:  # what is there now is what the result holds for, whatever is put in its place
                    asked = asked_of(settings)
                run_folders.point_to(folder)  # it is not refused
                with standing_in(settings.cwd):
                    summary = _run(settings, folder, self.command, log)
                written = (folder / "result.json").is_file()
                told = bool(signals) and signals[0] != signal.SIGINT
                if told and summary.status == Status.interrupted and summary.exit_code != Terminated.exit_code:
                    summary, written = replace(summary, exit_code=Terminated.exit_code), False
        except BaseException as error:  # noqa: BLE001 - Hydra must not see it, the result must
            summary = _failed(error, config, folder)
            # a run that was refused leaves alone what an earlier one left in the folder (a sweep needs its row, though)
            left = answered if job is not None else cut_off or (folder / "result.json").is_file()
            refused = isinstance(error, UsageError) and left
            taken = isinstance(error, FolderTakenError)
            if refused or taken:
                self.record.restore()
            refused = refused or taken
            written = refused or _is_interrupted_there(summary, folder)
        self.ended.append(summary)
        if not written:
            ensure_result(summary, folder)
        if job is not None and not taken:
            why = summary.message if refused else None
            job_notes.note(folder, summary.exit_code, overrides, asked, refused=why)
        if self.as_json and not refused and (folder / RESULT_NAME).is_file():
            put((folder / RESULT_NAME).read_text(encoding="utf-8").rstrip("\n"))
        elif not silent or self.as_json:
            _say(summary, folder, job, refused=refused)
        if job is not None and summary.status == Status.interrupted:  # the rest of the sweep must not run
            raise Terminated if summary.exit_code == Terminated.exit_code else KeyboardInterrupt

    def _keep(self, before: Summary, mark: str | None, folder: Path) -> None:
        """Take the answer of a job that had ended before; say so, with its ``mark``."""
        self.ended.append(Summary(before.status, before.exit_code, before.strategy))
        if mark is not None:
            say(f"{mark} has ended before: {before.status} [{folder}]")


def _is_interrupted_there(summary: Summary, folder: Path) -> bool:
    """Whether the folder tells of the interruption already, and in full: another came while that was written."""
    there = read_result(folder) if summary.status == Status.interrupted else None
    return there is not None and (there.status, there.exit_code) == (summary.status, summary.exit_code)


def _cut_off(folder: Path) -> bool:
    """Whether a run was killed in the folder: what it goes on from is there, and no result."""
    there = [(folder / name).exists() for name in ("journal.jsonl", "steps")]
    return any(there) and not (folder / "result.json").exists()


def _settings(
    config: DictConfig,
    folder: Path,
    job: int | None,
    foreign: frozenset[str],
    command: Sequence[str],
    overrides: Sequence[str],
) -> Settings:
    settings = to_settings(config)
    if settings.recorded:
        settings = replace(settings, recorded={**settings.recorded, TYPED: typed_groups(overrides)})
    # a sweep goes on, or SLURM has put the job back into its queue: each job in the folder it had
    if job is not None and (settings.resume is not None or os.environ.get("SLURM_RESTART_COUNT", "0") != "0"):
        settings = replace(settings, resume=str(folder))
    check_given(settings, foreign, [word for word in command if word.endswith((".yaml", ".yml"))])
    return rooted(settings, Path.cwd())


def _run(settings: Settings, folder: Path, command: Sequence[str], log: Callable[[], None]) -> Summary:
    """Run the job. ``log``: sets the log up; a terminal's takes a while to load, for which no check need wait."""
    with ExitStack() as stack:
        with held():
            # a configuration error must not wait for these
            from runner.jobs.processes import processes  # noqa: PLC0415
            from runner.jobs.run import run  # noqa: PLC0415

            stack.enter_context(processes(settings, folder))
            log()

        return run(settings, folder, command)


def _failed(error: BaseException, config: DictConfig, folder: Path) -> Summary:
    if isinstance(error, OSError) and error.errno in FULL:
        error = Room(folder).none(f"{error.strerror}: {error.filename or folder}")
    code = None
    if isinstance(error, MistakeError) and error.__cause__:
        return replace(_failed(error.__cause__, config, folder), checks=error.checks)
    if isinstance(error, WinnowError):
        status, told = error.status, str(error)
    elif isinstance(error, KeyboardInterrupt):
        status, code, told = Status.interrupted, getattr(error, "exit_code", None), ""
    elif type(error).__module__.partition(".")[0] == "submitit":  # raised by its signal handler: the time is over
        status, code, told = Status.interrupted, TERMINATED, f"SLURM ended this job before it was done ({error})"
    else:
        status, told = Status.internal_error, _limit_or_bug(error, folder, config)
    strategy = str(config.get("strategy", {}).get("name", "?"))
    return Summary(status, status.exit_code if code is None else code, strategy, told)


def _limit_or_bug(error: BaseException, folder: Path, config: DictConfig) -> str:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SPENT):
        told = f"{getattr(error, 'strerror', None) or 'out of memory'}: this process is allowed no more"
        return f"{told} (ulimit -a shows what it is). Raise the limit, then go on: resume={folder}"
    path = Path(str(getattr(error, "filename", None) or folder)) if folder.is_dir() else folder
    if isinstance(error, OSError) and folder in (path, path.parent) and not path.exists():
        return f"{path} is gone: something, perhaps the check, moved or removed it while the run was at work"
    if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
        return f"{error.strerror}: {path}. Mend that, or name another place; then go on: resume={folder}"
    where, whose = _write_traceback(error, folder), whose_bug(error, config)
    return f"{type(error).__name__}: {error}. This is a bug of {whose}; traceback: {where}. Please report it."


def _write_traceback(error: BaseException, folder: Path) -> Path:
    """Write the traceback into the files of the log, and not on the terminal; return where it lies."""
    record = _log.makeRecord(
        _log.name, logging.CRITICAL, __file__, 0, "internal error", (), (type(error), error, error.__traceback__)
    )
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)
    return folder / "winnow.log"


def ensure_result(summary: Summary, folder: Path) -> None:
    """Write result.json unless the job wrote one for this summary."""
    from runner.report.summary import write_result  # noqa: PLC0415 - after a configuration error nothing else is needed

    try:
        write_result(summary, folder)
    except Exception as error:  # noqa: BLE001 - Hydra must not see it
        _log.error("result.json could not be written: %s", error)


def _say(summary: Summary, folder: Path, job: int | None, *, refused: bool) -> None:
    """Show the last screen; a mistake in it must not change how the run ends."""
    try:
        from runner.cli.last_screen import say_ended  # noqa: PLC0415 - the first check need not wait for it

        # a second Ctrl-C may have come after the first one's result
        known = read_result(folder) if summary.status == Status.interrupted else None
        say_ended(known or summary, folder, number=job, refused=refused)
    except Exception as error:  # noqa: BLE001 - as above
        _log.error("the last screen could not be made: %s: %s", type(error).__name__, error, exc_info=True)
        say(f"{summary.status}: {summary.message} [{folder}]", error=summary.exit_code not in ENDED_WELL)
