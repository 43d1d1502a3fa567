"""Runs of a candidate: what has been run on it so far, by the backends of target and reference.

One candidate while it is being judged: what has been run on it so far, at most once a side.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from runner.backends.nested_graphs import MADE
from runner.checkers.checker import Tools
from runner.checkers.command_template import digest
from runner.checkers.failure_text import normalize
from runner.checkers.tolerances import nudged
from runner.exit_codes import NotTried, UsageError
from runner.model.values import recorded
from runner.model.values.dtypes import COMPUTED_IN
from runner.model.values.recorded import TensorFile, paths
from runner.samples.declared_inputs import in_range
from runner.schema.backend import BackendSettings
from runner.schema.checker import BuildsChecker, CheckerSettings
from runner.schema.installed_choices import added
from runner.schema.settings import PathUse, context_of, path_values
from runner.verdict import Candidate, Phase, Sample, Signature, Variant
from runner.workers.pool import lease_of
from runner.workers.reply import OUT_OF_MEMORY, Failure, Reply, shortage, without_folder

# One side of a comparison: a backend with its settings, which runs models in workers.

#: whose content counts; of an interpreter the versions of its packages do
_DIGESTED = (PathUse.READ, PathUse.READ | PathUse.MODEL, PathUse.READ | PathUse.LIBRARY)
#: the type of the failure of a GPU that fails before a model was touched (`runner.backends.trt.engine`)
NOT_READY = "GpuNotReady"
_KEPT = ("engine", "log", "layers")


@dataclass(frozen=True)
class BackendRun:
    """What came of running one model on all samples.

    ``outputs``: for each sample, its outputs by name (none if it failed). ``signature``: of the failure, None if it
    ran. ``message``: the failure in the backend's words. ``invalid``: why it could not even be tried (a value for an
    input is missing). ``skipped``: outputs of which no value can be had, and why. Of a build, which has no outputs:
    ``shapes`` of the engine's outputs (-1: dynamic; None: not known), ``layers`` with the nodes that went into each,
    ``seconds`` for parsing and building, ``tactics`` where they were asked for.
    """

    outputs: tuple[Mapping[str, TensorFile], ...] = ()
    signature: Signature | None = None
    message: str = ""
    invalid: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int] | None] | None = None
    layers: Sequence[Mapping[str, Any]] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    tactics: Mapping[str, Any] | None = None
    peak_rss_mb: float = 0.0
    log: Path | None = None


def digests_of(section: BackendSettings | CheckerSettings, at: Callable[[str], Path]) -> dict[str, str]:
    """Return the SHA-256 of each file that settings name; ``at``: from where the user stands."""
    return {path: digest(at(path)) for _, use, path in path_values(section) if use in _DIGESTED}


def built(key: str, backend: BackendSettings, checker: CheckerSettings) -> Sequence[str] | None:
    """Return what of each build is kept, if models are only built. Raises UsageError where they cannot be, or it is."""
    if not isinstance(checker, BuildsChecker):
        return None
    if not backend.builds_engines:
        raise UsageError(
            f"checker=builds {key}={backend.name}: nothing is built there. Set {key}=tensorrt, or checker=runs to see "
            "whether it loads and runs"
        )
    if unknown := [one for one in checker.keep if one not in _KEPT]:
        raise UsageError(f"checker.keep={unknown[0]}: of a build there are {', '.join(_KEPT)}")
    return checker.keep


def _apart(inside: Sequence[Mapping[str, TensorFile]]) -> dict[str, Any]:
    return {"inside": {name: held.dtype for name, held in inside[0].items()}} if inside else {}


@dataclass(frozen=True)
class BackendRunner:
    """``key``: `target` or `reference`, as in the configuration.

    ``timeout`` (seconds) and ``memory_mb`` (MiB) hold for each run. ``keep``: not None where models are only built, not
    run: what of each build is kept.
    """

    key: str
    settings: BackendSettings
    tools: Tools
    timeout: float | None
    memory_mb: int | None
    keep: Sequence[str] | None = None

    @property
    def builds(self) -> bool:
        """Whether models are only built, not run."""
        return self.keep is not None

    def run(  # noqa: PLR0913 - all that decides a run
        self,
        model: Path,
        samples: Sequence[Mapping[str, TensorFile]],
        out: Path,
        *,
        tactics: Mapping[str, Any] | None = None,
        engine: Path | None = None,
        fresh: bool = False,
        seeded: bool = True,
        variant: Variant | None = None,
        inside: Sequence[Mapping[str, TensorFile]] = (),
    ) -> BackendRun:
        """Run ``model`` on each sample, or build it for them; outputs are written into the folder ``out``.

        ``tactics``: what a build is asked about them. ``engine``: one that was built of ``model`` before, to be run.
        ``fresh``: in a new process. ``seeded``: it draws the same random numbers each time. ``variant``: what is
        otherwise this time. ``inside``: for each sample, values of inner tensors at which the model is taken apart,
        where the backend can.

        Raises UsageError if the settings or the installation are at fault, WorkerStartError if the interpreter is;
        never for what the model does.
        """
        out.mkdir(parents=True, exist_ok=True)
        settings = {**self.settings.to_json(), **(variant.settings if variant else {})}
        python = (variant and variant.python) or self.settings.python
        fed = [{**one, **more} for one, more in zip(samples, inside, strict=True)] if inside else samples
        arguments = {
            "backend": settings | ({"engine": str(engine)} if engine else {}) | _apart(inside),
            "model": str(model),
            "tactics": tactics,
            "samples": [paths(sample) for sample in fed],
            "out": str(out),
            **({} if seeded else {"seed": None}),
        }
        if self.settings.builds_engines:
            arguments["timing_cache"] = self._timing_cache(settings.get("timing_cache"))
        more = {"keep": list(self.keep or ())} if self.builds else {}
        reply = self.tools.pool.call(
            "build" if self.builds else "run",
            {**arguments, **more},
            python=python,
            timeout=self.timeout,
            memory_mb=self.memory_mb,
            fresh=fresh and not self.builds,
            lease=lease_of(settings, self.tools.pool, python, builds=self.builds),
        )
        ran = self._ran(reply)
        if inside:
            ran = replace(ran, outputs=tuple({n.removesuffix(MADE): v for n, v in one.items()} for one in ran.outputs))
        invalid, message = (without_folder(said, model) for said in (ran.invalid, ran.message))
        return replace(ran, invalid=invalid, message=message, peak_rss_mb=reply.peak_rss_mb, log=reply.log)

    def _timing_cache(self, own: str | None) -> dict[str, str | None]:
        """Where timings come from: the user's ``own`` file; else what the first build of this run measured."""
        if own:
            return {"load": str(self.tools.at(own)), "save": None}
        first = self.tools.run_folder / f"{self.key}.timing_cache"
        return {"load": str(first), "save": None if first.exists() else str(first)}

    def identity(self) -> dict[str, str]:
        """The settings, and digests of the files they name: custom-op libraries, a model of its own."""
        files = {f"{self.key} {path}": sha for path, sha in digests_of(self.settings, self.tools.at).items()}
        return {self.key: json.dumps(context_of(self.settings), sort_keys=True), **files}

    def __str__(self) -> str:
        settings = self.settings.to_json()
        level = f" optimization={settings['optimization']}" if "optimization" in settings else ""
        python = f" python={self.settings.python}" if self.settings.python else ""
        model = f" model={self.settings.model}" if self.settings.model else ""
        return f"{self.key}={self.settings.name}{level}{python}{model}"

    def _ran(self, reply: Reply) -> BackendRun:
        if reply.failure:
            return self._failed(reply.failure)
        if reply.death == OUT_OF_MEMORY:
            raise NotTried(f"{self}: {shortage()}")
        value = reply.value
        if reply.death is not None or value is None:
            kind = reply.death or "exit"
            return BackendRun(
                signature=Signature("build" if self.builds else "infer", kind), message=f"the process ended: {kind}"
            )
        if self.builds:
            shapes = {name: output["shape"] for name, output in value["outputs"].items()}
            return BackendRun(
                shapes=shapes, layers=value["layers"], seconds=value["seconds"], tactics=value.get("tactics")
            )
        samples = [{name: TensorFile.from_json(one) for name, one in sample.items()} for sample in value["samples"]]
        return BackendRun(tuple(samples), skipped=value.get("skipped") or {})

    def _failed(self, failure: Failure) -> BackendRun:
        if failure.type == NOT_READY:
            raise NotTried(f"{self}: {failure.message}")
        # an error of the worker's own code says nothing about the model either
        if failure.type == "MissingFeed" or failure.stage in ("untried", "internal"):
            package = added().packages.get((self.key, self.settings.name))
            whose = f"{self.key}={self.settings.name} of the installed package {package}: {failure.type}: "
            return BackendRun(invalid=(whose if package and failure.stage == "internal" else "") + failure.message)
        if failure.stage == "setup":
            raise UsageError(f"{self}: {failure.message}")
        stage = failure.stage if failure.stage in ("load", "build") else "infer"
        signature = Signature(stage, f"error {failure.type}", normalize(failure.message))
        return BackendRun(signature=signature, message=failure.message)


