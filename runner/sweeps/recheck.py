"""Runs `strategy=recheck`: kept results against what runs them now. Committed, they are a regression suite."""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from runner import run_folder
from runner.candidate import Candidate, Sample
from runner.checkers.checker import inner
from runner.checkers.runtime import RuntimeCheck
from runner.cli.check_given import check_given
from runner.cli.run_again import replayed, typed_changes
from runner.cli.run_folders import FolderTakenError, standing_in
from runner.errors import UsageError, WinnowError
from runner.files import read_plain, sha256_of
from runner.jobs.good_outputs import load_whole
from runner.jobs.job import Job
from runner.judgment import Status
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile
from runner.reference.load import Loaded, load
from runner.report import summary as accounts
from runner.report.bundle import SETTLING, write_bundle
from runner.report.result_parts import KnownFailure, Rechecked
from runner.report.summary import Seconds, Summary
from runner.schema.checker import AutoChecker
from runner.schema.diagnosis import RecheckSettings
from runner.schema.root import Settings
from runner.schema.strategy import chosen
from runner.sweeps.kept_results import FIXED, NOT_JUDGED, OTHERWISE, STILL, KeptResult, expected, folders, read
from runner.text import counted, one_line
from runner.verdict import MODEL, Raised, Signature, Verdict, relative
from strategies.outcome import Outcome
from strategies.search_space import Space
from strategies.trial import Trial

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
    """What checks have cost so far.

    ``most``: how many there may be; ``until``: as long as the monotonic clock says less; None: no limit.
    """

    most: int | None = None
    until: float | None = None
    paid: int = 0
    reused: int = 0
    seconds: float = 0.0
    peak_rss_mb: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def spent(self) -> bool:
        """Whether there may be no more."""
        late = self.until is not None and time.monotonic() >= self.until
        return late or (self.most is not None and self.paid >= self.most)


@dataclass(frozen=True)
class _KeptModel:
    """Subject `kept`: the kept model as it is."""

    model: Path
    samples: tuple[Sample, ...]

    @property
    def space(self) -> Space:
        """One element, the model."""
        return Space((0,))

    def identity(self) -> dict[str, str]:
        """Return what it is; the model is in the run's context."""
        return {"kind": "kept", "file": sha256_of(self.model)}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the file's name."""
        return tuple(self.model.name for _ in trial)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the file, with the values that were kept with it."""
        return Candidate(self.model, folder, trial, self.samples)


@dataclass(frozen=True)
class Rechecker:
    """Checks kept results in one run. ``settings``: of this run; ``overrides``: for all of them alike."""

    settings: Settings
    folder: Path
    command: Sequence[str]
    overrides: Sequence[str] = ()
    checks: Checks = field(default_factory=Checks)

    def outlook(self, kept: KeptResult, more: Sequence[str] = ()) -> Outlook:
        """Return how it ends under the ``overrides`` and ``more`` of them.

        A check that was flaky when it was kept is repeated as often as its search found necessary: a failure that is
        seen once is still there.
        """
        if self.checks.spent:
            return Outlook(NOT_JUDGED, "the budget was reached")
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
            subject = _KeptModel(loaded.path, _samples(kept, loaded, place))
            _settle(job, kept.result, measured)
            with job.judge(subject, loaded, "models") as judge:
                found = []
                for attempt in range(_times(kept.result)):
                    found.append(judge.sure(_WHOLE, RECHECK, kept.folder.name, attempt=attempt))
                    left = math.inf if self.checks.most is None else self.checks.most - self.checks.paid
                    if found[-1].outcome is Outcome.FAIL or sum(judge.tally.paid.values()) >= left:
                        break
                self._count(judge.tally)
        return [_as_kept(one, kept.result.failure, settings, loaded) for one in found]

    def _count(self, tally: Any) -> None:
        self.checks.paid += sum(tally.paid.values())
        self.checks.reused += tally.reused
        self.checks.seconds += tally.seconds
        self.checks.peak_rss_mb = max(self.checks.peak_rss_mb, tally.peak_rss_mb)
        for name, number in tally.outcomes.items():
            self.checks.outcomes[name] = self.checks.outcomes.get(name, 0) + number


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
    so_far: Callable[[], Mapping[str, Any]],
) -> Summary:
    """Have ``ask`` put its questions of the kept results ``found``, and write what came of it.

    ``so_far``: what is known where somebody stops it. Raises FolderTakenError where the run would write over one.
    """
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
    changes = typed_changes(settings.recorded)
    rechecker = Rechecker(settings, folder, command, changes, checks)
    try:
        summary = ask(rechecker)
    except KeyboardInterrupt as error:  # a termination says its own exit code
        code = getattr(error, "exit_code", Status.interrupted.exit_code)
        said = f"after {counted(checks.paid, 'check')}"
        summary = replace(Summary(Status.interrupted, code, settings.strategy.name, said), **so_far())
    summary = replace(
        summary,
        checks=accounts.Checks(trust=checks.paid, reused=checks.reused, recheck=checks.paid),
        outcomes=checks.outcomes,
        evidence={**summary.evidence, "changes": changes},
        seconds=Seconds(time.monotonic() - started, checks.seconds),
        peak_rss_mb={"job": summary.peak_rss_mb["job"], "workers": checks.peak_rss_mb},
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
            outlook = _outlook(rechecker, kept)
            rows.append(Rechecked(relative_to(kept, folder), expectations[kept], outlook.outcome, outlook.said))
            well = outlook.outcome == expectations[kept]
            expected_otherwise = "" if well else f", expected {expectations[kept]}"
            level = logging.INFO if well else logging.WARNING
            log.log(level, "%s: %s%s %s", kept, outlook.outcome, expected_otherwise, one_line(outlook.said))
        return _summary(settings, rows, len(found))

    if settings.plan:
        said = f"{counted(len(found), 'kept result')} would be checked again; nothing was, as asked"
        return kept_run(settings, folder, command, found, lambda _: Summary(Status.planned, 0, "recheck", said), dict)
    return kept_run(settings, folder, command, found, ask, lambda: {"rechecked": tuple(rows)})


def _outlook(rechecker: Rechecker, folder: Path) -> Outlook:
    try:
        return rechecker.outlook(read(folder))
    except UsageError as error:
        return Outlook(NOT_JUDGED, str(error))
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        # a result may name any path
        return Outlook(NOT_JUDGED, f"it names a path that no file has ({error.strerror}): {str(error.filename)[:200]}")


def _summary(settings: Settings, rows: Sequence[Rechecked], total: int) -> Summary:
    """Return how it ends. What is not as expected counts more than what could not be judged: it is known."""
    others = [row for row in rows if row.outcome not in (row.expect, NOT_JUDGED)]
    unjudged = [row for row in rows if row.outcome == NOT_JUDGED]
    status = Status.not_as_expected if others else Status.could_not_judge if unjudged else Status.found
    words = Counter(row.outcome for row in rows)
    said = ", ".join(f"{number} {word}" for word, number in words.items())
    head = f"{counted(total, 'kept result')}: {said}"
    parts = [f"{len(others)} not as expected" if others else "all as expected" if not unjudged else ""]
    return Summary(status, status.exit_code, settings.strategy.name, "; ".join(filter(None, [head, *parts])),
                   rechecked=tuple(rows))  # fmt: skip
