"""Remedies: each as a value, which there are, what earlier runs found, and the model with one."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from runner.engine.subject import values_digest
from runner.exit_codes import UsageError
from runner.files import sha256_of
from runner.jobs.extract import named
from runner.jobs.job import Job
from runner.jobs.reduce.subgraph import samples_of
from runner.jobs.variants.passes import LEVEL, Switch, builder_switches, changes, optimizer, overrides, session_switches
from runner.jobs.variants.release_cache import ReleaseCache, installed_under
from runner.jobs.workaround.rewrites import Rewrite, Rewriting
from runner.model.graph.cut import Cut, CutError, Form, control
from runner.model.graph.edits import Edit, edited, program
from runner.reference.load import Loaded, inferred_types
from runner.report.diagnosis_sections import session_code
from runner.report.result_parts import Latency, Workaround
from runner.report.summary import RESULT_NAME, read_result
from runner.schema.backend import OnnxRuntimeBackend, TensorRtBackend
from runner.schema.checker import CommandChecker
from runner.schema.strategy import WorkaroundSettings, chosen
from runner.verdict import Candidate, Invalid, Sample, Variant
from runner.workers.worker import find_python
from strategies.search import Space, Trial

# A remedy: one thing that may keep a failure away, all that it takes to try and to apply it, and what came of that.

_KINDS = ("pass", "tactic", "rewrite", "precision", "release")
"""Those first that change least, where they cost the same."""
_ALIKE = 10.0
"""Errors that are so many times apart count as one."""
_NO_ERROR = 1e-4
"""An error that is so small a part of what the check allows counts as none."""
_NOISE = 1.2
"""Times whose ratio is smaller count as one."""


@dataclass(frozen=True)
class Remedy:
    """``kind``: pass, precision, release, tactic or rewrite. ``what``: one line for people.

    ``variant``: what runs the model, where that is otherwise; ``edits``: of the model. ``overrides``, ``code``: how
    Winnow and anybody else apply it (of edits: how the model is changed). ``environment``: what the interpreter of the
    variant holds. ``why_not``: why it cannot be tried at all, "" where it can. ``places``: how many of the model it
    changes; one that sets something else counts as one. ``nodes``: what it has in float32.
    """

    kind: str
    what: str
    variant: Variant = field(default_factory=Variant)
    edits: tuple[Edit, ...] = ()
    overrides: tuple[str, ...] = ()
    code: str = ""
    environment: str = ""
    why_not: str = ""
    places: int = 1
    nodes: tuple[str, ...] = ()

    def identity(self) -> str:
        """Return all that a verdict on it depends on."""
        settings: Mapping[str, Any] = self.variant.settings
        told = [self.kind, self.what, settings, self.variant.python, self.code, self.environment, self.why_not]
        return json.dumps(told, default=str)


@dataclass
class Tried:
    """A remedy that was tried. ``told``: what result.json says of it.

    ``error``: the check's measure of what is still wrong with it, None where there is none: of a comparison, as a part
    of what is allowed.
    """

    remedy: Remedy
    told: Workaround
    error: float | None = None

    @property
    def cost(self) -> tuple[bool, float]:
        """How long it takes, as a part of the time without it where that is known; what was not measured is last."""
        latency = self.told.latency or Latency(after_ms=math.inf)
        return (latency.ratio is None, latency.after_ms if latency.ratio is None else latency.ratio)

    def note(self, **found: Any) -> None:
        """Take down what was found."""
        self.told = replace(self.told, **found)


def ranked(tried: Iterable[Tried]) -> list[Tried]:
    """Return what passes before what does not.

    Of these first what leaves as little wrong as the best does: what passes narrowly may heal one place of several.
    Then what changes the fewest places, of these what costs least, and of what costs the same the gentler kind.
    """
    tried = list(tried)
    good = [one for one in tried if one.told.passes]
    least = min((one.error for one in good if one.error is not None), default=0.0)
    allowed = max(_ALIKE * least, _NO_ERROR)
    step: dict[int, tuple[bool, float]] = {}
    first = (False, 0.0)
    for one in sorted(good, key=lambda one: one.cost):
        unknown, cost = one.cost
        if (unknown, cost) > (first[0], first[1] * _NOISE):
            first = one.cost
        step[id(one)] = first
    good.sort(
        key=lambda one: ((one.error or 0.0) > allowed, one.remedy.places, step[id(one)], _KINDS.index(one.remedy.kind))
    )
    return good + [one for one in tried if not one.told.passes]


# What earlier runs found: their culprits, what heals, the good releases. Of their files only names are read.


@dataclass(frozen=True)
class Findings:
    """``nodes``: culprits, where they stand several times all of them; ``heals``: sets of optimizations to turn off.

    ``releases``: (package, version) of good releases. ``models``: digests of the models that these runs were about.
    """

    nodes: tuple[str, ...] = ()
    heals: tuple[tuple[str, ...], ...] = ()
    releases: tuple[tuple[str, str], ...] = ()
    models: tuple[str, ...] = ()


def findings(folders: Iterable[str]) -> Findings:
    """Return what the runs in these folders found. Raises UsageError for one without a result."""
    nodes: dict[str, None] = {}
    heals: dict[tuple[str, ...], None] = {}
    releases: dict[tuple[str, str], None] = {}
    models: dict[str, None] = {}
    for folder in folders:
        result = read_result(Path(folder).expanduser())
        if result is None:
            raise UsageError(f"strategy.results={folder}: no {RESULT_NAME} can be read there. Name the folder of a run")
        models |= dict.fromkeys(filter(None, [result.context.get("model")]))
        # the culprits of strategy=passes are optimizations, those of strategy=versions are none
        if result.strategy not in ("passes", "versions"):
            nodes |= dict.fromkeys(result.culprits)
        for answer in result.cause.causes if result.cause else ():
            nodes |= dict.fromkeys(name for one in answer.instances for name in one)
        heals |= dict.fromkeys(filter(None, result.passes.heals if result.passes else ()))
        if (found := result.releases) and found.package:
            releases |= {(found.package, one): None for one in reversed(found.good)}
    return Findings(tuple(nodes), tuple(heals), tuple(releases), tuple(models))


_OWN_CODE = "the check runs code of yours, which this setting does not reach"


@dataclass(frozen=True)
class Remedies:
    """Makes the remedies of one run. ``warnings``: gets what went wrong on the way."""

    job: Job
    loaded: Loaded
    warnings: list[str] = field(default_factory=list)

    def all(self) -> tuple[Remedy, ...]:
        """Return them in the order in which they are tried. Raises UsageError where there is nothing to try."""
        strategy = chosen(self.job.settings.strategy, WorkaroundSettings)
        known = self._known
        there = {node.name for node in self.loaded.graph.nodes}
        known = replace(known, nodes=tuple(name for name in known.nodes if name in there))
        found = (
            *self._passes([*map(together, strategy.disabled_optimizers), *known.heals]),
            *self._precision([*strategy.raised], [*strategy.nodes, *known.nodes]),
            *self._releases(strategy.interpreters, known),
            *self._tactics(strategy.tactics),
            *self._rewrites([*strategy.nodes, *known.nodes]),
        )
        if not found:
            raise UsageError(
                "strategy=workaround: there is nothing to try. Give what earlier runs found, strategy.results="
                "[outputs/RUN], or name it: strategy.nodes=[NODE, ..], strategy.disabled_optimizers=[[NAME, ..]], "
                "strategy.raised=[NODE, ..], strategy.interpreters=[other/bin/python], strategy.tactics=FILE"
            )
        return found

    @cached_property
    def _known(self) -> Findings:
        return findings(chosen(self.job.settings.strategy, WorkaroundSettings).results)

    @property
    def doubts(self) -> str:
        """What there is to say of earlier runs; "": nothing. One of them may well be about a part of the model."""
        if not self._known.models or self.loaded.sha256 in self._known.models:
            return ""
        return "strategy.results: none of these runs was about this model; their findings are tried anyway"

    @property
    def _own_code(self) -> str:
        return _OWN_CODE if self.job.settings.checker.runs_own_code else ""

    def _passes(self, sets: Iterable[tuple[str, ...]]) -> Iterator[Remedy]:
        target = self.job.settings.target
        known: dict[str, Switch] = {}
        if isinstance(target, OnnxRuntimeBackend):
            known = {one.name: one for one in (*session_switches(target, ()), LEVEL)}
        elif isinstance(target, TensorRtBackend):
            known = {one.name: one for one in builder_switches(target)}
        for names in dict.fromkeys(sets):
            off = [known.get(name, optimizer(name)) for name in names]
            what, why = f"without {', '.join(names)}", self._own_code
            if not hasattr(target, "disabled_optimizers") and any(one.key == "disabled_optimizers" for one in off):
                why = f"target={target.name} has nothing of this name to turn off"
            changed = {} if why else changes(target, off)
            yield Remedy(
                *("pass", what, Variant(changed)), overrides=overrides(changed), code=session_code(changed), why_not=why
            )

    def _precision(self, named_ones: list[str], found: list[str]) -> Iterator[Remedy]:
        """Yield the one with what is named; of culprits only where they are in a low precision."""
        for names, must in ((named_ones, True), (found, False)):
            rewrites = [*self._rewriting.raised(named(self.loaded.graph, names).elements)] if names else []
            yield from (_edited("precision", one) for one in rewrites)
            if names and must and not rewrites:
                why = "none of these nodes reads and makes float16 or bfloat16 in this model"
                yield Remedy("precision", f"in float32: {', '.join(names)}", why_not=why)

    def _releases(self, interpreters: Iterable[str], known: Findings) -> Iterator[Remedy]:
        target = self.job.settings.target
        package = "onnx" if target.name == "onnx_reference" else target.name
        for python in dict.fromkeys(map(str, interpreters)):
            held = self.job.pool.versions(python)
            version = held.get(package, "").partition(" ")[0]
            what = f"{package} {version}" if version else f"under {python}"
            yield self._release(what, find_python(python), f"{package}=={version}" if version else "")
        folder = self.job.tools.at(chosen(self.job.settings.strategy, WorkaroundSettings).cache).absolute()
        for name, version in known.releases:
            try:
                wanted = Version(version)
            except InvalidVersion:
                continue
            cache = ReleaseCache(folder, name, find_python(target.python), offline=True)
            found = cache.install(wanted)
            there, why = (
                (str(found), "") if isinstance(found, Path) else ("", f"strategy.cache={folder} does not have it")
            )
            yield self._release(f"{name} {wanted}", there, f"{name}=={wanted}", why)

    def _release(self, what: str, python: str, requirement: str, why: str = "") -> Remedy:
        checker = self.job.settings.checker
        if checker.runs_own_code and not (isinstance(checker, CommandChecker) and "{python}" in str(checker.command)):
            why = f"{_OWN_CODE}; a command can ask for {{python}}"
        if why:
            why = f"{why}. Name an interpreter that has it: strategy.interpreters=[PYTHON]" if not python else why
            return Remedy("release", what, why_not=why)
        return Remedy(
            *("release", what, Variant(python=python)),
            overrides=(f"target.python={python}",),
            code=shlex.join(["pip", "install", requirement]) if requirement else "",
            environment=installed_under(python),
        )

    def _tactics(self, file: str | None) -> Iterator[Remedy]:
        if file is None:
            return
        target, path = self.job.settings.target, self.job.tools.at(file)
        if not path.is_file():
            raise UsageError(f"strategy.tactics={file}: no such file. Give a timing cache of a build that was good")
        why = self._own_code or ("" if isinstance(target, TensorRtBackend) else f"target={target.name} has no tactics")
        yield Remedy(
            *("tactic", f"the tactics of {path.name}", Variant({} if why else {"timing_cache": str(path)})),
            overrides=(f"target.timing_cache={path}",),
            environment=sha256_of(path),
            why_not=why,
        )

    def _rewrites(self, names: list[str]) -> Iterator[Remedy]:
        if names:
            nodes = named(self.loaded.graph, names)
            yield from (_edited("rewrite", one) for one in self._rewriting.around(nodes.elements))

    @cached_property
    def _rewriting(self) -> Rewriting:
        job, loaded = self.job, self.loaded
        types = inferred_types(job.settings, loaded.graph, loaded.store, loaded.recorded, job.pool, self.warnings)
        return Rewriting(loaded.graph, {**types, **loaded.graph.value_types})


def together(given: object) -> tuple[str, ...]:
    """Return the optimizations that are turned off together: those of a list, or a single one by its name."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"strategy.disabled_optimizers: {given!r} is neither a name nor a list of names. Give sets of names, each "
            "turned off by itself: [[CastElimination], [DivMulFusion]]"
        )
    return tuple(names)


