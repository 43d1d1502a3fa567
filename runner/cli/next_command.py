"""What to type next, by how a run of which strategy ended: commands that can be copied as they are."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from runner.cli.bounded_yaml import read_yaml
from runner.exit_codes import ANSWERED, BUDGET_REACHED, Status, UsageError
from runner.files import inside
from runner.journal.replay_yaml import REPLAY_NAME
from runner.judgment import CONVERTED, NON_FINITE, CauseStatus, Whose
from runner.report.diagnosis_sections import ANOTHER, LEFT, beyond_range
from runner.report.short_answer import ABOUT_KEPT, OWN_CODE, nothing_low
from runner.report.summary import FLOATS, Summary, read_result
from runner.report.typed_json import from_json
from runner.run_folder import INPUTS, REDUCED
from runner.schema.inputs import RandomInputs
from runner.text import counted, program_words
from runner.verdict import FOR_A_BAD_ONE, REDUCE
from strategies.search import Outcome

_RESUMABLE = frozenset({Status.interrupted, Status.no_room, Status.internal_error})
#: what `strategy=passes` turns off: where target and reference differ in more, it need not find anything
_OPTIMIZATIONS = frozenset({"optimization", "disabled_optimizers"})
_DATA = "test_data_set_0"
#: times as many random inputs, where nothing fails; and up to how many
_MORE, _MOST_SAMPLES = 10, 100
_HELP = (("strategy=workaround", "strategy.results=[{run}]"), "looks for a workaround")
#: by how a run ended, or by the strategy of one that found something: what is changed in its replay, and what for
_AGAIN: Mapping[str, tuple[tuple[str, ...], str]] = {
    Status.could_not_judge: (  # where nothing is unresolved; else the run goes on
        ("strategy=repeat", "strategy.until=5"),
        "runs only the check, five times, on the whole model",
    ),
    Status.no_set_suffices: (("strategy=layerwise",), "shows which tensor is wrong first"),
    "layerwise": (("strategy=reduce",), "finds the smallest part that fails"),
    "passes": _HELP,
    "versions": _HELP,
}

_LACKING = {
    "inputs.shapes": "tries larger sizes than those that are assumed",
    "inputs.ranges": "tries values of which the outputs show more",
    "target.rounding": "rounds low precision as a GPU does",
    "reference.map": "pairs the inputs so that all outputs are right",
    "checker.rtol": "judges by a tolerance that the model exceeds",
}
"""Keys that a run without an answer lacks, and what they are for."""
_AS_QUANTIZED = ("checker=compare", "checker.metric=fraction", "checker.rtol=0.1", "checker.fraction=0.02")
"""How +experiment=quantized judges."""
_FEW_LOW = 0.5
"""Where a smaller share of the nodes may be quantized, the tolerance is perhaps one for floats."""


def shown_path(path: Path) -> str:
    """Return a path as it is shortest to type where the user stands."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else str(path)


def command(*words: str) -> str:
    """Return a command as the user types it: Winnow, as it was started, and the words."""
    return shlex.join([*program_words(), *words])


def resume_command(folder: Path, *changes: str) -> str:
    """Return the command that goes on with what lies in ``folder``."""
    return command("resume", shown_path(folder), *changes)


def next_command(result: Summary, folder: Path) -> tuple[str, str]:
    """Return a command and what it is for; two empty texts where there is nothing to be said."""
    status, strategy = result.status, result.strategy
    if status in _RESUMABLE:
        return resume_command(folder), "continues; finished checks are not repeated"
    if status == Status.planned:
        return resume_command(folder, "plan=false"), "runs what was planned; the checks made so far are reused"
    if result.inspection and (result.inspection.why or result.inspection.kind == "engine"):
        return "", ""  # no other question has another answer, and of an engine nothing else can be asked
    answered = bool(result.culprits) and strategy != "extract"  # whose nodes are what the user named
    lacks = [one for one in result.lacks if one.partition("=")[0] in _LACKING]
    if lacks and not answered and (folder / REPLAY_NAME).is_file():
        return _again(folder, *lacks), _LACKING[lacks[0].partition("=")[0]]
    settled = answered and not (result.cause and result.cause.status == CauseStatus.UNTESTED)
    lacking = bool(result.lacks) and not settled and status != Status.nothing_to_find
    words = shlex.split(" ".join(result.lacks))
    if lacking and status != Status.could_not_judge and (folder / REPLAY_NAME).is_file():
        return _again(folder, *words), "a new run with that"  # the verdicts hold for what was asked
    if lacking and (folder / ".hydra").is_dir():
        typed = resume_command(folder, *words)
        names_files = ".onnx" in typed or ".npz" in typed
        return typed, "give your files in place of these" if names_files else "goes on with that"
    if status == Status.could_not_judge and (special := _not_judged(result, folder)):
        return special
    known = _AGAIN.get(strategy if status in ANSWERED else status)
    if not (folder / REPLAY_NAME).is_file():
        return "", ""
    # with a signature it fails, and what was asked about that has no answer
    if status == Status.nothing_to_find and not result.signature:
        return ("", "") if strategy == "extract" else _with_more_inputs(result, folder)
    if known is _HELP and (whole := _reduction_of(result)):  # a part was asked about, and the whole is to be helped
        results = f"strategy.results=[{shown_path(folder)},{shown_path(whole)}]"
        return _again(whole, _HELP[0][0], results), f"{_HELP[1]} for the whole model"
    if known is not None:
        run = shown_path(folder)
        return _again(folder, *(word.format(run=run) for word in known[0])), known[1]
    return (_with_partner(result, folder) or _after_an_answer(result, folder)) if status in ANSWERED else ("", "")


