"""Settings of the `strategy` group: what is searched for, and how."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Any, ClassVar

from runner.schema.settings import limited, settings


class Find(str, Enum):
    """What is wanted of an answer, and how many."""

    # one, and two experiments on the whole model that show whether the failure arises inside it; where it does not, the
    # search goes on
    cause = "cause"
    # the first that fails alone
    one = "one"
    # after each answer its nodes are fed with good values, until the rest of the model passes
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
    the summary. What the others say is what the rest of a run asks of any strategy.
    """

    implementation: ClassVar[str] = ""
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
    # what a trial means in files: each class of settings has its own
    subject: str = "subgraph"
    # false: keep the model's inputs, remove only from the end (the kept set is closed under ancestors, its sinks are
    # outputs); auto: true, or false where the check works with nothing else
    reduce_inputs: Any = "auto"
    # false: keep the model's outputs, remove only from the front (closed under descendants); auto: the same
    reduce_outputs: Any = "auto"
    # what is wanted: the cause, the first answer, or all disjoint ones
    find: Find = Find.cause
    # questions to spend on showing the cause; null: as many as the search took, two at least
    cause_checks: int | None = limited(None, least=0)
    # reduce and bisect only: which end of the failing window is looked for first
    first: FirstEnd = FirstEnd.auto
    # questions to spend on pairs, larger sets and growing again once no single node can go; null: up to 8, or 24
    # where answers were not monotone
    extra_checks: int | None = limited(None, least=0)
    # look inside If, Loop, Scan and functions that are part of the answer
    inside: bool = True
    # leave out outputs and inputs of the answer that the failure does not need
    trim: bool = True
    # repeat only: good | bad | a number of iterations
    until: str = "bad"


@settings
class ReduceSettings(StrategySettings):
    """A search for the smallest part of a model that fails."""

    implementation = "runner.jobs.reduce.run:run"
    cuts_model = True


@settings
class RepeatSettings(StrategySettings):
    """The same check again and again."""

    implementation = "runner.jobs.repeat.run:run"
    needs_model = False
    repeats = True

    name: str = "repeat"
    search: str = "repeat"
    subject: str = "command"


class FloatType(str, Enum):
    """Element types of a precision search."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    # low only: a model with Q/DQ pairs as it is; a raised node is without its pairs
    quantized = "quantized"


class Direction(str, Enum):
    """From which end of the model nodes are raised."""

    forward = "forward"
    reverse = "reverse"


class Goal(str, Enum):
    """What is wanted of a raised set."""

    # few nodes
    smallest = "smallest"
    # cheap nodes: what costs most is left in low precision first
    cheapest = "cheapest"


class Unit(str, Enum):
    """What is raised at once."""

    node = "node"
    # nodes whose names have one scope ("/layers.3/attn/..."), else a norm or a softmax that is written out
    block = "block"


class Untaken(str, Enum):
    """What becomes of nodes in branches that no sample took."""

    high = "high"
    low = "low"


@settings
class PrecisionSettings(StrategySettings):
    """A search for the nodes that must stay in high precision."""

    implementation = "runner.jobs.precision.run:run"
    lowers_precision = True

    name: str = "precision"
    search: str = "precision"
    subject: str = "precision"
    high: FloatType = FloatType.float32
    low: FloatType = FloatType.float16
    # precision_bisect and precision_linear only: raise the first nodes, or the last
    direction: Direction = Direction.forward
    # graph inputs and outputs keep their types; false: they get the low one
    keep_io: bool = True
    goal: Goal = Goal.smallest
    # what a node costs in high precision, by name; empty: its arithmetic (cheapest only)
    costs: dict[str, float] = field(default_factory=dict)
    # false: where something becomes Inf inside the model and makes finite values wrong, a trial fails in any case
    allow_overflow: bool = False
    # run the target twice more for the error of each layer: layers.json, and layers.svg with matplotlib
    layer_errors: bool = True
    # share of the tolerance that is aimed at, on the samples that are searched; 1: the tolerance itself
    margin: float = limited(0.5, least=0.01, most=1.0)
    # samples that are not searched and that the answer must pass; null: a third of those given, or random ones drawn
    # besides; 0: none
    held_out: int | None = limited(None, least=0)
    # nodes that stay high and nodes that stay low, neither of them searched: names or operators, * and ? as in a shell
    exclude: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    # nodes that stay high because of what was measured of them: "range > 512" or "error > 0.01"
    at_least: list[str] = field(default_factory=list)
    # nodes in branches that no sample took
    untaken: Untaken = Untaken.high
    # what is raised at once
    unit: Unit = Unit.node


@settings
class TacticSettings(StrategySettings):
    """A strategy about tactics of TensorRT."""

    # recorded builds: a file, or a folder of files; isolate: null builds until there is one of each
    good: str | None = None
    bad: str | None = None
    # isolate only: builds to make at most until one good and one bad were seen
    most_builds: int = limited(50, least=2)
    # seconds that one build may take; null: no limit
    build_timeout: float | None = limited(1800.0, least=0.001)


@settings
class TacticRepeatSettings(TacticSettings):
    """Engines are built anew, and their tactics compared."""

    implementation = "runner.jobs.tactics.repeat:run"
    repeats = True

    name: str = "tactic_repeat"
    search: str = "repeat"
    subject: str = "engine"


@settings
class TacticIsolateSettings(TacticSettings):
    """Choices of a bad build are pinned."""

    implementation = "runner.jobs.tactics.repeat:run"
    repeats = True

    name: str = "tactic_isolate"
    subject: str = "tactics"


@settings
class TacticCompareSettings(TacticSettings):
    """Tactics that were recorded before are compared."""

    implementation = "runner.jobs.tactics.compare:compare"
    needs_model = checks = False

    name: str = "tactic_compare"
    search: str = "compare"
    subject: str = "recorded"
