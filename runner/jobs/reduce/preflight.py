"""Before a reduction: the user's own file is checked, and infinities that are meant are told from failures.

The pre-flight of a reduction: what is studied is the user's file, and what is made of it must fail alike.

The file is checked first, as it is. Then the controls say what the check can judge. Then the whole model as it is
prepared for cutting has to fail in the same way. Where it does not, less is rewritten, step by step: the recorded
shapes of the model's inputs and outputs, Constant nodes that became initializers, both, and at last the file itself
stands for the whole model.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.checkers.checker import Checker, inner
from runner.checkers.command import CommandCheck
from runner.checkers.exit_and_output import slip_of_exit
from runner.checkers.runtime import RuntimeCheck
from runner.engine.check_trials import Expected, Judge
from runner.engine.repeated_checks import HEALTHY, WHOLE, ContradictionError, Reliability
from runner.engine.session_question import NOTHING, refuse, study
from runner.engine.subject import Kept
from runner.exit_codes import CannotJudge
from runner.jobs.job import Job
from runner.jobs.reduce.check_controls import ORIGINAL, Controls
from runner.jobs.reduce.subgraph import THE_FILE, SameNodes, Subgraph, subgraph
from runner.judgment import NON_FINITE, measured
from runner.model.files.read_model import is_seeded
from runner.model.graph.cut import CutError, Form, with_outputs
from runner.model.graph.graph_index import Graph
from runner.model.graph.scopes import all_nodes
from runner.model.passes.lift_constants import as_nodes
from runner.reference.good_values import Taint, taint_of_all
from runner.reference.load import Loaded, record_target, unlike_expected
from runner.reference.recording import Recorded
from runner.schema.backend import FilesBackend, InnerValues
from runner.schema.checker import Flaky, SameFailure
from runner.text import listed
from runner.verdict import CAUGHT, CHECK, Candidate, Phase, Raised, Signature, Verdict, same_failure
from strategies.search import Closure, Outcome, Trial

if TYPE_CHECKING:
    from runner.engine.session import Session

# Infinities that are meant, under a check that fails for any: a mask's -Inf is no output of a candidate then.
#
# Whether a check does so is seen by a control that hands out nothing but such a tensor, with its good value.

log = logging.getLogger(__name__)


def hidden(judge: Judge) -> Judge:
    """Return a judge whose candidates do not hand out what is meant to be infinite, if the check fails for that."""
    subject, failure = subgraph(judge), judge.studied.signature
    placed = subject.closure is Closure.PLACE  # it hands out no inner tensor
    if placed or not subject.fed or failure is None or not failure.about_values:
        return judge
    meant = meant_infinities(subject)
    for name in sorted(meant, key=lambda one: subject.graph.producers[one])[:1]:
        try:
            made = subject.cut(Trial.of([subject.graph.producers[name]]))
        except CutError:
            return judge
        graph = Graph.of(with_outputs(made, {name}).model)
        label = f"an Identity that hands out {name!r} with its recorded value"
        form, taint = Form(outputs=True, good=True), Taint(frozenset(), meant)
        control = replace(subject, graph=graph, origin=label, control=form, taint=taint)
        if judge.stage(label, control).sure(NOTHING, Phase.CONTROL, label).outcome is Outcome.FAIL:
            log.info(
                "no output of a candidate: %s, infinite on purpose, for which alone the check fails", listed(meant)
            )
            known = None if subject.recorded.healthy(subject.graph.outputs) else taint
            return judge.stage(
                "without what is meant to be infinite", replace(subject, unshown=meant | subject.unshown, taint=known)
            )
    return judge


def meant_infinities(subject: Subgraph) -> frozenset[str]:
    """Return the inner tensors that hold an Inf, no NaN, when the reference runs, though none reaches an output."""
    samples, graph = subject.recorded.values, subject.graph
    infinite = {name for one in samples for name, held in one.items() if not held.finite and not held.nan}
    harmless = infinite if subject.recorded.healthy(graph.outputs) else taint_of_all(graph, samples).harmless
    return frozenset(harmless & infinite & graph.producers.keys() - graph.output_set)


# Subject `file`: the candidate of every trial is the user's model file, unchanged.


@dataclass(frozen=True)
class UserFile(SameNodes):
    """The file that ``base`` cuts candidates out of; ``against``: what it is compared with, where not what is right."""

    against: str = ""

    def identity(self) -> dict[str, str]:
        """Return what the file is: the model is in the run's context, with its weights."""
        against = {"against": self.against} if self.against else {}
        return {"kind": "file", "graph": self.base.identity()["graph"], **against}

    def kept(self, trial: Trial) -> Kept:
        """Return the nodes of ``trial``."""
        return self.base.kept(trial)

    def make(self, trial: Trial, folder: Path) -> Candidate:
        """Return the file, with the values of its inputs."""
        return self.base.original(folder)


