"""Checker around another one: builds the engine and records its tactics before the check looks at it.

The check may only be asked about what it was meant to be asked about: a build that fails is the verdict itself, and one
that did not get the tactics that were pinned is no answer.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.candidate import Candidate
from runner.checkers.backend_run import BackendRun
from runner.checkers.checker import Checker
from runner.checkers.wrapping_checker import Around
from runner.jobs.tactics.engine_subject import CACHE, REQUEST
from runner.jobs.tactics.recorded_tactics import (
    SUFFIX,
    Choice,
    Recording,
    choices_of,
    from_log,
    write,
)
from runner.verdict import Verdict
from strategies.outcome import Outcome

Build = Callable[[Candidate, Mapping[str, Any]], BackendRun]
"""Builds a candidate with a request about tactics; log and engine are left in the candidate's folder."""

ENGINE, LOG = "model.engine", "build.log"
# how TensorRT words it is not documented: whatever speaks of the cache when nothing may be timed
_MISS = re.compile(r"timing[ _-]?cache|cache[ _-]?miss|MISS\b", re.IGNORECASE)
_REFUSED = "error PinRefused"


@dataclass(frozen=True)
class Building(Around):
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
