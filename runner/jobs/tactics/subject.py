"""The subjects of runs about tactics, and the check that builds an engine first.

Subject `tactics`: choices in which a bad build differs from a good one; a trial is the bad ones that are pinned.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.checkers.candidate_runs import BackendRun
from runner.checkers.checker import Checker, DelegatingChecker
from runner.jobs.repeat import Command
from runner.jobs.tactics.recordings import (
    SUFFIX,
    Choice,
    Recording,
    TacticDifference,
    choices_of,
    differences,
    from_log,
    write,
)
from runner.verdict import Candidate, Sample, Verdict
from strategies.search import Outcome, Space, Trial

# Subject `engine`: the model, built anew; a trial is the number of an iteration.

REQUEST = "request.json"
"""What a build is asked about tactics, in the candidate's folder (see `runner.backends.trt.tactics`)."""
CACHE = "timing.cache"


def write_request(folder: Path, *, load: Sequence[Path], pins: Mapping[str, str], save: Path | None) -> None:
    """Write what the build in ``folder`` is asked: pins forbid that anything is timed."""
    asked: dict[str, Any] = {
        "load": [str(path) for path in load],
        "pins": dict(pins),
        "save": str(save) if save else None,
        "error_on_miss": bool(pins),
    }
    (folder / REQUEST).write_text(json.dumps(asked), encoding="utf-8")


@dataclass(frozen=True)
class Engine(Command):
    """Repeats a build: each starts with an empty timing cache, so that all tactics are timed again."""

    def identity(self) -> dict[str, str]:
        """Return nothing more than the kind: the run's context says which model it is."""
        return {"kind": "engine"}

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the model, to be built."""
        write_request(folder, load=(), pins={}, save=folder / CACHE)
        return super().make(trial, folder)


@dataclass(frozen=True)
class Tactics:
    """Independent elements: any of the bad choices can be pinned, all others are pinned as in the good build.

    ``caches``: files of timing caches that hold the keys.
    """

    model: Path
    good: Recording
    bad: Recording
    caches: tuple[Path, ...]
    samples: tuple[Sample, ...] = ()

    @cached_property
    def elements(self) -> tuple[TacticDifference, ...]:
        """The differing choices."""
        return differences(self.good, self.bad)

    @cached_property
    def space(self) -> Space:
        """The elements, without structure."""
        return Space(tuple(range(len(self.elements))))

    def identity(self) -> dict[str, str]:
        """Return the choices of both builds, whatever files these were read from."""
        said = [[[one.key, one.tactic] for one in recording.choices] for recording in (self.good, self.bad)]
        return {"kind": "tactics", "choices": hashlib.sha256(json.dumps(said).encode()).hexdigest()}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return layers and the bad tactics they get."""
        return tuple(str(self.elements[number]) for number in trial)

    def pins(self, trial: Trial) -> dict[str, str]:
        """Return {key: tactic} for every key of the good build."""
        pinned = {choice.key: choice.tactic for choice in self.good.choices if choice.key}
        return {**pinned, **{self.elements[number].bad.key: self.elements[number].bad.tactic for number in trial}}

    def recording(self, trial: Trial) -> Recording:
        """Return what a build of ``trial`` is to have chosen."""
        bad = {self.elements[number].bad.key: self.elements[number].bad for number in trial}
        choices = tuple(bad.get(choice.key, choice) for choice in self.good.choices)
        return Recording(choices, model=self.good.model, library=self.good.library, pinned=True)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the model, to be built with these pins. The empty trial pins all the good choices."""
        write_request(folder, load=self.caches, pins=self.pins(trial), save=None)
        return Candidate(self.model, folder, trial, self.samples, nodes=self.names(trial))


# Checker around another one: builds the engine and records its tactics before the check looks at it.
#
# The check may only be asked about what it was meant to be asked about: a build that fails is the verdict itself, and
# one that did not get the tactics that were pinned is no answer.

Build = Callable[[Candidate, Mapping[str, Any]], BackendRun]
"""Builds a candidate with a request about tactics; log and engine are left in the candidate's folder."""

