"""The page of a run, of whatever kind: verdict, facts, the path of its search, commands that go on; within its size."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from onnx import ModelProto

from runner import DISTRIBUTION
from runner.exit_codes import ANSWERED, Status
from runner.files import inside, is_plain, json_lines, read_plain
from runner.journal.replay_yaml import REPLAY_NAME
from runner.model.files.parse_without_weights import parse
from runner.model.graph.graph_index import Graph as Index
from runner.model.passes.lift_constants import lower_constants
from runner.report.diagnosis_sections import reservation
from runner.report.document import Document, cut, section, table
from runner.report.markdown import facts
from runner.report.markup import unmarked
from runner.report.page import data as pages
from runner.report.page import tensor_values
from runner.report.page.graph_columns import columns, types_of
from runner.report.page.html import page_text, words
from runner.report.repro.fill_templates import rounds
from runner.report.repro.write import REPRO_NAME
from runner.report.short_answer import MOST_NAMES, blame, short_answer, where
from runner.report.summary import FLOATS, Summary
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.text import counted, listed, plain, without_values
from runner.verdict import Sample

# What a page says first: the verdict in a sentence, what limits it, and the facts of a run.

LONGEST, LONGEST_SENTENCE, ROOM = 2000, 120, 480
"""Characters of a sentence or a fact, and of names in the first one: one in a damaged file may be megabytes long."""
SIMULATED = "+simulated"
"""What the version of a stand-in for TensorRT ends in."""


def verdict_of(summary: Summary) -> str:
    """Return what was found, in one short sentence, as the last screen begins: the facts have the rest."""
    if summary.status in ANSWERED and summary.culprits and summary.nodes_after:
        answer = short_answer(summary)
        nodes = ": ".join(filter(None, (where(summary, room=ROOM), answer.fails)))
        return "; ".join(filter(None, (blame(summary), nodes, reservation(summary.cause))))
    said = summary.message.replace("\n", "; ")
    said = said if len(said) <= LONGEST_SENTENCE else cut(_first_part(said), LONGEST)
    if summary.status in ANSWERED:
        return said or "found"
    ended = words(summary.status)
    return said if said.startswith(ended) else ": ".join(filter(None, (ended, said)))


def _first_part(said: str) -> str:
    """Return what stands before the first semicolon that is not in brackets; before the first where none is closed."""
    parts = said.split("; ")
    heads = ("; ".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((head for head in heads if head.count("(") <= head.count(")")), parts[0])


def labels_of(summary: Summary, settings: Settings) -> list[str]:
    """Return what limits all that a page says, in a few words each."""
    ended = {getattr(name, "value", name) for name, count in summary.outcomes.items() if count}
    flaky = (
        (summary.reliability is not None and summary.reliability.whole_model is not None)
        or (summary.strategy == "repeat" and {"pass", "fail"} <= ended)
        or (summary.status == Status.could_not_judge and "the check is flaky" in summary.message)
    )
    versions = [version for name, version in summary.versions.items() if "tensorrt" in name]
    low = summary.precision is None or not {summary.precision.low, summary.precision.high}.isdisjoint(FLOATS)
    judged = settings.checker.looks_at_values and any(summary.outcomes.values())
    found = {
        "interrupted": summary.status == Status.interrupted,
        "planned, not searched": summary.status == Status.planned,
        "simulated builder": settings.target.builds_engines and any(SIMULATED in version for version in versions),
        "low precision emulated": rounds(settings.target) and low and not settings.checker.runs_own_code,
        "flaky check": flaky,
        "from random inputs": judged and isinstance(settings.inputs, RandomInputs) and summary.nodes_before > 0,
        "budget reached": "budget" in (summary.minimality or "") and summary.status != Status.interrupted,
    }
    return [label for label, holds in found.items() if holds]


def facts_of(summary: Summary) -> list[pages.Row]:
    """Return the facts of a run by name: those of its report, and what stands elsewhere in that."""
    kept = "raised" if summary.precision and not summary.triage else "kept"  # a triage keeps the part that fails
    nodes = f"{summary.nodes_after} of {summary.nodes_before} {summary.unit}" if summary.nodes_after is not None else ""
    told = [
        ("status", f"{words(summary.status)} (exit code {summary.exit_code})"),
        ("result", summary.message.replace("\n", "; ")),
        ("culprits", listed(summary.culprits, MOST_NAMES)),
        (kept, nodes),
        ("nested nodes kept", listed(summary.nested, MOST_NAMES)),
        ("seen", summary.seen),
        ("check", summary.check),
        *facts(summary),
        ("not known", "; ".join(f"{reason} ({count})" for reason, count in summary.unresolved.items())),
        ("most memory", ", ".join(f"{name} {size:.0f} MiB" for name, size in summary.peak_rss_mb.items() if size)),
    ]
    return [[name, cut(str(value), LONGEST)] for name, value in told if value]


# The path of a search: every check in the order in which it was made, what it kept, how it ended, what it printed.

MOST_TRIALS, LONGEST_LOG = 4000, 4096
"""Checks, and bytes of one's output; `fitted` leaves out all of these where they are too much."""
_LONGEST_TEXT = 400
_LARGEST = 1e15
_RANGES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")


