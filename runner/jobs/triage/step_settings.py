"""The settings of each step, from those of the triage and from what the steps before it found."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from runner.exit_codes import NotApplicable, UsageError
from runner.files import inside
from runner.jobs.triage.transcript import Known, package_of
from runner.jobs.variants.passes import LEVEL
from runner.jobs.variants.release_cache import ReleaseCache
from runner.model.files.parse_without_weights import parse
from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import write_npz
from runner.reference.good_values import UnfitError, cast
from runner.reference.hints import SEEDS
from runner.reference.input_pairs import matched_inputs
from runner.reference.models import recording_backend
from runner.reference.parent import read_map
from runner.reference.quantized import inputs_meant
from runner.samples.declared_inputs import concrete, declared
from runner.samples.files import INPUTS, from_files, sources
from runner.schema import strategy as kinds
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, Optimization, Rounding, map_of
from runner.schema.checker import AutoChecker, CheckerSettings, CommandChecker, CompareChecker, FiniteChecker, Flaky
from runner.schema.inputs import FilesInputs, InputsSettings, RandomInputs
from runner.schema.root import BudgetSettings, ResultSettings, SanitizeSettings, Settings
from runner.schema.strategy import FloatType, StrategySettings, TriageSettings, chosen
from runner.workers.worker import find_python

# What a model is fed, in the types of its original: a precision search begins with that one.


def inputs_of_original(settings: Settings, folder: Path) -> InputsSettings:
    """Return inputs for the model ``reference.model``; values from files are cast into ``folder``.

    Raises UsageError for values that its types cannot hold.
    """
    given = settings.inputs
    if not isinstance(given, FilesInputs):
        return given
    child, parent = (
        Graph.of(parse(Path(path or "").expanduser())) for path in (settings.model, settings.reference.model)
    )
    types, meant = declared(parent), inputs_meant(child)
    names = matched_inputs(declared(child), types, read_map(map_of(settings.reference), child, parent), meant)
    floats = {theirs: meant[mine] for theirs, mine in names.items() if mine in meant}
    samples = from_files(given, concrete(declared(child), given.shapes), None, folder / "files")
    made = []
    for number, sample in enumerate(samples):
        named = {theirs: sample[mine] for theirs, mine in names.items()}
        try:
            feeds = cast(named, {name: one.dtype for name, one in types.items()}, folder / f"cast_{number}", floats)
        except UnfitError as error:
            raise UsageError(f"reference.model={settings.reference.model}: its input {error}") from None
        path = folder / f"sample_{number}.npz"
        write_npz(feeds, path)
        made.append(str(path))
    return FilesInputs(path=made)


FIRST, MORE = 2, 4
"""How often the file as it is is checked, and how often again."""
PATIENCE = 32
"""Times that a check of a model that hangs may take, so long may recording its values: an eighth of it for one node."""


@dataclass(frozen=True)
class StepSettings:
    """Makes the settings of steps. ``settings``: of the triage; ``folder``: its own."""

    settings: Settings
    folder: Path

    def of(self, name: str, known: Known, left: BudgetSettings) -> Settings:
        """Return the settings of a step. Raises WinnowError where there are none for what was found."""
        made = _MADE[name](self, known)
        # what is handed over where the user wants it is the smallest part that fails
        result = made.result if name == "reduce" else ResultSettings()
        artifacts = made.artifacts if name == "reduce" else replace(made.artifacts, folder=None, paths=[])
        checker = self._as_usual(made.checker, name)
        if isinstance(checker, CompareChecker) and checker.failing_error is None and known.signature:
            # or each step would measure a tolerance of its own
            checker = replace(checker, failing_error=known.signature.error)
        return replace(made, budget=left, result=result, artifacts=artifacts, resume=None, recorded={}, checker=checker)

    def _as_usual(self, checker: CheckerSettings, step: str) -> CheckerSettings:
        """Return a check with all switches on, and the target's interpreter, where its step changes neither."""
        if not isinstance(checker, CommandChecker) or not checker.command:
            return checker
        given = checker.command
        before = shlex.split(given) if isinstance(given, str) else [str(word) for word in given]
        words = before
        if step not in ("passes", "passes_on_whole") and self.strategy.switches:
            words = [one for word in words for one in (self.strategy.switches if word == "{switches}" else [word])]
        if step not in ("versions", "workaround") and any("{python}" in word for word in words):
            python = str(find_python(self.settings.target.python))
            words = [word.replace("{python}", python) for word in words]
        return replace(checker, command=words) if words != before else checker

    @property
    def strategy(self) -> TriageSettings:
        """The triage's own."""
        return chosen(self.settings.strategy, TriageSettings)

    @property
    def passes(self) -> StrategySettings:
        """The search of optimizations, or of the command's own switches."""
        return kinds.PassesSettings(switches=list(self.strategy.switches))

    def whole(self, known: Known, strategy: StrategySettings, **changes: Any) -> Settings:
        """Return settings about the user's file, with the inputs and the rounding that it failed with."""
        changed: dict[str, Any] = {}
        if known.only_in == "rounded":
            changed = {"target": self.rounding}
        elif known.only_in:
            changed = {"inputs": self.seed(SEEDS[known.only_in])}
        return replace(self.settings, strategy=strategy, **{"plan": False, **changed, **changes})

    @property
    def rounding(self) -> BackendSettings:
        """The target, which rounds after every operator."""
        target = self.settings.target
        assert isinstance(target, OnnxRuntimeBackend)  # no other one hides it
        return replace(target, rounding=Rounding.on)

    def reduced(self, known: Known, strategy: StrategySettings) -> Settings:
        """Return settings about the reduced model, fed what was recorded; about the whole, where there is none."""
        if not known.on_reduced:
            return self.whole(known, strategy)
        step = known.of(known.answer)
        place = self.folder / step.folder
        model = place / (step.known.model or "reduced.onnx")
        if not inside(model, place) or not model.is_file():
            raise NotApplicable(f"{model} is not there")
        data = sorted({str(one.parent) for one in place.glob("test_data_set_[0-9]*/input_*.pb")})
        inputs = FilesInputs(path=data) if data else RandomInputs()  # what is left may read nothing
        made = replace(self.whole(known, strategy), model=str(model), inputs=inputs, sanitize=SanitizeSettings())
        return self._part(known, made)

    def _part(self, known: Known, made: Settings) -> Settings:
        """Return settings by which a part is asked for the failure under study.

        Where that is a NaN or Inf, ``checker=auto`` takes one in a part for right that the reference has there too.
        """
        if not (isinstance(made.checker, AutoChecker) and known.not_finite and known.situation.alone):
            return made
        return replace(made, checker=_finite(made.checker))

    def seed(self, more: int) -> RandomInputs:
        """Return random inputs with another seed."""
        given = self.settings.inputs
        if isinstance(given, RandomInputs):
            return replace(given, seed=given.seed + more)
        return RandomInputs(shapes={**self._given_shapes(), **given.shapes}, timeout=given.timeout)

    def _given_shapes(self) -> dict[str, list[int]]:
        """Return the shapes of the first sample in the user's files; none where these cannot be read."""
        given = self.settings.inputs
        if not isinstance(given, FilesInputs):
            return {}
        try:
            types = declared(Graph.of(parse(Path(self.settings.model or "").expanduser())))
            first = replace(given, path=str(sources(given.path, INPUTS)[0]))
            with tempfile.TemporaryDirectory() as folder:
                sample = from_files(first, types, None, Path(folder))[0]
        except Exception:  # noqa: BLE001 - whatever lies there, which the steps will say
            return {}
        is_open = {name: not all(isinstance(dim, int) for dim in one.dims or (None,)) for name, one in types.items()}
        return {name: [*one.shape] for name, one in sample.items() if is_open[name] and one.structure is None}

    # ---- the steps

    def checked(self, known: Known, times: int, **changes: Any) -> Settings:
        """Return settings that check the file so often.

        Where what is right was recorded (the shapes of a build, the values of an original), a repeat has it not: then
        by the pre-flight of a reduction, which checks the file, and the whole model as it is cut.
        """
        if known.situation.on_its_own:
            return self.whole(known, kinds.RepeatSettings(until=str(times)), **changes)
        return self.whole(known, kinds.ReduceSettings(), plan=True, **changes)

    def extract(self, known: Known) -> Settings:
        """Return settings that ask whether the makers of the first bad tensor fail alone."""
        return self._part(known, self.whole(known, kinds.ExtractSettings(nodes=list(known.first_bad))))

    def reduce(self, known: Known) -> Settings:
        """Return settings that search for the smallest part that fails."""
        made = self.whole(known, kinds.ReduceSettings())
        failure = known.signature
        # so may the reference, while values are recorded
        if failure and failure.kind == "timeout" and made.checker.timeout is not None:
            patience = min(made.inputs.timeout, PATIENCE * made.checker.timeout)
            made = replace(made, inputs=replace(made.inputs, timeout=patience))
        if known.flaky and made.checker.flaky is Flaky.auto:
            made = replace(made, checker=replace(made.checker, flaky=Flaky.always))
        return made

    def precision(self, known: Known) -> Settings:
        """Return settings that search for the nodes that have to stay high, in the original."""
        if self.settings.reference.model is None:
            raise NotApplicable("there is no original in float32")
        low = FloatType(known.situation.low)
        if low is FloatType.quantized:  # a raised node of the model as it is has no pairs
            return self.whole(known, kinds.PrecisionSettings(low=low))
        return self.whole(known, kinds.PrecisionSettings(low=low), **self._original())

    def plain(self, known: Known) -> Settings:
        """Return settings by which the reference runs its file once, which must be finite: nothing is recorded."""
        made = self.whole(known, kinds.RepeatSettings(until="1"))
        model = {} if self.settings.reference.model is None else self._original()
        made = replace(made, **model)
        target = _without_model(recording_backend(made))
        return replace(made, target=target, reference=_without_model(made.reference), checker=_finite(made.checker))

    def _original(self) -> dict[str, Any]:
        """Return the settings by which the original is the model under study, fed in its own types."""
        given = self.settings
        inputs = inputs_of_original(given, self.folder / "steps" / "inputs_of_original")
        return {"model": given.reference.model, "reference": _without_model(given.reference), "inputs": inputs}

    def healed(self, known: Known) -> Settings:
        """Return settings that check the file without the passes that heal the reduced model."""
        target = self.whole(known, kinds.RepeatSettings()).target
        held = {item.name for item in fields(target)}
        off = {name: value for name, value in (known.passes.settings if known.passes else {}).items() if name in held}
        if LEVEL.key in off:
            off[LEVEL.key] = Optimization(off[LEVEL.key])
        target = replace(target, **off)
        return self.checked(known, FIRST, target=target)

    def versions(self, known: Known) -> Settings:
        """Return settings that ask other releases."""
        strategy, given = self.strategy, self.strategy.versions
        asked = kinds.VersionsSettings(
            package=package_of(self.settings), versions=given, cache=strategy.cache, offline=given is None
        )
        return self.reduced(known, asked) if known.releases_on_reduced else self.whole(known, asked)

    def workaround(self, known: Known) -> Settings:
        """Return settings that try what was found to help."""
        strategy = kinds.WorkaroundSettings(
            disabled_optimizers=[list(one) for one in known.heals],
            raised=list(known.raised),
            nodes=list(known.culprits),
            interpreters=self._interpreters(known),
        )
        return self.whole(known, strategy)

    def _interpreters(self, known: Known) -> list[str]:
        """Return the interpreters of the nearest good releases, as far as they are in the cache."""
        package = package_of(self.settings)
        cache = ReleaseCache(
            Path(self.strategy.cache).expanduser(), package, find_python(self.settings.target.python), offline=True
        )
        found = (cache.install(Version(one)) for one in known.good_releases)
        return [str(python) for python in found if isinstance(python, Path)]


