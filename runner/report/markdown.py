"""REPORT.md, and how a failure is reproduced.

REPORT.md: what was found, ready to paste into a bug report.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePosixPath

from onnx import ModelProto

from runner.exit_codes import ANSWERED, Status
from runner.judgment import CONVERTED, Whose
from runner.report import diagnosis_sections as diagnosis
from runner.report import failure_section
from runner.report import short_answer as answers
from runner.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Section,
    bullets,
    code,
    cut,
    section,
    some,
    strong,
    table,
)
from runner.report.failure_section import called, headed, model_section, quoted, versions_section
from runner.report.page.data import PageTensor
from runner.report.precision_section import again_section, float32_section, raised, title
from runner.report.repro.write import REPRO_NAME, Repro
from runner.report.result_parts import CheckReliability, Statistics, Triage, Workaround
from runner.report.summary import FLOATS, Summary
from runner.report.typed_json import to_json
from runner.text import counted, percent, with_inside, without_values

REPORT_NAME = "REPORT.md"
# so that the tactic's hash after it is never cut off
_LONGEST_KERNEL = 130


@dataclass(frozen=True)
class Shown:
    """What a report shows besides the summary.

    ``model``: the reduced model, whose nodes are listed (weights are not looked at). ``tensors``: expected and actual
    values in it. ``said``: what the check printed about the reduced model; ``check``: the user's scripts by name.
    ``zipped``: the name of the archive to attach, "" without one, and what is ``missing`` in it, in words; ``files``:
    what each file of the run's folder is. ``types``: of tensors inside the model, as far as they are known.
    ``makes``: the configuration that makes a mixed model again; ``beside``: the files that it takes.
    """

    model: ModelProto | None = None
    tensors: Sequence[PageTensor] = ()
    repro: Repro = field(default_factory=Repro)
    said: str = ""
    check: Mapping[str, str] = field(default_factory=dict)
    zipped: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    makes: str = ""
    beside: Sequence[str] = ()


# How a failure is reproduced, in a report: repro.py whole where it stands alone and is short, else its heart.

MOST_LINES = 130
_MOST_SHOWN = 20
_MOST_SCRIPTS = 3
_LANGUAGES = {".py": "python", ".sh": "sh", ".bash": "sh"}
_HEART = ("target", "judge", "reference", "write", "load")
"""The functions that say what is run on what, in the order in which they are worth room."""


def repro_section(shown: Shown) -> list[Section]:
    """Return the section; none without a script."""
    source, zipped = shown.repro.source.strip("\n"), shown.zipped
    if not source:
        return []
    script, told = REPRO_NAME, "Its exit code is 1 if the failure shows"
    if shown.repro.alone and source.count("\n") < MOST_LINES:
        said = f"{script} stands alone: run {code(f'python {script}')}. {told}."
        return section("To reproduce", [said, Code(source, "python")])
    how = f"Unzip {zipped} and run {code(f'python {zipped[:-4]}/{script}')}" if zipped else f"Run {code(script)}"
    lacks = f"{zipped} is not complete: {shown.missing}. First put these files beside {script}."
    parts: list[Block | None] = [f"{how}. {told}.", lacks if shown.missing else ""]
    if not shown.check:
        parts += ["The part of it that runs the model:", Code(heart(source), "python")]
    for name, lines in [*shown.check.items()][:_MOST_SCRIPTS]:
        parts += [f"It runs {code(name)}:", _script(lines, PurePosixPath(name).suffix)]
    return section("To reproduce", parts)


def _script(source: str, suffix: str) -> Code:
    """Return a script: whole if it is short, else its first lines."""
    lines, language = source.strip("\n").splitlines(), _LANGUAGES.get(suffix, "")
    if len(lines) <= MOST_LINES:
        return Code("\n".join(lines), language)
    return Code("\n".join([*lines[: _MOST_SHOWN - 1], "..."]), language)


def heart(source: str) -> str:
    """Return the lines of a script that say what is run on what: at most so many, whole functions first."""
    lines = source.splitlines()
    found = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    parts: list[list[str]] = []
    for name in (name for name in _HEART if name in found):
        node = found[name]
        part, room = lines[node.lineno - 1 : node.end_lineno], _MOST_SHOWN - sum(map(len, parts))
        if len(part) > room:
            part = [*part[: room - 1], "    ..."] if room > 5 or not parts else []
        parts += [part] if part else []
    return "\n\n".join("\n".join(part) for part in parts) or "\n".join(lines[:_MOST_SHOWN])


def document_of(summary: Summary, command: Sequence[str] = (), shown: Shown = Shown()) -> Document:
    """Return what there is to say of a run: for a maintainer, and folded how it was found.

    ``command``: the argv that started the run.
    """
    if summary.triage:
        return _triage_document(summary, command)
    fails = _is_failing_part(summary)
    warnings = section("Warnings", [bullets(summary.warnings)], aside=True)
    run = [Code(shlex.join(without_values(command)), "sh")] if command else []
    told = summary.precision
    mixed = raised(summary, told) if told and summary.nodes_after is not None else []
    known = [
        *section("How it was run", run, aside=True),
        *section("How it was found", [summary.message if fails else "", table(("", ""), facts(summary))], aside=True),
        *section("What is not known", [table(("reason", "verdicts"), summary.unresolved.items())]),
        *(warnings if fails else []),
        *section("Files", [table(("file", "what it is"), sorted(shown.files.items()), names=1)]),
    ]
    lead = [
        failure_section.what_happens(summary, shown.model, shown.tensors) if fails else summary.message,
        bullets(_answer(summary)) if summary.cause else None,
    ]
    sections = [
        *failure_section.failure_section(summary, shown.tensors, shown.said, whole=not fails),
        *(mixed or [*model_section(summary, shown.model, shown.types), *float32_section(summary)]),
        *repro_section(shown),
        *(again_section(summary, shown.zipped, shown.missing, shown.beside) if shown.makes else []),
        *(diagnosis.experiments(summary.cause) if summary.cause else []),
        *_suspects(summary),
        *diagnosis.passes_section(summary.passes, summary.minimality),
        *diagnosis.releases_section(summary.releases),
        *diagnosis.inspection_section(summary.inspection),
        *(
            diagnosis.layers_section(summary.layers, failing=summary.signature is not None)
            or diagnosis.outputs_section(summary.outputs, f"everything in {told.high}" if told else "")
        ),
        *diagnosis.workarounds_section(summary.workarounds),
        *diagnosis.rechecked_section(summary.rechecked),
        *diagnosis.bugs_section(summary.bugs),
        *section("Statistics", [table(("", ""), to_json(summary.statistics or Statistics()).items())]),
        *_fused(summary),
        *([] if fails else warnings),
        *failure_section.versions_section(summary, "\n".join(shown.check.values())),
    ]
    title = _title(summary, shown.model)
    return Document(title, tuple(filter(None, lead)), tuple(sections), tuple(known))


def _is_failing_part(summary: Summary) -> bool:
    """Whether the report is about a part of a model that fails, as reductions find it."""
    told = summary.layers or summary.precision or summary.suspects or summary.workarounds or summary.passes
    return summary.status in ANSWERED and bool(summary.culprits and summary.signature) and not told


def _title(summary: Summary, model: ModelProto | None) -> str:
    if own := title(summary):
        return own
    if summary.status not in ANSWERED or not summary.culprits or summary.inspection:
        return _ended(summary)
    if summary.layers and not summary.signature:
        return f"wrong values inside a model that passes: {some(summary.culprits)}"
    return failure_section.title(summary, model)


def _ended(summary: Summary) -> str:
    """Return what was asked, and how that ended: the title of a report that is about no part that fails."""
    return f"{summary.strategy}: {summary.status.replace('_', ' ')}"


def _fused(summary: Summary) -> list[Section]:
    if not summary.fused:
        return []
    rows = [(one.layer, ", ".join(one.nodes)) for one in summary.fused.layers]
    said = f"TensorRT's layers for these nodes, in {summary.fused.of}."
    return section("Fused layers", [said, table(("layer", "nodes"), rows, names=2)])


def present(folder: Path, summary: Summary, script: Repro | None = None, left_out: str | None = None) -> dict[str, str]:
    """Return the files that are there (the report aside), and those that are written right after it.

    ``script``: repro.py, if there is an answer; ``left_out``: what the archive does not hold, None: there is none.
    """
    alone = "; it holds the model and its inputs" if script and script.alone else ""
    known = {
        summary.model or "": "the mixed-precision model" if summary.precision else "the reduced model",
        summary.min_good or "": "a model that passes, and differs from one that fails by the fewest nodes",
        **{name: f"the whole model, {one.what}" for one in summary.workarounds for name in one.files},
        "test_data_set_0": "inputs and right outputs of the reduced model, as ONNX keeps them",
        "rounded.onnx": "the reduced model with casts that round as a GPU does; repro.py runs it",
        "repro.py": f"shows the failure without Winnow; its first lines name the packages that it needs{alone}",
    }
    found = {name: what for name, what in known.items() if name and (folder / name).exists()}
    if left_out is not None:
        of_script = "the script, " if script and script.source else ""
        held = ["this report", *([f"{of_script}the model", "its data"] if script else ["how the model is made again"])]
        held += ["the check's files"] if summary.checker in answers.OWN_CODE else []
        parts = f"one file to attach: it holds {', '.join(held[:-1])} and {held[-1]}"
        found["bundle.zip"] = "; ".join(filter(None, (parts, left_out)))
    return {**found, "replay.yaml": "runs all of this again", "result.json": "this report for programs"}


def facts(summary: Summary) -> list[tuple[str, str]]:
    """Return the facts of a run by name, without those that there are none of."""
    checks, failure = summary.checks, summary.failure
    whole = summary.triage.reproduced.failure if summary.triage else ""  # of the file: its smallest part's may differ
    told = ": ".join(filter(None, (failure.stage, failure.kind, failure.raised, failure.detail)))
    of_kept = summary.strategy in answers.ABOUT_KEPT
    claim = summary.minimality if summary.status != Status.interrupted else ""  # no budget was reached
    rows = [
        ("strategy", summary.strategy),
        ("failure under study", whole or told),
        ("where the search began", summary.first_look),
        ("minimality", "" if of_kept else "; ".join(filter(None, (claim or "no claim", summary.tried)))),
        (
            "checks",
            f"{checks.recheck}, {checks.reused} reused"
            if of_kept
            else f"{checks.search} to search, {checks.trust} to confirm, {checks.reused} reused"
            + (f", {checks.refine} to try simpler answers" if checks.refine else "")
            + (f", {checks.cause} to prove the cause" if checks.cause else ""),
        ),
        ("reliability", _noticed(summary.reliability)),
        ("outcomes", _outcomes(summary)),
        ("seconds", f"{summary.seconds.total:.1f}, of which {summary.seconds.checking:.1f} in checks"),
        ("memory", summary.memory),
        ("passing model nearest to a failing one", summary.min_good or ""),
        ("model under study", summary.input_model or ""),
    ]
    return [row for row in rows if row[1]]


def _outcomes(summary: Summary) -> str:
    """Return how often each was met; candidates that could not be made are unresolved without a check."""
    told = ", ".join(f"{count} {getattr(name, 'value', name)}" for name, count in summary.outcomes.items())
    unmade = sum(summary.outcomes.values()) - summary.checks.made - summary.checks.reused
    return f"{told} (no candidate could be made for {unmade})" if unmade > 0 else told


def _noticed(reliability: CheckReliability | None) -> str:
    """Return with what probability a check would have been noticed that is often wrong; "" where it was flaky."""
    if not reliability or reliability.agreed is None or reliability.wrong is None or reliability.noticed_with is None:
        return ""
    if not reliability.agreed:
        return "no check was repeated"
    return (
        f"{counted(reliability.agreed, 'repeated check')} agreed; a check that errs in {reliability.wrong:.0%} of "
        f"its runs would have been noticed with a probability of {percent(reliability.noticed_with)}"
    )


def _suspects(summary: Summary) -> list[Section]:
    keys: dict[str, set[str | None]] = {}
    for one in summary.suspects:
        keys.setdefault(one.layer, set()).add(one.key)
    rows = [
        (
            f"{one.layer} ({one.key})" if len(keys[one.layer]) > 1 else one.layer,
            f"{cut(one.kernel, _LONGEST_KERNEL)} ({one.tactic})" if one.kernel else one.tactic,
            ", ".join(f"{tactic} ({times})" for tactic, times in one.good.items()) or "(not there)",
            "pinned" if one.of is None else f"{one.bad_builds} of {one.of}",
            ", ".join(one.nodes),
        )
        for one in summary.suspects
    ]
    head = ("layer", "tactic of bad builds only", "good builds chose", "bad builds", "ONNX nodes")
    return section("Suspect tactics", [table(head, rows, names=2)])


# The report of a triage: one page with whose failure it is, what to do now, and each decision with what it rests on.

_MOST_NAMES = 20
_MOST_TITLE = 3
_MOST_PATCHED = 12
"""Lines of code that the page shows of a model that is patched; it is there as a file."""

_OF_QUANTIZED = " (+experiment=quantized lets 2 % of the values be off)"
_OF_SCALES = ", calibrate on more real inputs, or quantize per channel"
"""What may help where activations are quantized: weights in four bits have a scale for each block, and no samples."""
_OF_THE_CONVERSION = "compare the weights and attributes with those of the original"
_OF_THE_QUANTIZATION = "compare the scales and zero points with the ranges of the original's values"
_OF_THE_REFERENCE = "The target is right. Compare with another reference, or report this to the reference's project"

_OF_THE_FILE = "Fix the file, or the tool that wrote it; no runtime is at fault"
_OF_RELEASES = "Take a release of the runtime that knows this, or convert the model to an opset that this release knows"
_OF_A_LIBRARY = (
    f"Give the library that has the operator ({code('target.custom_ops=[/path/to/library.so]')}), or take a release or "
    "build of the runtime that has it"
)

_PLAIN_IS_FINITE = (
    "The part that fails alone shows no bug: the reference computes the NaN or Inf in it too. The workaround keeps the "
    "whole model finite on this runtime. On one that rounds after every operator, like a GPU, float32 at these nodes "
    "helps, or smaller values"
)


def _triage_title(summary: Summary) -> str:
    """Return the report's title."""
    if summary.inspection:
        return f"{failure_section.runtime(summary, 'target') or 'the target'} does not load the model"
    told = summary.triage or Triage()
    if not (failure := told.reproduced.failure):
        return _ended(summary)
    about = with_inside(some(summary.culprits, _MOST_TITLE), some(summary.nested, _MOST_TITLE), len(summary.culprits))
    return headed(summary, called(failure) + quoted(summary), about, only_rounded=told.reproduced.only_rounded)


