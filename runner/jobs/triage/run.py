"""Runs `strategy=triage`: one box of the flowchart after another, each a job of its own in steps/NN-name.

A step that ended well is not run again, where its settings and files are the same; one that was cut off goes on with
its journal. What a step cannot do is its answer, and never the end of the triage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.checkers.checker import Tools
from runner.errors import UsageError, WinnowError
from runner.jobs.page_material import run_of
from runner.jobs.processes import processes
from runner.jobs.triage.flowchart import NAMES, Step, next_step
from runner.jobs.triage.repeated_warnings import said_once
from runner.jobs.triage.situation import installed, situation_of
from runner.jobs.triage.step_folder import StepFolder, drop_after
from runner.jobs.triage.step_result import Ended
from runner.jobs.triage.step_settings import StepSettings
from runner.jobs.triage.transcript import Known
from runner.jobs.triage.triage_summary import checks_of, combined, untrue_of
from runner.judgment import Status
from runner.report.bundle import write_bundle
from runner.report.page.collect.run_material import RunMaterial
from runner.report.summary import MistakeError, Summary, sum_of
from runner.schema.diagnosis import TriageSettings
from runner.schema.root import Settings
from runner.schema.run import BudgetSettings
from runner.schema.strategy import chosen

log = logging.getLogger(__name__)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Go through the flowchart and leave the result folder behind. Raises UsageError for what cannot be asked."""
    wanted = _wanted(settings)
    started = time.monotonic()
    known = Known(situation_of(settings), wanted, planned=settings.plan)
    triage = _Triage(settings, folder, started, installed(settings))
    ended: list[Ended] = []
    try:
        return _taken(settings, folder, command, triage, known, ended)
    except WinnowError:
        raise
    except MistakeError as error:  # in a step
        raise MistakeError(sum_of([checks_of(ended), error.checks])) from error.__cause__
    except Exception as error:
        raise MistakeError(checks_of(ended)) from error


def _taken(
    settings: Settings, folder: Path, command: Sequence[str], triage: _Triage, known: Known, ended: list[Ended]
) -> Summary:
    """Take the steps, and write what they came to. ``ended``: gets those that have a result."""
    code = None
    try:
        with said_once(untrue_of(settings)):
            while step := next_step(replace(known, spent=triage.spent(known))):
                known = known.after(triage.taken(step, known))
                ended[:] = [one for one in known.ended if one.result]
        if not known.stopped:
            drop_after(folder, sum(bool(one.folder) for one in known.ended))
    except KeyboardInterrupt as error:  # between two steps; within one, that step says so
        code = getattr(error, "exit_code", Status.interrupted.exit_code)
    summary = combined(settings, folder, command, known, time.monotonic() - triage.started, code)
    with processes(settings, folder) as running:
        tools = Tools(running.pool, running.guardian, folder, Path.cwd())
        told = RunMaterial(run=run_of(settings, tools, summary))
        write_bundle(settings, folder, summary, tools.cwd, command, None, material=lambda: told)
    return summary


def _wanted(settings: Settings) -> tuple[str, ...]:
    given = chosen(settings.strategy, TriageSettings).steps
    if given is None:
        return NAMES
    if wrong := [name for name in given if name not in NAMES]:
        raise UsageError(f"strategy.steps={wrong[0]}: there is no such step. Choose of {', '.join(NAMES)}")
    return tuple(dict.fromkeys(("stands", *given)))


@dataclass(frozen=True)
class _Triage:
    """``started``: monotonic seconds; ``installed``: under the interpreters that take part."""

    settings: Settings
    folder: Path
    started: float
    installed: Mapping[str, str]

    def _left(self, known: Known) -> BudgetSettings:
        given = self.settings.budget
        checks = None if given.checks is None else max(given.checks - sum(one.searched for one in known.ended), 0)
        spent = time.monotonic() - self.started
        return BudgetSettings(checks=checks, seconds=None if given.seconds is None else max(given.seconds - spent, 0.0))

    def spent(self, known: Known) -> str:
        """Return the budget that leaves nothing for another step; "" where there is some left."""
        left, given = self._left(known), self.settings.budget
        if left.checks == 0:
            return f"budget.checks={given.checks}"
        return f"budget.seconds={given.seconds:g}" if left.seconds == 0.0 else ""

    def taken(self, step: Step, known: Known) -> Ended:
        """Return a step that has ended, now or before, or that was left out."""
        if not step.strategy:
            if step.why:
                log.info("%s: not asked, %s", step.name, step.why)
            return Ended(step.name, why=step.why)
        at = sum(bool(one.folder) for one in known.ended) + 1
        place = StepFolder(self.folder, self.settings.budget, at, step.name, self.installed)
        most = at - 1 + sum(not known.has(name) for name in known.wanted)
        log.info("step %d of at most %d, %s: %s", at, most, step.name, step.why)
        try:
            settings = StepSettings(self.settings, self.folder).of(step.name, known, self._left(known))
        except WinnowError as error:
            return Ended(step.name, why=f"{step.why}; not asked: {error}")
        result = place.ended(settings)
        if result is None:
            result = place.run(settings)
        else:
            log.info("it has ended before: %s", result.get("status"))
        return Ended(step.name, settings.strategy.name, place.name, step.why, result)
