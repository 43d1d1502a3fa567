"""Settings of the `strategy` group: what is searched for, and how."""

from dataclasses import field
from enum import Enum
from typing import Any, ClassVar, TypeVar

from runner.schema.settings import PathUse, setting, settings
from strategies.search import Task


class Find(str, Enum):
    """What is wanted of an answer, and how many."""

    cause = "cause"
    one = "one"
    all = "all"


class FirstEnd(str, Enum):
    """Which end of the failing window a bisection looks for first."""

    # the start where the failure may lie in values and good ones are known up to the model's outputs; else the end
    auto = "auto"
    # the latest start: candidates are judged at the model's own outputs
    start = "start"
    # the earliest end: candidates start at the model's inputs
    end = "end"


@settings
class StrategySettings:
    """One strategy: a search over a subject.

    ``implementation``: called with all settings, the run's folder and what the user typed, it runs the job and returns
    the summary. ``tasks``: what the subject can be searched for. What the others say is what the rest of a run asks of
    any strategy.
    """

    implementation: ClassVar[str] = ""
    tasks: ClassVar[frozenset[Task]] = frozenset()
    needs_model: ClassVar[bool] = True
    # something is checked; false: what was recorded before is compared
    checks: ClassVar[bool] = True
    # candidates are parts of the model
    cuts_model: ClassVar[bool] = False
    # candidates are the model with nodes in low precision
    lowers_precision: ClassVar[bool] = False
    # a trial says nothing about the next run's of the same number
    repeats: ClassVar[bool] = False

    name: str = "reduce"
    search: str = "reduce"
    subject: str = "subgraph"


@settings
class ReduceSettings(StrategySettings):
    """A search for the part of a model that fails."""

    implementation = "runner.jobs.reduce.run:run"
    tasks = frozenset({Task.SUBSET})
    cuts_model = True

    reduce_inputs: Any = "auto"
    reduce_outputs: Any = "auto"
    find: Find = Find.cause
    cause_checks: int | None = setting(None, least=0)
    first: FirstEnd = FirstEnd.auto
    extra_checks: int | None = setting(None, least=0)
    inside: bool = True
    trim: bool = True
    look_inside: bool = True
    shrink: bool = True
    shrink_checks: int | None = setting(None, least=0)


@settings
class RepeatSettings(StrategySettings):
    """The same check again and again."""

    implementation = "runner.jobs.repeat:run"
    tasks = frozenset({Task.REPEAT})
    needs_model = False
    repeats = True

    name: str = "repeat"
    search: str = "repeat"
    subject: str = "command"
    until: str = "bad"


class FloatType(str, Enum):
    """Element types of a precision search."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    quantized = "quantized"
    auto = "auto"
    int8 = "int8"
    int4 = "int4"
    fp8 = "fp8"
    accuracy_level_4 = "accuracy_level_4"

    @property
    def is_made(self) -> bool:
        """Whether ONNX Runtime's own tools make the low model of the given one."""
        return self in (FloatType.int8, FloatType.int4, FloatType.fp8, FloatType.accuracy_level_4)


class Direction(str, Enum):
    """From which end of the model nodes are raised."""

    forward = "forward"
    reverse = "reverse"


class Goal(str, Enum):
    """What is wanted of a raised set."""

    smallest = "smallest"
    cheapest = "cheapest"


class Unit(str, Enum):
    """What is raised at once."""

    node = "node"
    block = "block"


class Untaken(str, Enum):
    """What becomes of nodes in branches that no sample took."""

    high = "high"
    low = "low"


class Curve(str, Enum):
    """Which errors are measured besides those that a search asks for."""

    found = "found"
    each = "each"


class Calibration(str, Enum):
    """How the range of an activation is found."""

    minmax = "minmax"
    entropy = "entropy"
    percentile = "percentile"


@settings
class QuantizeSettings:
    """How a float model is quantized."""

    per_channel: bool = True
    symmetric: bool = False
    calibration: Calibration = Calibration.minmax
    block_size: int = setting(32, least=16)
    operators: list[str] = setting([])


@settings
class PrecisionSettings(StrategySettings):
    """A search for the nodes that must stay in high precision."""

    implementation = "runner.jobs.precision.run:run"
    tasks = frozenset({Task.RAISE, Task.SUBSET})
    lowers_precision = True

    name: str = "precision"
    search: str = "precision"
    subject: str = "precision"
    high: FloatType = FloatType.float32
    low: FloatType = FloatType.auto
    direction: Direction = Direction.forward
    keep_io: bool = True
    goal: Goal = Goal.smallest
    costs: dict[str, float] = setting({})
    allow_overflow: bool = False
    layer_errors: bool = True
    margin: float = setting(0.5, least=0.01, most=1.0)
    held_out: int | None = setting(None, least=0)
    exclude: list[str] = setting([])
    include: list[str] = setting([])
    at_least: list[str] = setting([])
    untaken: Untaken = Untaken.high
    unit: Unit = Unit.node
    curve: Curve = Curve.found
    budget: str | None = None
    milliseconds: bool = False
    quantize: QuantizeSettings = field(default_factory=QuantizeSettings)


@settings
class TacticSettings(StrategySettings):
    """A strategy that builds engines and records their tactics."""

    repeats = True

    timeout: float | None = setting(1800.0, least=0.001)


@settings
class TacticRepeatSettings(TacticSettings):
    """Builds again and again."""

    implementation = "runner.jobs.tactics.run:run"
    tasks = frozenset({Task.REPEAT})

    name: str = "tactic_repeat"
    search: str = "repeat"
    subject: str = "engine"
    until: str = "bad"


