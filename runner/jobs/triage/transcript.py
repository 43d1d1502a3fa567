"""What a triage knows: before anything is asked, and from its steps: how it fails, why, since when, what helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from runner.exit_codes import ANSWERED, Status, UsageError
from runner.jobs.variants.release_cache import ReleaseCache, installed_under, read_versions
from runner.judgment import NON_FINITE, SHOWN, Whose
from runner.model.files.parse_without_weights import parse, structure
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import quantized_nodes
from runner.reference.hints import asks_for_data, hides_rounding, larger_sizes, other_inputs
from runner.report.diagnosis_sections import NOT_FINITE, NOT_THE_TARGET, own_values, proof
from runner.report.result_parts import KnownFailure, NeededPasses, Releases
from runner.report.short_answer import failure_in_words, where
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend, Rounding, TensorRtBackend
from runner.schema.checker import BuildsChecker, CommandChecker, Golden, PythonChecker
from runner.schema.installed_choices import SCHEMAS
from runner.schema.root import Settings
from runner.schema.strategy import FloatType, TriageSettings, chosen
from runner.text import counted, listed
from runner.verdict import LIMITS, Signature
from runner.workers.worker import find_python

_LOW = {10: FloatType.float16, 16: FloatType.bfloat16}
"""Element types of ONNX, as a precision search calls them."""
_HIGH = 1


@dataclass(frozen=True)
class Situation:
    """What is known before anything is asked.

    ``own_code``: the check is the user's own; ``names_switches``, ``names_python``: its command leaves a place for
    them. ``looks_at_values``: the checker does. ``inputs``: the choice; ``asks_for_data``: real ones
    could stand in for these. ``others``: the random ones that a step tries besides. ``given``: files say what is right
    for these. ``alone``: what is right needs neither files nor another model, ``on_its_own`` nor what was recorded.
    ``hides_rounding``: the target computes a low precision in float32; ``rounds``: it rounds after every operator, as
    it was asked to. ``low``: the float type of a model whose original is in float32, or ``quantized``; "" for any
    other. ``quantized_alone``: it is quantized, and nothing says what its original computes. ``larger``: the setting
    with larger sizes than those that are assumed, "" where none are. ``releases``: which can be asked, in words.
    ``strategies``: what is there.
    """

    own_code: bool = False
    names_switches: bool = False
    names_python: bool = False
    looks_at_values: bool = True
    inputs: str = "random"
    others: str = ""
    asks_for_data: bool = False
    builds_engines: bool = False
    optimizes: bool = True
    given: bool = False
    alone: bool = True
    on_its_own: bool = True
    hides_rounding: bool = False
    rounds: bool = False
    low: str = ""
    quantized_alone: bool = False
    larger: str = ""
    releases: str = ""
    strategies: frozenset[str] = frozenset()


def situation_of(settings: Settings) -> Situation:
    """Return what settings and files tell before anything is asked. Raises UsageError for releases that are none."""
    checker, target = settings.checker, settings.target
    command = str(checker.command) if isinstance(checker, CommandChecker) else ""
    given, alone = settings.reference.has_expected, settings.reference.model is None and target.model is None
    ahead = isinstance(checker, BuildsChecker | PythonChecker) or getattr(checker, "golden", None) is Golden.ahead
    return Situation(
        own_code=checker.runs_own_code,
        names_switches="{switches}" in command and bool(chosen(settings.strategy, TriageSettings).switches),
        names_python="{python}" in command,
        looks_at_values=checker.looks_at_values,
        inputs=settings.inputs.name,
        others=other_inputs(settings),
        asks_for_data=asks_for_data(settings),
        builds_engines=target.builds_engines and not checker.runs_own_code,
        optimizes=isinstance(target, OnnxRuntimeBackend | TensorRtBackend),
        given=given,
        alone=alone and not given,
        on_its_own=alone and not ahead,
        hides_rounding=not checker.runs_own_code and hides_rounding(settings, _float_types(settings.model)),
        rounds=getattr(target, "rounding", None) in (Rounding.on, Rounding.strict),
        low=_low(settings),
        quantized_alone=alone and not given and _is_quantized(settings.model),
        larger=_larger(settings),
        releases=_releases(settings),
        strategies=frozenset(SCHEMAS["strategy"]),
    )


def _larger(settings: Settings) -> str:
    """Return the setting with larger sizes; "" where none are assumed, or the file cannot be read."""
    try:
        return larger_sizes(settings, Graph.of(parse(Path(settings.model or "").expanduser())))
    except Exception:  # noqa: BLE001 - whatever lies there, which the steps will say
        return ""


def _low(settings: Settings) -> str:
    """Return the low float type of a model whose original, the reference's model, is in float32; "" for any other."""
    if not (settings.model and settings.reference.model):
        return ""
    kinds = _float_types(settings.model)
    low = next((kind for number, kind in _LOW.items() if number in kinds), None)
    if low is None and _is_quantized(settings.model):
        low = FloatType.quantized
    return low.value if low and _HIGH in _float_types(settings.reference.model) else ""


