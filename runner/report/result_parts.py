"""The parts of a result: what each kind of run found, as frozen dataclasses.

Each is an object of result.json (see result_schema.json): its fields are the keys there. OPTIONAL ones may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.report.typed_json import OPTIONAL

Row = Mapping[str, Any]
"""What was measured of one tensor: a row of layerwise.json (see ``tensor_row`` in result_schema.json)."""


@dataclass(frozen=True)
class KnownFailure:
    """A failure as it is told: see `runner.verdict.Signature`. ``raised``, ``whole``, ``error``: see the schema."""

    stage: str = ""
    kind: str = ""
    detail: str = ""
    raised: str = field(default="", metadata=OPTIONAL)
    whole: str = field(default="", metadata=OPTIONAL)
    error: float | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Plan:
    """What a run would cost. Sizes in MB: while it is at work, and what it leaves."""

    search_checks: int = 0
    trust_checks: int = 0
    seconds_each: float = 0.0
    seconds: float = 0.0
    disk_mb: float = 0.0
    disk_left_mb: float = 0.0


@dataclass(frozen=True)
class Count:
    """How often something failed, of how many times."""

    failed: int = 0
    of: int = 0


@dataclass(frozen=True)
class Repeats:
    """How often one check was repeated at most, and how many repeats there were in all."""

    most: int = 0
    all: int = 0


@dataclass(frozen=True)
class CheckReliability:
    """How well a check was tested.

    Of one that never contradicted itself: how many second verdicts ``agreed`` with the first, and the probability with
    which a check that is ``wrong`` so often would have been noticed. Of a flaky one: how often the whole model and the
    control failed, its repeats, and the probability of a wrong answer that was asked for.
    """

    agreed: int | None = field(default=None, metadata=OPTIONAL)
    wrong: float | None = field(default=None, metadata=OPTIONAL)
    noticed_with: float | None = field(default=None, metadata=OPTIONAL)
    max_wrong: float | None = field(default=None, metadata=OPTIONAL)
    whole_model: Count | None = field(default=None, metadata=OPTIONAL)
    control: Count | None = field(default=None, metadata=OPTIONAL)
    repeats: Repeats | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Statistics:
    """Of repeats: how many, the pass rate and its 95 % interval after Wilson (1927). Of recorded builds: how many."""

    iterations: int | None = field(default=None, metadata=OPTIONAL)
    passed: int | None = field(default=None, metadata=OPTIONAL)
    judged: int | None = field(default=None, metadata=OPTIONAL)
    pass_rate: float | None = field(default=None, metadata=OPTIONAL)
    pass_rate_95: tuple[float, ...] = field(default=(), metadata=OPTIONAL)
    good_builds: int | None = field(default=None, metadata=OPTIONAL)
    bad_builds: int | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class TacticSuspect:
    """A tactic of bad builds only. ``good``: what good builds chose there, and how often."""

    layer: str = ""
    key: str | None = None
    tactic: str = ""
    kernel: str | None = None
    nodes: tuple[str, ...] = ()
    bad_builds: int | None = field(default=None, metadata=OPTIONAL)
    of: int | None = field(default=None, metadata=OPTIONAL)
    good: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NeededPasses:
    """Of ``asked`` switches, those that a failure needs; ``alone_off``: how the model ends with one of them off."""

    asked: int = 0
    needed: tuple[str, ...] = ()
    heals: tuple[tuple[str, ...], ...] = ()
    alone_off: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class AskedRelease:
    """How one release ended."""

    version: str = ""
    outcome: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Releases:
    """Of a package, how each release that was asked ended. ``installed``: how many were installed for that."""

    package: str = ""
    bad: str = ""
    good_before: str | None = None
    good_after: str | None = None
    asked: tuple[AskedRelease, ...] = ()
    not_asked: tuple[str, ...] = ()
    installed: int | str = 0

    @property
    def good(self) -> tuple[str, ...]:
        """The good releases nearest to the bad one, the earlier one first."""
        return tuple(one for one in (self.good_before, self.good_after) if one)


@dataclass(frozen=True)
class FirstWrong:
    """The first wrong tensor. ``own``: its error where its nodes are run on good values; None: not known."""

    tensor: str = ""
    node: str = ""
    kind: str = ""
    error: float | None = None
    own: float | None = None


@dataclass(frozen=True)
class LargestOwn:
    """The tensor whose own error is largest. ``nodes``: which make it; none where they are too many to be named."""

    tensor: str = ""
    node: str = ""
    nodes: tuple[str, ...] = ()
    kind: str = ""
    own: float | None = None


@dataclass(frozen=True)
class Layers:
    """How far each tensor is from its good value. ``marking``: what marking tensors as outputs does to the failure."""

    tensors: int = 0
    runs: int = 0
    first_bad: FirstWrong | None = None
    largest_own: LargestOwn | None = None
    marking: str = ""
    hidden: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()
    own_unknown: str = ""
    suspects: tuple[str, ...] = ()
    outputs: tuple[Row, ...] = ()
    worst: tuple[Row, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassedSamples:
    """On how many samples of a ``kind`` something passes; ``without``: the model without it passes there too."""

    passed: int = 0
    of: int = 0
    kind: str = "recorded"
    without: bool = field(default=False, metadata=OPTIONAL)


@dataclass(frozen=True)
class Latency:
    """Median milliseconds without and with a workaround, their ratio, and the runs of each."""

    before_ms: float | None = None
    after_ms: float = 0.0
    ratio: float | None = None
    runs: int = 0


@dataclass(frozen=True)
class Workaround:
    """What was tried against the failure, how it was checked and what it costs.

    ``tried``: false where it could not be, which says nothing of it. ``where``: in words, where alone it was seen to
    help, if known. ``places``: how many of the model it changes; ``nodes``: what it has in float32.
    """

    kind: str = ""
    what: str = ""
    tried: bool = True
    passes: bool = False
    samples: PassedSamples = field(default_factory=PassedSamples)
    where: str = ""
    places: int = 1
    nodes: tuple[str, ...] = ()
    latency: Latency | None = None
    overrides: tuple[str, ...] = ()
    code: str = ""
    files: tuple[str, ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class TensorType:
    """A tensor by name, type and shape; None: of any rank."""

    name: str = ""
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None


@dataclass(frozen=True)
class Weight:
    """A weight by name, type, shape and size in bytes."""

    name: str = ""
    dtype: str = ""
    shape: tuple[int | str, ...] = ()
    bytes: int = 0


@dataclass(frozen=True)
class WeightsOfType:
    """How many weights have a type, their elements and bytes."""

    count: int = 0
    elements: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Weights:
    """What a model's weights are; ``parameters``: the numbers in floats and in integers of 8 bits and less."""

    count: int = 0
    bytes: int = 0
    parameters: int = 0
    dtypes: Mapping[str, WeightsOfType] = field(default_factory=dict)
    largest: tuple[Weight, ...] = ()


