"""Runs `strategy=triage`: one box of the flowchart after another, each a job of its own in steps/NN-name.

A step that ended well is not run again, where its settings and files are the same; one that was cut off goes on with
its journal. What a step cannot do is its answer, and never the end of the triage.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runner import run_folder
from runner.checkers.checker import Tools, build, feeds_inputs
from runner.disk_space import FULL, Room
from runner.exit_codes import ENDED_WELL, OtherConditionsError, Status, UsageError, WinnowError
from runner.files import inside, json_of, write_text
from runner.jobs import run as pipeline
from runner.jobs.finished_jobs import asked_of, asked_the_same
from runner.jobs.job import run_of
from runner.jobs.processes import processes
from runner.jobs.summary import UNTAKEN, own_peak_mb
from runner.jobs.triage.flowchart import (
    INSPECT,
    NAMES,
    Step,
    branch,
    decisions,
    next_step,
    part_of,
    telling_inputs,
    verdict,
)
from runner.jobs.triage.step_settings import StepSettings
from runner.jobs.triage.transcript import Ended, Known, installed, situation_of
from runner.judgment import Whose
from runner.reference.hints import HINTS, RANDOM_INPUTS, SIZES, asks_for_data
from runner.reference.load import load, refusal
from runner.report import progress
from runner.report import summary as results
from runner.report.bundle import write_bundle
from runner.report.page.data import PageData
from runner.report.panel import in_a_pipe
from runner.report.result_parts import Count, Layers, Reproduced, ShownOn, Triage, TriageStep
from runner.report.summary import MistakeError, Seconds, Summary
from runner.run_folder import INPUTS, STEPS, Marker
from runner.schema.inputs import RandomInputs
from runner.schema.root import BudgetSettings, Settings
from runner.schema.strategy import TriageSettings, VersionsSettings, chosen
from runner.text import counted, first_clauses
from runner.verdict import Signature

# The folder of a step: a run's own, with what the step was asked, so that a triage that goes on asks nothing twice.

log = logging.getLogger(__name__)

_ASKED = "asked.json"
_UNJUDGED = Signature("infer", "error")
"""What a file is taken to do that cannot be judged: the reference refuses its inputs too."""
_LONGEST_ANSWER = 160
"""Characters of what a part of the flowchart came to, in the line that says so."""


@dataclass(frozen=True)
class StepFolder:
    """``triage``: the folder of the triage, ``budget``: its own; ``at``: which step it is, from 1.

    ``installed``: under the interpreters that take part.
    """

    triage: Path
    budget: BudgetSettings
    at: int
    step: str
    installed: Mapping[str, str]

    @property
    def name(self) -> str:
        """Where it lies in the triage's folder."""
        return f"{STEPS}/{self.at:02d}-{self.step}"

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.triage / self.name

    def ended(self, settings: Settings) -> Summary | None:
        """Return the result of a step that was asked the same and ended well; None: it has to be run."""
        if not asked_the_same(json_of(self.folder / _ASKED), self._asked(settings)):
            return None
        result = results.read_result(self.folder)
        return result if result and result.exit_code in ENDED_WELL else None

    def run(self, settings: Settings) -> Summary:
        """Run a step, on what it was cut off in, and return its result, also where it could not be done."""
        self._claim(settings)
        try:
            try:
                summary = pipeline.run(settings, self.folder, ())
            except OtherConditionsError as error:  # the verdicts that it would go on from hold no more
                log.warning("%s starts over: %s", self.name, error.changed)
                shutil.rmtree(self.folder, ignore_errors=True)
                self._claim(settings)
                summary = pipeline.run(settings, self.folder, ())
        except Exception as error:  # noqa: BLE001 - what one step cannot do is not the end of the others
            summary = self._failed(settings, error)
        left = frozenset(run_folder.present(self.folder)) - {run_folder.NAME}
        run_folder.write(self.folder, Marker(running=False, wrote=left))
        return results.summary_of(results.result_json(summary))  # as a triage that goes on reads it

    def _claim(self, settings: Settings) -> None:
        """Have the folder for this question: what another one left under this number goes."""
        asked = self._asked(settings)
        for other in self.triage.glob(f"{STEPS}/{self.at:02d}-*"):
            before = json_of(other / _ASKED) if other == self.folder else None
            # its journal says by content whether its verdicts still hold
            same = isinstance(before, dict) and before.get("settings") == asked["settings"]
            if not same and not other.is_symlink():
                shutil.rmtree(other, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "result.json").unlink(missing_ok=True)
        run_folder.write(self.folder, Marker(running=True))
        write_text(self.folder / _ASKED, json.dumps(asked) + "\n")

    def _asked(self, settings: Settings) -> dict[str, Any]:
        """Return all that the answer depends on: settings, the budget of the triage, files by content, packages.

        Where releases are asked that a cache holds, these as well.
        """
        # what is left of the budget differs; where it runs counts, whether it was said or not
        asked = asked_of(replace(settings, budget=BudgetSettings(), cwd=str(Path.cwd())))
        asked |= {"budget": asdict(self.budget), "installed": {**self.installed}}
        strategy = settings.strategy
        if isinstance(strategy, VersionsSettings) and strategy.offline:
            cache = Path(strategy.cache).expanduser()
            asked["releases"] = sorted(path.name for path in cache.glob(f"{strategy.package}-*"))
        return asked

    def _failed(self, settings: Settings, error: BaseException) -> Summary:
        """Return the result of a step that an error has ended, which is its answer."""
        if isinstance(error, OSError) and error.errno in FULL:
            error = Room(self.folder).none(f"{error.strerror}: {error.filename or self.folder}")
        status, said = Status.internal_error, str(error)
        if isinstance(error, WinnowError):
            status = error.status
        else:
            mistake = error.__cause__ or error if isinstance(error, MistakeError) else error
            said = f"{type(mistake).__name__}: {mistake}"
            log.error("%s: %s; its traceback is in the log at debug", self.name, said)
            log.debug("%s", self.name, exc_info=True)
        summary = Summary(status, status.exit_code, settings.strategy.name, said)
        results.write_result(summary, self.folder)
        return summary