def _triage_document(summary: Summary, command: Sequence[str] = ()) -> Document:
    """Return the whole report of a triage."""
    told = summary.triage or Triage()
    # a step that only asks whether the file fails ends where a plan does
    ended = {Status.planned.value: "checked"}
    steps = [
        (one.folder, ended.get(one.status, one.status), str(one.checks), f"{one.seconds:.1f}")
        for one in told.steps
        if one.folder
    ]
    decided = [
        f"{strong(one.question)} {f'{one.answer} ({code(one.step)})' if one.step else f'Not asked: {one.why}'}"
        for one in told.decisions
    ]
    sections = [
        *section("What fails", [bullets(_failing(summary))]),
        *section("What to do now", _advice(summary)),
        *float32_section(summary),
        *section("Warnings", [bullets(summary.warnings)], aside=True),
        *section("How it was decided", [bullets(decided)]),
        *versions_section(summary),
    ]
    run = [Code(shlex.join(without_values(command)), "sh")] if command else []
    taken = table(("step", "how it ended", "checks", "seconds"), steps, names=1)
    found = [*section("How it was run", run, aside=True), *section("Steps", [taken], aside=True)]
    lead = () if summary.culprits and not summary.inspection else (summary.message,)
    return Document(_triage_title(summary), lead, tuple(sections), tuple(found))