@dataclass(frozen=True)
class Concern:
    """What could trouble a run of a model."""

    kind: str = ""
    where: str = ""
    what: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineLayer:
    """A layer of an engine."""

    name: str = ""
    type: str = ""
    tactic: str = ""
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inspection:
    """What a model, or an engine (``library``, ``memory`` in bytes, ``layers``), is made of.

    ``refused``: what the target says of a model that it does not load; ``why``: the reason, if one of the concerns is;
    ``cure``: what was tried.
    """

    kind: str = ""
    bytes: int = 0
    sha256: str = ""
    producer: str = ""
    ir_version: int = 0
    opsets: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0
    constants: int = 0
    nested: int = 0
    operators: Mapping[str, int] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    inputs: tuple[TensorType, ...] = ()
    outputs: tuple[TensorType, ...] = ()
    dynamic: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, int] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    concerns: tuple[Concern, ...] = ()
    refused: str = field(default="", metadata=OPTIONAL)
    why: str = field(default="", metadata=OPTIONAL)
    cure: str = field(default="", metadata=OPTIONAL)
    library: str = field(default="", metadata=OPTIONAL)
    memory: int = field(default=0, metadata=OPTIONAL)
    layers: tuple[EngineLayer, ...] = field(default=(), metadata=OPTIONAL)