def _is_quantized(path: str | None) -> bool:
    """Whether any node of a model is quantized."""
    return any(quantized_nodes(structure(path)))


def _float_types(path: str | None) -> set[int]:
    """Return the element types of a model's weights."""
    return {one.data_type for one in structure(path).graph.initializer}


def package_of(settings: Settings) -> str:
    """Return the package whose releases may differ."""
    return "onnx" if settings.target.name == "onnx_reference" else "onnxruntime"


def installed(settings: Settings) -> dict[str, str]:
    """Return a digest of what is installed under each interpreter that takes part; answers hold for these alone."""
    return {python or "": _installed(python) for python in {settings.target.python, settings.reference.python}}


def _installed(python: str | None) -> str:
    try:
        return installed_under(find_python(python))
    except UsageError as error:  # the steps will say so
        return str(error)


def _releases(settings: Settings) -> str:
    """Return which releases can be asked about without installing anything unasked; "" for none."""
    strategy = chosen(settings.strategy, TriageSettings)
    if strategy.versions is not None:
        read_versions(strategy.versions)
        if settings.target.builds_engines and not settings.checker.runs_own_code:
            raise UsageError(
                f"strategy.versions={strategy.versions}: which package target={settings.target.name} comes from is not "
                "known here. Leave it out, and ask about releases alone: strategy=versions strategy.package=NAME"
            )
        return f"strategy.versions={strategy.versions}"
    cache = Path(strategy.cache).expanduser()
    if settings.target.builds_engines or not cache.is_dir():
        return ""
    try:
        base = find_python(settings.target.python)
        held = ReleaseCache(cache.absolute(), package_of(settings), base, offline=True).available()
    except UsageError:
        return ""
    return f"{len(held)} in the cache"


@dataclass(frozen=True)
class Ended:
    """A step that ended, or was left out. ``folder``: of its run, relative; "": it was not asked."""

    name: str
    strategy: str = ""
    folder: str = ""
    why: str = ""
    result: Summary | None = None

    @property
    def known(self) -> Summary:
        """What it found; a summary that says nothing where it has none."""
        return self.result or Summary()

    @property
    def status(self) -> str:
        """How it ended."""
        return str(self.result.status) if self.result else "not asked"

    @property
    def message(self) -> str:
        """What it said."""
        return self.known.message or self.status

    @property
    def searched(self) -> int:
        """How many of its checks a budget counts."""
        paid = self.known.checks
        return paid.search + paid.refine + paid.cause + paid.repeats


# What the steps of a triage say that have ended, and of these whether and how the file as it is fails.

_ANSWERS = ANSWERED | {Status.nothing_to_find, Status.no_set_suffices, Status.planned, Status.could_not_judge}
SEEN = ("stands", "repeat", "rounded", "inputs", "more_inputs")
"""The steps that say whether the file as it is fails: the first two as the user asks, the others otherwise."""
MOST_SECONDS = 10.0
"""A check that takes longer is slow."""
CHECKED = frozenset({*SEEN, "plain", "healed"})
"""The steps that only count what checks say."""


PART, WHOLE = "the reduced model", "the whole model"