@dataclass
class CandidateRuns:
    """A candidate and its runs.

    ``work``: an empty folder for values, which goes away after the check. ``may_run_reference``: false where the
    reference cannot help (it could not run the whole model, or has a model of its own that is no candidate).
    ``reference_model``: what it runs instead of the candidate's, where models are taken whole. ``seeded``: both draw
    the same random numbers.
    """

    candidate: Candidate
    model: Path
    target_side: BackendRunner
    reference_side: BackendRunner
    work: Path
    may_run_reference: bool = True
    reference_model: Path | None = None
    seeded: bool = True
    runs: list[BackendRun] = field(default_factory=list)
    _ran: dict[str, BackendRun] = field(default_factory=dict)

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The candidate's samples; a model without inputs is run once."""
        return self.candidate.samples or (Sample({}),)

    @property
    def target(self) -> BackendRun:
        """The run of the target."""
        return self.run("target")

    @property
    def reference(self) -> BackendRun:
        """The run of the reference on the same feeds; what a parent of the model makes gets the model's own types."""
        return self.run("reference")

    @property
    def has_reference(self) -> bool:
        """Whether the reference has been run."""
        return "reference" in self._ran

    def alone(self) -> Iterator[CandidateRuns]:
        """Yield each of several samples as a case of its own, where a run of all of them has failed."""
        if len(self.samples) > 1 and any(ran.signature or ran.invalid for ran in self.runs):
            for number, sample in enumerate(self.samples):
                one = replace(self.candidate, samples=(sample,))
                yield replace(self, candidate=one, work=self.work / f"alone{number}", _ran={})

    def divided(self) -> tuple[CandidateRuns, CandidateRuns | None]:
        """Return the case of the samples that are judged, and that of those unseen: one run of the target for both.

        None: that run failed, so those that are judged are run by themselves.
        """
        ran, count = self.target, len(self.samples) - self.candidate.unseen
        seen = replace(self.candidate, samples=self.samples[:count], unseen=0)
        if not ran.outputs:
            return replace(self, candidate=seen, work=self.work / "seen", _ran={}), None
        unseen = replace(seen, samples=self.samples[count:], phase=Phase.HELD_OUT)
        parts = (seen, ran.outputs[:count]), (unseen, ran.outputs[count:])
        first, second = (
            replace(self, candidate=one, work=self.work / one.phase, _ran={"target": replace(ran, outputs=outputs)})
            for one, outputs in parts
        )
        return first, second

    @property
    def peak_rss_mb(self) -> float:
        """Of all runs so far."""
        return max((ran.peak_rss_mb for ran in self.runs), default=0.0)

    def run(self, name: str) -> BackendRun:
        """Return the run called `target`, `reference` or `noisy`, which is made the first time that it is asked for.

        `noisy`: of the reference, on feeds that are one unit in the last place off.
        """
        if name in self._ran:
            return self._ran[name]
        one, own, place = self.candidate, self.reference_model, self.work / name
        side = self.target_side if name == "target" else self.reference_side
        ask = partial(side.run, fresh=one.draws, seeded=self.seeded)
        if name == "target":
            feeds = [sample.feeds for sample in self.samples]
            inside = [{of: each.expected[of] for of in one.inside} for each in self.samples if one.inside]
            if side.builds:  # what it leaves may be kept
                inside, place = [], one.folder
            ran = ask(self.model, feeds, place, engine=one.engine, variant=one.variant, inside=inside)
        else:
            feeds = [sample.reference if own and sample.reference else sample.feeds for sample in self.samples]
            if name == "noisy":
                feeds = [nudged(fed, self.work / f"nudged{at}") for at, fed in enumerate(feeds)]
            ran = ask(own or self.model, feeds, place)
            if ran.outputs and self.target.outputs and any(sample.reference for sample in self.samples):
                pairs = enumerate(zip(ran.outputs, self.target.outputs, strict=True))
                ran = replace(ran, outputs=tuple(_typed(*pair, place / f"typed{at}") for at, pair in pairs))
        self.runs.append(ran)
        self._ran[name] = ran
        return ran


def _typed(theirs: Mapping[str, TensorFile], own: Mapping[str, TensorFile], folder: Path) -> Mapping[str, TensorFile]:
    """Return the parent's values, those of another float type than the model's own in that (`in_range`)."""
    folder.mkdir()
    found = dict(theirs)
    for at, (name, value) in enumerate(theirs.items()):
        mine = own.get(name)
        if mine and mine.dtype != value.dtype and {mine.dtype, value.dtype} <= COMPUTED_IN:
            found[name] = recorded.write(in_range(recorded.read(value), name, mine.dtype), name, folder / f"{at}.pb")
    return found
