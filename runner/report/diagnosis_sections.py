"""Sections of a report that a kind of run adds: the cause, layers, passes, releases, workarounds, inspection, bugs."""

from __future__ import annotations

import shlex
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.judgment import NON_FINITE, SHOWN
from runner.report import result_parts as parts
from runner.report.document import Block, Code, Document, Section, Table, bullets, code, cut, section, some, table
from runner.report.markup import to_markdown
from runner.text import counted, listed, one_line

# The cause: how far it is shown, and a table of the experiments.

REFERENCE_TOO = "the reference computes a NaN or Inf in"
"""How a reason begins: no good value is known of what the failure may be."""
NO_WIDER = "has no wider type"
"""How it ends where none is known in float64 either."""
_MOST_INSTANCES, _LONGEST_WHY = 20, 300
NOT_THE_TARGET: Mapping[str, str] = {
    "conversion": "the converted model differs from its original on any runtime",
    "quantization": "the quantized model differs from its original on any runtime",
    "reference": "the reference is wrong, not the target",
    "both lose digits": "both sides lose digits",
}
"""What is said of a failure that is not the target's, by whose it is."""
WHOSE: Mapping[str, str] = {
    "model": "the model itself",
    "conversion": "the conversion",
    "quantization": "the quantization",
    "target": "the target",
    "reference": "the reference, not the target",
    "check": "your check",
    "both lose digits": "both sides lose digits",
}
"""Whose bug a failure is, for a first line; of the target the runtime's name is said where it is known."""
QUANTIZATION = "quantization error"
"""The same of what quantization costs, or its scales: that may be no bug."""
NOT_THE_CAUSE = "not shown to be the cause"
"""What a first line says of nodes that fail alone, where the experiments on the whole model do not hold."""


def reservation(cause: parts.ShownCause | None) -> str:
    """Return what has to be said wherever nodes are named as the answer; "" where nothing speaks against them."""
    return NOT_THE_CAUSE if cause and cause.status == "not proven" else ""


ANOTHER = "another fault is left (strategy.find=all)"
"""Said of a cause where what is left has no measure."""
LEFT = "not the only one"
"""How is said what is left where it has one, and which nodes are known to be wrong: it may as well be rounding."""
NOT_SEARCHED = " was not searched"
"""How is said that the nodes inside another one are not known to fail."""
EXPLAINS = "it explains"
"""How is said which part of the failure a cause is."""


def in_a_word(cause: parts.Cause) -> str:
    """Return how far the cause is shown, of what, and why not further: ``proven, also for the nodes inside``."""
    parts = [" with ".join(one.culprits) if len(one.culprits) == 2 else listed(one.culprits) for one in cause.causes]
    reason = cause.reason  # without what the row on why has of it
    if cause.wider:
        reason = reason.partition(f"{cause.wider.said}; ")[2]
    elif cause.status not in SHOWN and (cause.no_value or beyond_range(cause)):
        reason = "no good value is known"
    shown = cause.status in SHOWN
    if cause.inside and shown and cause.inside.status in SHOWN and not reason:
        reason, others = cause.inside.reason, listed([", ".join(one) for one in repeated(cause)])
        reason = reason.replace(f"{LEFT}:", f"{LEFT} ({others} too):") if others else reason
    said = one_line(reason, _LONGEST_WHY)
    if not said:
        left = ""
    elif shown:  # the reason is what is left
        left = "; " if said.startswith((LEFT, EXPLAINS)) else ", but "
    else:
        left = ": "
    names = f" ({'; '.join(parts)})" if len(parts) > 1 else ""
    return f"{how_far(cause)}{names}{left}{said}"


def repeated(cause: parts.ShownCause) -> list[tuple[str, ...]]:
    """Return the other places of a pattern that is the cause."""
    return [one for answer in cause.causes for one in answer.instances if one != answer.culprits]


def in_a_clause(cause: parts.Cause) -> str:
    """Return the same with what it is about: ``cause proven``."""
    return _about(in_a_word(cause))


