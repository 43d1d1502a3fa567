"""Recorded tactics: read from files and logs, compared, and pinned in builds that a check then looks at.

Subject `tactics`: choices in which a bad build differs from a good one; a trial is the bad ones that are pinned.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runner.backends.trt.tactics import KEY, parse_file, plain_hash
from runner.checkers.candidate_runs import BackendRun
from runner.checkers.checker import Checker, DelegatingChecker
from runner.exit_codes import UsageError
from runner.files import write_text
from runner.jobs.repeat import Command
from runner.jobs.variants.passes import WholeModel
from runner.report.result_parts import TacticSuspect
from runner.verdict import Candidate, Verdict
from strategies.search import Outcome, Trial

# Three kinds are read: Winnow's own JSON, tactic replay files of Polygraphy (8.x and 10.x, made through algorithm
# selectors), and verbose logs of builds with an editable timing cache. Own files are described in docs/tactics.md.

FORMAT, VERSION = "winnow.tactics", 1
SUFFIX = "tactics.json"
_LOGS = frozenset({".log", ".txt"})
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Choice:
    """What one layer got.

    ``layer``: the operator's name, its key where no log names it. ``key``: of the timing cache, empty where there is
    none. ``tactic``: a hash, or Polygraphy's description of an algorithm. ``ms``: milliseconds. ``nodes``: ONNX nodes
    behind the layer.
    """

    layer: str
    key: str
    tactic: str
    kernel: str = ""
    ms: float | None = None
    nodes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The tactic for a person."""
        return f"{self.kernel} ({self.tactic})" if self.kernel else self.tactic

    def told(self, good: Mapping[str, int], bad: int | None = None, of: int | None = None) -> TacticSuspect:
        """Return it as result.json has it. ``good``: what good builds chose there; ``bad``: builds ``of`` so many."""
        named = self.layer, self.key or None, self.tactic, self.kernel or None, self.nodes
        return TacticSuspect(*named, bad_builds=bad, of=of, good=dict(good))


@dataclass(frozen=True)
class Recording:
    """The tactics of one build.

    ``kind``: winnow, log or polygraphy. ``source``: the file. ``model``: SHA-256 of the model, if known. ``library``:
    what built it. ``cache``: the serialized timing cache, if there is one. ``built``: whether the build came to its
    end. ``pinned``: whether the tactics were prescribed.
    """

    choices: tuple[Choice, ...]
    kind: str = "winnow"
    source: str = ""
    model: str | None = None
    library: str = ""
    iteration: int | None = None
    cache: bytes = b""
    built: bool = True
    pinned: bool = False


def choices_of(told: Mapping[str, Any]) -> tuple[Choice, ...]:
    """Return the choices of what a worker (or an own file) tells. Raises KeyError, TypeError or ValueError."""
    return tuple(
        Choice(
            str(one.get("layer") or one["key"]),
            _key(one["key"]),
            plain_hash(one["tactic"]),
            str(one.get("kernel") or ""),
            None if one.get("ms") is None else float(one["ms"]),
            tuple(map(str, one.get("nodes") or ())),
        )
        for one in told["choices"]
    )


def _key(text: Any) -> str:
    if not KEY.fullmatch(str(text)):
        raise ValueError(f"{text}: a key of the timing cache is 0x and 32 hexadecimal digits")
    return str(text).lower()


def from_log(path: Path) -> tuple[Choice, ...]:
    """Return the choices that a verbose build log tells. Raises OSError."""
    return tuple(
        Choice(record.op, record.key, record.selected, record.kernels.get(record.selected, ""), record.ms, record.nodes)
        for record in parse_file(str(path))
        if record.selected is not None
    )


