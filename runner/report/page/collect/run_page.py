"""The page of a run, of whatever kind: everything that its folder, its summary and its process know."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Literal

from onnx import ModelProto

from runner import DISTRIBUTION
from runner.candidate import Sample
from runner.files import inside
from runner.judgment import Status
from runner.model.files.parse_without_weights import parse
from runner.model.graph.graph_index import Graph as Index
from runner.model.passes.lift_constants import lower_constants
from runner.report.markdown import REPORT_NAME
from runner.report.markup import cut
from runner.report.page.collect.commands import commands_of
from runner.report.page.collect.graph_columns import columns
from runner.report.page.collect.layer_errors import curve_of, layers_of, types_of_rows
from runner.report.page.collect.markdown_sections import sections_of, title_of
from runner.report.page.collect.reduced_model import Reduced, kept_sample, reduced_of
from runner.report.page.collect.run_material import RunMaterial
from runner.report.page.collect.size_limit import fitted
from runner.report.page.collect.tensor_types import types_of
from runner.report.page.collect.tensor_values import tensors
from runner.report.page.collect.trials import trials_of
from runner.report.page.collect.verdict_and_facts import LONGEST, facts_of, labels_of, verdict_of
from runner.report.page.data import Page, PageGraph, PageJob, PageTensor, Section
from runner.report.sections.cause_section import sentence
from runner.report.summary import Summary
from runner.schema.root import Settings
from runner.text import counted

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
    reduced: Reduced | None,
    material: RunMaterial,
) -> Page:
    """Return the page of a run. REPORT.md lies in the folder already. ``reduced``: see `reduced_model`."""
    report, whole = _text(folder / REPORT_NAME), _whole(settings, folder, summary, material)
    trials, left = trials_of(folder, material)
    layers, fewer = layers_of(folder, summary, material.graph)
    facts = facts_of(summary)
    undrawn = whole["undrawn"] if whole else 0
    why = "there are too many, they are too deep, or their names are too long"
    crowded = [f"{counted(undrawn, 'nested graph')} of the model cannot be opened: {why}"] if undrawn else []
    warnings = (*summary.warnings, *left, *fewer, *crowded, *(reduced.left if reduced else ()))
    if reduced and reduced.seconds:
        took = f"{reduced.seconds:.2f} s" if reduced.seconds >= SHORTEST else f"less than {SHORTEST} s"
        facts.append(["values on this page", f"made by runs of their own, which are no checks: {took}"])
    page: Page = {
        "kind": "run",
        "title": cut(title_of(report) or str(summary.status).replace("_", " "), LONGEST),
        "verdict": verdict_of(summary, reduced.graph if reduced else None),
        "cause": cut(sentence(summary.cause), LONGEST) if summary.cause else "",
        "status": str(summary.status),
        "strategy": summary.strategy,
        "labels": labels_of(summary, settings),
        "facts": facts,
        "warnings": [cut(one, LONGEST) for one in warnings],
        "reduced": reduced.graph if reduced else None,
        "whole": whole,
        "tensors": reduced.tensors if reduced else _around(whole, material) if whole else [],
        "layers": layers,
        "elements": material.elements,
        "trials": trials,
        "curve": curve_of(summary),
        "sections": [*sections_of(report), *_named(material)],
        "commands": commands_of(folder, summary, command),
        "jobs": [*_steps(folder, summary), *_answers(folder, summary)],
        "made": made_now(),
        "version": version(),
    }
    return fitted(page)


def _named(material: RunMaterial) -> list[Section]:
    """Return the table of what the numbers in trials stand for."""
    rows = [[str(number), name] for number, name in sorted(material.names.items())]
    head = ["number", "name"]
    return [{"title": f"The {material.elements} by number", "text": "", "head": head, "rows": rows}] if rows else []


def made_now() -> str:
    """Return the time as a page says when it was made."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z").strip()


