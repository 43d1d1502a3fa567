"""The report of a reduction: what a session found, as fields of the summary and files of the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.candidate import fewer
from runner.engine.session_question import CurrentAnswer, SessionResult
from runner.engine.subject import Subject, cutting
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import milder
from runner.report.summary import Summary
from runner.text import counted, listed
from strategies.search import Claim
from strategies.search_space import Closure
from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.report.bundle import ReducedModel


def answered(summary: Summary, ending: SessionResult, subject: Subgraph, folder: Path) -> Summary:
    """Return the summary with what was found."""
    if not ending.standing:
        return summary
    from runner.jobs.reduce.shrink import simplified  # noqa: PLC0415 - the first check need not wait for it

    standing = ending.standing
    names = standing.judge.subject.names(standing.trial)
    nested = tuple(name for name in names if any(name.startswith(f"{path}/") for path in standing.origin))
    main = names
    if ending.main:
        from runner.jobs.reduce.carried_constants import named  # noqa: PLC0415 - as above

        main = subject.names(Trial(exactly(ending).elements | named(standing, subject)))
    shrunk = told_once(simplified(standing.judge.subject, standing.trial))
    return replace(
        summary,
        message=summary.message + (f"; reduced.onnx has {shrunk} than the model" if shrunk else ""),
        nodes_after=standing.size,
        culprits=tuple(
            name
            for name in main
            if name in names or standing.owner_kept or any(path.startswith(f"{name}.") for path in standing.origin)
        ),
        nested=nested,
        model="reduced.onnx" if (folder / "reduced.onnx").exists() else None,
        min_good="min_good.onnx" if ending.min_good else None,
        warnings=(*summary.warnings, *grosser(ending.measures), *_fewer(standing, subject)),
    )


def exactly(ending: SessionResult) -> Trial:
    """Return what is named: the answer, or what of it was shown to be the cause; the rest makes that show."""
    assert ending.main
    cause = ending.cause
    shown = cause.answers[cause.main].answer if cause and cause.causes else ending.main
    return shown if shown.elements < ending.main.elements else ending.main


def begins(ending: SessionResult, subject: Subject) -> tuple[str, ...]:
    """Say where a failure begins in an answer that holds all that follows, as the check needs the model's outputs."""
    answer, minimal = ending.main, ending.done is not None and ending.done.claim is Claim.ONE_MINIMAL
    if not answer or not minimal or subject.space.closure is not Closure.DESCENDANTS:
        return ()
    parents = subject.space.parents
    first = Trial(frozenset(index for index in answer if answer.elements.isdisjoint(parents[index])))
    if len(first) == len(answer):
        return ()
    each = "its output" if len(first) == 1 else "the output of any of these"
    said = (
        f"the failure begins in {listed(subject.names(first))}: with a good value for {each} the rest passes. "
        f"{counted(len(answer) - len(first), 'node')} that follow are in the answer because the check needs the "
        "model's own outputs; a check that compares with {references} gets a smaller answer"
    )
    return (said,)


def _fewer(standing: CurrentAnswer, subject: Subgraph) -> tuple[str, ...]:
    """Say how many samples do not judge the answer: what is fed of theirs would itself explain a failure."""
    if (every := len(subject.recorded.values)) < 2:
        return ()
    own = cutting(standing.judge.subject)
    judging = len(own.samples(own.cut(standing.trial)))
    return (f"the answer: {fewer(every - judging, judging)}",) if judging < every else ()


def grosser(measures: tuple[float, float] | None) -> tuple[str, ...]:
    """Say that an answer fails much worse since it was made simpler: the two may fail for reasons of one kind."""
    if measures is None or measures[0] <= 0 or not milder(*measures):
        return ()
    before, now = measures
    said = (
        f"by the check's measure reduced.onnx fails by {now:.3g}, and failed by {before:.3g} before it was made "
        "simpler: this may be another failure of the same kind. strategy.shrink=false leaves the model as it was"
    )
    return (said,)


def told_once(passes: Sequence[str]) -> str:
    """Return in words what passes did; a later one may have done again, with what is left, what one before it did."""
    return " and ".join(dict.fromkeys(name.removesuffix(" in these") for name in passes))


def files_of(ending: SessionResult) -> ReducedModel | None:
    """Return what the bundle shows of an answer."""
    if not ending.standing:
        return None
    from runner.report.bundle import ReducedModel  # noqa: PLC0415 - the first check need not wait for it

    subject = cutting(ending.standing.judge.subject)
    cut = subject.cut(ending.standing.trial)
    return ReducedModel(cut.model, subject.samples(cut))


@dataclass(frozen=True)
class Rest:
    """``answers``: after the first. ``said``: how it went on from the last one. ``broken``: what broke it off."""

    answers: tuple[Summary, ...]
    said: str
    broken: SessionResult | None = None


def with_rest(summary: Summary, first: Summary, rest: Rest) -> Summary:
    """Return the summary of a search for all answers.

    ``summary``: the first answer, and what all of them cost; ``first``: what the first alone did. A search that broke
    off ends as what broke it off does: some answers may not have been found.
    """
    found = (first, *rest.answers) if rest.answers else ()
    counted = f"; {len(found)} answers in all, the others are in answers/" if found else ""
    message = f"{summary.message}{counted}; {rest.said}"
    if rest.broken is None:
        return replace(summary, answers=found, message=message)
    return replace(summary, answers=found, message=message, status=rest.broken.status, exit_code=rest.broken.exit_code)
