"""What a run says about its inputs, its reference and the target's rounding before anybody trusts its answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from runner.backends.run_model import SEED
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import LOW, quantized_nodes
from runner.reference.recording import Recorded
from runner.samples.sizes_and_ranges import accepted, larger
from runner.schema.backend import OnnxRuntimeBackend, Optimization, Rounding
from runner.schema.checker import CheckerSettings, CommandChecker
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.text import counted, listed, own_words, program_name

RANDOM_INPUTS = "the inputs are random; to give real ones: --inputs x.npz"
SIZES = "the input sizes are assumed: "
"""How a run begins to say which sizes it has made up, unless the reference has settled them."""
ROUNDED = "target.rounding=on"
HIDDEN_ROUNDING = f"ONNX Runtime's CPU computes float16 in float32; {ROUNDED} rounds like a GPU"
HINTS = frozenset({RANDOM_INPUTS, HIDDEN_ROUNDING, f"{RANDOM_INPUTS}; {HIDDEN_ROUNDING}"})
"""What could be asked otherwise, in one line: of the inputs, of low precision, of both."""
UNJUDGED = " not judged: the original has no partner for"
"""What marks the warning of outputs that nothing is known to compare with."""
SEEDS: Mapping[str, int] = {"inputs": 1, "more_inputs": 2}
"""What the steps of a triage that try other random inputs add to the seed."""


def reference_run(settings: Settings) -> str:
    """Return what computes the values inside the model, in words."""
    running, model = settings.reference.running, settings.reference.model
    plain = isinstance(running, OnnxRuntimeBackend) and running.optimization is Optimization.none
    return f"reference.model={model}" if model else "ONNX Runtime without optimizations" if plain else "the reference"


def doubts(
    settings: Settings, graph: Graph, recorded: Recorded, seeded: Sequence[str], *, fed: bool, refused: bool
) -> list[str]:
    """What a user should know before trusting a reduction of this model.

    ``fed``: whether checks are fed with what was recorded. ``refused``: the reference takes none of the inputs that
    were made up, which is said at the end.
    """
    found = []
    if recorded.unrunnable and not refused:
        found.append(
            f"the reference cannot run {listed(recorded.unrunnable, 1)} ({own_words(recorded.reason)}): "
            "no values are recorded from there on"
        )
    if recorded.off > 1:
        found.append(f"{reference_run(settings)} gives other outputs than your files ({recorded.off_by})")
    if recorded.out_of_time:
        found.append(
            f"recording took more than inputs.timeout={settings.inputs.timeout:g} s: "
            "the tensors that were not reached get inferred shapes and made-up values"
        )
    if recorded.rounds:
        found.append(
            "the reference could not run the whole model at once, and ran it in parts. Between these, values of low "
            "precision are rounded, so they may differ a little from those of the whole model"
        )
    if recorded.on_demand and fed:
        found.append(
            "not all recorded values are kept; the reference computes the others again when they are needed "
            "(cut.disk=SIZE keeps more, cut.record=all keeps all)"
        )
    inputs = settings.inputs
    sizes = accepted(inputs, graph).sizes if isinstance(inputs, RandomInputs) and recorded.values else ()
    if sizes and not getattr(settings.target, "profiles", {}):
        others = larger_sizes(settings, graph) or "inputs.shapes"
        found.append(
            f"{SIZES}{listed(sizes, 20)}. To give others, set {others}, or edit "
            f"the file that '{program_name()} inputs' writes"
        )
    if seeded:
        found.append(
            f"the model draws random numbers ({listed(seeded, 1)}). Candidates draw the same ones in each run, by the "
            f"attribute seed. For the model file a check of your own has to call onnxruntime.set_seed({SEED}) before "
            "it makes a session"
        )
    if graph.drawing:
        found.append(
            f"the model draws random numbers ({listed(graph.drawing, 1)}), so no two runs of it are alike; "
            "candidates without these nodes are fed the numbers of one run"
        )
    hints = [RANDOM_INPUTS] if asks_for_data(settings) else []
    hidden = hides_rounding(settings, graph.kinds.values()) and not any(quantized_nodes(graph.model))
    hints += [HIDDEN_ROUNDING] if hidden else []
    return [*found, *filter(None, ["; ".join(hints)])]


def asks_for_data(settings: Settings) -> bool:
    """Whether random inputs are looked at that real ones could stand in for; a command may bring its own."""
    return isinstance(settings.inputs, RandomInputs) and not brings_own(settings.checker)


def brings_own(checker: CheckerSettings) -> bool:
    """Whether a check is a command that is not given the inputs."""
    placeholders = ("{inputs}", "{data}")
    return isinstance(checker, CommandChecker) and not any(one in str(checker.command) for one in placeholders)


def other_inputs(settings: Settings) -> str:
    """Return how many random inputs another step tries, and the setting that makes them."""
    given = settings.inputs
    if isinstance(given, RandomInputs):
        return f"{counted(given.samples, 'other random input')} (inputs.seed={given.seed + SEEDS['inputs']})"
    return "1 random input (inputs=random)"


def larger_sizes(settings: Settings, graph: Graph) -> str:
    """Return the setting with larger sizes than those that are assumed; "" where none are, or they are not looked at.

    Where a sequence is one step long, recurrent weights have no effect, and each softmax is over one element.
    """
    if not isinstance(settings.inputs, RandomInputs) or not asks_for_data(settings):
        return ""
    return "" if getattr(settings.target, "profiles", {}) else larger(settings.inputs, graph)


def hides_rounding(settings: Settings, types: Collection[int]) -> bool:
    """Whether values of low precision are looked at where they are not computed in it. ``types``: of the weights."""
    target = settings.target
    if not settings.checker.looks_at_values or not isinstance(target, OnnxRuntimeBackend):
        return False
    stored = not LOW.isdisjoint(types)
    shown = target.rounding in (Rounding.on, Rounding.strict)
    return stored and not shown and target.providers == ["CPUExecutionProvider"]