def how_far(cause: parts.Cause) -> str:
    """Return how far the cause is shown, and of which nodes where some are inside others."""
    if len(cause.causes) > 1:
        return f"{len(cause.causes)} causes, each proven"
    if cause.status not in SHOWN:
        return cause.status
    if not cause.inside:
        return "proven"
    if cause.inside.status in SHOWN:
        return "proven, also for the nodes inside"
    outer = listed([name for one in cause.causes for name in one.culprits], 2)
    where, unsearched, _ = cause.inside.reason.partition(NOT_SEARCHED)
    inner = f"{where}{unsearched}" if unsearched else "the nodes inside were only shown to fail alone"
    return f"proven for {outer or 'the outer node'}; {inner}"


def proof(cause: parts.Cause) -> str:
    """Return the same with what it is about."""
    return _about(how_far(cause))


def _about(word: str) -> str:
    return word if word[:1].isdigit() else f"cause {word}"


def own_values(cause: parts.ShownCause) -> bool:
    """Whether the reference makes the NaN or Inf of the answer as well."""
    tested = (one.good_outputs for one in cause.answers)
    return cause.wider is not None or any(one.reason.startswith(REFERENCE_TOO) for one in tested if one)


def beyond_range(cause: parts.ShownCause) -> bool:
    """Whether a wider type may help: no good value is known since the reference makes a NaN or Inf there as well."""
    return not cause.no_value and own_values(cause) and (cause.status == "untested" or cause.wider is not None)


def experiments(cause: parts.Cause) -> list[Section]:
    """Return the section: what the whole model does, and what each answer's two experiments gave."""
    head = ("nodes", "role", "with right outputs", "with right inputs", "with both")
    (_, _, whole, *_), *answers = rows(cause)
    answers += rows(cause.inside)[1:] if cause.inside else []
    measured = " The numbers in parentheses are the check's measure." * bool(
        cause.whole and cause.whole.measure is not None
    )
    others = [", ".join(one) for one in repeated(cause)][:_MOST_INSTANCES]
    wider = cause.wider if cause.wider and cause.wider.raised else None
    said = [
        f"The whole model ends with {whole}. In the experiments right values replace outputs or inputs of the nodes."
        + (
            f" {code(cut(wider.tensor))} has no right value in its type: it was computed in {wider.wider}."
            if wider
            else ""
        )
        + measured,
        table(head, answers, names=1),
        "The same pattern occurs at:" if others else "",
        bullets(code(cut(one)) for one in others),
        *(f"{one}." for one in cause.weights),
        f"{cause.right}." if cause.right else "",
        f"Of the nodes inside: {cause.inside.reason}." if cause.inside and cause.inside.reason else "",
    ]
    return section("The cause", said)


def rows(cause: parts.ShownCause) -> list[tuple[str, str, str, str, str]]:
    """Return a row for the whole model and one for each answer: nodes, role, the experiments."""
    found = [("the whole model", "", _shown(cause.whole), "", "")]
    for answer in cause.answers:
        role, copies = _role(cause, answer), len(answer.instances)
        if copies > 1:
            role += f"; the pattern occurs {copies} times, all tested together"
        outputs, inputs, around = map(_shown, (answer.good_outputs, answer.good_inputs, answer.good_around))
        if outputs and (wider := cause.wider) and wider.raised:
            outputs = f"{listed(wider.raised, 3)} in {wider.wider}: {outputs}"
        found.append((", ".join(answer.culprits), role, outputs, inputs, around))
    return found


def _role(cause: parts.ShownCause, answer: parts.CauseAnswer) -> str:
    if answer.is_cause:
        return "part of the cause" if cause.status == "joint" else "the cause"
    if any(answer.culprits in one.instances for one in cause.causes):
        return "fails alone too; the same pattern as the cause"
    harmless = answer.good_inputs is not None and answer.good_inputs.outcome == "pass"
    return "fails alone too; not the cause" if harmless or cause.causes else "fails alone"


def _shown(one: parts.CauseExperiment | None) -> str:
    if one is None:
        return ""
    return one.outcome if one.measure is None else f"{one.outcome} ({one.measure:.3g})"


# Which tensors are wrong, and which of them first.

_MARKING = {
    "same": "Marking inner tensors as outputs does not change the model's own outputs.",
    "hides": "Marking some tensors as outputs makes the failure go away; the findings come from marks that do not.",
    "changes": "Marking tensors as outputs changes the model's own outputs by more than the check allows.",
    "breaks": "The model passes, and fails once tensors are marked as outputs; the findings may come from the marks.",
}