def drop_after(triage: Path, last: int) -> None:
    """Remove the steps that an earlier triage in this folder took beyond the last one of this."""
    for other in triage.glob(f"{STEPS}/[0-9][0-9]-*"):
        if other.name[:2].isdecimal() and int(other.name[:2]) > last and not other.is_symlink():
            shutil.rmtree(other, ignore_errors=True)


# What is shown while steps are taken: in a pipe a line for each part of the flowchart, and each warning once.

_PART = "part"
"""What marks the record that says what a part of the flowchart came to."""


class _Once(logging.Filter):
    """Lets a warning pass when it is said for the first time. ``brief``: of other lines those about parts alone.

    ``settled``: the sizes of the inputs are; before that none are told.
    """

    def __init__(self, known: Iterable[str], *, brief: bool) -> None:
        super().__init__()
        self._said: set[str] = set(known)
        self._brief, self.settled = brief, True

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown."""
        if record.levelno < logging.WARNING and self._brief and record.name != progress.__name__:
            return hasattr(record, _PART)
        if record.levelno != logging.WARNING:
            return True
        said = record.getMessage()
        if said.startswith(SIZES) and not self.settled:
            return False
        new = said not in self._said
        self._said.add(said)
        return new


@contextmanager
def said_once(known: Iterable[str] = ()) -> Iterator[list[_Once]]:
    """Have each handler show a warning once, as long as this lasts, by a filter; ``known``: not at all."""
    brief = in_a_pipe()
    added = [
        (handler, _Once(known, brief=brief and not isinstance(handler, logging.FileHandler)))
        for handler in logging.getLogger().handlers
    ]
    for handler, once in added:
        handler.addFilter(once)
    try:
        yield [once for _, once in added]
    finally:
        for handler, once in added:
            handler.removeFilter(once)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Go through the flowchart and leave the result folder behind. Raises UsageError for what cannot be asked."""
    wanted, code = _wanted(settings), None
    triage = _Triage(settings, folder, time.monotonic(), installed(settings))
    known = Known(situation_of(settings), wanted, planned=settings.plan)
    try:
        try:
            with said_once(HINTS) as filters:
                while step := next_step(replace(known, spent=triage.spent(known))):
                    for one in filters:
                        one.settled = step.name != "stands"  # where it fails, other sizes are tried
                    known = known.after(triage.taken(step, known))
                    if step.name == "stands" and known.ended[-1].status == Status.usage:  # a file that is no model, say
                        raise UsageError(known.ended[-1].message)
                    if step.name == "stands" and known.refuses_inputs and triage.settings is settings:
                        triage, known = triage.asked(known)
                    _say_part(known)
            if not known.stopped:
                drop_after(folder, sum(bool(one.folder) for one in known.ended if one.name != INSPECT))
        except KeyboardInterrupt as error:  # between two steps; within one, that step says so
            code = getattr(error, "exit_code", Status.interrupted.exit_code)
        summary = combined(settings, folder, known, time.monotonic() - triage.started, code)
        with processes(settings, folder) as running:
            tools = Tools(running.pool, running.guardian, folder, Path.cwd())
            told = PageData(run=run_of(settings, tools, summary))
            write_bundle(settings, folder, summary, tools.cwd, command, None, material=lambda: told)
        return summary
    except WinnowError:
        raise
    except Exception as error:
        raise MistakeError(results.sum_of(one.known.checks for one in known.ended)) from error


