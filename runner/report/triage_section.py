"""The report of a triage: one page with each decision, what it rests on, and what to do now."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby

from runner.report.cause_section import reservation, sentence
from runner.report.diagnosis_sections import session_code, shown
from runner.report.document import Block, Bullets, Code, Document, bullets, code, section, some, strong, table
from runner.report.failure_section import called, quoted, runtime, versions_section
from runner.report.result_parts import Decision, Triage, Workaround
from runner.report.summary import Summary
from runner.text import with_inside, without_values

_MOST_NAMES = 20
_MOST_TITLE = 3
_MOST_LINES = 12
"""Lines of code that the page shows of a model that is patched; it is there as a file."""

_OF_THE_MODEL = (
    "The reference makes the NaN or Inf as well: change the model, or what it is fed, rather than the runtime. Where "
    "these nodes are in a lower precision, float32 there may help; else other inputs, or a guard before them"
)

_OF_THE_FILE = "Mend the file, or what made it: no runtime is at fault"
_OF_RELEASES = "Take a release of the runtime that knows it, or convert the model to an opset that this one knows"
_PLAIN_IS_FINITE = (
    "The part that fails alone is no report on a bug: the reference makes the NaN or Inf in it as well. What is turned "
    "off, or rewritten, keeps the whole finite on this runtime. On one that rounds after every operator, as a GPU "
    "does, float32 at these nodes helps, or smaller values"
)


def title(summary: Summary) -> str:
    """Return the report's title."""
    if summary.inspection:
        return f"triage: {runtime(summary, 'target') or 'the target'} does not load the model"
    failure = summary.triage.reproduced.failure if summary.triage else None
    if not failure:
        return "triage: nothing fails here" if summary.exit_code != 0 else "triage"
    where = runtime(summary, "target")
    reserved = f" ({said})" if (said := reservation(summary.cause)) else ""
    names = with_inside(some(summary.culprits, _MOST_TITLE), len(summary.culprits), some(summary.nested, _MOST_TITLE))
    about = f": {names}{reserved}" if names else ""
    return f"triage: {called(failure)}{quoted(summary)}{f' with {where}' if where else ''}{about}"


def triage_document(summary: Summary, command: Sequence[str] = ()) -> Document:
    """Return the whole report."""
    told = summary.triage or Triage()
    steps = [(one.folder, one.status, str(one.checks), f"{one.seconds:.1f}") for one in told.steps if one.folder]
    sections = [
        *section("What fails", [bullets(_failing(summary))]),
        *section("What to do now", _advice(summary)),
        *section("Warnings", [bullets(summary.warnings)], aside=True),
        *section("How it was decided", [bullets(map(_decision, told.decisions))]),
        *versions_section(summary),
    ]
    run = [Code(shlex.join(without_values(command)), "sh")] if command else []
    taken = table(("step", "how it ended", "checks", "seconds"), steps, names=1)
    found = [*section("How it was run", run, aside=True), *section("Steps", [taken], aside=True)]
    return Document(title(summary), (summary.message,), tuple(sections), tuple(found))


def _decision(one: Decision) -> str:
    if not one.step:
        return f"{strong(one.question)} Not asked: {one.why}"
    return f"{strong(one.question)} {one.answer} ({code(one.step)}). Why asked: {one.why}"


def _failing(summary: Summary) -> list[str]:
    """Return the part that fails, whether it is the cause, and where it is seen."""
    if looked := summary.inspection:
        nodes = [f"Nodes that it refuses: {some(summary.culprits, len(summary.culprits))}"] if summary.culprits else []
        return [*nodes, *([f"It says: {looked.refused}"] if looked.refused else [])]
    if not summary.culprits:
        return []
    size = f"{summary.nodes_after} of {summary.nodes_before} nodes"
    part = "The smallest part that fails" if summary.triage and summary.triage.smallest else "A part that fails alone"
    found = [f"{part}, {size}: {some(summary.culprits, _MOST_NAMES)}"]
    found += [sentence(summary.cause)] if summary.cause else []
    first = summary.layers.first_bad if summary.layers else None
    return found + ([f"The first wrong tensor: {code(first.tensor)}"] if first else [])


def _advice(summary: Summary) -> list[Block]:
    """Return what a reader does next, the surest first.

    What the whole model was tried with is offered where it passed, whatever was shown on the reduced model.
    """
    told = summary.triage or Triage()
    if summary.inspection:
        mended = [f"Take {code(summary.model)}: {summary.inspection.cure}"] if summary.model else []
        return [Bullets((*mended, _OF_THE_FILE if summary.whose else _OF_RELEASES))]
    passing = [one for one in summary.workarounds if one.passes]
    found: list[Block] = _applied(passing[0]) if passing else []
    kinds = {one.kind: one for one in reversed(passing[1:]) if one.kind != passing[0].kind}
    found += [f"Or: {one.what} ({shown(one)})" for one in reversed(kinds.values())]
    tried = {one.kind for one in summary.workarounds if one.tried}
    on = told.shown_on
    off = session_code(summary.passes.settings) if summary.passes else ""
    if off and "pass" not in tried and on.passes:
        found += [_or(f"Turn off what it needs (shown on {on.passes}):", found), Code(off, "python")]
    if (releases := summary.releases) and releases.good and "release" not in tried:
        wanted = f"{releases.package}=={releases.good[-1]}"
        found.append(_or(f"Take a release without it: {code(wanted)} (shown on {on.releases})", found))
    if told.reproduced.reference_too or told.reproduced.plain_is_finite:
        found += [_OF_THE_MODEL if told.reproduced.reference_too else _PLAIN_IS_FINITE, *_evidence(summary)]
    else:
        found += [f"Report it with {one}" for one in _evidence(summary)]
    items = groupby(found, lambda one: isinstance(one, str))
    return [one for are, some in items for one in ([Bullets(tuple(map(str, some)))] if are else some)]


def _evidence(summary: Summary) -> list[str]:
    """Return what shows the failure of a part, of the files of the step that found it."""
    if not summary.model:
        return []
    folder = summary.model.rpartition("/")[0]
    shows = f"{code(f'{folder}/repro.py')}, which shows it on {code(summary.model)}"
    return [f"{shows}; {code(f'{folder}/bundle.zip')} is one file to attach, with its report"]


def _or(said: str, before: Sequence[Block]) -> str:
    return f"Or: {said[0].lower()}{said[1:]}" if before else said


def _applied(one: Workaround) -> list[Block]:
    """Return a workaround, how it was shown, and how it is applied: as code if that is short, as its model."""
    said = f"Work around it: {one.what} ({shown(one)})"
    how = one.code or shlex.join(one.overrides)
    said += f". The model with it: {code(one.files[0])}" if one.files else ""
    if one.files and how.count("\n") > _MOST_LINES:
        return [f"{said}; how it is changed is in {code(one.files[0].rpartition('/')[0] + '/REPORT.md')}"]
    return [said, Code(how, "python" if one.kind in ("pass", "rewrite", "precision") else "sh")]