@dataclass(frozen=True)
class Reproduced:
    """How the file fails, in words how often; what the check said. ``reference_too``: the NaN or Inf is its own."""

    failed: int = 0
    of: int = 0
    failure: str | None = None
    how_often: str = ""
    said: str = ""
    only_rounded: bool = False
    inputs: str = ""
    reference_too: bool = False
    plain_is_finite: bool = False
    other_inputs: Count | None = None


@dataclass(frozen=True)
class ShownOn:
    """Which model optimizations and releases were asked about, in words."""

    passes: str = ""
    releases: str = ""


@dataclass(frozen=True)
class Decision:
    """A question of a triage, why it was put or left out, and what came of it. ``step``: its folder."""

    question: str = ""
    why: str = ""
    answer: str = ""
    step: str = ""


@dataclass(frozen=True)
class TriageStep:
    """A step of a triage. ``folder``: of its run, "" where it was left out."""

    name: str = ""
    strategy: str = ""
    folder: str = ""
    why: str = ""
    status: str = ""
    answer: str | None = None
    checks: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Triage:
    """The steps of a triage. ``smallest``: whether the part is the smallest that fails."""

    branch: str = ""
    reproduced: Reproduced = field(default_factory=Reproduced)
    smallest: bool = False
    shown_on: ShownOn = field(default_factory=ShownOn)
    decisions: tuple[Decision, ...] = ()
    steps: tuple[TriageStep, ...] = ()


@dataclass(frozen=True)
class Rechecked:
    """How a kept result ends by now, and what is expected of it."""

    folder: str = ""
    expect: str = ""
    outcome: str = ""
    said: str = ""


@dataclass(frozen=True)
class Evidence:
    """Why a failure is one of a bug."""

    failure: str = ""
    how: str = ""
    said: str = ""


@dataclass(frozen=True)
class KnownBug:
    """Failures that have one cause."""

    name: str = ""
    failures: tuple[str, ...] = ()
    count: int = 0
    smallest: str = ""
    culprit_operators: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    signature: KnownFailure = field(default_factory=KnownFailure)
    releases: str | None = None
    workaround: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class FusedLayer:
    """A layer of an engine, and the nodes of the model that went into it."""

    layer: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fused:
    """The engine's layers that the answer's nodes went into, and ``of`` which model the engine is."""

    of: str = ""
    layers: tuple[FusedLayer, ...] = ()


@dataclass(frozen=True)
class RaisedNode:
    """A node that stays in high precision, and why."""

    node: str = ""
    op: str = ""
    nested: bool = False
    reason: str = ""


@dataclass(frozen=True)
class RaisedBlock:
    """A block of nodes of which some are raised; ``worst``: the raised one that introduces most error."""

    scope: str = ""
    nodes: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    whole: bool = False
    worst: str = ""


@dataclass(frozen=True)
class StaysHigh:
    """A node that no search asks about."""

    node: str = ""
    op: str = ""
    why: str = ""


@dataclass(frozen=True)
class PrecisionSamples:
    """On which samples an answer rests. ``held_out_are``: of which kind, ``passed_held_out``: whether it passes."""

    searched: int = 0
    held_out: int = 0
    passed_held_out: bool | None = None
    held_out_are: str | None = None
    why_not_held_out: str | None = None
    rounds: int = 0


@dataclass(frozen=True)
class ErrorLeft:
    """The error in units of the tolerance, all low and as handed over; None: not finite, or not known."""

    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class FailsAlone:
    """Nodes that the search did without and that fail when low alone; ``raised``: they are raised all the same."""

    nodes: tuple[str, ...] = ()
    raised: bool = False


