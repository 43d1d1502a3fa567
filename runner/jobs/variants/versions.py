"""Runs `strategy=versions`: from a release that is known to be bad to the nearest good one on either side."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from operator import attrgetter
from pathlib import Path

from packaging.version import InvalidVersion, Version

from runner.engine.check_trials import Judge
from runner.engine.repeated_checks import HEALTHY, SECONDS, WHOLE, ContradictionError, Reliability
from runner.engine.session import Session
from runner.engine.session_question import Question, SessionResult, study
from runner.exit_codes import CannotJudge, Status, UsageError
from runner.files import read_plain
from runner.jobs.job import Job, load_whole
from runner.jobs.variants.passes import WholeModel
from runner.jobs.variants.release_cache import Installed, ReleaseCache, chosen_versions, installed_under, last_patches
from runner.reference.load import Loaded, own_file_only
from runner.report.result_parts import AskedRelease
from runner.report.result_parts import Releases as ReleasesFound
from runner.report.summary import Summary
from runner.schema.checker import CommandChecker
from runner.schema.installed_choices import SEARCHES
from runner.schema.root import Settings
from runner.schema.strategy import Patches, VersionsSettings, chosen
from runner.text import listed
from runner.verdict import Candidate, Invalid, Phase, Variant, Verdict
from runner.workers.worker import find_python
from strategies.search import Answer, Options, Outcome, Trial

log = logging.getLogger(__name__)

AGAIN = 3
"""How often the releases on which the answer rests are checked, in all."""
NEITHER = FAILS_OTHERWISE, CANNOT_TELL, NOT_KNOWN = "fails otherwise", "cannot tell", "not known"
"""What a release is called that is neither broken nor good.