def _failing(summary: Summary) -> list[str]:
    """Return whose failure it is, the part that fails, how, and what shows that it is the cause."""
    if looked := summary.inspection:
        nodes = [f"Refused nodes: {some(summary.culprits, len(summary.culprits))}"] if summary.culprits else []
        return [*nodes, *([f"Its message: {looked.refused}"] if looked.refused else [])]
    if not summary.culprits:
        return []
    answer = answers.short_answer(summary)
    size = answers.sized(summary)
    part = "The smallest part that fails" if summary.triage and summary.triage.smallest else "A part that fails alone"
    names = with_inside(some(summary.culprits, _MOST_NAMES), some(summary.nested, _MOST_NAMES), len(summary.culprits))
    fails = [f"How the model fails: {answer.fails}"] if answer.fails else []
    return [f"{part}, {size}: {names}", *fails, *_answer(summary), *_first_wrong(summary)]


def _answer(summary: Summary) -> list[str]:
    """Return whose failure it is, what shows that, and how sure it is, as the screen has it."""
    answer, wider = answers.short_answer(summary), summary.cause.wider if summary.cause else None
    own = f": exact values exceed {wider.type}" if wider else ""
    tries = answer.helps if not summary.triage else ""  # which says what to do now
    rows = (
        ("Comes from" if summary.whose == Whose.QUANTIZATION else "Whose bug", answer.whose and answer.whose + own),
        ("Why", answer.why),
        ("Sure", answer.sure),
        ("Helps", tries),
    )
    return [f"{name}: {said}" for name, said in rows if said]


