"""REPORT.md, and how a failure is reproduced.

REPORT.md: what was found, ready to paste into a bug report.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from onnx import ModelProto

from runner.files import write_text
from runner.judgment import ANSWERED, Status
from runner.report import failure_section
from runner.report.cause_section import experiments, sentence
from runner.report.diagnosis_sections import (
    bugs_section,
    inspection_section,
    layers_section,
    outputs_section,
    passes_section,
    rechecked_section,
    releases_section,
    title_of_kept,
    workarounds_section,
)
from runner.report.failure_section import model_section
from runner.report.markup import block, bullets, code, cut, folded, section, some, table, text
from runner.report.page.data import PageTensor
from runner.report.precision_section import again_section, raised, title
from runner.report.repro.write import REPRO_NAME, Repro
from runner.report.result_parts import CheckReliability, Statistics
from runner.report.summary import Summary
from runner.report.triage_section import triage_page
from runner.report.typed_json import to_json
from runner.text import counted, percent, without_values

# How a failure is reproduced, in a report: repro.py whole where it stands alone and is short, else its heart.

MOST_LINES = 130
_MOST_SHOWN = 20
_MOST_SCRIPTS = 3
_LANGUAGES = {".py": "python", ".sh": "sh", ".bash": "sh"}
_HEART = ("target", "judge", "reference", "write", "load")
"""The functions that say what is run on what, in the order in which they are worth room."""


def repro_section(repro: Repro, zipped: str = "", check: Mapping[str, str] | None = None, missing: str = "") -> str:
    """Return the section; "" without a script.

    ``zipped``: the archive that it lies in, "" without one, and what is ``missing`` there. ``check``: the user's
    scripts, by their names.
    """
    source = repro.source.strip("\n")
    if not source:
        return ""
    script, told = REPRO_NAME, "Its exit status is 1 where the failure shows"
    if repro.alone and source.count("\n") < MOST_LINES:
        said = f"{script} stands alone: run `python {script}`. {told}."
        return section("To reproduce", f"{said}\n\n{folded(script, block(source, 'python'))}")
    how = f"Unzip {zipped} and run `python {zipped.removesuffix('.zip')}/{script}`" if zipped else f"Run `{script}`"
    lacks = f"{zipped} is not whole: {text(missing)}. Put what is missing beside {script} first." if missing else ""
    parts = [f"{how}. {told}.", *filter(None, (lacks,))]
    if not check:
        parts += ["The part of it that runs the model:", block(heart(source), "python")]
    for name, lines in [*(check or {}).items()][:_MOST_SCRIPTS]:
        parts += [f"It runs {code(name)}:", _script(lines, PurePosixPath(name).suffix)]
    return section("To reproduce", "\n\n".join(parts))


def _script(source: str, suffix: str) -> str:
    """Return a script: whole if it is short, else its first lines."""
    lines = source.strip("\n").splitlines()
    if len(lines) <= _MOST_SHOWN:
        return block("\n".join(lines), _LANGUAGES.get(suffix, ""))
    if len(lines) <= MOST_LINES:
        return folded(f"{len(lines)} lines", block("\n".join(lines), _LANGUAGES.get(suffix, "")))
    return block("\n".join([*lines[: _MOST_SHOWN - 1], "..."]), _LANGUAGES.get(suffix, ""))


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


REPORT_NAME = "REPORT.md"
_MOST_ROWS = 200
# so that the tactic's hash after it is never cut off
_LONGEST_KERNEL = 130
_TITLES: Mapping[str, str] = {
    Status.found: "a part of the model that still fails",
    Status.suspected: "a part of the model that fails, and is not shown to be the cause",
    Status.reference_wrong: "the reference is wrong",
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


@dataclass(frozen=True)
class Shown:
    """What a report shows besides the summary.

    ``model``: the reduced model, whose nodes are listed (weights are not looked at). ``tensors``: expected and actual
    values in it. ``said``: what the check printed about the reduced model; ``check``: the user's scripts by name.
    ``zipped``: the name of the archive to attach, "" without one, and what is ``missing`` in it, in words; ``files``:
    what each file of the run's folder is. ``types``: of tensors inside the model, as far as they are known.
    ``makes``: the configuration that makes a mixed model again.
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