def _say_part(known: Known) -> None:
    """Say in a line what a part of the flowchart came to, once its last step has ended."""
    part = part_of(known.ended[-1].name)
    following = next_step(known)
    steps = [one for one in known.ended if part_of(one.name) == part and one.result]
    if steps and (following is None or part_of(following.name) != part):
        spent = results.sum_of(one.known.checks for one in steps).made
        seconds = sum(one.known.seconds.total for one in steps)
        told = first_clauses(part.told(known), _LONGEST_ANSWER)
        log.info("%s %s (%s, %.1f s)", part.question, told, counted(spent, "check"), seconds, extra={_PART: True})


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

    def asked(self, known: Known) -> tuple[_Triage, Known]:
        """Ask the reference whether it takes inputs that were made up; begin anew with others where it refuses."""
        settings, folder = self.settings, self.folder
        if not isinstance(settings.inputs, RandomInputs) or settings.reference.model:
            return self, known
        place, stands = folder / "attempts", known.of("stands")
        written = folder / stands.folder / INPUTS
        if stands.folder and written.is_file():  # this step was a reduction, which has asked
            shutil.copyfile(written, folder / INPUTS)
            return self, replace(known, refused=stands.message)
        with processes(settings, folder) as running:
            checker = build(settings, Tools(running.pool, running.guardian, folder, Path.cwd()))
            if not feeds_inputs(checker):
                return self, known
            loaded = load(settings, running.pool, place, feeds=False)
        failure = known.result("stands").signature
        told = Signature(failure.stage, failure.kind) if failure else _UNJUDGED
        refused = refusal(settings, checker, loaded, folder, told)
        shutil.rmtree(place, ignore_errors=True)
        if refused:
            return self, replace(known, refused=refused)
        found = loaded.taken
        if found.inputs in (None, settings.inputs):
            return self, known
        known = replace(known, ended=known.ended[:-1], sizes=found.warning)
        return replace(self, settings=replace(settings, inputs=found.inputs)), known

    def taken(self, step: Step, known: Known) -> Ended:
        """Return a step that has ended, now or before, or that was left out."""
        if not step.strategy:
            if step.why:
                log.info("step %s skipped: %s", step.name, step.why)
            return Ended(step.name, why=step.why)
        # the file itself is looked at before anything is asked of it: step 0
        at = 0 if step.name == INSPECT else sum(bool(one.folder) for one in known.ended if one.name != INSPECT) + 1
        place = StepFolder(self.folder, self.settings.budget, at, step.name, self.installed)
        if at:
            log.info("step %d, %s: %s", at, step.name, step.why)
        try:
            settings = StepSettings(self.settings, self.folder).of(step.name, known, self._left(known))
        except WinnowError as error:
            return Ended(step.name, why=f"{step.why}; not asked: {error}")
        result = place.ended(settings)
        if result is None:
            result = place.run(settings)
        else:
            log.info("it has ended before: %s", result.status)
        return Ended(step.name, settings.strategy.name, place.name, step.why, result)


# The summary of a triage: what its steps found, each at the top as a run of its own would have it.


def combined(settings: Settings, folder: Path, known: Known, seconds: float, code: int | None) -> Summary:
    """Return the summary. ``code``: the exit code with which it was stopped between two steps, or None."""
    asked, passes = [one.result for one in known.ended if one.result], known.judged and not known.anything_failed
    if asked and known.stopped:
        code = asked[-1].exit_code
    status = _status(known, code)
    answer = known.result(known.answer)
    place = known.of(known.answer).folder
    first, reduced, whose = known.result("stands"), known.result("reduce"), _whose(known)
    cause = None if known.rounds_everywhere else reduced.cause
    if cause and whose != reduced.whose:  # what is known now, the reduction did not know
        cause = replace(cause, right="")
    unjudged = first.lacks if status is Status.could_not_judge else ()
    looked, unloaded = known.result(INSPECT).inspection, known.why_not_loaded
    if unloaded:
        first, answer, place = known.result(INSPECT), known.result(INSPECT), known.ended[0].folder
    return Summary(
        status=status,
        exit_code=status.exit_code if code is None else code,
        strategy=settings.strategy.name,
        message=verdict(known),
        nodes_before=(reduced if known.has_result("reduce") else first).nodes_before,
        nodes_after=answer.nodes_after or None,
        culprits=known.culprits or (first.culprits if unloaded else ()),
        nested=answer.nested,
        iteration=answer.iteration,
        minimality=answer.minimality,
        checks=results.sum_of(one.checks for one in asked),
        outcomes=_sum(one.outcomes for one in asked),
        controls=_sum(one.controls for one in asked),
        unresolved=_sum(one.unresolved for one in asked),
        lacks=(more,) if (more := telling_inputs(known)) and passes else reduced.lacks or unjudged,
        signature=answer.signature or first.signature,
        model=_path(folder, place, answer.model),
        inspection=looked if unloaded else None,
        min_good=_path(folder, place, answer.min_good),
        seconds=Seconds(seconds, *(sum(getattr(one.seconds, of) for one in asked) for of in ("checking", "recording"))),
        peak_rss_mb={
            "job": own_peak_mb(),
            "workers": max((one.peak_rss_mb.get("workers", 0.0) for one in asked), default=0.0),
        },
        warnings=_warnings(settings, known, asked),
        checker=first.checker,
        check=first.check,
        input_model=settings.model,
        context=first.context,
        versions=first.versions,
        passes=known.passes,
        releases=known.releases,
        layers=_layers(known),
        precision=known.result("precision").precision,
        cause=cause,
        whose=first.whose if unloaded else whose,
        seen=answer.seen,
        said=(answer if known.answer else first).said,
        workarounds=tuple(
            replace(one, files=_placed(known, "workaround", one.files))
            for one in known.result("workaround").workarounds
        ),
        triage=Triage(
            branch=branch(known),
            reproduced=_reproduced(known),
            # as far as a search can tell: it came to its end
            smallest=known.answer == "reduce" and "minimal" in (reduced.minimality or ""),
            shown_on=ShownOn(known.off_holds_on if known.off else "", known.place_of_releases),
            decisions=tuple(decisions(known)),
            steps=tuple(_step_told(known, one) for one in known.ended if one.folder or one.why),
        ),
    )


