"""A job about precision: which nodes have to be raised so that the check passes, and the model that comes of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from runner import casting as casts
from runner.candidate import Candidate
from runner.doubt import SEARCH_ERROR, Doubt, Ruling
from runner.ending import Ending
from runner.errors import CannotJudge
from runner.gain import gain
from runner.handover import HandOver
from runner.inquiry import Inquiry
from runner.judge import Judge
from runner.loading import Loaded, load
from runner.report.bundle import write_bundle
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend, Rounding
from runner.schema.checker import Flaky
from runner.schema.root import Settings
from runner.schema.strategy import Direction, Goal, PrecisionSettings, SearchKind, SubjectKind
from runner.stage import Standing
from runner.subjects.precision import Precision, parents_of
from runner.verdict import Verdict
from strategies.outcome import Answer, Outcome, answer_of
from strategies.precision import Prior, cheapest, precision, prefix, scan
from strategies.search import Search, Step
from strategies.sequential import Count
from strategies.space import Space
from strategies.trial import Trial

if TYPE_CHECKING:
    from runner.job import Job
    from runner.tactic_bench import Parts

log = logging.getLogger(__name__)

MIXED = "mixed"
"""The name of the model that is handed over."""
LOWEST = Trial.of([])
_CPU = "CPUExecutionProvider"
_OWN_WAYS = ("command", "interactive", "python")


class Raising(Doubt):
    """Takes each candidate for what one check says; YES means that it passes."""

    def __init__(self, max_wrong: float) -> None:
        super().__init__(Flaky.never, max_wrong)

    def rule(
        self,
        judge: Judge,
        trial: Trial,
        phase: str,
        label: str,
        purpose: str,
        *,
        error: float = SEARCH_ERROR,
        given_up: threading.Event | None = None,
        spent: Callable[[], bool] = lambda: False,
    ) -> Ruling | None:
        """Decide on a trial; None: it was given up meanwhile."""
        verdict = judge.verdict(trial, phase, label, purpose, given_up=given_up)
        if verdict is None:
            return None
        return Ruling(answer_of(verdict.outcome, Outcome.PASS), verdict, Count())


def rounding(settings: Settings) -> Settings:
    """Return the settings with the target's rounding decided: on where precision is searched on ONNX Runtime's CPU."""
    target = settings.target
    if settings.strategy.subject is SubjectKind.precision and settings.checker.name in _OWN_WAYS:
        log.warning(
            "checker=%s runs models in its own way: on ONNX Runtime's CPU provider that computes low precision in fp32 "
            "and hides what a GPU shows, unless it uses runner.backends.rounding.session (docs/precision.md)",
            settings.checker.name,
        )
        return settings
    if not isinstance(target, OnnxRuntimeBackend) or target.rounding is not Rounding.auto:
        if settings.strategy.subject is SubjectKind.precision and getattr(target, "rounding", None) is Rounding.off:
            log.warning(
                "target.rounding=off: ONNX Runtime's CPU provider computes low precision in fp32 and drops casts, so "
                "it does not show what a GPU does"
            )
        return settings
    wanted = settings.strategy.subject is SubjectKind.precision and target.providers == [_CPU]
    if wanted:
        log.info("low precision is emulated: tensors are rounded as they are made (target.rounding=on)")
    return replace(settings, target=replace(target, rounding=Rounding.on if wanted else Rounding.off))


def run(job: Job, parts: Parts) -> Summary:
    """Run the job and leave its result folder behind. Raises WinnowError where the question cannot be put at all."""
    settings = job.settings
    strategy = settings.strategy
    assert isinstance(strategy, PrecisionSettings)
    loaded = load(settings, job.pool, job.folder)
    casting = casts.cast(settings, strategy, loaded, job.pool)
    parents = parents_of(casting.layers)
    known = casts.facts(settings, casting, loaded, job.pool) if _is_ranked(strategy) else casts.Facts()
    space = _space(strategy, casting, parents, loaded)
    subject = Precision(casting.mixer, loaded.store, casts.samples_of(casting, loaded), space.order, parents)
    loaded = replace(loaded, warnings=(*loaded.warnings, *casting.warnings, *_out_of_range(casting)))
    for warning in (*casting.warnings, *_out_of_range(casting)):
        log.warning("%s", warning)
    handed = HandOver(settings.result, job.folder, job.tools.at, loaded.store)
    with parts.judge(job, subject, loaded) as judge:
        doubt = Raising(settings.checker.max_wrong)
        step = _step(strategy, space, casts.prior(casting, known, parents))
        inquiry = Inquiry(judge, doubt, lambda told: Search(space, step, told), parts.means(job))
        question = Question(judge, inquiry, handed, strategy)
        try:
            ending = question.answer()
        except CannotJudge as error:
            ending = Ending(error.status, error.exit_code, str(error))
        except KeyboardInterrupt as error:
            ending = question.interrupted(getattr(error, "exit_code", 130))
            ending = replace(ending, message=f"{ending.message}; go on with resume={job.folder}")
        summary = parts.account(job, judge, ending, loaded, doubt)
        summary = _answered(summary, ending, subject, casting)
        if ending.trial is not None and ending.standing:
            summary = replace(summary, precision=gain(strategy, casting, known, loaded, ending.trial))
        write_bundle(settings, job.folder, summary, job.tools.cwd, job.command, None)
    return summary


class Question:
    """All high passes, all low fails: what is the least that has to be high?"""

    def __init__(self, judge: Judge, inquiry: Inquiry, handed: HandOver, strategy: PrecisionSettings) -> None:
        self.judge = judge
        self.inquiry = inquiry
        self.handed = handed
        self.low, self.high = strategy.low.value, strategy.high.value

    def answer(self) -> Ending:
        """Check both ends, search, and check what is handed over. Raises CannotJudge."""
        whole = self.judge.subject.space.whole
        best = self._trust(whole, f"everything in {self.high}")
        if best.outcome is Outcome.UNRESOLVED:
            raise CannotJudge(f"everything in {self.high} cannot be judged: {best.reason}")
        if best.outcome is not Outcome.PASS:
            message = f"even with everything in {self.high} the check fails ({best.signature}): {best.reason}"
            return Ending("no_set_suffices", 5, message, signature=best.signature)
        self.judge.checker.settle(best)
        worst = self._trust(LOWEST, f"everything in {self.low}")
        if worst.outcome is Outcome.UNRESOLVED:
            raise CannotJudge(f"everything in {self.low} cannot be judged: {worst.reason}")
        if worst.outcome is Outcome.PASS:
            self.handed.write(self.judge.subject, LOWEST, MIXED)
            message = f"everything passes in {self.low}: no node has to be in {self.high}; the model is {MIXED}.onnx"
            return Ending("nothing_to_find", 4, message, standing=Standing(self.judge, LOWEST))
        log.info("everything in %s fails (%s)", self.low, worst.signature)
        self.inquiry.note(whole, Answer.YES)
        done = self.inquiry.run()
        trial = done.trial if done.trial is not None else whole
        path = self.handed.write(self.judge.subject, trial, MIXED)
        verdict = self._handed_over(trial, path)
        count = f"{len(trial)} node{'s' * (len(trial) != 1)}"
        standing = Standing(self.judge, trial)
        if verdict.outcome is not Outcome.PASS:
            message = f"the answer ({count}) passed once and did not when checked again ({verdict.reason})"
            return Ending("could_not_judge", CannotJudge.exit_code, message, done, standing, signature=worst.signature)
        budget = " (the budget was reached: fewer may do)" if self.inquiry.stopped else ""
        message = f"{count} in {self.high}, the rest in {self.low}, and the check passes{budget}"
        message += f"; {done.note}" if done.note else ""
        return Ending("found", 0, message, done, standing, signature=worst.signature)

    def interrupted(self, exit_code: int) -> Ending:
        """How it stands where somebody stops it."""
        done = self.inquiry.search.stop()
        standing = None
        if done.trial is not None and done.trial != self.judge.subject.space.whole:
            self.handed.write(self.judge.subject, done.trial, MIXED)
            standing = Standing(self.judge, done.trial)
        return Ending("interrupted", exit_code, "interrupted", done, standing)

    def _trust(self, trial: Trial, label: str) -> Verdict:
        verdict = self.judge.verdict(trial, "pre-flight", label, "trust")
        assert verdict is not None, "only the search is stopped"
        return verdict

    def _handed_over(self, trial: Trial, path: object) -> Verdict:
        iteration, folder = self.judge.folder_for()
        made = self.judge.subject.make(trial, folder, iteration, "re-check", f"{MIXED}, as handed over")
        assert isinstance(made, Candidate), "it was made before"
        self.judge.subject.discard(made)
        verdict = self.judge.check(replace(made, model=path), "trust", 1000, own=False)  # type: ignore[arg-type]
        assert verdict is not None, "only the search is stopped"
        return verdict


def _is_ranked(strategy: PrecisionSettings) -> bool:
    return strategy.search is SearchKind.precision


def _space(
    strategy: PrecisionSettings, casting: casts.Casting, parents: tuple[tuple[int, ...], ...], loaded: Loaded
) -> Space:
    space = Space(tuple(range(len(casting.layers))), parents)
    if strategy.goal is Goal.smallest:
        return space
    from runner.gain import costs  # noqa: PLC0415

    return cheapest(space, costs(strategy, casting, loaded))


def _step(strategy: PrecisionSettings, space: Space, known: Prior) -> Step:
    reverse = strategy.direction is Direction.reverse
    if strategy.search is SearchKind.precision_bisect:
        return prefix(space, reverse=reverse)
    if strategy.search is SearchKind.precision_linear:
        return scan(space, reverse=reverse)
    return precision(space, known)


def _out_of_range(casting: casts.Casting) -> tuple[str, ...]:
    found = []
    for table, what in (
        (casting.clamped, "beyond the range; the largest value it has is taken"),
        (casting.flushed, "too small for it and become zero"),
    ):
        if table:
            names = ", ".join(list(table)[:3]) + (f" and {len(table) - 3} more" if len(table) > 3 else "")
            found.append(f"weights in low precision: {sum(table.values())} values of {names} are {what}")
    return tuple(found)


def _answered(summary: Summary, ending: Ending, subject: Precision, casting: casts.Casting) -> Summary:
    summary = replace(summary, nodes_before=len(casting.layers))
    if not ending.standing:
        return summary
    trial = ending.standing.trial
    return replace(summary, nodes_after=len(trial), culprits=subject.names(trial), model=f"{MIXED}.onnx")