def file_of(judge: Judge) -> Judge:
    """Return who judges the user's file."""
    return judge.stage(FILE_STAGE, UserFile(subgraph(judge)))


FILE_STAGE = "the file"
PATIENCE = 60.0
"""Seconds that a check gets at most beyond its limit, to see whether it ends at all."""
_SHOWN = 100  # letters of a reason in a warning, from either end


@dataclass(frozen=True)
class TimeLimit:
    """``seconds``: that a check may take; None: any. ``longer``: makes the checker with another limit.

    ``reference``: seconds that recording the whole model took; 0: the reference does not end either.
    """

    seconds: float | None
    reference: float
    longer: Callable[[float], Checker]

    def confirm(self, judge: Judge, trial: Trial, label: str) -> None:
        """Raise CannotJudge where what ran out of time ends when it gets more."""
        assert self.seconds is not None
        limit = min(max(10 * self.seconds, 2 * self.reference), self.seconds + PATIENCE)
        more = judge.stage(f"{label}, with more time", judge.subject)
        more.checker = self.longer(limit)
        verdict = more.sure(trial, Phase.CONTROL, f"{label}, with {limit:g} s")
        if verdict.outcome is not Outcome.UNRESOLVED and not _ran_out(verdict):
            more_time = f"--timeout {math.ceil(5 * verdict.seconds)}"
            raise CannotJudge(
                f"checker.timeout={self.seconds:g} is too short: {label} takes {verdict.seconds:.1f} s. Give it more, "
                f"for example {more_time}",
                (more_time,),
            )