_LEFT = {
    "hidden": "Tensors whose mark alone hides the failure",
    "unanswered": "Tensors with whose mark the check gives no answer",
    "not_asked": "Tensors that were not compared",
}
NOT_FINITE = "not finite"
"""The kind of a tensor that overflows on the reference as well."""
NOT_COMPARED = "nothing compared"
"""What stands for the error of a tensor without elements, or all of whose elements were left out."""
_MEASURED = ("tensor", "error", "allowed", "max", "mean", "p99", "SQNR dB", "PSNR dB", "cosine", "NaN", "Inf")
_KINDS = {"nan": "NaN", "inf": "Inf", "shape": "another shape", NOT_FINITE: "NaN or Inf"}


def layers_section(layers: parts.Layers | None, *, failing: bool = True) -> list[Section]:
    """Return the sections; none where tensors were not compared. ``failing``: whether the model as it is fails."""
    if not layers:
        return []
    first, largest, said = layers.first_bad, layers.largest_own, []
    if first:
        said += [] if failing else ["The model itself passes this check."]
        said += [f"First wrong tensor: {_made(first)}, {size_of(first.kind, first.error)}.", _MARKING[layers.marking]]
        own = f"Error of {code(first.tensor)} with right inputs: {size_of(first.kind, first.own)}."
        said += [] if first.own is None else [own]
    if largest:
        own = size_of(largest.kind, largest.own)
        said.append(f"Largest error of a node with right inputs: {ending_in(largest)}{_made(largest)}, {own}.")
    said += [f"The errors with right inputs are not known: {layers.own_unknown}."] if layers.own_unknown else []
    said += [f"{word}: {some(names)}." for key, word in _LEFT.items() if (names := getattr(layers, key))]
    said += [f"To extract next: {some(layers.suspects)}."] if layers.suspects else []
    files = ", ".join(map(code, layers.files))
    said.append(f"{counted(layers.tensors, 'tensor')} compared in {counted(layers.runs, 'run')}; all are in {files}.")
    worst = ["The worst tensors:", tensors_table(layers.worst)] if layers.worst else []
    return [*section("Layer by layer", [bullets(said), *worst]), *outputs_section(layers.outputs)]


def _made(found: parts.FirstWrong | parts.LargestOwn) -> str:
    return f"{code(found.tensor)} of {code(found.node)}"


def ending_in(found: parts.LargestOwn) -> str:
    """Return what a node is the end of, where a part has too many nodes to name them."""
    return "" if found.nodes else "the part that ends in "


def kind_of(row: parts.Row) -> str:
    """Return how a tensor is wrong: where nothing but NaN or Inf differs, on whatever side, these."""
    differing = [key for key in NON_FINITE if len(set(row.get(key) or ())) > 1]
    return differing[0] if differing and not row["error"] else row["kind"] or NOT_FINITE


def size_of(kind: str, error: float | None) -> str:
    """Return an error in words; the size of one that is no matter of size says nothing."""
    return _KINDS.get(kind) or ("not known" if error is None else f"{error:.3g} of its largest value")


def outputs_section(rows: Sequence[parts.Row], form: str = "") -> list[Section]:
    """Return the section on the model's outputs; none where none were compared. ``form``: what was made of it."""
    return section(f"The model's outputs{f', {form}' if form else ''}", [tensors_table(rows)])


def tensors_table(rows: Sequence[parts.Row]) -> Table | None:
    """Return a row for each tensor."""
    top = any("top1" in row for row in rows)
    head = [*_MEASURED, "range (reference)", *(["with right inputs"] if any("own" in row for row in rows) else [])]
    head += ["top-1", "top-5"] if top else []
    return table(head, [_cells(row, head) for row in rows], names=1)


def _cells(row: parts.Row, head: Sequence[str]) -> list[str]:
    kind = _KINDS.get(kind_of(row)) if row["bad"] else None if row.get("compared", True) else NOT_COMPARED
    nothing = None in (row.get("range") or ())  # no elements that are finite on both sides
    cells = [row["tensor"], *([kind, ""] if kind else [_number(row.get(key)) for key in ("error", "limit")])]
    cells += ["" if nothing else _number(row.get(key)) for key in ("max", "mean", "p99", "sqnr", "psnr", "cosine")]
    cells += [_sides(row.get(key), str) for key in ("nan", "inf")]
    cells.append(_sides(row.get("range"), _range))
    cells += [_number(row.get("own"))] if "with right inputs" in head else []
    return cells + ([_number(row.get(key)) for key in ("top1", "top5")] if "top-1" in head else [])


