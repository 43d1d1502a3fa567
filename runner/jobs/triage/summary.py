"""The summary of a triage: what its steps found, each at the top as a run of its own would have it."""

from __future__ import annotations

import resource
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.files import inside
from runner.jobs.triage.flowchart import branch, decisions, verdict
from runner.jobs.triage.transcript import Ended, Known, mappings, names, number, section
from runner.judgment import Status
from runner.reference.load import RANDOM_INPUTS
from runner.report.summary import Checks, Seconds, Summary
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings

_PAID = ("search", "trust", "reused", "refine", "cause", "preflight", "control", "recheck", "samples", "repeats")


def combined(
    settings: Settings, folder: Path, command: Sequence[str], known: Known, seconds: float, code: int | None
) -> Summary:
    """Return the summary.

    ``command``: what the user typed; ``code``: the exit code with which it was stopped between two steps, or None.
    """
    asked = [one for one in known.ended if one.result]
    last = asked[-1] if asked else None
    if last and known.stopped:
        code = int(number(last.result, "exit_code"))
    status = _status(known, code)
    said = verdict(known)
    if status is Status.interrupted:
        words = shlex.join([*(word for word in command if not word.startswith("resume=")), f"resume={folder}"])
        said = f"interrupted; {said}; go on with: {words}"
    answer = known.result(known.answer) if known.answer else {}
    place = step.folder if (step := known.of(known.answer)) else ""
    first = known.result("stands")
    tell = known.result("reduce") or first
    return Summary(
        status=status,
        exit_code=status.exit_code if code is None else code,
        strategy=settings.strategy.name,
        message=said,
        nodes_before=int(number(section(tell, "nodes"), "before")),
        nodes_after=int(number(section(answer, "nodes"), "after")) or None,
        culprits=known.culprits,
        nested=names(answer, "nested"),
        minimality=_text(answer, "minimality"),
        checks=checks_of(asked),
        outcomes=_sum(section(one.result, "outcomes") for one in asked),
        unresolved=_sum(section(one.result, "unresolved") for one in asked),
        signature=_texts(answer, "signature") or _texts(first, "signature") or None,
        model=_path(folder, place, answer, "model"),
        min_good=_path(folder, place, answer, "min_good"),
        seconds=Seconds(
            seconds,
            *(sum(number(section(one.result, "seconds"), of) for one in asked) for of in ("checking", "recording")),
        ),
        peak_rss_mb={
            "job": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "workers": max((number(section(one.result, "peak_rss_mb"), "workers") for one in asked), default=0.0),
        },
        warnings=tuple(
            dict.fromkeys(
                warning
                for one in asked
                for warning in names(one.result, "warnings")
                if warning not in untrue_of(settings)
            )
        ),
        checker=_text(first, "checker") or "",
        check=_text(first, "check") or "",
        input_model=settings.model,
        context=_texts(first, "context"),
        versions=_texts(first, "versions"),
        passes=known.passes or None,
        releases=known.releases or None,
        layers=_placed(known, "layerwise", section(known.result("layerwise"), "layers")) or None,
        precision=section(known.result("precision"), "precision") or None,
        cause=section(known.result("reduce"), "cause") or None,
        whose=_text(known.result("reduce"), "whose"),
        seen=_text(answer, "seen") or "",
        said=_text(answer, "said") or "",
        workarounds=tuple(
            _placed(known, "workaround", one) for one in mappings(known.result("workaround"), "workarounds")
        ),
        triage={
            "branch": branch(known),
            "reproduced": _reproduced(known),
            "smallest": known.smallest,
            "shown_on": {"passes": known.off_holds_on if known.off else "", "releases": known.place_of_releases},
            "decisions": decisions(known),
            "steps": [
                {
                    "name": one.name,
                    "strategy": one.strategy,
                    "folder": one.folder,
                    "why": one.why,
                    "status": one.status,
                    "answer": known.told(one.name),
                    "checks": one.checks,
                    "seconds": round(one.seconds, 3),
                }
                for one in known.ended
                if one.folder or one.why
            ],
        },
    )


def untrue_of(settings: Settings) -> tuple[str, ...]:
    """Return the warnings of steps that do not hold of the triage: one tries random inputs beside those given."""
    return () if isinstance(settings.inputs, RandomInputs) else (RANDOM_INPUTS,)


def _status(known: Known, code: int | None) -> Status:
    if code is not None:
        stopped = known.ended[-1].status if known.stopped else Status.interrupted
        return Status.no_room if stopped == Status.no_room else Status.interrupted
    if not known.judged:
        return Status.could_not_judge
    if known.planned:
        return Status.planned
    if not known.anything_failed:
        return Status.nothing_to_find
    told = known.result("reduce").get("status")
    if told == Status.reference_wrong:
        return Status.reference_wrong
    if any(known.has_answer(name) for name in ("tactics", "passes", "versions", "precision", "workaround")):
        return Status.found
    if any(known.has_answer(name) for name in ("reduce", "extract")):
        return Status.suspected if told == Status.suspected else Status.found
    return Status.could_not_judge


def _reproduced(known: Known) -> dict[str, Any]:
    failed, of = known.judgements("stands")
    again, more = known.judgements("repeat")
    others, tried = known.judgements("inputs")
    return {
        "failed": failed + again,
        "of": of + more,
        "failure": known.failure if known.anything_failed else None,
        "inputs": known.situation.inputs,
        "reference_too": known.reference_too,
        "plain_is_finite": known.plain_is_finite,
        "other_inputs": {"failed": others, "of": tried} if tried else None,
    }


def checks_of(asked: Sequence[Ended]) -> Checks:
    """Return how many checks steps were paid for, by purpose."""
    return Checks(**{name: sum(int(number(section(one.result, "checks"), name)) for one in asked) for name in _PAID})


def _sum(counts: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update({name: int(number(one, name)) for name in one})
    return dict(total)


def _text(result: Mapping[str, Any], name: str) -> str | None:
    found = result.get(name)
    return found if isinstance(found, str) else None


def _texts(result: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: str(value) for key, value in section(result, name).items()}


def _path(folder: Path, place: str, result: Mapping[str, Any], name: str) -> str | None:
    """Return a path of a step's result from the triage's folder; None for one that leads elsewhere."""
    found = _text(result, name)
    return f"{place}/{found}" if found and inside(folder / place / found, folder / place) else None


def _placed(known: Known, name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a step tells, its files from the triage's folder."""
    step = known.of(name)
    if not told or step is None:
        return {}
    files = [f"{step.folder}/{one}" for one in names(told, "files")]
    return {**told, **({"files": files} if "files" in told else {})}