def _not_judged(result: Summary, folder: Path) -> tuple[str, str] | None:
    """Return what to type where the check could not judge; None: what is typed after any run without an answer."""
    own, resumed = result.checker in OWN_CODE, (folder / ".hydra").is_dir()
    spent = result.message.startswith((BUDGET_REACHED, "no iterations"))
    spent |= any(row.said == BUDGET_REACHED for row in result.rechecked)
    if spent:
        more = resume_command(folder, "budget.checks=null", "budget.seconds=null")
        return more, "continues without a budget; finished checks are not repeated"
    if (folder / INPUTS).is_file():
        written = command(result.strategy, shown_path(folder / INPUTS))
        runs = f"{INPUTS} has these ranges" in result.message
        what = "runs with these ranges; edit them if yours differ"
        return written, what if runs else "after you have written into that file what the model takes"
    if result.message.endswith(REDUCE) and (folder / REPLAY_NAME).is_file():
        return _again(folder, "strategy=reduce"), "finds the smallest part that fails"
    unjudged = result.unresolved or result.rechecked or result.outcomes.get(Outcome.UNRESOLVED.value)
    if unjudged and resumed:
        others = "; all if the check changed" * own
        return resume_command(folder), f"after a fix, repeats checks without a verdict{others}"
    if result.strategy == "passes" and _fails_otherwise(result):
        if own or not (folder / REPLAY_NAME).is_file():
            return "", ""  # which switches have to stay on is the user's to say
        return _again(folder, "strategy=reduce"), "finds the smallest part that fails; then ask for its passes"
    if own and resumed:
        return resume_command(folder), "once the check is mended: starts over"
    if result.strategy in ABOUT_KEPT:  # its replay names no model
        return "", ""
    return None


def _reduction_of(result: Summary) -> Path | None:
    """Return the run of which the model under study is the part that fails; None: it is nobody's part."""
    model = Path(result.input_model or "")
    found = read_result(model.parent) if model.name == f"{REDUCED}.onnx" else None
    there = found and found.input_model and found.model == model.name and (model.parent / REPLAY_NAME).is_file()
    return model.parent if there else None


def _again(folder: Path, *changes: str) -> str:
    return command(f"{shown_path(folder)}/{REPLAY_NAME}", *changes)


def _with_more_inputs(result: Summary, folder: Path) -> tuple[str, str]:
    """Return how a model that passes is looked at again; nothing where its inputs were given, or no check read them."""
    if result.message.endswith(FOR_A_BAD_ONE):
        return _again(folder), "once the check is mended: runs it again"
    try:
        replay = read_yaml(folder / REPLAY_NAME)
    except UsageError:
        return "", ""
    given = from_json(RandomInputs, replay.get("inputs") if isinstance(replay, Mapping) else None)
    samples = given.samples * _MORE
    if given.name != "random" or result.checker == "command" or not 0 < samples <= _MOST_SAMPLES:
        return "", ""
    return _again(folder, f"inputs.samples={samples}"), f"tries {samples} random inputs"


