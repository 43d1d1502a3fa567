"""Kept results, and `strategy=recheck`, which holds them against what runs them now: committed, a regression suite."""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from runner import run_folder
from runner.checkers.checker import inner
from runner.checkers.runtime import RuntimeCheck
from runner.cli.check_given import check_given
from runner.cli.run_again import replayed, typed_changes
from runner.cli.run_folders import FolderTakenError, standing_in
from runner.engine.tally import Tally
from runner.exit_codes import BUDGET_REACHED, Status, UsageError, WinnowError
from runner.files import inside, is_plain, read_plain, sha256_of
from runner.jobs.job import Job, load_whole
from runner.jobs.repeat import Command
from runner.journal.replay_yaml import REPLAY_NAME
from runner.model.files.parse_without_weights import parse
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.load import Loaded, load
from runner.report import summary as accounts
from runner.report.bundle import SETTLING, write_bundle
from runner.report.result_parts import KnownFailure, Rechecked
from runner.report.short_answer import ABOUT_KEPT
from runner.report.summary import Seconds, Summary, read_result
from runner.schema.backend import BackendSettings, FilesBackend, InnerValues
from runner.schema.checker import AutoChecker, CommandChecker
from runner.schema.inputs import FilesInputs, RandomInputs
from runner.schema.installed_choices import compose
from runner.schema.root import JournalSettings, Settings
from runner.schema.settings import PathUse, map_paths
from runner.schema.strategy import RecheckSettings, chosen
from runner.text import counted, listed, one_line
from runner.verdict import MODEL, Raised, Sample, Signature, Verdict, relative
from strategies.search import Outcome, Trial

# A kept result: the folder that a run left behind, wherever it lies by now.
#
# The folder may come from anywhere: its files are read as those of a stranger. Of what its result.json names, a model
# of its own lies inside it; a whole model (`input_model`, where there is none of its own) and what its replay names for
# the check are read where they lie.

EXPECT = "expect"
"""The file in which a person says what is expected of a kept result."""
FIXED, STILL, OTHERWISE, NOT_JUDGED = "fixed", "still broken", "broken otherwise", "not judged"
_EXPECTABLE = (STILL, FIXED, OTHERWISE)
_SCRIPTS = (".py", ".sh")
#: strategies whose failures need more than a model: engines, other precisions, other releases, many runs
_OTHERS = ("precision", "tactic", "repeat", "versions")
_KEY = "strategy.results"
#: sections of a replay of which nothing is taken
_USUAL = ("artifacts", "result", "sanitize", "log", "recorded")
_DATA_SETS = "test_data_set_[0-9]*"


@dataclass(frozen=True)
class KeptResult:
    """``model``: the one that fails, in the folder or the user's whole file."""

    folder: Path
    result: Summary
    model: Path
    replay: Path

    @property
    def data_sets(self) -> list[str]:
        """The values that its model is fed."""
        sets = sorted(self.model.parent.glob(_DATA_SETS), key=lambda one: (len(one.name), one.name))
        return [str(one) for one in sets if not one.is_symlink() and any(one.glob("input_*.pb"))] if self.alone else []

    @property
    def alone(self) -> bool:
        """Whether its model is its own."""
        return inside(self.model, self.folder)

    def settings(self, found: Settings, strategy: Settings) -> Settings:
        """Return what its replay says (``found``) for its own model alone; the ``strategy`` is that of this run.

        What a replay names and is not there any more is looked for in its own folder. Raises UsageError where a script
        of the check is nowhere, or values that were kept.
        """

        def beside(use: PathUse, path: str) -> str:
            here = self.replay.parent / Path(path).name
            file = PathUse.READ in use and PathUse.PROGRAM not in use
            gone = file and "/" in path and not Path(path).exists()
            return str(here) if gone and is_plain(here) else path

        found = map_paths(found, beside)
        gone = found.cwd is None or not Path(found.cwd).is_dir()
        found = replace(found, cwd=str(self.replay.parent)) if gone else found
        sets, usual = self.data_sets, compose({})
        self._check_values(len(sets), found.recorded.get("data_sets"))
        return replace(
            found,
            model=str(self.model),
            inputs=FilesInputs(path=sets) if sets else RandomInputs() if self.alone else found.inputs,
            reference=_of_a_part(found.reference, sets) if self.alone else found.reference,
            checker=self._checker(found),
            **{name: getattr(strategy, name) for name in ("strategy", "workers", "budget", "resume", "verbosity")},
            **{name: getattr(usual, name) for name in _USUAL},
            journal=JournalSettings(share=False),
        )

    def _check_values(self, there: int, were: object) -> None:
        """Raise UsageError where values that were kept are gone: with others the failure may not show.

        ``were``: how many sets there were, if the replay says so; anybody may have written it.
        """
        if not self.alone:
            return
        kept = were if isinstance(were, int) else 1
        if there < kept and _takes_inputs(self.model):
            raise UsageError(f"of its {counted(kept, 'set')} of values (test_data_set_*) only {there} are there")

    def _checker(self, found: Settings) -> Any:
        """Return the check, its scripts where they are now. Raises UsageError for one that is nowhere."""
        checker = found.checker
        if not isinstance(checker, CommandChecker) or not checker.command or found.cwd is None:
            return checker
        given = checker.command
        words = shlex.split(given) if isinstance(given, str) else [str(word) for word in given]
        return replace(checker, command=[self._script(word, Path(found.cwd)) for word in words])

    def _script(self, word: str, cwd: Path) -> str:
        if not word.endswith(_SCRIPTS) or "{" in word or (cwd / word).is_file():
            return word
        here = self.replay.parent / Path(word).name
        if is_plain(here):
            return str(here)
        raise UsageError(f"its check names {word}, which is not there. Put it beside {self.replay}, under this name")