@dataclass(frozen=True)
class Loads:
    """At which levels a plain ONNX Runtime loads the mixed model (``ok``, or its message), and the original."""

    levels: Mapping[str, str] = field(default_factory=dict)
    original: Mapping[str, str] = field(default_factory=dict)
    raised: tuple[str, ...] = ()
    disabled_optimizers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Precision:
    """Of a mixed-precision model: which nodes are raised and why, what is low, and what that costs.

    ``low_share``: of nodes, arithmetic, weights. ``curve``: [nodes raised, least error / tolerance]. ``overflows``:
    what becomes Inf inside; None: not known. ``without_margin``: fewer nodes that hold the tolerance; ``by_margin``:
    there are fewer, on the samples of the search. ``alone``: of each layer that alone is low, largest error first.
    """

    high: str = ""
    low: str = ""
    selected: tuple[RaisedNode, ...] = ()
    groups: tuple[RaisedBlock, ...] = ()
    low_share: Mapping[str, float] = field(default_factory=dict)
    stays_high: tuple[StaysHigh, ...] = ()
    nodes_to_exclude: tuple[str, ...] = ()
    inlined: Mapping[str, str] = field(default_factory=dict)
    layer_precisions: Mapping[str, str] = field(default_factory=dict)
    clamped: Mapping[str, Any] = field(default_factory=dict)
    flushed: Mapping[str, Any] = field(default_factory=dict)
    samples: PrecisionSamples = field(default_factory=PrecisionSamples)
    error: Mapping[str, ErrorLeft] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict, metadata=OPTIONAL)
    fails_alone: FailsAlone = field(default_factory=FailsAlone)
    overflows: tuple[Mapping[str, Any], ...] | None = None
    flushed_epsilons: tuple[Mapping[str, Any], ...] = ()
    zeroed: tuple[str, ...] = ()
    loads: Loads | None = field(default=None, metadata=OPTIONAL)
    layers: str | None = None
    plot: str | None = None
    curve: tuple[tuple[float, ...], ...] = ()
    curve_plot: str | None = None
    without_margin: tuple[str, ...] | None = None
    pairs_fail: str = field(default="", metadata=OPTIONAL)
    by_margin: bool = field(default=False, metadata=OPTIONAL)
    alone: tuple[Mapping[str, Any], ...] = ()
    each_fails: bool = field(default=False, metadata=OPTIONAL)
    within_budget: Mapping[str, Any] = field(default_factory=dict)
    cures: tuple[Mapping[str, Any], ...] = ()
    quantizers: Mapping[str, Any] = field(default_factory=dict)
    tensorrt_refuses: tuple[str, ...] = field(default=(), metadata=OPTIONAL)


@dataclass(frozen=True)
class CauseExperiment:
    """How an experiment on the whole model ended, and how bad it is (None: the check does not say)."""

    outcome: str = ""
    measure: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class CauseAnswer:
    """An answer, all places of its pattern, and its experiments with good outputs, inputs, both (None: not made)."""

    culprits: tuple[str, ...] = ()
    is_cause: bool = False
    instances: tuple[tuple[str, ...], ...] = ()
    good_outputs: CauseExperiment | None = None
    good_inputs: CauseExperiment | None = None
    good_around: CauseExperiment | None = None


@dataclass(frozen=True)
class WiderType:
    """Of an overflow, what a tensor holds in a wider type. ``beyond``: elements that are larger than ``limit``."""

    tensor: str = ""
    type: str = ""
    wider: str = ""
    largest: float | None = None
    limit: float | None = None
    beyond: int = 0
    elements: int = 0
    raised: tuple[str, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class ShownCause:
    """What was shown of the cause, on the whole model; what its texts say stands in result_schema.json."""

    status: str = ""
    reason: str = ""
    wider: WiderType | None = None
    no_value: str = ""
    right: str = ""
    whole: CauseExperiment | None = None
    answers: tuple[CauseAnswer, ...] = ()
    weights: tuple[str, ...] = field(default=(), metadata=OPTIONAL)

    @property
    def causes(self) -> list[CauseAnswer]:
        """The answers that are the cause, or part of it."""
        return [one for one in self.answers if one.is_cause]


@dataclass(frozen=True)
class Cause(ShownCause):
    """The same, and of the nodes ``inside`` those that are named; None: there are none."""

    inside: ShownCause | None = field(default=None, metadata=OPTIONAL)