ENGINE, LOG = "model.engine", "build.log"
# how TensorRT words it is not documented: whatever speaks of the cache when nothing may be timed
_MISS = re.compile(r"timing[ _-]?cache|cache[ _-]?miss|MISS\b", re.IGNORECASE)
_REFUSED = "error PinRefused"


@dataclass(frozen=True)
class Building(DelegatingChecker):
    """Builds as ``build`` does, then checks as ``checker`` does.

    ``settings``: what the verdicts depend on besides the check's own. ``model``: SHA-256, and ``library``: what
    builds, for the recordings, which are left as tactics.json in the candidate's folder.
    """

    checker: Checker
    build: Build
    settings: Mapping[str, str]
    model: str | None = None
    library: str = ""

    def check(self, candidate: Candidate) -> Verdict:
        """Build, record, and hand the engine to the checker."""
        started = time.monotonic()
        request = json.loads((candidate.folder / REQUEST).read_text(encoding="utf-8"))
        built = self.build(candidate, request)
        seconds = time.monotonic() - started
        recording = self._record(candidate, built, pinned=bool(request["pins"]))
        verdict = self._judged(candidate, built, request, recording)
        metrics = {**verdict.metrics, "build_seconds": round(seconds, 3), "choices": len(recording.choices)}
        peak = max(verdict.peak_rss_mb, built.peak_rss_mb)
        return replace(verdict, metrics=metrics, seconds=time.monotonic() - started, peak_rss_mb=peak)

    def identity(self) -> dict[str, str]:
        """The checker's, and what builds."""
        return {**self.checker.identity(), **self.settings}

    def _judged(
        self, candidate: Candidate, built: BackendRun, request: Mapping[str, Any], recording: Recording
    ) -> Verdict:
        if built.invalid:
            return Verdict(Outcome.UNRESOLVED, reason=built.invalid)
        if built.signature:
            reason = " ".join(built.message.split())[:300]
            missed = request["error_on_miss"] and _MISS.search(built.message)
            if built.signature.kind == _REFUSED or missed:
                return Verdict(Outcome.UNRESOLVED, reason=f"the tactics could not be pinned: {reason}")
            return Verdict(Outcome.FAIL, built.signature, f"the build fails: {reason}")
        why = not_honored(request["pins"], built.tactics or {}, recording)
        if why:
            return Verdict(Outcome.UNRESOLVED, reason=why)
        if self.checker.name == "builds":  # that check would build another engine
            return Verdict(Outcome.PASS)
        return self.checker.check(replace(candidate, engine=candidate.folder / ENGINE))

    def _record(self, candidate: Candidate, built: BackendRun, *, pinned: bool) -> Recording:
        """Write down what is known, also of a build that failed."""
        log, saved = candidate.folder / LOG, candidate.folder / CACHE
        choices: tuple[Choice, ...] = ()
        if built.tactics:
            choices = choices_of(built.tactics)
        elif log.is_file():
            choices = from_log(log)
        cache = saved.read_bytes() if saved.is_file() else b""
        saved.unlink(missing_ok=True)
        recording = Recording(
            choices,
            model=self.model,
            library=self.library,
            iteration=candidate.iteration,
            cache=cache,
            built=built.signature is None and not built.invalid,
            pinned=pinned,
        )
        write(candidate.folder / SUFFIX, recording)
        return recording


def not_honored(pins: Mapping[str, str], told: Mapping[str, Any], recording: Recording) -> str:
    """Return why a build with pins says nothing about them; empty where each was honored and nothing was timed."""
    if not pins:
        return ""
    found = {choice.key: choice for choice in recording.choices}
    wrong = [key for key, tactic in pins.items() if key not in found or found[key].tactic != tactic]
    if wrong:
        had = found[wrong[0]].shown if wrong[0] in found else "nothing"
        return (
            f"{len(wrong)} of {len(pins)} pinned tactics were not honored: {wrong[0]} got {had} in place of "
            f"{pins[wrong[0]]}"
        )
    timed = list(told.get("timed") or ())
    if timed:
        named = found[timed[0]].layer if timed[0] in found else timed[0]
        return f"{len(timed)} operators were timed although all tactics were pinned ({named})"
    return ""