It fails, but not as the first one; or it cannot read the file; or it was not judged.
"""
CANNOT_READ = "it cannot read the file"
_LONGEST = 300
_UNREADABLE = re.compile(
    "|".join(
        (
            r"Unsupported model IR version[^\n]*|ir_version \d+ is higher than[^\n]*",
            r"Opset \d+ is under development[^\n]*|[Uu]nsupported opset[^\n]*",
            r"No Op registered for [^\n]*|[^\n]* is not a registered function/op[^\n]*",
            r"No schema registered for [^\n]*|No importer registered for op[^\n]*|Unrecognized attribute: [^\n]*",
        )
    )
)
"""What ONNX Runtime, onnx and TensorRT say of a file that is newer than they are."""
_WORDS = {Outcome.FAIL: "broken", Outcome.PASS: "good", Outcome.DIFFERENT: FAILS_OTHERWISE}


@dataclass(frozen=True)
class Release:
    """``python``: an interpreter that has it; None: it is installed when it is asked."""

    package: str
    version: Version
    python: Path | None = None

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class Releases(WholeModel[Release]):
    """A trial is one release; the choices are the oldest first. ``install``: gives one of them an interpreter."""

    install: Callable[[Version], Installed]
    environment: str

    def identity(self) -> dict[str, str]:
        """Return which releases a trial counts, and what they run in."""
        releases = json.dumps([(str(one), str(one.python or "")) for one in self.choices])
        return {"kind": "versions", "releases": releases, "environment": self.environment}

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Return the model, to be run by a release; Invalid where that cannot be installed."""
        (number,) = trial
        release = self.choices[number]
        python = release.python or self.install(release.version)
        if isinstance(python, str):
            return Invalid(f"{release}: {python}")
        return self.under(Variant(python=str(python)), trial, folder)


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Search the releases and leave the result folder behind. Raises UsageError where there are none to search."""
    _refuse(settings)
    with Job.opened(settings, folder, command) as job:
        strategy = chosen(settings.strategy, VersionsSettings)
        cache = ReleaseCache(
            job.tools.at(strategy.cache).absolute(),
            strategy.package,
            find_python(settings.target.python),
            *(strategy.besides, strategy.pip, strategy.offline, strategy.install_timeout),
        )
        releases, bad, first = _releases(job, strategy, cache)
        loaded = load_whole(job, job.folder) if settings.model else None
        samples = loaded.samples if loaded else ()
        given = {str(one.python) for one in releases if one.python}
        environment = {python: installed_under(python) for python in sorted({cache.base, *given})}
        told = json.dumps({"besides": sorted(strategy.besides), "packages": environment})
        subject = Releases(loaded.path if loaded else None, releases, samples, cache.install, told)
        with job.judge(subject, loaded, "releases") as judge:
            return _History(job, loaded, subject, judge, bad, tuple(sorted(first)), cache).summary()


def _refuse(settings: Settings) -> None:
    checker = settings.checker
    if isinstance(checker, CommandChecker) and "{python}" not in str(checker.command):
        raise UsageError(
            "checker.command does not name {python}, so the check is the same for every release: "
            "checker.command='{python} check.py {model}'"
        )
    if checker.runs_own_code and not isinstance(checker, CommandChecker):
        raise UsageError(
            f"strategy=versions checker={checker.name}: it runs under its own interpreter. Take checker=auto, runs, "
            "finite, compare or builds, or checker=command checker.command='{python} check.py {model}'"
        )
    own_file_only(settings)


def _releases(job: Job, strategy: VersionsSettings, cache: ReleaseCache) -> tuple[tuple[Release, ...], int, set[int]]:
    """Return the releases, oldest first, the place of the one that is taken for bad, and those that are asked first."""
    target = job.settings.target.python
    bad = chosen_versions([], [strategy.bad], "strategy.bad") if strategy.bad else []
    own, later = None, set[Version]()
    with suppress(UsageError):  # there is none
        own = _named(job, strategy.package, target)
    if strategy.interpreters:
        found = {_named(job, strategy.package, str(python)) for python in strategy.interpreters}
        for one, other in combinations(sorted(found, key=lambda one: (one.version, str(one.python))), 2):
            if one.version == other.version:
                raise UsageError(
                    f"strategy.interpreters: {one} under {one.python} and {other.python}. Give one of them"
                )
    else:
        listed_ones = isinstance(strategy.versions, Sequence) and not isinstance(strategy.versions, str)
        wanted = chosen_versions([] if listed_ones else cache.available(), strategy.versions)
        if strategy.patches is Patches.last and not listed_ones:
            later = {*wanted} - last_patches(wanted)
        found = {Release(strategy.package, version) for version in wanted}
    if own:
        found = {one for one in found if one.version != own.version} | {own}
    start = own
    if bad:
        (known,) = bad
        start = next((one for one in found if one.version == known), Release(strategy.package, known))
        found |= {start}
    releases = tuple(sorted(found, key=lambda one: one.version))
    first = {number for number, one in enumerate(releases) if one.version not in later or one in (own, start)}
    return releases, releases.index(start) if start else len(releases) - 1, first


def _named(job: Job, package: str, python: str | None) -> Release:
    """Return the release that an interpreter has. Raises UsageError where it has none."""
    versions = job.pool.versions(python, [package.replace("-", "_")])
    text = versions.get(package) or versions.get(package.replace("-", "_"), "")
    try:
        return Release(package, Version(text.partition(" ")[0]), Path(find_python(python)))
    except InvalidVersion:
        raise UsageError(f"strategy.interpreters={python}: there is no {package} under it") from None


@dataclass(frozen=True)
class VersionsQuestion(Question):
    """A release that fails otherwise is neither broken nor good: that other failure may hide the one under study.

    ``cannot_read``: says why a release cannot read the file, "" where it can.
    """

    cannot_read: Callable[[Verdict], str] = lambda _: ""

    def answer(self, verdict: Verdict) -> Answer:
        """Return what one verdict says."""
        unknown = verdict.outcome is Outcome.DIFFERENT or self.cannot_read(verdict)
        return Answer.UNKNOWN if unknown else super().answer(verdict)


@dataclass(frozen=True)
class _History:
    """The search of one run. ``bad``: the release to start from; ``first``: those that are searched before others."""

    job: Job
    loaded: Loaded | None
    subject: Releases
    judge: Judge
    bad: int
    first: tuple[int, ...]
    cache: ReleaseCache

    def summary(self) -> Summary:
        """Search, and return what is reported."""
        job, reliability = self.job, self.job.reliability()
        strategy = chosen(job.settings.strategy, VersionsSettings)
        told = Options(
            start=self.bad,
            exhaustive=strategy.exhaustive,
            coarse=self.first,
            label=lambda at: str(self.subject.choices[at]),
        )
        session = Session(
            self.judge,
            lambda space: SEARCHES[strategy.search].begin(space, told),
            question=VersionsQuestion(whole=str(self.subject.choices[self.bad]), cannot_read=self._cannot_read),
            means=replace(job.means, workers=1),
            reliability=reliability,
            find_min_good=False,
        )
        ending = job.ended(session.interrupted, lambda: self._asked(session, reliability))
        summary = job.summary(self.judge, ending, self.loaded, reliability)
        if ending.status is Status.found:
            releases = self._releases()
            left = "; the budget was reached before the search ended" if session.inquiry.stopped else ""
            summary = replace(summary, releases=releases, message=_told(releases) + left)
        job.bundle(summary)
        return summary

    def _asked(self, session: Session, reliability: Reliability) -> SessionResult:
        start, name = Trial.of([self.bad]), str(self.subject.choices[self.bad])
        verdict = self.judge.sure(start, Phase.PREFLIGHT, name)
        if verdict.outcome is Outcome.PASS:
            self._sure(reliability, start, name, HEALTHY, failing=False)
            how = "Name a release that fails: strategy.bad=1.2.3, or target.python=old/bin/python"
            return SessionResult(Status.nothing_to_find, f"{name} passes the check. {how}")
        if verdict.outcome is not Outcome.FAIL:
            told = verdict.reason if verdict.reason.startswith(f"{name}: ") else f"{name}: {verdict.said}"
            raise CannotJudge(f"{told}\ncheck: {self.judge.checker.describe()}")
        study(self.judge, verdict, name)
        log.info("%s fails (%s); this is the failure under study", name, self.judge.studied)
        self._sure(reliability, start, name, WHOLE, failing=True)
        if self.job.settings.plan:
            others = [str(one.version) for number, one in enumerate(self.subject.choices) if number != self.bad]
            planned = session.planned()
            return replace(planned, message=f"{planned.message}; the releases to ask from: {', '.join(others)}")
        done = session.inquiry.run()
        self._check_neighbors(reliability)
        return SessionResult(Status.found, "", done, signature=self.judge.studied.signature)

    def _check_neighbors(self, reliability: Reliability) -> None:
        """Check the nearest good releases again, and the broken ones beside them: the answer rests on these.

        Each once before any of them twice, as long as repeats may take.
        """
        outcomes = {number: one.outcome for number, one in enumerate(self._known()) if one}
        neighbors = []
        for line in (range(self.bad - 1, -1, -1), range(self.bad + 1, len(self.subject.choices))):
            good = next((number for number in line if outcomes.get(number) is Outcome.PASS), None)
            if good is not None:
                broken = [at for at in (self.bad, *line[: line.index(good)]) if outcomes.get(at) is Outcome.FAIL]
                neighbors += [(good, False), (broken[-1], True)]
        for times in range(2, AGAIN + 1):
            for number, failing in neighbors:
                seconds = reliability.allowance(self.judge)
                name = str(self.subject.choices[number])
                self._sure(reliability, Trial.of([number]), name, times, seconds, failing=failing)

    def _sure(
        self, reliability: Reliability, trial: Trial, name: str, times: int, seconds: float = SECONDS, *, failing: bool
    ) -> None:
        """Check a release again, ``times`` in all. Raises CannotJudge where it says something else."""
        try:
            reliability.repeat(self.judge, trial, name, times, seconds, failing=failing)
        except ContradictionError as surprise:
            raise CannotJudge(f"{surprise}: the check is flaky, and one release cannot be told from another") from None

    def _releases(self) -> ReleasesFound:
        known = [*zip(self.subject.choices, self._known(), strict=True)]
        asked = tuple(
            AskedRelease(str(one.version), word_of(verdict), self._reason(one, verdict))
            for one, verdict in known
            if verdict
        )
        good = [str(release.version) if one and one.outcome is Outcome.PASS else None for release, one in known]
        before, after = (next(filter(None, line), None) for line in (good[self.bad :: -1], good[self.bad :]))
        return ReleasesFound(
            package=self.cache.package,
            bad=str(self.subject.choices[self.bad].version),
            good_before=before,
            good_after=after,
            asked=asked,
            not_asked=tuple(str(one.version) for one, verdict in known if not verdict),
            installed=self.cache.installs,
        )

    def _reason(self, release: Release, verdict: Verdict) -> str:
        beside = "" if release.python else self.cache.beside(release.version)
        return "; ".join(filter(None, (verdict.reason, beside and f"{beside} is installed beside it")))

    def _known(self) -> list[Verdict | None]:
        """Return the verdict on each release; one that could not be installed, or cannot read the file, has none."""
        found = []
        for number, release in enumerate(self.subject.choices):
            verdict = self._first(number)
            why = self.cache.refused.get(release.version) or (self._cannot_read(verdict) if verdict else "")
            found.append(Verdict(Outcome.UNRESOLVED, reason=why) if why else verdict)
        return found

    def _first(self, number: int) -> Verdict | None:
        return next(iter(self.judge.counted(Trial.of([number]))), None)

    def _cannot_read(self, verdict: Verdict) -> str:
        """Say why a release cannot read the file; "" where it can, and where the failure under study is just that."""
        start, folder = self._first(self.bad), self.job.folder
        return "" if start and unreadable(start, folder) else unreadable(verdict, folder)


def _told(releases: ReleasesFound) -> str:
    """Return the answer in a sentence."""
    runs = [(word, [one.version for one in some]) for word, some in groupby(releases.asked, attrgetter("outcome"))]
    broken = ", ".join(" ... ".join(dict.fromkeys((one[0], one[-1]))) for word, one in runs if word == "broken")
    parts = [f"{releases.package} is broken in {broken}"]
    parts.append(f"good: {' and '.join(releases.good)}" if releases.good else "no good release was found")
    called = {word: [one.version for one in releases.asked if one.outcome == word] for word in NEITHER}
    parts += [f"{word}: {listed(versions)}" for word, versions in called.items() if versions]
    if releases.not_asked:
        parts.append(f"not tried: {listed(releases.not_asked)}")
    return "; ".join(parts)


def word_of(verdict: Verdict) -> str:
    """Return what a release with this verdict is called."""
    if verdict.outcome is Outcome.UNRESOLVED and verdict.reason.startswith(CANNOT_READ):
        return CANNOT_TELL
    return _WORDS.get(verdict.outcome, NOT_KNOWN)


def unreadable(verdict: Verdict, folder: Path) -> str:
    """Return what a check that did not pass says of a file that is newer than its reader; ``folder``: the run's."""
    if verdict.outcome is Outcome.PASS:
        return ""
    log = read_plain(folder / verdict.log).decode("utf-8", "replace") if verdict.log else ""
    found = _UNREADABLE.search(f"{verdict.reason}\n{log}")
    return f"{CANNOT_READ}: {found[0].strip()[:_LONGEST]}" if found else ""