def trials_of(folder: Path, material: pages.PageData) -> tuple[list[pages.PageTrial], list[str]]:
    """Return the checks of a run, and what of them is left out as it is too much for a page."""
    rows = [*(json_lines(material.index) if material.index else ()), *material.unlisted]
    told = sorted(rows, key=lambda row: _number(row, "iteration"))
    taken = told if len(told) <= MOST_TRIALS else [*told[: MOST_TRIALS // 2], *told[-MOST_TRIALS // 2 :]]
    fewer = len(told) - len(taken)
    left = [f"{fewer} of {counted(len(told), 'check')} are not shown"] if fewer else []
    last = len(material.graph.nodes) - 1 if material.graph and material.elements == "nodes" else None
    found = []
    for row in taken:
        kept = _stretches(row.get("trial")) if row.get("question") in material.questions else []
        if kept and last is not None and kept[-1][1] > last:  # of another run, in a folder of the user's
            kept = []
        log = plain(_log(material.logs or folder, row.get("log")))
        found.append(_trial(row, kept, log, material.bodies.get(_text(row, "question"), "")))
    return found, left


def _trial(row: Mapping[str, Any], kept: list[list[int]], log: str, body: str) -> pages.PageTrial:
    """Return a row as the page has it. ``body``: the nested graph whose nodes were kept, "" for the model itself."""
    label = _text(row, "label")
    return {
        "number": int(_number(row, "iteration")),
        "phase": _text(row, "phase"),
        "label": label if body in label else f"{body}: {label}",
        "size": int(_number(row, "elements")) or sum(last - first + 1 for first, last in _stretches(row.get("trial"))),
        "kept": kept,
        "outcome": _text(row, "outcome"),
        "seconds": _number(row, "seconds"),
        "reason": _text(row, "reason"),
        "log": log,
    }


def _number(row: Mapping[str, Any], key: str) -> float:
    """Return a number of a row that may come from anywhere."""
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < _LARGEST else 0.0


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _stretches(ranges: Any) -> list[list[int]]:
    """Return the stretches of a trial's text, ``0-3,7``; none of what is no such text."""
    if not isinstance(ranges, str) or not _RANGES.fullmatch(ranges):
        return []
    ends = (part.partition("-") for part in ranges.split(","))
    return [[int(first), int(last or first)] for first, _, last in ends]


def _log(folder: Path, name: Any) -> str:
    """Return what a check printed; of a long output the beginning and the end."""
    if not isinstance(name, str) or not name or (folder / name).is_symlink() or not inside(folder / name, folder):
        return ""
    path, half = folder / name, LONGEST_LOG // 2
    size = path.stat().st_size if is_plain(path) else 0
    if size <= LONGEST_LOG:
        return read_plain(path, LONGEST_LOG).decode("utf-8", "replace")
    first, last = (read_plain(path, half, start).decode("utf-8", "replace") for start in (0, size - half))
    return f"{first}\n[{size - 2 * half} bytes left out]\n{last}"


# The exact commands that go on from a run: the same again, resume, reproduce, replay, recheck.


def program_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words by which Winnow was called."""
    return tuple(command[:3]) if tuple(command[1:2]) == ("-m",) else tuple(command[:1])


def commands_of(folder: Path, summary: Summary, command: Sequence[str]) -> list[pages.Row]:
    """Return what can be done with a run's folder. ``command``: what was typed; secret values are left out."""
    if not command:
        return []
    program, replay = program_of(command), folder / REPLAY_NAME
    answer = (folder / (summary.model or "")).parent  # of a triage it is a step's
    kept = bool(summary.model)
    found = (
        ("Run it again", True, without_values(command)),
        ("Go on where it stopped", summary.status == Status.interrupted, [*program, "resume", str(folder)]),
        ("Run it again with the same settings, and see what has changed", replay.is_file(), [*program, str(replay)]),
        ("Check the kept model again", kept and (answer / REPLAY_NAME).is_file(), [*program, "recheck", str(answer)]),
    )
    told = [[what, shlex.join(typed)] for what, can, typed in found if can]
    if kept and (answer / REPRO_NAME).is_file():
        shows = f"cd {shlex.quote(str(answer))} && python {REPRO_NAME}"
        told.append(["Show the failure without Winnow", shows])
    return told


PAGE_NAME = "report.html"
SHORTEST = 0.01
MOST_CULPRITS = 12
"""Of which the good values are shown where there is no reduced model."""
SIDES: tuple[Literal["outputs"], Literal["inputs"]] = ("outputs", "inputs")
_LOOKS_AT_THE_FILE = ("triage", "inspect")
"""Strategies whose own process has no model in memory; the file is parsed once more."""


def page_of(
    settings: Settings,
    folder: Path,
    summary: Summary,
    command: Sequence[str],
    document: Document | None,
    reduced: tensor_values.Reduced | None,
    material: pages.PageData,
) -> pages.Page:
    """Return the page of a run. ``document``: its report, None: there is none. ``reduced``: see `reduced_model`."""
    whole = _whole(settings, folder, summary, material)
    trials, left = trials_of(folder, material)
    told, answer = facts_of(summary), short_answer(summary)
    undrawn = whole["undrawn"] if whole else 0
    why = "there are too many, they are too deep, or their names are too long"
    crowded = [f"{counted(undrawn, 'nested graph')} of the model cannot be opened: {why}"] if undrawn else []
    warnings = (*summary.warnings, *left, *crowded, *(reduced.left if reduced else ()))
    if reduced and reduced.seconds:
        took = f"{reduced.seconds:.2f} s" if reduced.seconds >= SHORTEST else f"less than {SHORTEST} s"
        told.append(["values on this page", f"from extra runs for this page: {took}"])
    parts = (*document.sections, *document.found) if document else ()
    numbers = section(f"The {material.elements} by number", [table(("number", "name"), sorted(material.names.items()))])
    page = pages.Page(
        kind="run",
        title=cut(unmarked(document.title) if document else words(summary.status), LONGEST),
        verdict=verdict_of(summary),
        cause=cut("; ".join(filter(None, (answer.why, answer.sure))), LONGEST) if summary.cause else "",
        status=str(summary.status),
        strategy=summary.strategy,
        labels=labels_of(summary, settings),
        facts=told,
        warnings=[cut(one, LONGEST) for one in warnings],
        reduced=reduced.graph if reduced else None,
        whole=whole,
        tensors=reduced.tensors if reduced else _around(whole, material) if whole else [],
        layers=tensor_values.layers_of(folder, summary, material.graph),
        elements=material.elements,
        trials=trials,
        curve=tensor_values.curve_of(summary),
        alone=tensor_values.alone_of(summary),
        sections=[one for one in (*parts, *numbers) if not one.aside],
        commands=commands_of(folder, summary, command),
        jobs=[*_steps(folder, summary), *_answers(folder, summary)],
        made=made_now(),
        version=version(),
    )
    return fitted(page)


def made_now() -> str:
    """Return the time as a page says when it was made."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z").strip()


def version() -> str:
    """Return Winnow's own version; "" where it is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""


def reduced_model(
    folder: Path, summary: Summary, model: ModelProto | None, samples: Sequence[Sample], material: pages.PageData
) -> tensor_values.Reduced | None:
    """Return the model that was handed over, fed with ``samples``; of a triage the one that a step of it did."""
    if not summary.model or (summary.precision and not summary.triage):  # a mixed model is the original with casts
        return None
    if model is not None:  # fed with the sample on which it was seen to fail
        at = summary.evidence.get("sample", 0)
        sample, *_ = (*samples[at : at + 1], *samples, Sample({}))
        return tensor_values.reduced_of(folder, summary, model, sample, material)
    path = folder / summary.model
    if not summary.triage or not inside(path, folder) or not path.is_file():
        return None
    kept = parse(path)
    return tensor_values.reduced_of(folder, summary, kept, tensor_values.kept_sample(path.parent), material)


def _whole(settings: Settings, folder: Path, summary: Summary, material: pages.PageData) -> pages.PageGraph | None:
    index = material.graph
    if index is None and settings.model and summary.strategy in _LOOKS_AT_THE_FILE:
        index = _parsed(Path(settings.model).expanduser())
    if index is None:
        return None
    culprits = {name for one in (summary, *summary.answers) for name in (*one.culprits, *one.nested)}
    types = {name: one for name, one in tensor_values.types_of_rows(folder, summary).items() if name}
    types |= ((name, one) for name, one in types_of(index, material).items() if one)
    return columns(index, types, culprits)


def _around(whole: pages.PageGraph, material: pages.PageData) -> list[pages.PageTensor]:
    """Return good values of what the first culprits read and make, where there is no model of these alone."""
    numbers = dict.fromkeys(
        one for node in whole["culprits"][:MOST_CULPRITS] for key in SIDES for one in whole[key][node] if one >= 0
    )
    names = [name for one in numbers if (name := whole["tensors"][one]) in material.recorded]
    return tensor_values.tensors("the whole model", names, material.recorded, {})[0]


def _parsed(path: Path) -> Index | None:
    """Return the model in a file; None where it holds none (an engine)."""
    try:
        model = parse(path)
        lower_constants(model.graph, model.ir_version)
        return Index.of(model)
    except Exception:  # noqa: BLE001 - the class that protobuf raises differs between its versions
        return None


def _steps(folder: Path, summary: Summary) -> list[pages.PageJob]:
    """Return the steps of a triage that ran, with their pages."""
    steps = summary.triage.steps if summary.triage else ()
    return [
        {
            **_job(folder, one.folder, one.status, one.answer or "", ""),
            "overrides": [f"strategy={one.strategy}"],
            "run": one.checks,
            "seconds": one.seconds,
        }
        for one in steps
        if one.folder
    ]


def _answers(folder: Path, summary: Summary) -> list[pages.PageJob]:
    """Return all answers of a run that looked for several."""
    return [
        _job(folder, "." if at == 1 else f"answers/{at}", str(one.status), ", ".join(one.culprits), one.minimality)
        for at, one in enumerate(summary.answers, 1)
    ]


def _job(folder: Path, place: str, status: str, answer: str, trust: str | None) -> pages.PageJob:
    page = (PurePosixPath(place) / PAGE_NAME).as_posix()
    return {
        "number": place,
        "overrides": [],
        "status": status,
        "exit_code": next((one.exit_code for one in Status if one == status), Status.internal_error.exit_code),
        "answer": cut(answer, LONGEST),
        "trust": trust or "",
        "asked": None,
        "run": None,
        "reused": None,
        "seconds": None,
        "page": page if inside(folder / page, folder) and (folder / page).is_file() else "",
    }


# A page within its size: what is dear and least missed goes first, and the page says what is missing.

MOST_BYTES = 9_000_000
"""Of what a page tells; its style and its scripts take less than a megabyte."""
MOST_WARNINGS = 100
_DRAWN: Any = {"reduced": None, "whole": None, "tensors": [], "layers": [], "trials": [], "curve": [], "alone": []}
"""What only scripts read; all else is text in HTML."""


def fitted(page: pages.Page, most: int = MOST_BYTES) -> pages.Page:
    """Return a page that takes about so many bytes at most."""
    warnings, more = page.warnings[:MOST_WARNINGS], len(page.warnings) - MOST_WARNINGS
    warnings += [f"{more} further warnings are not shown"] if more > 0 else []
    page = replace(page, warnings=warnings)
    for what, without in _STEPS:
        if size_of(page) <= most:
            return page
        warnings = [*page.warnings, f"this page would be too large: {what}"]
        page = replace(page, **without(page), warnings=warnings)
    return page


def size_of(page: pages.Page) -> int:
    """Return the bytes of what a page tells: as HTML, and as JSON where a script draws it, which is packed later."""
    drawn = {key: getattr(page, key) for key in _DRAWN}
    text = json.dumps(drawn, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return len(text) + len(page_text(replace(page, **_DRAWN)).encode())


def _trials_without(key: str, nothing: object) -> Callable[[pages.Page], Mapping[str, Any]]:
    return lambda page: {"trials": [{**one, key: nothing} for one in page.trials]}


def _bare(page: pages.Page) -> Mapping[str, Any]:
    whole = page.whole
    return {"whole": whole and {**whole, "attributes": {}, "types": [""] * len(whole["types"])}}


_STEPS: tuple[tuple[str, Callable[[pages.Page], Mapping[str, Any]]], ...] = (
    ("what the checks printed is left out", _trials_without("log", "")),
    ("attributes and types of the original are left out", _bare),
    ("what each check kept is left out", _trials_without("kept", [])),
    ("the graph of the original is left out", lambda _: {"whole": None}),
    ("errors of layers and values are left out", lambda _: {"layers": [], "tensors": []}),
    ("the checks and the reduced graph are left out", lambda _: {"trials": [], "reduced": None}),
    ("tables and texts are left out; REPORT.md has them", lambda _: {"sections": [], "jobs": []}),
)