def _sides(pair: Sequence[Any] | None, shown: Any) -> str:
    """Return what the target has, and the reference's behind it where that is another."""
    if not pair:
        return ""
    mine, theirs = map(shown, pair)
    return mine if mine == theirs else f"{mine} ({theirs})"


def _range(ends: Sequence[float] | None) -> str:
    return "no finite value" if ends is None else f"{ends[0]:.3g} to {ends[1]:.3g}"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""


# The section of a report that says which optimizations a failure needs, and how they are turned off.

_OF_A_SESSION = frozenset({"disabled_optimizers", "optimization", "session_options", "config_entries"})
OFF_ALONE: Mapping[str, str] = {
    "fail": "the model still fails; another one is enough for the failure",
    "different": "the model fails in another way",
    "unresolved": "not known",
    "pass": "not sure",  # a flaky check has passed too few times
}


def passes_section(passes: parts.NeededPasses | None, minimality: str | None) -> list[Section]:
    """Return the section; none where no passes were searched. ``minimality``: whether each is shown to be needed."""
    if not passes:
        return []
    needed = ", ".join(map(code, passes.needed))
    heals = [f"With {', '.join(map(code, one))} off and all others on the model passes" for one in passes.heals]
    healed = {one[0] for one in passes.heals if len(one) == 1}
    others = [
        f"With only {code(name)} off: {OFF_ALONE.get(outcome, outcome)}"
        for name, outcome in passes.alone_off.items()
        if name not in healed
    ]
    shown = "The failure needs these" if minimality == "1-minimal" else "Enough for the failure; not all may be needed"
    said: list[Block | None] = [bullets([f"{shown} (of {passes.asked}, the others off): {needed}", *heals, *others])]
    if session := session_code(passes.settings):
        said += ["To turn the first of these off in your own program:", Code(session, "python")]
    if passes.overrides:
        said += ["The same for Winnow:", Code(shlex.join(passes.overrides), "sh")]
    return section("Optimizations that the failure needs", said)


def session_code(settings: Mapping[str, Any]) -> str:
    """Return Python that makes a session of ONNX Runtime with these settings; "" where they are another runtime's."""
    if not settings or not {*settings} <= _OF_A_SESSION:
        return ""
    lines = ["options = onnxruntime.SessionOptions()"]
    lines += [f"options.{name} = {value}" for name, value in settings.get("session_options", {}).items()]
    if "optimization" in settings:  # which is off
        lines += ["options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL"]
    entries = settings.get("config_entries", {}).items()
    lines += [f"options.add_session_config_entry({name!r}, {value!r})" for name, value in entries]
    disabled = settings.get("disabled_optimizers")
    more = f", disabled_optimizers={disabled!r}" if disabled else ""
    return "\n".join([*lines, f"session = onnxruntime.InferenceSession(path, options{more})"])


# The section of a report that says in which releases of a package the failure is there.


def releases_section(releases: parts.Releases | None) -> list[Section]:
    """Return the section; none where no releases were asked."""
    if not releases:
        return []
    rows = [(one.version, one.outcome, one.reason) for one in releases.asked]
    said: list[Block | None] = [table((releases.package, "", ""), rows)]
    said += [f"Not tried: {', '.join(releases.not_asked)}."] if releases.not_asked else []
    if releases.good:
        install = shlex.join(["pip", "install", f"{releases.package}=={releases.good[-1]}"])
        said += ["A release without the failure:", Code(install, "sh")]
    return section("Releases", said)


# The section of a report that says what keeps a failure away, how that was shown, and what it costs.


def workarounds_section(workarounds: Sequence[parts.Workaround]) -> list[Section]:
    """Return the section; none where nothing was tried."""
    head = ("kind", "what", "passes", "inputs", "time", "why not")
    said: list[Block | None] = [table(head, [_row(one) for one in workarounds])]
    for one in workarounds:
        if one.passes:
            said += [f"{one.kind}, {one.what}:"]
            said += [Code(one.code, "sh" if one.kind == "release" else "python")] if one.code else []
            said += ["In a run of Winnow, set:", Code(shlex.join(one.overrides), "sh")] if one.overrides else []
    return section("Workarounds", said)