def _of_a_part(reference: BackendSettings, sets: Sequence[str]) -> BackendSettings:
    """Return the reference of a part of a model: what runs it, or the good values that an original left in its sets.

    The original itself has other inputs and outputs.
    """
    if reference.model is None:
        return reference.running
    inner = InnerValues.onnx_reference if reference.name == InnerValues.onnx_reference else InnerValues.onnxruntime
    return FilesBackend(path=[*sets], inner=inner, python=reference.python)


def folders(named: Sequence[str]) -> list[Path]:
    """Return the result folders that folders, replay files and patterns name, each once, in order.

    A folder that is none stands for those in it. Raises UsageError for a name that leads to none.
    """
    if not named:
        raise UsageError(f"{_KEY}=: which kept results? Give their folders: {_KEY}=[bugs/1, bugs/2] or '[bugs/*]'")
    found: dict[Path, None] = {}
    for name in named:
        pattern = has_magic(name) and not Path(name).exists()
        paths = sorted(glob(name)) if pattern else [name]  # noqa: PTH207 - the pattern may begin at the root
        here = [one for path in paths for one in _results(Path(path))]
        if not here:
            raise UsageError(
                f"{_KEY}={name}: no kept result is there. Name the folder of a run, with its result.json and "
                f"{REPLAY_NAME}, or a folder that holds such folders"
            )
        found |= dict.fromkeys(one for one in here if (read_result(one) or Summary()).strategy not in ABOUT_KEPT)
    if not found:
        raise UsageError(f"{_KEY}={listed(named)}: these are no failures, but what was said of such")
    return list(found)


def _results(path: Path) -> Iterator[Path]:
    folder = path.parent if path.name == REPLAY_NAME else path
    if (folder / REPLAY_NAME).is_file() or (folder / "result.json").is_file():
        yield folder
    elif folder.is_dir():
        yield from (one for one in sorted(folder.iterdir()) if (one / "result.json").is_file())


def read(folder: Path) -> KeptResult:
    """Return the kept result in ``folder``. Raises UsageError that says why there is none."""
    result = read_result(folder)
    if result is None:
        raise UsageError("there is no result.json that can be read")
    if result.strategy.startswith(_OTHERS):
        raise UsageError(f"strategy={result.strategy} keeps no model that fails by itself")
    if result.status == Status.could_not_judge:
        raise UsageError("its run could not judge the model")
    if result.signature is None:
        raise UsageError(f"its run ended with {result.status!r}, and no failure is kept")
    model = _model(folder, result)
    own = model.parent / REPLAY_NAME
    replay = own if inside(own, folder) and is_plain(own) else folder / REPLAY_NAME
    if not is_plain(replay) or replay.is_symlink():
        raise UsageError(f"there is no {REPLAY_NAME}")
    return KeptResult(folder, result, model, replay)