_MADE: Mapping[str, Callable[[StepSettings, Known], Settings]] = {
    "inspect": lambda step, known: step.whole(known, kinds.InspectSettings(run=not known.situation.own_code)),
    "stands": lambda step, known: step.checked(known, FIRST),
    "repeat": lambda step, known: step.checked(known, MORE),
    "rounded": lambda step, known: step.checked(known, FIRST, target=step.rounding),
    "inputs": lambda step, known: step.checked(known, 1, inputs=step.seed(SEEDS["inputs"])),
    "more_inputs": lambda step, known: step.checked(known, 1, inputs=step.seed(SEEDS["more_inputs"])),
    "tactics": lambda step, known: step.whole(known, kinds.TacticIsolateSettings()),
    "layerwise": lambda step, known: step.whole(known, kinds.LayerwiseSettings()),
    "extract": StepSettings.extract,
    "reduce": StepSettings.reduce,
    "plain": StepSettings.plain,
    "precision": StepSettings.precision,
    "passes": lambda step, known: step.reduced(known, step.passes),
    "healed": StepSettings.healed,
    "passes_on_whole": lambda step, known: step.whole(known, step.passes),
    "versions": StepSettings.versions,
    "workaround": StepSettings.workaround,
}


def _finite(checker: CheckerSettings) -> FiniteChecker:
    """Return a check for NaN and Inf, with what any check has of another one."""
    held = {item.name: getattr(checker, item.name) for item in fields(CheckerSettings)}
    return FiniteChecker(**{**held, "name": "finite"})


def _without_model(backend: BackendSettings) -> BackendSettings:
    """Return a backend that runs the model under study."""
    backend = backend.running
    changed: Any = {"model": None, **({"map": None} if hasattr(backend, "map") else {})}
    return replace(backend, **changed)