@dataclass
class Preflight:
    """``limit``: of a check's time. ``controls``: None where nobody can fail them (a checker of ours).

    ``warnings``: what a reader of the answer should know. ``flaky``: why the check is known to be.
    ``controlled``: it passed a harmless model. ``refused``: says of a failure why it shows no bug, as the inputs were
    made up; "": it shows one.
    """

    limit: TimeLimit
    controls: Controls | None = None
    warnings: list[str] = field(default_factory=list)
    flaky: ContradictionError | None = None
    controlled: bool = False
    refused: Callable[[Signature | None], str] = lambda _: ""

    def examine(self, session: Session) -> Verdict:
        """Return the verdict of a file that passes, else of the whole model, which fails alike. Raises CannotJudge."""
        self._together(session)
        seen = self.file(session.judge, session.reliability)
        if seen.outcome is Outcome.PASS and not self.flaky:
            return seen
        if seen.outcome is Outcome.UNRESOLVED:
            whole = session.judge.sure(session.judge.subject.space.whole, Phase.PREFLIGHT, session.question.whole)
            if whole.outcome is not Outcome.FAIL:
                refuse(session.judge, seen, THE_FILE)
            # a check may need more than a runtime does, such as shapes, which the rewritten model has
            self._say(
                f"{THE_FILE} cannot be judged ({_short(seen)}); prepared for cutting it fails, and this failure counts"
            )
        session.adopt(self.judged(session.judge))
        verdict = session.examine(surprise=self.flaky)
        failed, reliable = session.judge.studied.signature, session.reliability.rates is None
        if verdict.outcome is Outcome.PASS and self._is_seeded(session.judge):
            self._say(f"{THE_FILE} fails with other random numbers in each run, and passes with the same ones")
        elif failed and reliable and verdict.outcome is not Outcome.FAIL:
            session.adopt(self.weakened(session.judge, session.reliability, verdict))
            verdict = session.examine(surprise=self.flaky)
            if verdict.outcome is not Outcome.FAIL and session.reliability.rates is None:
                refuse(session.judge, verdict, session.question.whole)
        return verdict

    def _together(self, session: Session) -> None:
        """Check the file, a control and the whole model at once, where several are: most runs need all three."""
        if not self.controls:  # how the file fails decides how a checker of ours judges others
            return
        judge, whole = session.judge, session.judge.subject.space.whole
        asked = (
            Expected(file_of(judge), whole, Phase.PREFLIGHT, THE_FILE),
            Expected(judge, whole, Phase.PREFLIGHT, session.question.whole),
            self.controls.first(judge),
        )
        session.means.ahead(asked)

    def file(self, judge: Judge, reliability: Reliability) -> Verdict:
        """Check the user's file; how it fails is what is studied. Raises CannotJudge."""
        own, whole = file_of(judge), judge.subject.space.whole
        verdict = own.sure(whole, Phase.PREFLIGHT, THE_FILE)
        if verdict.outcome is Outcome.PASS:
            try:
                reliability.repeat(own, whole, THE_FILE, HEALTHY, failing=False)
            except ContradictionError as surprise:
                self.flaky = surprise
                verdict = next(one for one in own.counted(whole) if one.outcome is Outcome.FAIL)
            if reliability.mode is Flaky.always:
                self.flaky = ContradictionError("checker.flaky=always")
        if verdict.outcome is Outcome.FAIL:
            if why := self.refused(verdict.signature):
                raise CannotJudge(why)
            seconds = self.limit.seconds or math.inf
            slow = self.limit.reference >= seconds or (self.controls is not None and seconds <= PATIENCE)
            if _ran_out(verdict) and slow:  # a check of the user's own may do more than run the model once
                self.limit.confirm(own, whole, THE_FILE)
            if slip := slip_of_exit(verdict):
                self._say(slip)
            study(judge, verdict, THE_FILE)
            known = verdict.signature and verdict.signature.raised
            mistake = known and known.about == CHECK and not known.asserts
            mend = ". If this is a mistake in your check, mend it" if mistake else ""
            log.info("%s fails (%s); only this failure counts%s", THE_FILE, judge.studied, mend)
        elif verdict.outcome not in (Outcome.PASS, Outcome.UNRESOLVED):
            refuse(judge, verdict, THE_FILE)
        return verdict

    def judged(self, judge: Judge) -> Judge:
        """Return a judge whose candidates the check can judge. Raises CannotJudge."""
        if not self.controls:
            return judge
        try:
            found = self.controls.judge(judge)
        except CannotJudge:
            control = self.controls.first(judge)
            if any(map(_ran_out, control.judge.counted(NOTHING))) and self.limit.seconds:
                self.limit.confirm(control.judge, NOTHING, control.label)
            raise
        except ContradictionError as surprise:
            self.flaky = surprise
            return judge
        if found.said:
            self._say(found.said)
        self.controlled = found.verdict.outcome is Outcome.PASS
        if shown := found.verdict.metrics.get(CAUGHT):
            judge.studied.caught = Raised.from_json(shown)
        return hidden(found.judge)

    def weakened(self, judge: Judge, reliability: Reliability, verdict: Verdict) -> Judge:
        """Return a judge for which the whole model fails as the file does; ``verdict``: what it did as rewritten."""
        own, base = file_of(judge), subgraph(judge)
        whole = base.space.whole
        try:
            reliability.repeat(own, whole, THE_FILE, WHOLE, failing=True)
        except ContradictionError as surprise:
            self.flaky = surprise
            return judge
        unlike = f"the whole model does not fail like the model file ({_short(verdict)})"
        otherwise, without = f"prepared for cutting, {unlike}", f"without them {unlike}"
        for subject, what in _variants(base):
            other = judge.stage(what, subject)
            if other.sure(whole, Phase.PREFLIGHT, f"the whole model, {what}").outcome is Outcome.FAIL:
                self._say(f"all candidates keep {what}: {without}")
                return other
        before, now = judge.studied.signature, verdict.signature
        if judge.studied.rule is SameFailure.strict and before and now and same_failure(now, before):
            self._say(f"{otherwise}. Its failure is of the same kind, and counts from now on")
            judge.studied.signature = now
            return judge
        self._say(
            f"{otherwise}. So the file itself is checked as the whole model, and only smaller candidates are rewritten"
        )
        return judge.stage(FILE_STAGE, replace(base, as_file=True))

    def say_rounding(self, judge: Judge, recorded: Recorded, outputs: Sequence[str], rtol: float) -> None:
        """Say so where a check of the user's minds what seems to be rounding. ``rtol``: that of ``recorded.error``."""
        failure, size = judge.studied.signature, recorded.error * rtol
        if self.controls is None or failure is None or not failure.about_values or recorded.wrong:
            return
        judged = failure.raised is None or failure.raised.asserts
        if judged and 0 < size <= ROUNDING and recorded.partners is not None and recorded.partners.issuperset(outputs):
            self._say(
                f"without optimizations the outputs differ from the original's by at most {size:.1g} of their largest "
                "value. That is rounding: is your check too strict?"
            )

    def confirm(self, session: Session, answer: Trial | None) -> None:
        """Raise CannotJudge where nothing passes, or where the file fails and nothing does that was rewritten."""
        judge, subject = session.judge, subgraph(session.judge)
        if subject.as_file and answer == subject.space.whole:
            raise CannotJudge(
                f"the model file fails ({judge.studied}), but no part that is cut out of it does: reading and writing "
                "the model (where its weights lie, shapes, Constant nodes) makes the failure go away. "
                "Give the shapes or inputs with which it fails (inputs.shapes='{name: [..]}', inputs=files).\n"
                f"check: {judge.checker.describe()}"
            )
        if not session.inquiry.passed and not self.controlled:
            flaky = session.reliability.rates is not None
            session.confirm_nothing(unjudged=flaky or self.controls is not None)

    def _is_seeded(self, judge: Judge) -> bool:
        """Whether the model draws, and the file other numbers in each run; with our own checks few operators do."""
        own = not isinstance(inner(judge.checker), RuntimeCheck)
        return any(is_seeded(node, exactly=own) for node in all_nodes([*subgraph(judge).graph.protos]))

    def _say(self, warning: str) -> None:
        log.warning("%s", warning)
        self.warnings.append(warning)


