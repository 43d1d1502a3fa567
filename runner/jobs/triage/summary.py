"""The summary of a triage: what its steps found, each at the top as a run of its own would have it."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from runner.files import inside
from runner.jobs.triage.flowchart import INSPECT, branch, decisions, verdict
from runner.jobs.triage.transcript import Ended, Known
from runner.judgment import Status
from runner.reference.load import RANDOM_INPUTS
from runner.report.result_parts import Count, Layers, Reproduced, ShownOn, Triage, TriageStep
from runner.report.summary import Seconds, Summary, sum_of
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings


def combined(settings: Settings, folder: Path, known: Known, seconds: float, code: int | None) -> Summary:
    """Return the summary. ``code``: the exit code with which it was stopped between two steps, or None."""
    asked = [one.result for one in known.ended if one.result]
    if asked and known.stopped:
        code = asked[-1].exit_code
    status = _status(known, code)
    answer = known.result(known.answer)
    place = step.folder if (step := known.of(known.answer)) else ""
    first, reduced = known.result("stands"), known.result("reduce")
    looked, unloaded = known.result(INSPECT).inspection, known.why_not_loaded
    if unloaded:
        first, answer, place = known.result(INSPECT), known.result(INSPECT), known.ended[0].folder
    return Summary(
        status=status,
        exit_code=status.exit_code if code is None else code,
        strategy=settings.strategy.name,
        message=verdict(known),
        nodes_before=(reduced if known.has_result("reduce") else first).nodes_before,
        nodes_after=answer.nodes_after or None,
        culprits=known.culprits or (first.culprits if unloaded else ()),
        nested=answer.nested,
        minimality=answer.minimality,
        checks=sum_of(one.checks for one in asked),
        outcomes=_sum(one.outcomes for one in asked),
        unresolved=_sum(one.unresolved for one in asked),
        signature=answer.signature or first.signature,
        model=_path(folder, place, answer.model),
        inspection=looked if unloaded else None,
        min_good=_path(folder, place, answer.min_good),
        seconds=Seconds(seconds, *(sum(getattr(one.seconds, of) for one in asked) for of in ("checking", "recording"))),
        peak_rss_mb={
            "job": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "workers": max((one.peak_rss_mb.get("workers", 0.0) for one in asked), default=0.0),
        },
        warnings=tuple(
            dict.fromkeys(
                one
                for one in (known.sizes, *(said for result in asked for said in result.warnings))
                if one and one not in untrue_of(settings)
            )
        ),
        checker=first.checker,
        check=first.check,
        input_model=settings.model,
        context=first.context,
        versions=first.versions,
        passes=known.passes,
        releases=known.releases,
        layers=_layers(known),
        precision=known.result("precision").precision,
        cause=reduced.cause,
        whose=known.result(INSPECT).whose if unloaded else reduced.whose,
        seen=answer.seen,
        said=answer.said,
        workarounds=tuple(
            replace(one, files=_placed(known, "workaround", one.files))
            for one in known.result("workaround").workarounds
        ),
        triage=Triage(
            branch=branch(known),
            reproduced=_reproduced(known),
            smallest=known.smallest,
            shown_on=ShownOn(known.off_holds_on if known.off else "", known.place_of_releases),
            decisions=tuple(decisions(known)),
            steps=tuple(_told(known, one) for one in known.ended if one.folder or one.why),
        ),
    )


def _told(known: Known, one: Ended) -> TriageStep:
    said = known.told(one.name)
    paid, seconds = one.known.checks.made, round(one.known.seconds.total, 3)
    return TriageStep(one.name, one.strategy, one.folder, one.why, one.status, said, paid, seconds)


def untrue_of(settings: Settings) -> tuple[str, ...]:
    """Return the warnings of steps that do not hold of the triage: one tries random inputs beside those given."""
    return () if isinstance(settings.inputs, RandomInputs) else (RANDOM_INPUTS,)


def _status(known: Known, code: int | None) -> Status:
    if code is not None:
        stopped = known.ended[-1].status if known.stopped else Status.interrupted
        return Status.no_room if stopped == Status.no_room else Status.interrupted
    if known.why_not_loaded:
        return Status.found
    if not known.judged or known.refused:
        return Status.could_not_judge
    if known.planned:
        return Status.planned
    if not known.anything_failed:
        return Status.nothing_to_find
    told = known.result("reduce").status
    if told == Status.reference_wrong:
        return Status.reference_wrong
    if any(known.has_answer(name) for name in ("tactics", "passes", "versions", "precision", "workaround")):
        return Status.found
    if any(known.has_answer(name) for name in ("reduce", "extract")):
        return Status.suspected if told == Status.suspected else Status.found
    return Status.could_not_judge


def _reproduced(known: Known) -> Reproduced:
    failed, of = known.judgements("stands")
    again, more = known.judgements("repeat")
    others, tried = known.judgements("inputs")
    return Reproduced(
        failed=failed + again,
        of=of + more,
        failure=known.failure if known.anything_failed else None,
        inputs=known.situation.inputs,
        reference_too=known.reference_too,
        plain_is_finite=known.plain_is_finite,
        other_inputs=Count(others, tried) if tried else None,
    )


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _path(folder: Path, place: str, found: str | None) -> str | None:
    """Return a path of a step's result from the triage's folder; None for one that leads elsewhere."""
    return f"{place}/{found}" if found and inside(folder / place / found, folder / place) else None


def _layers(known: Known) -> Layers | None:
    layers = known.result("layerwise").layers
    return replace(layers, files=_placed(known, "layerwise", layers.files)) if layers else None


def _placed(known: Known, name: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return a step's files from the triage's folder."""
    step = known.of(name)
    return tuple(f"{step.folder if step else ''}/{one}" for one in files)