def _first_wrong(summary: Summary) -> list[str]:
    """Return the first wrong tensor where another node makes it than those of the answer, and why that may be."""
    first = summary.layers.first_bad if summary.layers else None
    if first is None or first.node in summary.culprits or first.node in summary.nested:
        return []
    beyond = f"The first tensor beyond the tolerance is {code(first.tensor)}, the output of {code(first.node)}"
    return [f"{beyond}. It is not in the answer, which names only nodes that make the model's own outputs fail"]


def _advice(summary: Summary) -> list[Block]:
    """Return what a reader does next, the surest first.

    What the whole model was tried with is offered where it passed, whatever was shown on the reduced model.
    """
    told = summary.triage or Triage()
    if summary.inspection:
        mended = [f"Take {code(summary.model)}: {summary.inspection.cure}"] if summary.model else []
        concerns = summary.inspection.concerns
        unknown = [name for one in concerns if one.kind == "unknown operator" for name in one.names]
        named = [name for name in unknown if "." not in name]  # of ai.onnx: no library has them
        other = _OF_A_LIBRARY if unknown else _OF_RELEASES
        both = [f"Correct {some(named)} in the file"] if named and not summary.whose else []
        return [Bullets((*mended, *both, _OF_THE_FILE if summary.whose else other))]
    passing = [one for one in summary.workarounds if one.passes]
    of_users = summary.checker in answers.OWN_CODE
    found: list[Block] = _applied(passing[0], own=of_users) if passing else []
    kinds = {one.kind: one for one in reversed(passing[1:]) if one.kind != passing[0].kind}
    found += [f"Or: {one.what} ({diagnosis.shown(one, own=of_users)})" for one in reversed(kinds.values())]
    tried = {one.kind for one in summary.workarounds if one.tried}
    on = told.shown_on
    off = diagnosis.session_code(summary.passes.settings) if summary.passes else ""
    if off and "pass" not in tried and on.passes:
        found += [_or(f"Turn off the guilty optimization (shown on {on.passes}):", found), Code(off, "python")]
    if (releases := summary.releases) and releases.good and "release" not in tried:
        wanted = f"{releases.package}=={releases.good[-1]}"
        found.append(_or(f"Take a release without it: {code(wanted)} (shown on {on.releases})", found))
    found += [_or(one, found) for one in _kept_high(summary)]
    if summary.whose in CONVERTED:
        weights = summary.cause.weights if summary.cause else ()
        quantized = summary.whose == Whose.QUANTIZATION
        why = "; ".join(weights) or (_OF_THE_QUANTIZATION if quantized else _OF_THE_CONVERSION)
        fixed = [f"Fix the {summary.whose} of {some(summary.culprits)}: {why}"] if summary.culprits else []
        found += [*fixed, *_evidence(summary)]
    elif summary.whose == Whose.REFERENCE:
        found += [_OF_THE_REFERENCE, *_evidence(summary)]
    elif summary.whose == Whose.MODEL or told.reproduced.reference_too or told.reproduced.plain_is_finite:
        own = told.reproduced.reference_too or summary.whose == Whose.MODEL
        wider = summary.cause.wider if summary.cause else None
        said = _of_the_model(summary, told)
        if wider:
            said = f"No runtime is at fault: values of {code(wider.tensor)} do not fit into {wider.type}"
            said += "" if found else f". Compute there in {wider.wider}, or make the values smaller"
        elif summary.whose == Whose.MODEL and summary.cause and summary.cause.right:
            said = f"No runtime is at fault. {summary.cause.right}. Compute these nodes in a wider type"
            said += ", or those before them too"
        found += [said if own else _PLAIN_IS_FINITE, *_evidence(summary)]
    else:
        whose = answers.whose_bug(summary) if summary.whose == Whose.TARGET else ""
        to = f" to the maintainers of {whose}" if whose else ""
        found += [f"Report the failure{to}. {one}" for one in _evidence(summary)]
    items = groupby(found, lambda one: isinstance(one, str))
    return [one for are, some in items for one in ([Bullets(tuple(map(str, some)))] if are else some)]