def shown(one: parts.Workaround, *, own: bool) -> str:
    """Return how a workaround was shown to help, where, and what it costs, as far as a clock can tell.

    ``own``: the check runs code of the user's, which may be slow where the target, which is timed, is not.
    """
    ratio = one.latency.ratio if one.latency and not own else None
    slower = "as fast as before" if ratio and 0.9 < ratio < 1.1 else f"{ratio or 0:.1f} times the time"
    cost = f", {slower}" if ratio else ""
    where = f", {one.where}" if one.where else ""
    return f"{inputs_of(replace(one, where=''), 'inputs pass')}{cost}{where}"


def inputs_of(one: parts.Workaround, word: str = "") -> str:
    """Return on how many inputs a workaround passes, and where it was seen."""
    samples = one.samples
    if not one.passes and samples.kind == "fresh":
        return f"the given ones, and the first {samples.passed} of {samples.of} fresh ones"
    which = f"{samples.passed} of {samples.of} {samples.kind}" if samples.of else "the check's own"
    return " ".join(filter(None, (which, word, "with and without it" * samples.without, one.where)))


def left_out(workarounds: Iterable[parts.Workaround]) -> str:
    """Return why some could not be tried, the first reason and whether there are more; "" where all were."""
    reasons = list(dict.fromkeys(one_line(one.why_not) for one in workarounds if not one.tried))
    return f"{reasons[0]}{' (more reasons: REPORT.md)' * (len(reasons) > 1)}" if reasons else ""


def _row(one: parts.Workaround) -> tuple[str, ...]:
    answer = "yes" if one.passes else "no" if one.tried else "could not be tried"
    inputs = inputs_of(one) if one.passes or one.samples.passed else ""
    return (one.kind, one.what, answer, inputs, _time(one.latency), one.why_not)


def _time(latency: parts.Latency | None) -> str:
    if not latency:
        return ""
    if latency.before_ms is None or latency.ratio is None:
        return f"{latency.after_ms:g} ms (it does not run without)"
    return f"{latency.before_ms:g} ms, with it {latency.after_ms:g} ms (times {latency.ratio:g})"


# What a model or an engine is made of: as the sections of a report, and as a screen of a terminal.

_MOST_OPERATORS, _MOST_TENSORS = 12, 6
_UNITS = ("bytes", "KiB", "MiB", "GiB")


def inspection_section(inspection: parts.Inspection | None) -> list[Section]:
    """Return the sections; none where nothing was inspected."""
    if not inspection:
        return []
    concerns = [(one.kind, one.where, one.what) for one in inspection.concerns]
    sides = (("inputs", inspection.inputs), ("outputs", inspection.outputs))
    tensors = [(one.name, way, one.dtype, _shape(one.shape)) for way, held in sides for one in held]
    largest = [(one.name, one.dtype, _shape(one.shape), _size(one.bytes)) for one in inspection.weights.largest]
    layers = [(one.name, one.type, one.tactic, ", ".join(one.dtypes)) for one in inspection.layers]
    parts = (
        ("The file", table(("", ""), [row for row in _facts(inspection) if row[1]])),
        ("Concerns", table(("kind", "where", "what"), concerns)),
        ("Inputs and outputs", table(("tensor", "", "type", "shape"), tensors, names=1)),
        ("Operators", table(("operator", "nodes"), inspection.operators.items(), names=1)),
        ("Largest weights", table(("weight", "type", "shape", "size"), largest, names=1)),
        ("Layers", table(("layer", "type", "tactic", "outputs"), layers, names=1)),
    )
    return [one for title, rows in parts for one in section(title, [rows])]


def screen(inspection: parts.Inspection) -> str:
    """Return what a person wants to see first, in the width of the terminal."""
    rows = [*_facts(inspection), *_tensors(inspection)]
    rows.append(
        ("operators", listed([f"{name} {count}" for name, count in inspection.operators.items()], _MOST_OPERATORS))
    )
    rows += [(f"! {one.kind}", f"{one.where}: {one.what}") for one in inspection.concerns]
    width, column = min(shutil.get_terminal_size().columns, 160), max(len(name) for name, _ in rows) + 2
    lines = textwrap.TextWrapper(max(width, column + 20), subsequent_indent=" " * column, break_long_words=False)
    lines.break_on_hyphens = False
    return "\n".join(lines.fill(f"{name:<{column}}{told}") for name, told in rows if told)