def _edited(kind: str, rewrite: Rewrite) -> Remedy:
    return Remedy(
        kind, rewrite.what, edits=rewrite.edits, code=program(rewrite.edits), places=rewrite.places, nodes=rewrite.nodes
    )


# Subject `workaround`: the whole model with one remedy; a trial is its number, or that and a sample.

CONTROL = 0
"""The element that stands for a lone Identity, which any sane check passes."""
ONE_SAMPLE = 10_000
"""Elements from this number on stand for a single sample."""


@dataclass(frozen=True)
class Workarounds:
    """The empty trial is the user's file as it is; that of remedy ``n`` of ``remedies`` is ``n + 1``.

    ``fresh``: the samples are others than those that were recorded. ``written``: files of remedies that edit the model,
    as they are handed over. ``python``: the interpreter where a remedy names no other.
    """

    loaded: Loaded
    remedies: tuple[Remedy, ...]
    python: str
    samples: tuple[Sample, ...] = ()
    fresh: bool = False
    written: Mapping[int, Path] = field(default_factory=dict)

    @cached_property
    def space(self) -> Space:
        """What should pass: a flaky check is measured on it."""
        return Space((CONTROL,))

    def identity(self) -> dict[str, str]:
        """Return the remedies: a trial counts them."""
        remedies = json.dumps([one.identity() for one in self.remedies])
        drawn = values_digest(sample.feeds for sample in self.samples) if self.fresh else "recorded"
        return {"kind": "workaround", "remedies": remedies, "samples": drawn}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return what the remedies do."""
        return tuple(self.remedies[number - 1].what for number in trial if CONTROL < number < ONE_SAMPLE)

    def cut(self, trial: Trial) -> Cut:
        """Return the model that a remedy makes; it is whole. Raises CutError."""
        remedy = self.remedies[min(trial) - 1]
        try:
            return Cut(edited(self.loaded.graph.model, remedy.edits), (), (), ())
        except KeyError as error:
            raise CutError(f"no node makes {error}") from error

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Return the user's file, or write the model that a remedy makes."""
        loaded, own = self.loaded, Variant(python=self.python)
        if not trial:
            return Candidate(loaded.path, folder, trial, self.samples, variant=own)
        number, samples = min(trial), self.samples
        if number == CONTROL:
            made = control(loaded.graph, loaded.graph.value_types, Form(), {})
            path = loaded.store.write(made.cut.model, folder)
            given = samples_of(made, loaded.recorded.values, folder / "given")
            return Candidate(path, folder, trial, given, variant=own, temporary=True, control=True)
        if len(trial) == 2:
            samples = (self.samples[max(trial) - ONE_SAMPLE],)
        remedy = self.remedies[number - 1]
        if remedy.why_not:
            return Invalid(remedy.why_not)
        if not remedy.edits:
            variant = replace(remedy.variant, python=remedy.variant.python or self.python)
            return Candidate(loaded.path, folder, trial, samples, variant=variant)
        if number in self.written:
            return Candidate(self.written[number], folder, trial, samples, variant=own)
        try:
            path = loaded.store.write(self.cut(trial).model, folder)
        except CutError as error:
            return Invalid(str(error))
        return Candidate(path, folder, trial, samples, variant=own, temporary=True)