ROUNDING = 1e-5
"""A difference of two models, as a part of the largest value, that rounding explains in float32."""


def _ran_out(verdict: Verdict) -> bool:
    return verdict.signature is not None and verdict.signature.kind == "timeout"


def ignore_harmless_nonfinite(job: Job, loaded: Loaded, judge: Judge) -> None:
    """Of a failure by NaN or Inf, let the check know which of these do not reach the outputs of the whole model."""
    checker, signature = inner(job.checker), judge.studied.signature
    non_finite = signature is not None and signature.kind in NON_FINITE
    # an engine has no values of inner tensors to look at
    if non_finite and isinstance(checker, RuntimeCheck) and job.settings.target.holds_inner_values:
        found = taint_of_all(loaded.graph, record_target(job.settings, job.pool, loaded, job.folder))
        if found.tainted:
            subgraph(judge).taint = found
            checker.spare(found.harmless)


def confirm_expected(job: Job, loaded: Loaded, judge: Judge) -> None:
    """Raise CannotJudge where files say what is right, and no good value inside the model is known.

    One check then tells whether the target makes something else than the reference's own run, unless the check compares
    with values of its own.
    """
    subject, recorded, reference, studied = subgraph(judge), loaded.recorded, job.settings.reference, judge.studied
    failed = [one.metrics for one in judge.counted(subject.space.whole) if one.outcome is Outcome.FAIL]
    in_tolerances = failed and isinstance(inner(job.checker), RuntimeCheck)
    why = unlike_expected(job.settings, recorded, measured(failed[0]) if in_tolerances else None)
    if not why or not (studied.signature and studied.signature.about_values):
        return
    lacks: tuple[str, ...] = ()
    if recorded.off > 1 and isinstance(reference, FilesBackend) and reference.model is None:
        lacks = (ORIGINAL,)
        check = inner(job.checker)
        if not isinstance(check, CommandCheck) or check.wants_expected:
            own = replace(subject, recorded=replace(recorded, values=recorded.run))
            against = judge.stage("reference", UserFile(own, against="the reference's own run"))
            same = against.sure(subject.space.whole, Phase.CONTROL, f"{THE_FILE}, against the reference's own run")
            if same.outcome is Outcome.PASS:
                why += ". The target agrees with that run, so the model or your files are wrong"
            elif same.outcome is not Outcome.UNRESOLVED:
                why += f". The target differs from that run too ({same.reason})"
        why += f". Give the good model: {ORIGINAL}"
        if reference.inner is not InnerValues.onnx_reference:
            why += ". If you doubt ONNX Runtime: reference.inner=onnx_reference"
    raise CannotJudge(why, lacks)


def _variants(subject: Subgraph) -> Iterator[tuple[Subgraph, str]]:
    """Less and less of the model rewritten; what makes no difference is left out."""
    declared, differs = replace(subject, declared=True), subject.declared_otherwise
    types = "the declared types of the inputs and outputs"
    if differs:
        yield declared, types
    graph = as_nodes(subject.graph, subject.file)
    if graph:
        yield replace(subject, graph=graph), "the Constant nodes"
        if differs:
            yield replace(declared, graph=graph), f"{types} and the Constant nodes"


def _short(verdict: Verdict) -> str:
    reason = verdict.reason
    if len(reason) > 2 * _SHOWN:  # what matters of a long message is at either end
        reason = f"{reason[:_SHOWN]} ... {reason[-_SHOWN:]}"
    return replace(verdict, reason=reason).said