@dataclass(frozen=True)
class Known:
    """All that is known between two steps.

    ``wanted``: steps that may be taken. ``planned``: nothing but the pre-flight. ``spent``: the budget that is.
    ``refused``: why nothing is judged with these inputs, and what to do: the reference takes none that were made up, or
    they are paired wrongly with the original's; "": they will do, or it was not asked.
    ``sizes``: what is to be said of sizes that it takes.
    """

    situation: Situation
    wanted: tuple[str, ...]
    planned: bool = False
    spent: str = ""
    ended: tuple[Ended, ...] = ()
    refused: str = ""
    sizes: str = ""

    def after(self, step: Ended) -> Known:
        """Return what is known after one more step."""
        unpaired = step.status == Status.could_not_judge and any(
            one.startswith("reference.map=") for one in step.known.lacks
        )
        return replace(self, ended=(*self.ended, step), refused=step.known.message if unpaired else self.refused)

    def of(self, name: str) -> Ended:
        """Return a step; one that has not ended yet says nothing."""
        return next((one for one in self.ended if one.name == name), Ended(name))

    def has(self, name: str) -> bool:
        """Whether a step ended, or was left out."""
        return any(one.name == name for one in self.ended)

    def result(self, name: str) -> Summary:
        """Return what a step found; a summary that says nothing where it was not asked."""
        return self.of(name).known

    def has_result(self, name: str) -> bool:
        """Whether a step was asked and said anything."""
        return self.of(name).result is not None

    def has_answer(self, name: str) -> bool:
        """Whether a step found something."""
        return self.result(name).status in ANSWERED

    def said(self, name: str) -> str:
        """Return what a step said, after how it ended."""
        step = self.of(name)
        if not step.result:
            return "not asked"
        plain = step.status in _ANSWERS or step.message.startswith(step.status)
        return step.message if plain else ": ".join(filter(None, (step.status, step.message)))

    def judgements(self, name: str) -> tuple[int, int]:
        """Return how many checks of the model failed in a step, and of how many that judged it, controls aside."""
        found = self.result(name)
        failed, passed = (found.outcomes.get(one, 0) - found.controls.get(one, 0) for one in ("fail", "pass"))
        return failed, failed + passed

    def count(self, name: str) -> str:
        """Return that in words."""
        failed, of = self.judgements(name)
        return f"{failed} of {counted(of, 'check')} failed" if of else self.said(name)

    def told(self, name: str) -> str:
        """Return what a step came to: how many checks failed, or what it said."""
        return self.count(name) if name in CHECKED else self.said(name)

    @property
    def stopped(self) -> bool:
        """Whether somebody, or a full disk, ended the last step."""
        return bool(self.ended) and self.ended[-1].status in (Status.interrupted, Status.no_room)

    # ---- does it stand

    @property
    def judged(self) -> bool:
        """Whether the file as it is can be judged."""
        return self.judgements("stands")[1] > 0

    @property
    def seconds_each(self) -> float:
        """How long a check of the file took."""
        return self.result("stands").seconds.checking / max(self.judgements("stands")[1], 1)

    @property
    def is_slow(self) -> bool:
        """Whether the whole model is not checked more often than it has to be."""
        return self.seconds_each > MOST_SECONDS

    @property
    def _own(self) -> tuple[int, int]:
        """Of the file with its own inputs: failed, and of how many."""
        both = [self.judgements(name) for name in SEEN[:2]]
        return sum(one[0] for one in both), sum(one[1] for one in both)

    @property
    def fails(self) -> bool:
        """Whether the file fails, with its own inputs, at least once."""
        return self._own[0] > 0

    @property
    def flaky(self) -> bool:
        """Whether it fails at times, with its own inputs."""
        failed, of = self._own
        return 0 < failed < of

    @property
    def only_in(self) -> str:
        """The first step that asks otherwise and failed, where it passes as the user asks; "": none."""
        found = [name for name in SEEN[2:] if self.judgements(name)[0]]
        return "" if self.fails or not found else found[0]

    @property
    def anything_failed(self) -> bool:
        """Whether anything is there to look into."""
        return self.fails or bool(self.only_in)

    @property
    def how_often(self) -> str:
        """In how many checks it failed, and with which inputs."""
        failed, of = self._own
        if self.only_in and self.only_in != "rounded":
            own = "your files" if self.situation.inputs == "files" else "the first"
            return f"with other random inputs ({self.count(self.only_in)}), not with {own}"
        often = f"in {failed} of {counted(of, 'run')}{' (flaky)' * (failed < of)}"
        if self.only_in:
            often = "only when operators round as on a GPU"
        others, tried = self.judgements("inputs")
        if not tried:
            return often
        kind = "random inputs" if self.situation.inputs == "files" else "other random inputs"
        return f"{often}; with {kind} too" if others else f"{often}; passes with {self.situation.others}"

    @property
    def signature(self) -> KnownFailure | None:
        """What fails, by the first step that saw it; None: none did."""
        held = (self.result(name).signature for name in (*SEEN, "reduce"))
        return next((one for one in held if one), None)

    @property
    def failure(self) -> str:
        """What fails, in words."""
        return f"{self.signature.stage}: {self.signature.kind}" if self.signature else "?: failure"

    @property
    def failure_in_words(self) -> str:
        """The same as a person says it; of a refusal the runtime's own sentence."""
        return failure_in_words(self.failure, self.check_said)

    @property
    def check_said(self) -> str:
        """What the check said of the file as it is."""
        return self.result("stands").said

    @property
    def why_not_loaded(self) -> str:
        """Why the target does not load the model, where the file says it; "": it loads, or nobody knows."""
        found = self.result("inspect")
        return found.message if found.inspection and found.inspection.why and not self.situation.own_code else ""

    @property
    def refuses_inputs(self) -> bool:
        """Whether the file as it is fails in a way that inputs that were made up may explain."""
        told = self.result("stands").signature
        if told is None:
            return self.fails or not (self.judged or self.situation.own_code)
        return told.stage in ("infer", "check") and told.kind not in LIMITS

    @property
    def not_finite(self) -> bool:
        """Whether the failure is a NaN or Inf."""
        return self.signature is not None and self.signature.kind in NON_FINITE

    @property
    def about_values(self) -> bool:
        """Whether the failure may lie in what tensors hold."""
        told = self.signature
        return told is not None and Signature(told.stage, told.kind).about_values

    @property
    def unseen(self) -> bool:
        """Whether the failure shows only beside what was recorded, which a strategy about the file as it is has not."""
        return self.situation.alone and not self.situation.on_its_own and self.about_values

    # ---- what fails

    @property
    def first_bad(self) -> tuple[str, ...]:
        """The nodes that make the first bad tensor of good ones."""
        found = self.result("layerwise")
        return found.culprits or (found.layers.suspects[:1] if found.layers else ())

    @property
    def extracted_fails(self) -> bool:
        """Whether the piece that was cut out fails alone."""
        return self.result("extract").signature is not None

    @property
    def culprits(self) -> tuple[str, ...]:
        """The nodes of the part that fails: the smallest where one was searched, else the one that was cut out."""
        return self.result(self.answer).culprits if self.answer else ()

    @property
    def answer(self) -> str:
        """The step whose model is the part that fails; "": none."""
        if self.rounds_everywhere:
            return ""
        if self.has_answer("reduce") and self.result("reduce").culprits:
            return "reduce"
        return "extract" if self.extracted_fails else ""

    @property
    def rounds_everywhere(self) -> bool:
        """Whether the layers that must not be quantized are the answer, and not a part that is not the cause."""
        found = self.result("reduce")
        shown = found.cause is not None and found.cause.status in SHOWN
        return found.whose == Whose.QUANTIZATION and not shown and self.has_answer("precision")

    @property
    def message(self) -> str:
        """What the last step said that has a result."""
        return next((one.message for one in reversed(self.ended) if one.result), "nothing was asked")

    @property
    def reduced(self) -> str:
        """What the reduction says."""
        found = self.result("reduce")
        if not self.has_answer("reduce"):
            return self.said("reduce")
        some = where(found)
        return "; ".join(filter(None, (some, self.proof, NOT_THE_TARGET.get(found.whose or ""))))

    @property
    def proof(self) -> str:
        """What was shown of the cause on the whole model."""
        cause = self.result("reduce").cause
        if cause is None or cause.status in SHOWN:
            return proof(cause) if cause else ""
        return "the cause could not be tested" if cause.status == "untested" else "not shown to be the cause"

    @property
    def recorded_too(self) -> bool:
        """Whether the reference makes the NaN or Inf as well, of the same values, where each tensor was recorded.

        To be recorded a tensor is handed out, and what is handed out is rounded to its type. A runtime that computes
        float16 in float32 rounds no other tensor, so its plain run of the file may be finite all the same.
        """
        layers, cause = self.result("layerwise").layers, self.result("reduce").cause
        first = layers.first_bad if layers else None
        if first or not self.not_finite:
            return self.not_finite and first is not None and first.kind == NOT_FINITE
        return cause is not None and own_values(cause)

    @property
    def plain_is_finite(self) -> bool:
        """Whether a plain run of the file by the reference was asked for, and has no NaN or Inf."""
        failed, of = self.judgements("plain")
        return of > 0 and not failed

    @property
    def reference_too(self) -> bool:
        """Whether the NaN or Inf is the model's own, as far as the reference was asked."""
        return self.recorded_too and not self.plain_is_finite

    @property
    def reference_too_plainly(self) -> bool:
        """Whether a plain run of the file by the reference was seen to make it as well, and not the recording alone.

        A target that rounds after every operator does what the recording does: no plain run is asked for.
        """
        return self.reference_too and (self.rounds or self.result("plain").failure.kind in NON_FINITE)

    @property
    def rounds(self) -> bool:
        """Whether the target rounds after every operator in what is asked about the failure."""
        return self.situation.rounds or self.only_in == "rounded"

    @property
    def on_reduced(self) -> bool:
        """Whether the rest is asked about the reduced model.

        Not where the reference makes the NaN or Inf in a part, but not in the whole: no optimization is needed there.
        """
        return bool(self.answer) and self.situation.alone and not self.plain_is_finite

    @property
    def releases_on_reduced(self) -> bool:
        """Whether releases are asked about the reduced model.

        The whole may be good in a release in which the reduced one fails: what is fused depends on what is around.
        """
        return self.on_reduced and self.is_slow

    @property
    def place(self) -> str:
        """Which model the rest is asked about."""
        return PART if self.on_reduced else WHOLE

    @property
    def place_of_releases(self) -> str:
        """Which model releases are asked about."""
        return PART if self.releases_on_reduced else WHOLE

    # ---- why, since when, and what helps

    @property
    def passes(self) -> NeededPasses | None:
        """What is known of passes: on the whole model, where that was searched."""
        return self.result("passes_on_whole").passes or self.result("passes").passes

    @property
    def heals(self) -> tuple[tuple[str, ...], ...]:
        """The sets of passes without which it passes; those first that heal the reduced model as well."""
        asked = (self.result(step).passes for step in ("passes_on_whole", "passes"))
        held = [one.heals for one in asked if one]
        return tuple(sorted(held[0], key=lambda one: one not in held[-1])) if held else ()

    @property
    def off(self) -> tuple[str, ...]:
        """The first of these."""
        return next(iter(self.heals), ())

    @property
    def healed(self) -> bool:
        """Whether the whole model passes without them."""
        failed, of = self.judgements("healed")
        return of > 0 and not failed

    @property
    def off_holds_on(self) -> str:
        """Which model was shown to pass without them, in words; "": not the one that it is about."""
        if not self.on_reduced or self.has_answer("passes_on_whole") or self.healed:
            return WHOLE
        return "" if self.judgements("healed")[1] else PART

    @property
    def releases(self) -> Releases | None:
        """What is known of releases."""
        return self.result("versions").releases

    @property
    def good_releases(self) -> tuple[str, ...]:
        """Those nearest to the bad one that do not have it; the later one first."""
        return self.releases.good[::-1] if self.releases else ()

    @property
    def raised(self) -> tuple[str, ...]:
        """The nodes that were shown to need a high precision."""
        asked = self.has_answer("precision") and self.situation.low != "quantized"  # whose pairs no workaround takes
        return self.result("precision").culprits if asked else ()

    @property
    def remedies(self) -> tuple[str, ...]:
        """What a workaround can begin with, in words."""
        held = (
            *(f"{listed(one)} off" for one in self.heals),
            *(("the nodes that have to stay in high precision",) if self.raised else ()),
            *self.good_releases,
            *(("rewriting the nodes",) if self.culprits else ()),
        )
        return tuple(dict.fromkeys(held))