def write_report(folder: Path, summary: Summary, command: Sequence[str], shown: Shown) -> None:
    """Write ``REPORT.md`` into ``folder``: see `report`. Raises OSError where it cannot be written."""
    write_text(folder / REPORT_NAME, report(summary, command, shown))


def report(summary: Summary, command: Sequence[str] = (), shown: Shown = Shown()) -> str:
    """Return the text of the report, Markdown as GitHub reads it: for a maintainer, and folded how it was found.

    ``command``: the argv that started the run.
    """
    if summary.triage:
        return triage_page(summary, command)
    fails = _is_failing_part(summary)
    message, warnings = text(summary.message), bullets(text(warning) for warning in summary.warnings)
    known = [
        section("How it was run", block(shlex.join(without_values(command)), "sh") if command else ""),
        section("How it was found", (f"{message}\n\n" if fails and message else "") + _how(summary)),
        section("What is not known", table(("reason", "verdicts"), list(summary.unresolved.items()))),
        section("Warnings", warnings if fails else ""),
        section("Files", table(("file", "what it is"), sorted(shown.files.items()), names=1)),
    ]
    sections = [
        f"# {_title(summary, shown.model)}",
        failure_section.what_happens(summary, shown.model, shown.tensors) if fails else message,
        text(sentence(summary.cause)) if summary.cause else "",
        failure_section.failure_section(summary, shown.tensors, shown.said, whole=not fails),
        raised(summary, summary.precision)
        if summary.precision and summary.nodes_after is not None
        else model_section(summary, shown.model, shown.types),
        repro_section(shown.repro, shown.zipped, shown.check, shown.missing),
        again_section(summary, shown.zipped, shown.missing) if shown.makes else "",
        experiments(summary.cause) if summary.cause else "",
        _suspects(summary),
        passes_section(summary.passes, summary.minimality),
        releases_section(summary.releases),
        inspection_section(summary.inspection),
        layers_section(summary.layers, failing=summary.signature is not None)
        or outputs_section(summary.outputs, f"everything in {told.high}" if (told := summary.precision) else ""),
        workarounds_section(summary.workarounds),
        rechecked_section(summary.rechecked),
        bugs_section(summary.bugs),
        section("Statistics", table(("", ""), list(to_json(summary.statistics or Statistics()).items()))),
        _fused(summary),
        "" if fails else section("Warnings", warnings),
        failure_section.versions_section(summary, "\n".join(shown.check.values())),
        folded("How this was found", "\n\n".join(part for part in known if part)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _is_failing_part(summary: Summary) -> bool:
    """Whether the report is about a part of a model that fails, as reductions find it."""
    told = summary.layers or summary.precision or summary.suspects or summary.workarounds or summary.passes
    return summary.status in ANSWERED and bool(summary.culprits and summary.signature) and not told


def _title(summary: Summary, model: ModelProto | None) -> str:
    found = summary.status in ANSWERED
    if own := title(summary) or title_of_kept(summary.strategy, found=found, bugs=len(summary.bugs)):
        return own
    if summary.inspection:
        return "what is in the file"
    if found and summary.culprits:
        if summary.layers and not summary.signature:
            return f"wrong inside a model that does not fail: {some(summary.culprits)}"
        return failure_section.title(summary, model)
    if summary.status == Status.found and summary.suspects:
        return "tactics that only bad builds chose"
    if summary.status == Status.found and summary.workarounds:
        return "what keeps the failure away"
    if summary.status == Status.found and summary.statistics:
        return "the same check, again and again"
    if summary.status == Status.nothing_to_find and (asked := _NOTHING.get(summary.strategy)) and summary.signature:
        return asked
    if summary.status == Status.interrupted and not summary.culprits:
        return "interrupted before there was an answer"
    return text(_TITLES.get(summary.status, summary.status.replace("_", " ")))


def _fused(summary: Summary) -> str:
    if not summary.fused:
        return ""
    rows = [(one.layer, ", ".join(one.nodes[:_MOST_ROWS])) for one in summary.fused.layers[:_MOST_ROWS]]
    shown = table(("layer", "nodes"), rows, names=2)
    return section("Fused layers", f"What TensorRT made of these nodes in {text(summary.fused.of)}.\n\n{shown}")


def present(
    folder: Path, summary: Summary, script: Repro | None = None, left_out: str = "", *, zipped: bool = False
) -> dict[str, str]:
    """Return the files that are there (the report aside), and those that are written right after it.

    ``script``: repro.py, if there is an answer; ``zipped``: whether there is an archive without one, too; ``left_out``:
    what that does not hold.
    """
    alone = "; it stands alone: it holds the model and its inputs" if script and script.alone else ""
    known = {
        summary.model or "": "the mixed-precision model" if summary.precision else "the reduced model",
        summary.min_good or "": "a model that passes, and differs from one that fails by the fewest nodes",
        **{name: f"the whole model, {one.what}" for one in summary.workarounds for name in one.files},
        "test_data_set_0": "its inputs and good outputs, as ONNX keeps them",
        "rounded.onnx": "the same with the casts that round as the emulated target does; repro.py runs it",
        "repro.py": f"shows the failure, with what its first lines name and nothing of Winnow{alone}",
    }
    found = {name: what for name, what in known.items() if name and (folder / name).exists()}
    if script or zipped:
        of_script = "the script, " if script and script.source else ""
        held = f"{of_script}the model, its data" if script else "how the model is made again"
        parts = f"one file to attach: this report, {held} and the check's files"
        found["bundle.zip"] = "; ".join(filter(None, (parts, left_out)))
    return {**found, "replay.yaml": "runs all of this again", "result.json": "this report for programs"}


def _how(summary: Summary) -> str:
    checks, failure = summary.checks, summary.failure
    of_kept = summary.strategy in ("recheck", "bugs")  # nothing is searched for there
    claim = summary.minimality if summary.status != Status.interrupted else ""  # no budget was reached
    rows = [
        ("strategy", summary.strategy),
        ("failure under study", ": ".join(filter(None, (failure.stage, failure.kind, failure.raised, failure.detail)))),
        *([("first look", summary.first_look)] if summary.first_look else []),
        (
            "minimality",
            "" if of_kept else "; ".join(part for part in (claim or "no claim", summary.tried) if part),
        ),
        (
            "checks",
            f"{checks.recheck}, {checks.reused} verdicts reused"
            if of_kept
            else f"{checks.search} to search, {checks.trust} to trust the answer, {checks.reused} verdicts reused"
            + (f", {checks.refine} to make it smaller in other ways" if checks.refine else "")
            + (f", {checks.cause} to show the cause" if checks.cause else ""),
        ),
        ("reliability", _noticed(summary.reliability)),
        ("outcomes", ", ".join(f"{count} {getattr(name, 'value', name)}" for name, count in summary.outcomes.items())),
        ("seconds", f"{summary.seconds.total:.1f}, of which {summary.seconds.checking:.1f} in checks"),
        ("memory", summary.memory),
        ("passes, nearest to one that fails", summary.min_good or "none found"),
        ("model under study", summary.input_model or ""),
    ]
    return table(("", ""), [row for row in rows if row[1]])


def _noticed(reliability: CheckReliability | None) -> str:
    """Return with what probability a check would have been noticed that is often wrong; "" where it was flaky."""
    if not reliability or reliability.agreed is None or reliability.wrong is None or reliability.noticed_with is None:
        return ""
    return (
        f"{counted(reliability.agreed, 'second verdict')} agreed with the first: a check that is wrong "
        f"{reliability.wrong * 10:g} times in 10 would have been noticed with {percent(reliability.noticed_with)}"
    )


def _suspects(summary: Summary) -> str:
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
        for one in summary.suspects[:_MOST_ROWS]
    ]
    head = ("layer", "tactic of bad builds only", "good builds chose", "bad builds", "ONNX nodes")
    return section("Suspect tactics", table(head, rows, names=2))