def _after_an_answer(result: Summary, folder: Path) -> tuple[str, str]:
    """Return what is asked of a model that was handed over, or of one that was looked at."""
    if result.strategy == "inspect" and result.input_model:
        return command(shown_path(Path(result.input_model))), "finds out whose bug it is"
    for one in result.workarounds:
        if one.passes and one.overrides:
            changes = (*map(_near, one.overrides), "strategy=repeat", "strategy.until=1")
            answer = (folder / (result.model or "")).parent  # of a triage it is a step's, with what the failure needs
            there = inside(answer, folder) and (answer / REPLAY_NAME).is_file()
            return _again(answer if there else folder, *changes), "runs the model with the workaround"
    told = result.precision
    few = told is not None and told.low_share.get("nodes", 1.0) < _FEW_LOW
    if told and few and told.low not in FLOATS and result.checker == "auto":
        return _again(folder, *_AS_QUANTIZED), "judges as quantized models are: 2 % of the values may be off"
    if told and nothing_low(told) and told.without_margin is not None and result.strategy != "triage":
        fewer = f"{counted(len(told.without_margin), 'node')} instead of {len(result.culprits)}"
        return _again(folder, "strategy.margin=1"), f"takes the whole tolerance, not a part of it: {fewer}"
    model = folder / (result.model or "")
    if model.name != f"{REDUCED}.onnx" or not inside(model, folder):
        return "", ""
    if result.strategy == "extract" and not result.signature:  # the part passes
        return "", ""
    if result.cause and beyond_range(result.cause) and model.parent == folder:
        return _again(folder, *(word.format(run=shown_path(folder)) for word in _HELP[0])), _HELP[1]
    if result.whose == Whose.QUANTIZATION and result.precision is None:
        return _again(folder, "strategy=precision"), "finds the layers that cannot be quantized"
    if result.whose in (*CONVERTED, Whose.MODEL):  # the user changes the model first
        reasons = [one.reason for one in (result.cause, result.cause and result.cause.inside) if one]
        others = any(one.startswith((ANOTHER, LEFT)) for one in reasons) and model.parent == folder
        return (_again(folder, "strategy.find=all"), "names all parts that fail alone") if others else ("", "")
    if (
        result.checker not in OWN_CODE
        and result.whose != Whose.REFERENCE
        and _by_optimizations(result)
        and model.parent == folder
    ):
        run = shown_path(folder)
        data = ["inputs=files", f"inputs.path={run}/{_DATA}"] if (folder / _DATA).is_dir() else []
        changes = ("strategy=passes", f"model={run}/{model.name}", *data)
        return _again(folder, *changes), "finds the optimizations that the failure needs"
    again = command("recheck", shown_path(model.parent))
    other = "" if result.checker in OWN_CODE else "; to use another release of the runtime, add target.python=PYTHON"
    return again, f"checks the reduced model again{other}"


def _with_partner(result: Summary, folder: Path) -> tuple[str, str] | None:
    """Return how the tensor is named for want of whose partner most checks without a verdict had none."""
    if result.status != Status.suspected:
        return None
    found = re.match(r"no good value is known for '([\w./-]+)': it has no partner", next(iter(result.unresolved), ""))
    try:
        replay = read_yaml(folder / REPLAY_NAME) if found else None
    except UsageError:
        return None
    reference = replay.get("reference") if isinstance(replay, Mapping) else None
    if not found or not isinstance(reference, Mapping) or reference.get("map"):
        return None
    return _again(folder, f"reference.map={{{found[1]}: TENSOR_OF_THE_ORIGINAL}}"), "once you have put that tensor in"


def _near(override: str) -> str:
    """Return an override with a model's path as it is shortest to type."""
    key, _, path = override.partition("=")
    return f"{key}={shown_path(Path(path))}" if key == "model" else override


def _fails_otherwise(result: Summary) -> bool:
    """Whether a model that was judged fails in another way with all switches off: of a flaky check rates are known."""
    return result.signature is not None and not (result.reliability and result.reliability.whole_model)


def _by_optimizations(result: Summary) -> bool:
    """Whether the target fails against a reference that is the same but for what it optimizes, and is right."""
    if result.evidence.get("reference") == "failed":  # it does not run the model either
        return False
    try:
        target, reference = (json.loads(result.context.get(f"check.{name}", "")) for name in ("target", "reference"))
        shared = {*target} & {*reference} - _OPTIMIZATIONS
        reference["name"] = reference.get("inner", reference["name"])
        for one in (target, reference):  # where it is not asked for, a run decides on off
            one["rounding"] = one.get("rounding") not in (None, "auto", "off")
        same = all(target[key] == reference[key] for key in shared)
        return bool(
            same and target["optimization"] != reference["optimization"] and result.failure.kind not in NON_FINITE
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