def write(path: Path, recording: Recording) -> None:
    """Write an own file. Raises OSError."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "model": recording.model,
        "library": recording.library,
        "iteration": recording.iteration,
        "built": recording.built,
        "pinned": recording.pinned,
        "choices": [asdict(one) for one in recording.choices],
        "cache": base64.b64encode(recording.cache).decode() if recording.cache else None,
    }
    write_text(path, json.dumps(content, indent=1) + "\n")


def read(path: Path) -> Recording:
    """Read a file of any of the three kinds. Raises OSError, and ValueError saying what is wrong with it."""
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for, a device never ends
        raise ValueError("it is no plain file")
    if path.suffix.lower() in _LOGS:
        choices = from_log(path)
        if not choices:
            raise ValueError("no autotuning of a build with an editable timing cache stands in it")
        return Recording(choices, "log", str(path))
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("neither tactics that Winnow recorded nor a tactic replay")
    try:
        if content.get("format") == FORMAT:
            return _own(content, path)
        if isinstance(content.get("replay"), dict):
            return Recording(_replayed(content["replay"]), "polygraphy", str(path))
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"incomplete: {type(error).__name__}: {error}") from None
    raise ValueError("neither tactics that Winnow recorded nor a tactic replay")


def collect(place: Path) -> tuple[list[Recording], dict[Path, str]]:
    """Return the recordings of a file, or of all files below a folder in the order of their names.

    In a folder only names that end in .json, .log or .txt count. What holds no tactics or cannot be read comes beside
    them, with the reason. Raises OSError for a place that is not there or cannot be read.
    """
    skipped: dict[Path, str] = {}
    is_folder = place.is_dir()
    tried = {path: _tried(path, is_folder) for path in (_below(place, skipped) if is_folder else [place])}
    skipped |= {path: why for path, why in tried.items() if isinstance(why, str)}
    return [one for one in tried.values() if isinstance(one, Recording)], skipped


def _tried(path: Path, one_of_many: bool) -> Recording | str:
    """The recording, or why there is none. Raises OSError, unless it is one of many."""
    try:
        recording = read(path)
    except ValueError as error:
        return str(error)
    except OSError as error:
        if not one_of_many:
            raise
        return error.strerror or str(error)
    return recording if recording.choices else "no tactics stand in it"


def _below(folder: Path, skipped: dict[Path, str]) -> list[Path]:
    """The files below ``folder`` that may be recordings; folders that cannot be read are ``skipped``."""

    def refused(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise error
        skipped[Path(error.filename)] = error.strerror or str(error)

    paths = (Path(at, name) for at, _, names in os.walk(folder, onerror=refused) for name in names)
    return sorted(path for path in paths if path.suffix.lower() in {".json", *_LOGS})


def _own(content: Mapping[str, Any], path: Path) -> Recording:
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']} of {FORMAT}; this Winnow reads version {VERSION}")
    return Recording(
        choices_of(content),
        "winnow",
        str(path),
        str(content["model"]) if content.get("model") else None,
        str(content.get("library") or ""),
        content.get("iteration"),
        base64.b64decode(content.get("cache") or "", validate=True),
        bool(content.get("built", True)),
        bool(content.get("pinned", False)),
    )


def _replayed(replay: Mapping[str, Any]) -> tuple[Choice, ...]:
    """Return the choices of Polygraphy's ``TacticReplayData``: {layer: Algorithm}."""
    found = []
    for layer, algorithm in replay.items():
        ends = " -> ".join(", ".join(map(_tensor, algorithm[end])) for end in ("inputs", "outputs"))
        tactic = f"implementation {algorithm['implementation']}, tactic {algorithm['tactic']}: {ends}"
        found.append(Choice(str(layer), "", tactic))
    return tuple(found)


def _tensor(info: Any) -> str:
    """Describe a ``TensorInfo``; files of older versions have a list or text in its place."""
    if not isinstance(info, Mapping):
        return " ".join(map(str, info)) if isinstance(info, list) else str(info)
    vector = info.get("components_per_element")
    width = f" x{vector}@{info.get('vectorized_dim')}" if vector is not None and vector != 1 else ""
    kind = str(info["dtype"]).rpartition(".")[2]
    return f"{kind}({','.join(map(str, info['strides']))}){width}"


# Suspects: tactics that bad builds chose and no good build did, layer by layer.

# an operator's layer and key: several operators may bear one layer's name
_Operator = tuple[str, str]
_KEYS = "strategy.good, strategy.bad"


def suspects(good: Sequence[Recording], bad: Sequence[Recording]) -> tuple[TacticSuspect, ...]:
    """Return the suspects, those of most bad builds first; among equals in the order of the builds.

    Operators are told by the layer's name and the key. Raises UsageError where the builds cannot be compared.
    """
    comparable(good, bad)
    choices = [choice for one in (*good, *bad) for choice in one.choices]
    names = {one.key: one.layer for one in choices if one.key and one.layer != one.key}
    seen: dict[_Operator, Counter[str]] = defaultdict(Counter)
    shown: dict[tuple[_Operator, str], str] = {}
    for recording in good:
        for (operator, tactic), choice in _distinct(recording, names).items():
            seen[operator][tactic] += 1
            shown[operator, tactic] = choice.shown
    counts: Counter[tuple[_Operator, str]] = Counter()
    first: dict[tuple[_Operator, str], Choice] = {}
    for recording in bad:
        for place, choice in _distinct(recording, names).items():
            operator, tactic = place
            if tactic not in seen.get(operator, ()):
                counts[place] += 1
                first.setdefault(place, replace(choice, layer=operator[0]))
    found = []
    for (operator, tactic), count in counts.most_common():
        others = {shown[operator, other]: times for other, times in seen.get(operator, Counter()).most_common()}
        found.append(first[operator, tactic].told(others, count, len(bad)))
    return tuple(found)