def _takes_inputs(path: Path) -> bool:
    """Return whether a model is fed anything. Raises UsageError for a file that is none."""
    try:
        graph = parse(path).graph
    except (DecodeError, OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error})") from None
    return not {one.name for one in graph.input} <= {one.name for one in graph.initializer}


def _model(folder: Path, result: Summary) -> Path:
    if result.model is not None:
        model = folder / result.model
        if not inside(model, folder) or model.is_symlink() or not is_plain(model):
            raise UsageError(f"its model {result.model} is no file in its folder")
        return model
    if not result.input_model or not is_plain(folder / result.input_model):
        raise UsageError(f"it has no model of its own, and the whole one ({result.input_model}) is not there")
    return folder / result.input_model


def expected(folder: Path) -> str:
    """Return what is expected of a kept result. Raises UsageError for another word."""
    word = " ".join(read_plain(folder / EXPECT, 1000).decode(errors="replace").split()) or STILL
    if word not in _EXPECTABLE:
        raise UsageError(f"{folder / EXPECT}: {word[:60]!r}: write one of these: {', '.join(_EXPECTABLE)}")
    return word


# One kept result, checked as its replay says: does it still fail, and in the way that was kept?

KEPT = "kept"
"""The folder of a run in which its checks lie, in one of its own for each question."""
# no pre-flight, which asks for outputs that show something: these values have shown the failure
RECHECK = "re-check"
_WHOLE = Trial.of([0])
_WORDS = {Outcome.PASS: FIXED, Outcome.FAIL: STILL, Outcome.DIFFERENT: OTHERWISE, Outcome.UNRESOLVED: NOT_JUDGED}
_LARGEST_VALUE = 1 << 31


@dataclass(frozen=True)
class Outlook:
    """How a kept result ends by now. ``outcome``: in the words of `kept_result`; ``said``: by the check, or why not."""

    outcome: str
    said: str


@dataclass
class Checks:
    """What checks have cost so far, a tally for each question.

    ``most``: how many there may be; ``until``: as long as the monotonic clock says less; None: no limit.
    """

    most: int | None = None
    until: float | None = None
    tallies: list[Tally] = field(default_factory=list)

    @property
    def paid(self) -> int:
        """How many were made."""
        return sum(sum(one.paid.values()) for one in self.tallies)

    @property
    def spent(self) -> bool:
        """Whether there may be no more."""
        late = self.until is not None and time.monotonic() >= self.until
        return late or (self.most is not None and self.paid >= self.most)


@dataclass(frozen=True)
class Rechecker:
    """Checks kept results in one run. ``settings``: of this run; ``overrides``: for all of them alike."""

    settings: Settings
    folder: Path
    command: Sequence[str]
    overrides: Sequence[str] = ()
    checks: Checks = field(default_factory=Checks)

    def look(self, folder: Path) -> tuple[KeptResult | None, Outlook]:
        """Return the kept result in ``folder``, None where there is none, and how it ends by now."""
        kept = None
        try:
            kept = read(folder)
            return kept, self.outlook(kept)
        except UsageError as error:
            return kept, Outlook(NOT_JUDGED, str(error))
        except OSError as error:
            if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
                raise
            # a result may name any path
            said = f"it names a path that no file has ({error.strerror}): {str(error.filename)[:200]}"
            return kept, Outlook(NOT_JUDGED, said)

    def outlook(self, kept: KeptResult, more: Sequence[str] = ()) -> Outlook:
        """Return how it ends under the ``overrides`` and ``more`` of them.

        A check that was flaky when it was kept is repeated as often as its search found necessary: a failure that is
        seen once is still there.
        """
        if self.checks.spent:
            return Outlook(NOT_JUDGED, BUDGET_REACHED)
        try:
            found = replayed(kept.replay, (*self.overrides, *more))
            settings = kept.settings(found, self.settings)
            check_given(settings)
            verdicts = self._verdicts(kept, settings, self._place(kept, more), found.recorded.get("measured"))
        except WinnowError as error:
            if not isinstance(error, UsageError) and error.exit_code == 1:  # a full disk ends the run
                raise
            return Outlook(NOT_JUDGED, str(error))
        seen = [one.outcome for one in verdicts]
        order = (Outcome.FAIL, Outcome.DIFFERENT, Outcome.UNRESOLVED, Outcome.PASS)
        worst = next(one for one in order if one in seen)
        said = verdicts[seen.index(worst)].reason
        if len(seen) > 1:
            said = f"{worst.value} in {seen.count(worst)} of {len(seen)} checks" + (f": {said}" if said else "")
        return Outlook(_WORDS[worst], said)

    def _place(self, kept: KeptResult, more: Sequence[str]) -> Path:
        """Return the folder for its checks: the same one when the run goes on."""
        told = "\0".join((str(kept.folder.resolve()), sha256_of(kept.model), *self.overrides, *more))
        place = self.folder / KEPT / f"{kept.folder.name[:60]}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _verdicts(self, kept: KeptResult, settings: Settings, place: Path, measured: object) -> list[Verdict]:
        with standing_in(settings.cwd), Job.opened(settings, place, self.command) as job:
            loaded = load_whole(job, place) if not kept.data_sets else load(job.settings, job.pool, place, record=False)
            subject = Command(loaded.path, _samples(kept, loaded, place))
            _settle(job, kept.result, measured)
            with job.judge(subject, loaded, "models") as judge:
                found = []
                for attempt in range(_times(kept.result)):
                    found.append(judge.sure(_WHOLE, RECHECK, kept.folder.name, attempt=attempt))
                    left = math.inf if self.checks.most is None else self.checks.most - self.checks.paid
                    if found[-1].outcome is Outcome.FAIL or sum(judge.tally.paid.values()) >= left:
                        break
                self.checks.tallies.append(judge.tally)
        return [_as_kept(one, kept.result.failure, settings, loaded) for one in found]