@settings
class TacticIsolateSettings(TacticSettings):
    """A search for the tactics of a bad build that make it bad."""

    implementation = "runner.jobs.tactics.run:run"
    tasks = frozenset({Task.SUBSET})

    name: str = "tactic_isolate"
    search: str = "minimal"
    subject: str = "tactics"
    good: str | None = setting(None, path=PathUse.READ)
    bad: str | None = setting(None, path=PathUse.READ)
    most_builds: int = setting(50, least=2)
    extra_checks: int | None = setting(None, least=0)


@settings
class TacticCompareSettings(StrategySettings):
    """A comparison of recorded builds; nothing is searched."""

    implementation = "runner.jobs.tactics.run:compare"
    needs_model = checks = False

    name: str = "tactic_compare"
    search: str = "compare"
    subject: str = "recorded"
    good: str | None = setting(None, path=PathUse.READ)
    bad: str | None = setting(None, path=PathUse.READ)


_S = TypeVar("_S", bound=StrategySettings)


def chosen(strategy: StrategySettings, kind: type[_S]) -> _S:
    """Return the settings of a strategy of this kind, where the subject says already that it is one."""
    assert isinstance(strategy, kind), f"strategy={strategy.name} is no {kind.__name__}"
    return strategy


# Settings of the strategies that say whose failure it is: which pass, which release, which part, and what helps.

RELEASES = "~/.cache/winnow/releases"
"""Where releases of packages are kept, for all runs."""


@settings
class PassesSettings(StrategySettings):
    """A search for the optimizations, or other switches, that a failure needs; the model stays whole."""

    implementation = "runner.jobs.variants.passes:run"
    tasks = frozenset({Task.SUBSET})

    name: str = "passes"
    search: str = "reduce"
    subject: str = "passes"
    switches: list[str] = setting([])
    extra_checks: int | None = setting(None, least=0)


@settings
class ExtractSettings(StrategySettings):
    """A part of a model that the user names; nothing is searched."""

    implementation = "runner.jobs.extract:run"
    cuts_model = True

    name: str = "extract"
    search: str = "extract"
    subject: str = "subgraph"
    nodes: list[str] = setting([])
    inputs: list[str] = setting([])
    outputs: list[str] = setting([])


@settings
class InspectSettings(StrategySettings):
    """What a model or an engine is made of, and why the target does not load it; nothing is checked or searched."""

    implementation = "runner.jobs.inspect:run"
    checks = False

    name: str = "inspect"
    search: str = "inspect"
    subject: str = "model"
    run: bool = True


class Patches(str, Enum):
    """Which releases of one minor version are asked."""

    last = "last"
    all = "all"


@settings
class VersionsSettings(StrategySettings):
    """A search through the releases of a package; the model stays whole."""

    implementation = "runner.jobs.variants.versions:run"
    tasks = frozenset({Task.HISTORY})
    needs_model = False

    name: str = "versions"
    search: str = "nearest"
    subject: str = "versions"
    package: str = "onnxruntime"
    versions: Any = None
    bad: Any = None
    patches: Patches = Patches.last
    interpreters: list[str] = setting([], path=PathUse.READ | PathUse.PROGRAM)
    besides: list[str] = setting([])
    exhaustive: bool = False
    cache: str = setting(RELEASES, path=PathUse.FOLDER)
    offline: bool = False
    pip: list[str] = setting([])
    install_timeout: float | None = setting(600.0, least=0.001)


@settings
class TriageSettings(StrategySettings):
    """The flowchart of a failure: one question after another, each a run of its own."""

    implementation = "runner.jobs.triage.run:run"
    cuts_model = True

    name: str = "triage"
    search: str = "triage"
    subject: str = "triage"
    steps: list[str] | None = None
    switches: list[str] = setting([])
    versions: Any = None
    cache: str = setting(RELEASES, path=PathUse.FOLDER)


@settings
class LayerwiseSettings(StrategySettings):
    """All values inside the model against those of the reference; nothing is searched."""

    implementation = "runner.jobs.layerwise.run:run"
    cuts_model = True

    name: str = "layerwise"
    search: str = "layerwise"
    subject: str = "layers"
    memory_mb: int | None = setting(None, least=1)
    own: bool = True


@settings
class WorkaroundSettings(StrategySettings):
    """Candidates that may keep a failure away; each is shown to pass on the whole model, or not to."""

    implementation = "runner.jobs.workaround.run:run"

    name: str = "workaround"
    search: str = "workaround"
    subject: str = "workaround"
    results: list[str] = setting([], path=PathUse.READ)
    disabled_optimizers: list[Any] = setting([])
    raised: list[str] = setting([])
    nodes: list[str] = setting([])
    interpreters: list[str] = setting([], path=PathUse.READ | PathUse.PROGRAM)
    cache: str = setting(RELEASES, path=PathUse.FOLDER)
    tactics: str | None = setting(None, path=PathUse.READ)
    fresh: int = setting(20, least=0)
    latency_runs: int = setting(30, least=0)


@settings
class RecheckSettings(StrategySettings):
    """Kept results, each checked again as its own replay says."""

    implementation = "runner.sweeps.recheck:run"
    needs_model = checks = False
    repeats = True

    name: str = "recheck"
    search: str = "recheck"
    subject: str = "kept"
    results: list[str] = setting([], path=PathUse.FOLDER)


@settings
class BugsSettings(StrategySettings):
    """Kept results, grouped by what is wrong."""

    implementation = "runner.sweeps.bugs:run"
    needs_model = checks = False
    repeats = True

    name: str = "bugs"
    search: str = "bugs"
    subject: str = "failures"
    results: list[str] = setting([], path=PathUse.FOLDER)
