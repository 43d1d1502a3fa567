"""REPORT.md: what was found, ready to paste into a bug report."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from runner.files import write_text
from runner.report.markup import block, bullets, code, cut, section, some, table, text
from runner.report.sections.bugs_section import bugs_section
from runner.report.sections.cause_section import experiments, sentence
from runner.report.sections.inspection_section import inspection_section
from runner.report.sections.layers_section import layers_section, outputs_section
from runner.report.sections.passes_section import passes_section
from runner.report.sections.precision_section import raised, title
from runner.report.sections.rechecked_section import rechecked_section, title_of_kept
from runner.report.sections.releases_section import releases_section
from runner.report.sections.triage_section import triage_page
from runner.report.sections.workarounds_section import workarounds_section
from runner.report.summary import Summary
from runner.status import Status
from runner.text import counted

REPORT_NAME = "REPORT.md"
_MOST_ROWS = 200
# so that the tactic's hash after it is never cut off
_LONGEST_KERNEL = 130
_TITLES: Mapping[str, str] = {
    Status.found: "a part of the model that still fails",
    Status.nothing_to_find: "nothing fails here",
    Status.could_not_judge: "the check could not judge",
    Status.no_set_suffices: "no set suffices",
    Status.not_applicable: "not applicable here",
    Status.not_as_expected: "kept results are not as expected",
    Status.interrupted: "interrupted; the best so far",
    Status.no_room: "no room on a disk",
}
_NOTHING = {
    "workaround": "no workaround found",
    "passes": "no optimization is needed for it",
    "layerwise": "no inner tensor is wrong",
}
"""Where the model fails, and what was asked about that failure has no answer."""


def write_report(
    folder: Path, summary: Summary, command: Sequence[str], model: ModelProto | None, *, alone: bool = False
) -> None:
    """Write ``REPORT.md`` into ``folder``: see `report`. Raises OSError where it cannot be written.

    ``alone``: repro.py needs no file beside it.
    """
    write_text(folder / REPORT_NAME, report(summary, command, model, _present(folder, summary, alone=alone)))


def report(
    summary: Summary,
    command: Sequence[str] = (),
    model: ModelProto | None = None,
    files: Mapping[str, str] | None = None,
) -> str:
    """Return the text of the report, Markdown as GitHub reads it.

    ``command``: the argv that started the run. ``model``: the reduced model, whose nodes are listed (weights are not
    looked at). ``files``: what each file of the bundle is, by name.
    """
    if summary.triage:
        return triage_page(summary, command)
    # as platform.platform() says it, which starts a process to ask for the processor's name
    system = platform.system(), platform.release(), platform.machine(), "with", "".join(platform.libc_ver())
    versions = {**summary.versions, "platform": "-".join(system)}
    sections = [
        f"# {_title(summary)}",
        text(summary.message),
        text(sentence(summary.cause)) if summary.cause else "",
        _failure(summary),
        _nodes(summary, model),
        experiments(summary.cause) if summary.cause else "",
        _suspects(summary),
        passes_section(summary.passes, summary.minimality),
        releases_section(summary.releases),
        inspection_section(summary.inspection),
        layers_section(summary.layers, failing=summary.signature is not None) or outputs_section(summary.outputs),
        workarounds_section(summary.workarounds),
        rechecked_section(summary.rechecked),
        bugs_section(summary.bugs),
        section("Statistics", table(("", ""), list((summary.statistics or {}).items()))),
        _fused(summary),
        section("Versions", table(("package", "version"), sorted(versions.items()))),
        section("How it was run", block(shlex.join(command), "sh") if command else ""),
        section("How it was found", _how(summary)),
        section("What is not known", table(("reason", "verdicts"), list(summary.unresolved.items()))),
        section("Warnings", bullets(text(warning) for warning in summary.warnings)),
        section("Files", table(("file", "what it is"), sorted((files or {}).items()), names=1)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(summary: Summary) -> str:
    found = summary.status == Status.found
    if own := title(summary) or title_of_kept(summary.strategy, found=found, bugs=len(summary.bugs)):
        return own
    if summary.inspection:
        return "what is in the file"
    if summary.status == Status.found and summary.culprits:
        if summary.layers and not summary.signature:
            return f"wrong inside a model that does not fail: {some(summary.culprits)}"
        signature = summary.signature or {}
        return f"{text(signature.get('raised') or signature.get('kind', 'failure'))}: {some(summary.culprits)}"
    if summary.status == Status.found and summary.suspects:
        return "tactics that only bad builds chose"
    if summary.status == Status.found and summary.workarounds:
        return "what keeps the failure away"
    if summary.status == Status.found and summary.statistics:
        return "the same check, again and again"
    if summary.status == Status.nothing_to_find and (asked := _NOTHING.get(summary.strategy)) and summary.signature:
        return asked
    return text(_TITLES.get(summary.status, summary.status.replace("_", " ")))


def _failure(summary: Summary) -> str:
    signature = summary.signature
    if not signature:
        return ""
    rows = [(name, signature[name]) for name in ("stage", "kind", "raised", "detail") if signature.get(name)]
    rows += [("checker", summary.checker)] if summary.checker else []
    check = f"\n\nThe check:\n\n{block(summary.check)}" if summary.check else ""
    return section("What fails", table(("", ""), rows) + check)


def _nodes(summary: Summary, proto: ModelProto | None) -> str:
    if summary.nodes_after is None:
        return ""
    if summary.precision:
        return raised(summary, summary.precision)
    size = f"{summary.nodes_after} of {summary.nodes_before} nodes are left."
    nested = f"Nested nodes kept:\n\n{_bulleted(summary.nested)}" if summary.nested else ""
    parts = [size, _bulleted(summary.culprits), nested]
    if proto is not None:
        rows = [_row(node) for node in proto.graph.node[:_MOST_ROWS]]
        more = len(proto.graph.node) - len(rows)
        opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in proto.opset_import)
        parts = [
            f"{size} Opsets: {text(opsets)}; IR version {proto.ir_version}.",
            table(("node", "op", "inputs", "outputs", "attributes"), rows, names=5),
            f"{more} more nodes are not listed." if more else "",
            nested,
        ]
    return section("The reduced model", "\n\n".join(part for part in parts if part))


def _bulleted(names: Sequence[str]) -> str:
    more = len(names) - _MOST_ROWS
    return bullets([*map(code, names[:_MOST_ROWS]), *([f"{more} more; result.json has them all"] if more > 0 else [])])


def _fused(summary: Summary) -> str:
    if not summary.fused:
        return ""
    rows = [(layer["layer"], ", ".join(layer["nodes"][:_MOST_ROWS])) for layer in summary.fused["layers"][:_MOST_ROWS]]
    shown = table(("layer", "nodes"), rows, names=2)
    return section("Fused layers", f"What TensorRT made of these nodes in {text(summary.fused['of'])}.\n\n{shown}")


def _row(node: NodeProto) -> tuple[str, str, str, str, str]:
    op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return node.name, op, _names(node.input), _names(node.output), ", ".join(map(_attribute, node.attribute))


def _present(folder: Path, summary: Summary, *, alone: bool) -> dict[str, str]:
    """The files of the bundle that are there (this one aside), and those that are written right after it."""
    known = {
        summary.model or "": "the mixed-precision model" if summary.precision else "the reduced model",
        summary.min_good or "": "the largest passing candidate below it",
        **{name: f"the whole model, {one['what']}" for one in summary.workarounds for name in one["files"]},
        "test_data_set_0": "its inputs and good outputs, as ONNX keeps them",
        "rounded.onnx": "the same with the casts that round as the emulated target does; repro.py runs it",
        "repro.py": "shows the failure, with what its first lines name and nothing of Winnow"
        + ("; it stands alone: it holds the model and its inputs" if alone else ""),
    }
    present = {name: what for name, what in known.items() if name and (folder / name).exists()}
    return {**present, "replay.yaml": "runs all of this again", "result.json": "this report for programs"}


def _names(names: Iterable[str]) -> str:
    return ", ".join(name or "(none)" for name in names)


def _attribute(attribute: AttributeProto) -> str:
    kind = attribute.type
    if attribute.ref_attr_name:
        value = f"@{attribute.ref_attr_name}"
    elif kind == AttributeProto.TENSOR:
        value = f"{_called(TensorProto.DataType, attribute.t.data_type)}{list(attribute.t.dims)}"
    elif kind in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        value = "a graph"
    elif kind == AttributeProto.STRING:
        value = attribute.s[:40].decode("utf-8", "backslashreplace")
    elif kind in (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.INTS, AttributeProto.FLOATS):
        whole = onnx.helper.get_attribute_value(attribute)
        several = isinstance(whole, Sequence) and len(whole) > 8
        value = f"[{', '.join(f'{item:g}' for item in whole[:8])}, ...]" if several else _number(whole)
    else:
        value = _called(AttributeProto.AttributeType, kind)
    return f"{attribute.name}={value}"


def _called(enumeration: Any, number: int) -> str:
    """Return the name of a member; of a number that is none, the number: a model may hold what this ONNX does not."""
    return next((name.lower() for name, value in enumeration.items() if value == number), f"type {number} ")


def _number(value: object) -> str:
    if isinstance(value, Sequence):
        return f"[{', '.join(_number(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _how(summary: Summary) -> str:
    checks = summary.checks
    of_kept = summary.strategy in ("recheck", "bugs")  # nothing is searched for there
    rows = [
        ("strategy", summary.strategy),
        *([("first look", summary.first_look)] if summary.first_look else []),
        (
            "minimality",
            "" if of_kept else "; ".join(part for part in (summary.minimality or "no claim", summary.tried) if part),
        ),
        (
            "checks",
            f"{checks.recheck}, {checks.reused} verdicts reused"
            if of_kept
            else f"{checks.search} to search, {checks.trust} to trust the answer, {checks.reused} verdicts reused"
            + (f", {checks.refine} to make it smaller in other ways" if checks.refine else "")
            + (f", {checks.cause} to show the cause" if checks.cause else ""),
        ),
        ("reliability", _noticed(summary.reliability or {})),
        ("outcomes", ", ".join(f"{count} {getattr(name, 'value', name)}" for name, count in summary.outcomes.items())),
        ("seconds", f"{summary.seconds.total:.1f}, of which {summary.seconds.checking:.1f} in checks"),
        ("memory", summary.memory),
        ("largest passing candidate", summary.min_good or "none found"),
        ("model under study", summary.input_model or ""),
        *((f"digest of {name}", digest) for name, digest in summary.context.items()),
    ]
    return table(("", ""), [row for row in rows if row[1]])


def _noticed(reliability: Mapping[str, Any]) -> str:
    """Return with what probability a check would have been noticed that is often wrong; "" where it was flaky."""
    if "noticed_with" not in reliability:
        return ""
    wrong, noticed = reliability["wrong"], reliability["noticed_with"]
    return (
        f"{counted(reliability['agreed'], 'second verdict')} agreed with the first: a check that is wrong "
        f"{wrong * 10:g} times in 10 would have been noticed with {noticed:.2f}"
    )


def _suspects(summary: Summary) -> str:
    keys: dict[str, set[str | None]] = {}
    for one in summary.suspects:
        keys.setdefault(one["layer"], set()).add(one["key"])
    rows = [
        (
            f"{one['layer']} ({one['key']})" if len(keys[one["layer"]]) > 1 else one["layer"],
            f"{cut(one['kernel'], _LONGEST_KERNEL)} ({one['tactic']})" if one["kernel"] else one["tactic"],
            ", ".join(f"{tactic} ({times})" for tactic, times in one["good"].items()) or "(not there)",
            f"{one['bad_builds']} of {one['of']}" if "of" in one else "pinned",
            ", ".join(one["nodes"]),
        )
        for one in summary.suspects[:_MOST_ROWS]
    ]
    head = ("layer", "tactic of bad builds only", "good builds chose", "bad builds", "ONNX nodes")
    return section("Suspect tactics", table(head, rows, names=2))