def _settle(job: Job, result: Summary, measured: object) -> None:
    """Tell the check what it had ``measured`` of the kept failure, as far as its replay says.

    checker=auto looks at nothing but that failure then, so it hears of it only where the reference fails as well.
    """
    held = measured if isinstance(measured, dict) else {}
    known = {name: held[name] for name in SETTLING if isinstance(held.get(name), (bool, int, float, str))}
    signature, reference, checker = _signature(result.failure), known.get("reference"), inner(job.checker)
    if job.checker.name != AutoChecker.name or reference in ("failed", "non-finite"):
        job.checker.settle(Verdict(Outcome.FAIL, signature, metrics=known))
    elif isinstance(checker, RuntimeCheck) and signature.family == "non-finite" and reference is None:
        checker.spare(frozenset())  # it was told apart from what is meant, whatever the reference has


def _signature(kept: KnownFailure, raised: Raised | None = None) -> Signature:
    return Signature(kept.stage, kept.kind, kept.detail, raised)


def _times(result: Summary) -> int:
    """Return how often a check is asked; the result may be anybody's."""
    repeats = result.reliability.repeats if result.reliability else None
    return min(max(repeats.most, 1), 100) if repeats else 1


def _as_kept(verdict: Verdict, kept: KnownFailure, settings: Settings, loaded: Loaded) -> Verdict:
    """Return the verdict in the light of the failure that was kept."""
    words, seen = kept.raised, verdict.signature and verdict.signature.raised
    raised = None
    if words:  # only the words of it were kept
        raised = seen if seen and str(seen) == words else Raised((words,), MODEL)
    graph = loaded.graph
    names = {*graph.inputs, *graph.outputs, *(name for node in graph.nodes for name in (node.name, *node.outputs))}
    return relative(verdict, _signature(kept, raised), settings.checker.same_failure, names)


def _samples(kept: KeptResult, loaded: Loaded, place: Path) -> tuple[Sample, ...]:
    """Return the values that were kept: what the model is fed, and what its outputs should be."""
    values, sets = loaded.recorded.values, kept.data_sets
    if len(sets) != len(values):
        return loaded.samples
    return tuple(Sample(one, dict(_outputs(Path(where), place))) for one, where in zip(values, sets, strict=True))


def _outputs(data_set: Path, place: Path) -> list[tuple[str, TensorFile]]:
    into = place / "expected" / data_set.name
    into.mkdir(parents=True, exist_ok=True)
    found = []
    for path in sorted(data_set.glob("output_[0-9]*.pb")):
        with suppress(DecodeError, ValueError):  # a sequence, or nothing of ONNX's
            tensor = TensorProto.FromString(read_plain(path, _LARGEST_VALUE))
            found.append((tensor.name, recorded.write(tensor, tensor.name, into / path.name)))
    return found


# What the runs about kept results share: one account of their checks, and a report however they end.