def _whose(known: Known) -> str | None:
    """Return whose failure it is; a NaN or Inf that a plain run of the reference has as well is the model's own."""
    reduced = known.result("reduce")
    doubted = reduced.cause is not None and bool(reduced.cause.no_value)  # the inputs are made up
    own = reduced.whose == Whose.UNKNOWN and known.reference_too_plainly and not doubted
    return Whose.MODEL.value if own else reduced.whose


def _step_told(known: Known, one: Ended) -> TriageStep:
    said = known.told(one.name)
    paid, seconds = one.known.checks.made, round(one.known.seconds.total, 3)
    return TriageStep(one.name, one.strategy, one.folder, one.why, one.status, said, paid, seconds)


def _warnings(settings: Settings, known: Known, asked: Sequence[Summary]) -> tuple[str, ...]:
    """Return each warning of a step once; a hint is that of the triage: steps ask of other inputs and of rounding."""
    hints = [RANDOM_INPUTS] if asks_for_data(settings) and not known.why_not_loaded else []
    hints += [known.sizes] if known.sizes else []
    told = dict.fromkeys(one for step in asked for one in step.warnings if one not in HINTS)
    alike = [step for step in asked if step.strategy == "repeat"]  # each with other samples
    taken = {one for one in told if one.startswith(UNTAKEN) and any(one not in step.warnings for step in alike)}
    return tuple(dict.fromkeys([*hints, *(one for one in told if one not in taken)]))


def _status(known: Known, code: int | None) -> Status:
    if code is not None:
        stopped = known.ended[-1].status if known.stopped else Status.interrupted
        return Status.no_room if stopped == Status.no_room else Status.interrupted
    if known.why_not_loaded:
        return Status.found
    if not known.judged or known.refused:
        return Status.could_not_judge
    if known.planned:
        return Status.planned
    if not known.anything_failed:
        return Status.nothing_to_find
    if known.answer and not known.has_answer("tactics"):  # what is said of the nodes holds whatever helps besides
        return Status[known.result(known.answer).status]
    said = ("tactics", "passes", "versions", "precision", "workaround")
    return Status.found if any(known.has_answer(name) for name in said) else Status.could_not_judge


def _reproduced(known: Known) -> Reproduced:
    failed, of = known.judgements("stands")
    again, more = known.judgements("repeat")
    others, tried = known.judgements("inputs")
    return Reproduced(
        failed=failed + again,
        of=of + more,
        failure=known.failure if known.anything_failed else None,
        how_often=known.how_often if known.anything_failed else "",
        said=known.check_said if known.anything_failed else "",
        only_rounded=known.only_in == "rounded",
        inputs=known.situation.inputs,
        reference_too=known.reference_too,
        plain_is_finite=known.plain_is_finite,
        other_inputs=Count(others, tried) if tried else None,
    )


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _path(folder: Path, place: str, found: str | None) -> str | None:
    """Return a path of a step's result from the triage's folder; None for one that leads elsewhere."""
    return f"{place}/{found}" if found and inside(folder / place / found, folder / place) else None


def _layers(known: Known) -> Layers | None:
    layers = known.result("layerwise").layers
    return replace(layers, files=_placed(known, "layerwise", layers.files)) if layers else None


def _placed(known: Known, name: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return a step's files from the triage's folder."""
    return tuple(f"{known.of(name).folder}/{one}" for one in files)