def _facts(inspection: parts.Inspection) -> Iterator[tuple[str, str]]:
    weights = inspection.weights
    yield "size", _size(inspection.bytes)
    if inspection.kind == "engine":
        yield "library", inspection.library
        yield "layers", str(len(inspection.layers))
        yield "memory of a run", _size(inspection.memory)
        return
    opsets = ", ".join(f"{name} {version}" for name, version in inspection.opsets.items())
    yield "opsets", f"{opsets}; IR version {inspection.ir_version}"
    yield "made by", inspection.producer
    counts = (("constants", inspection.constants), ("nested", inspection.nested))
    besides = " and ".join(f"{count} {name}" for name, count in counts if count)
    yield "nodes", ", besides ".join(filter(None, (str(inspection.nodes), besides)))
    yield "functions", listed(inspection.functions, _MOST_OPERATORS)
    yield "tensors", ", ".join(f"{count} {name}" for name, count in inspection.dtypes.items()) + " declared"
    types = ", ".join(f"{one.count} {name} {_size(one.bytes)}" for name, one in weights.dtypes.items())
    types = f"{_size(weights.bytes)}: {types}" if len(weights.dtypes) > 1 else types.partition(" ")[2]
    yield "weights", f"{weights.count}, {types}" if types else "none"
    yield "parameters", f"{weights.parameters:,}"
    dynamic = [f"{name} {', '.join(dims)}" for name, dims in inspection.dynamic.items()]
    yield "dynamic", listed(dynamic, _MOST_OPERATORS) or "no input"
    yield "refused", inspection.refused
    yield "tried", inspection.cure


def _tensors(inspection: parts.Inspection) -> Iterator[tuple[str, str]]:
    for way, held in (("inputs", inspection.inputs), ("outputs", inspection.outputs)):
        yield way, listed([f"{one.name} {one.dtype} {_shape(one.shape)}" for one in held], _MOST_TENSORS)


def _shape(shape: Sequence[int | str] | None) -> str:
    return "of any rank" if shape is None else f"[{', '.join(map(str, shape))}]"


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} bytes"


# bugs.md, and the sections of a report that it consists of: each bug with all that its failures are known by.

BUGS_NAME = "bugs.md"


def bugs_page(bugs: Sequence[parts.KnownBug], apart: Sequence[str] = ()) -> str:
    """Return bugs.md. ``apart``: failures that are none by now, or could not be judged."""
    failures = sum(bug.count for bug in bugs)
    title = f"{counted(len(bugs), 'bug')} in {counted(failures, 'failure')}"
    return to_markdown(Document(title, (), (*bugs_section(bugs), *section("Apart from these", [bullets(apart)]))))


def bugs_section(bugs: Sequence[parts.KnownBug]) -> list[Section]:
    """Return a section for each bug."""
    return [one for number, bug in enumerate(bugs, 1) for one in section(f"{number}. {bug.name}", _body(bug))]


def _body(bug: parts.KnownBug) -> list[Block | None]:
    hows = Counter(one.how for one in bug.evidence if one.said)
    items = [
        f"{counted(bug.count, 'failure')}: {some(bug.failures, 12)}",
        f"Smallest example: {code(bug.smallest)}",
        f"Operators: {', '.join(map(code, bug.culprit_operators))}",
        f"How it fails: {': '.join(filter(None, (bug.signature.stage, bug.signature.kind)))}",
        *(f"It passes with {one}" for one in bug.passes),
        *([f"Releases: {bug.releases}"] if bug.releases else []),
        f"Models: {some(bug.hosts, 12)}",
        *([f"Winnow passes it with {', '.join(map(code, bug.workaround))}"] if bug.workaround else []),
        *([f"Why these are one bug: {', '.join(f'{n} {how}' for how, n in hows.items())}"] if hows else []),
    ]
    return [bullets(items), bullets(f"{code(one.failure)}: {one.said}" for one in bug.evidence if one.said)]


# The section of a report that says how kept results end by now.


def rechecked_section(rechecked: Sequence[parts.Rechecked]) -> list[Section]:
    """Return the section; none where nothing was checked again. What is not as expected comes first."""
    rows = sorted(rechecked, key=lambda one: one.outcome == one.expect)
    cells = [(one.folder, one.outcome, one.expect, one.said) for one in rows]
    return section("Kept results", [table(("folder", "by now", "expected", "what the check says"), cells, names=1)])