def kept_run(
    settings: Settings,
    folder: Path,
    command: Sequence[str],
    found: Sequence[Path],
    ask: Callable[[Rechecker], Summary],
    planned: str,
    so_far: Callable[[], Mapping[str, Any]] = dict,
) -> Summary:
    """Have ``ask`` put its questions of the kept results ``found``, and write what came of it.

    ``planned``: what is said where only the plan is wanted. ``so_far``: what is known where somebody stops it. Raises
    FolderTakenError where the run would write over one.
    """
    name = settings.strategy.name
    here = folder.resolve()
    for one in found:
        if one.resolve() in (here, *here.parents):
            raise FolderTakenError(
                f"{folder} is the folder of a kept result that is asked about, and this run would write over it. Give "
                "it a folder of its own: hydra.run.dir=FOLDER"
            )
    started, seconds = time.monotonic(), settings.budget.seconds
    checks = Checks(settings.budget.checks, None if seconds is None else started + seconds)
    if settings.resume is None and KEPT in run_folder.own(folder):  # of an earlier run: other releases may be there now
        shutil.rmtree(folder / KEPT, ignore_errors=True)
    changes = typed_changes(settings)
    try:
        if settings.plan:
            summary = Summary(Status.planned, 0, name, planned)
        else:
            summary = ask(Rechecker(settings, folder, command, changes, checks))
    except KeyboardInterrupt as error:  # a termination says its own exit code
        code = getattr(error, "exit_code", Status.interrupted.exit_code)
        said = f"after {counted(checks.paid, 'check')}"
        summary = replace(Summary(Status.interrupted, code, name, said), **so_far())
    tallies = checks.tallies
    summary = replace(
        summary,
        checks=accounts.Checks(trust=checks.paid, reused=sum(one.reused for one in tallies), recheck=checks.paid),
        outcomes=dict(sum((one.outcomes for one in tallies), Counter[str]())),
        evidence={**summary.evidence, "changes": changes},
        seconds=Seconds(time.monotonic() - started, sum(one.seconds for one in tallies)),
        peak_rss_mb={
            "job": summary.peak_rss_mb["job"],
            "workers": max((one.peak_rss_mb for one in tallies), default=0.0),
        },
    )
    write_bundle(settings, folder, summary, Path.cwd(), command, None)
    return summary


def relative_to(path: Path, folder: Path) -> str:
    """Return a path as it is seen from a run's folder."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


log = logging.getLogger(__name__)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Check each kept result again. Raises UsageError for names that lead to none, and for an unknown expectation."""
    found = folders(chosen(settings.strategy, RecheckSettings).results)
    expectations = {one: expected(one) for one in found}
    rows: list[Rechecked] = []

    def ask(rechecker: Rechecker) -> Summary:
        for kept in found:
            _, outlook = rechecker.look(kept)
            rows.append(Rechecked(relative_to(kept, folder), expectations[kept], outlook.outcome, outlook.said))
            well = outlook.outcome == expectations[kept]
            expected_otherwise = "" if well else f" (expected: {expectations[kept]})"
            said = f"{':' if well else ';'} {one_line(outlook.said)}" if outlook.said else ""
            level = logging.INFO if well else logging.WARNING
            log.log(level, "%s: %s%s%s", kept, outlook.outcome, expected_otherwise, said)
        return _summary(settings, rows, len(found))

    planned = f"{counted(len(found), 'kept result')} would be checked again; nothing was, as asked"
    return kept_run(settings, folder, command, found, ask, planned, lambda: {"rechecked": tuple(rows)})


def _summary(settings: Settings, rows: Sequence[Rechecked], total: int) -> Summary:
    """Return how it ends. What is not as expected counts more than what could not be judged: it is known."""
    others = [row for row in rows if row.outcome not in (row.expect, NOT_JUDGED)]
    unjudged = [row for row in rows if row.outcome == NOT_JUDGED]
    status = Status.not_as_expected if others else Status.could_not_judge if unjudged else Status.found
    words = Counter(row.outcome for row in rows)
    said = f"{counted(total, 'kept result')}: {', '.join(f'{number} {word}' for word, number in words.items())}"
    these = f"{len(others)} of them " if total > 1 else ""
    said += f"; {these}not as expected" if others else "" if unjudged else "; all as expected"
    return Summary(status, status.exit_code, settings.strategy.name, said, rechecked=tuple(rows))
