"""Which remedies there are: what the user names, and what earlier runs found."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from packaging.version import InvalidVersion, Version

from runner.candidate import Variant
from runner.errors import UsageError
from runner.files import sha256_of
from runner.jobs.extract.selection import named
from runner.jobs.job import Job
from runner.jobs.variants.release_cache import ReleaseCache, installed_under
from runner.jobs.variants.switches import Change, Switch, builder_switches, changes, overrides, session_switches
from runner.jobs.workaround.earlier_findings import Findings, findings
from runner.jobs.workaround.remedy import Remedy
from runner.jobs.workaround.rewrites import Rewrite, Rewriting
from runner.loading.load import Loaded, inferred_types
from runner.model.graph.edits import program
from runner.report.sections.passes_section import session_code
from runner.schema.backend import OnnxRuntimeBackend, TensorRtBackend
from runner.schema.checker import CommandChecker
from runner.schema.diagnosis import WorkaroundSettings
from runner.schema.strategy import chosen
from runner.workers.interpreter import find_python

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
        return "strategy.results: none of these runs was about this model; what they found is tried all the same"

    @property
    def _own_code(self) -> str:
        return _OWN_CODE if self.job.settings.checker.runs_own_code else ""

    def _passes(self, sets: Iterable[tuple[str, ...]]) -> Iterator[Remedy]:
        target = self.job.settings.target
        known: dict[str, Switch] = {}
        if isinstance(target, OnnxRuntimeBackend):
            known = {one.name: one for one in session_switches(target, ())}
        elif isinstance(target, TensorRtBackend):
            known = {one.name: one for one in builder_switches(target)}
        for names in dict.fromkeys(sets):
            off = [known.get(name, Switch(name, "disabled_optimizers", Change.add, name)) for name in names]
            what, why = f"without {', '.join(names)}", self._own_code
            if not hasattr(target, "disabled_optimizers") and any(one.key == "disabled_optimizers" for one in off):
                why = f"target={target.name} has nothing of this name to turn off"
            changed = {} if why else changes(target, off)
            yield Remedy(
                *("pass", what, Variant(changed)),
                overrides=overrides(changed),
                code=session_code(changed),
                why_not=why,
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
            why = "" if found.python else f"strategy.cache={folder} does not have it"
            yield self._release(f"{name} {wanted}", str(found.python or ""), f"{name}=={wanted}", why)

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
    return Remedy(kind, rewrite.what, edits=rewrite.edits, code=program(rewrite.edits), places=rewrite.places)