def _of_the_model(summary: Summary, told: Triage) -> str:
    """Return what may help where the reference has the NaN or Inf too: nothing that this run has seen to fail."""
    again = told.reproduced.other_inputs
    others = [] if again and again.failed else ["other inputs"]
    raised = any(one.kind == "precision" and one.tried for one in summary.workarounds)
    nowhere = raised or (summary.cause is not None and bool(summary.cause.no_value))
    wider = [] if nowhere else ["float32 at these nodes, if they are in a lower precision"]
    what = "the model or its inputs" if others else "the model"
    said = f"The reference computes the NaN or Inf too, so change {what}, not the runtime. What may help: "
    return said + ", or ".join([*wider, *others, "a guard before these nodes"])


def _kept_high(summary: Summary) -> list[str]:
    """Return what becomes of the layers that were shown to need high precision."""
    if (told := summary.precision) is None or not told.selected:
        return []
    if not (model := answers.mixed_model(summary)):
        said = answers.stays_high(told, sentence=True)
        more = "" if told.low in FLOATS else _OF_QUANTIZED
        more += "" if told.low in FLOATS or "int4_nodes_to_exclude" in told.quantizers else _OF_SCALES
        larger = f". Take a larger tolerance{more}" * answers.keeps_all(told)
        return [f"{said[0].upper()}{said[1:]}{larger}"]
    against = answers.refuted(told, summary.workarounds)
    if answers.refuting(told, summary.workarounds) and not against:
        return []  # the workaround raises more nodes, and passes
    names = some([one.node for one in told.selected], _MOST_NAMES)
    types = ", with the original's types of inputs and outputs" if told.low in FLOATS else ""
    said = f"Keep {names} in {told.high}, as {code(model)} does{types}"
    return ["; but ".join(filter(None, (said, against)))]


def _evidence(summary: Summary) -> list[str]:
    """Return what shows the failure of a part, of the files of the step that found it."""
    if not summary.model:
        return []
    folder = summary.model.rpartition("/")[0]
    shows = f"{code(f'{folder}/repro.py')} shows the failure on {code(summary.model)}"
    return [f"{shows}. Attach {code(f'{folder}/bundle.zip')}: it holds both"]


def _or(said: str, before: Sequence[Block]) -> str:
    return f"Or: {said[0].lower()}{said[1:]}" if before else said


def _applied(one: Workaround, *, own: bool) -> list[Block]:
    """Return a workaround, how it was shown, and how it is applied: as code if that is short, as its model."""
    said = f"Workaround: {one.what} ({diagnosis.shown(one, own=own)})"
    how = one.code or shlex.join(one.overrides)
    said += f". The changed model: {code(one.files[0])}" if one.files else ""
    if one.files and how.count("\n") > _MOST_PATCHED:
        return [f"{said}. The changes are listed in {code(one.files[0].rpartition('/')[0] + '/REPORT.md')}"]
    return [said, Code(how, "python" if one.kind in ("pass", "rewrite", "precision") else "sh")]