def version() -> str:
    """Return Winnow's own version; "" where it is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def reduced_model(
    folder: Path, summary: Summary, model: ModelProto | None, samples: Sequence[Sample], material: RunMaterial
) -> Reduced | None:
    """Return the model that was handed over, fed with ``samples``; of a triage the one that a step of it did."""
    if not summary.model or (summary.precision and not summary.triage):  # a mixed model is the original with casts
        return None
    if model is not None:
        return reduced_of(folder, summary, model, _failing(samples, summary), material.run)
    path = folder / summary.model
    if not summary.triage or not inside(path, folder) or not path.is_file():
        return None
    kept = parse(path)
    return reduced_of(folder, summary, kept, kept_sample(path.parent, kept), material.run)


def _failing(samples: Sequence[Sample], summary: Summary) -> Sample:
    """Return the sample on which the answer was seen to fail."""
    number = summary.evidence.get("sample")
    at = number if isinstance(number, int) and 0 <= number < len(samples) else 0
    return samples[at] if samples else Sample({})


def _whole(settings: Settings, folder: Path, summary: Summary, material: RunMaterial) -> PageGraph | None:
    index = material.graph
    if index is None and settings.model and summary.strategy in _LOOKS_AT_THE_FILE:
        index = _parsed(Path(settings.model).expanduser())
    if index is None:
        return None
    culprits = {name for one in (summary, *summary.answers) for name in (*one.culprits, *one.nested)}
    types = {name: one for name, one in types_of_rows(folder, summary).items() if name}
    types |= ((name, one) for name, one in types_of(index, material).items() if one)
    return columns(index, types, culprits)


def _around(whole: PageGraph, material: RunMaterial) -> list[PageTensor]:
    """Return good values of what the first culprits read and make, where there is no model of these alone."""
    numbers = dict.fromkeys(
        one for node in whole["culprits"][:MOST_CULPRITS] for key in SIDES for one in whole[key][node] if one >= 0
    )
    names = [whole["tensors"][one] for one in numbers]
    return tensors("the whole model", [name for name in names if name in material.recorded], material.recorded, {})[0]


def _parsed(path: Path) -> Index | None:
    """Return the model in a file; None where it holds none (an engine)."""
    try:
        model = parse(path)
        lower_constants(model.graph, model.ir_version)
        return Index.of(model)
    except Exception:  # noqa: BLE001 - the class that protobuf raises differs between its versions
        return None


def _steps(folder: Path, summary: Summary) -> list[PageJob]:
    """Return the steps of a triage that ran, with their pages."""
    steps = (summary.triage or {}).get("steps", ())
    return [
        {
            **_job(folder, str(one["folder"]), str(one["status"]), str(one["answer"] or ""), "", one),
            "overrides": [f"strategy={one['strategy']}"],
        }
        for one in steps
        if one["folder"]
    ]


def _answers(folder: Path, summary: Summary) -> list[PageJob]:
    """Return all answers of a run that looked for several."""
    return [
        _job(folder, "." if at == 1 else f"answers/{at}", str(one.status), ", ".join(one.culprits), one.minimality, {})
        for at, one in enumerate(summary.answers, 1)
    ]


def _job(folder: Path, place: str, status: str, answer: str, trust: str | None, told: Mapping[str, object]) -> PageJob:
    page = (PurePosixPath(place) / PAGE_NAME).as_posix()
    checks, seconds = told.get("checks"), told.get("seconds")
    return {
        "number": place,
        "overrides": [],
        "status": status,
        "exit_code": next((one.exit_code for one in Status if one == status), Status.internal_error.exit_code),
        "answer": cut(answer, LONGEST),
        "trust": trust or "",
        "asked": None,
        "run": checks if isinstance(checks, int) else None,
        "reused": None,
        "seconds": float(seconds) if isinstance(seconds, (int, float)) else None,
        "page": page if inside(folder / page, folder) and (folder / page).is_file() else "",
    }