def comparable(good: Sequence[Recording], bad: Sequence[Recording]) -> None:
    """Raise UsageError where recordings name tactics in different ways, or are of two models or two libraries.

    A recording that does not tell its model or its library is taken to be of the others'.
    """
    every = (*good, *bad)
    if len({one.kind == "polygraphy" for one in every}) > 1:
        raise UsageError(
            f"{_KEYS}: tactic replays of Polygraphy beside other recordings: they name tactics in different ways"
        )
    for noun, told in (("model", [one.model for one in every]), ("library", [one.library for one in every])):
        known = [(text, one.source) for text, one in zip(told, every, strict=True) if text]
        for text, source in known:
            if text != known[0][0]:
                raise UsageError(
                    f"{_KEYS}: {known[0][1]} is of {noun} {known[0][0]}, {source} of {noun} {text}: their tactics "
                    f"cannot be compared. Give builds of one {noun}"
                )


def _distinct(recording: Recording, names: Mapping[str, str]) -> Mapping[tuple[_Operator, str], Choice]:
    """The choices of a build, each once: an operator may be decided several times.

    ``names``: {key: layer} for a build that does not tell the names itself.
    """
    return {
        ((names.get(one.key, one.layer) if one.layer == one.key else one.layer, one.key), one.tactic): one
        for one in recording.choices
    }


@dataclass(frozen=True)
class TacticDifference:
    """One key for which two builds chose different tactics."""

    good: Choice
    bad: Choice

    @property
    def layer(self) -> str:
        """The operator's name, from whichever build tells it."""
        return self.bad.layer if self.bad.layer != self.bad.key else self.good.layer

    def __str__(self) -> str:
        return f"{self.layer}: {self.bad.shown}"


def differences(good: Recording, bad: Recording) -> tuple[TacticDifference, ...]:
    """Return the keys that both builds decided, and decided differently, in the bad build's order."""
    theirs = {choice.key: choice for choice in good.choices if choice.key}
    mine = {choice.key: choice for choice in bad.choices if choice.key}
    return tuple(
        TacticDifference(theirs[key], choice)
        for key, choice in mine.items()
        if key in theirs and theirs[key].tactic != choice.tactic
    )


def nearest(good: Sequence[Recording], bad: Sequence[Recording]) -> tuple[Recording, Recording] | None:
    """Return the good and the bad build with the fewest differences, at least one; None if all are alike."""
    pairs = [(len(found), a, b) for a in good for b in bad if (found := differences(a, b))]
    if not pairs:
        return None
    _, chosen, other = min(pairs, key=lambda pair: pair[0])
    return chosen, other


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
class Tactics(WholeModel[TacticDifference]):
    """A trial is some of the bad choices that are pinned; all others are pinned as in the good build.

    ``choices``: in which the builds differ. ``caches``: files of timing caches that hold the keys.
    """

    good: Recording
    bad: Recording
    caches: tuple[Path, ...]

    def identity(self) -> dict[str, str]:
        """Return the choices of both builds, whatever files these were read from."""
        said = [[[one.key, one.tactic] for one in recording.choices] for recording in (self.good, self.bad)]
        return {"kind": "tactics", "choices": hashlib.sha256(json.dumps(said).encode()).hexdigest()}

    def pins(self, trial: Trial) -> dict[str, str]:
        """Return {key: tactic} for every key of the good build."""
        pinned = {choice.key: choice.tactic for choice in self.good.choices if choice.key}
        return {**pinned, **{one.key: one.tactic for one in self._bad(trial)}}

    def recording(self, trial: Trial) -> Recording:
        """Return what a build of ``trial`` is to have chosen."""
        bad = {one.key: one for one in self._bad(trial)}
        choices = tuple(bad.get(choice.key, choice) for choice in self.good.choices)
        return Recording(choices, model=self.good.model, library=self.good.library, pinned=True)

    def _bad(self, trial: Trial) -> list[Choice]:
        return [self.choices[number].bad for number in trial]

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
