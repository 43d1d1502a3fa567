"""`runs`, `builds`, `finite`, `compare` and `auto`: the target runs the candidate, the reference where it is needed.

One core with stages in a fixed order: run (or only build), shapes, finite, compare. A failure of the target is held
against the reference before it counts: a candidate that the reference cannot run either is invalid (UNRESOLVED), unless
the reference could not run the whole model in the first place. A pass costs no run of it but the comparison's own.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.checkers.candidate_runs import BackendRun, BackendRunner, CandidateRuns, built, digests_of
from runner.checkers.checker import Tools
from runner.checkers.compare_outputs import WORDS, Bad, Comparison, failed_by, looked_inside, masked_outputs, non_finite
from runner.checkers.task_metrics import read_labels
from runner.checkers.tolerances import rules_of
from runner.exit_codes import UsageError
from runner.schema.checker import AutoChecker, BuildsChecker, CompareChecker, FiniteChecker, Flaky, Golden, RunsChecker
from runner.schema.root import Settings
from runner.schema.settings import context_of
from runner.text import LARGEST, listed, one_line
from runner.verdict import FUSED, SAID, UNSEEN, Candidate, Phase, Signature, Verdict
from strategies.search import Outcome

log = logging.getLogger(__name__)

RuntimeSettings = AutoChecker | BuildsChecker | CompareChecker | FiniteChecker | RunsChecker

# phases whose builds, and whose NaN and Inf, a report may tell of
TOLD_PHASES = (Phase.PREFLIGHT, Phase.RECHECK)
LONGEST_SAID = 4000
_STAGES = {
    "runs": ("run",),
    "builds": ("run", "shapes"),
    "finite": ("run", "finite"),
    "compare": ("run", "compare"),
    "auto": ("run", "finite", "compare"),
}


class RuntimeCheck:
    """See the module. Raises UsageError for a backend's own ``model`` where candidates are cut from another one."""

    wants_feeds = True
    in_tolerances = True
    """How bad a failure is: the error as a multiple of what is allowed."""
    divides = True
    """See `Candidate.unseen`."""

    def __init__(self, checker: RuntimeSettings, tools: Tools, settings: Settings) -> None:
        self.name = checker.name
        self._checker = checker
        self._tools = tools
        self._stages = _STAGES[checker.name]
        self._own_model = _own_model(settings, tools)
        limits = checker.timeout, checker.memory_mb
        self._target = BackendRunner(
            "target", settings.target, tools, *limits, built("target", settings.target, checker)
        )
        too = () if isinstance(checker, BuildsChecker) and settings.reference.builds_engines else None  # any other runs
        self._reference = BackendRunner("reference", settings.reference, tools, *limits, too)
        finite = checker if isinstance(checker, FiniteChecker) else FiniteChecker()
        self._nan, self._inf = finite.nan.value == "fail", finite.inf.value == "fail"
        rules = rules_of(checker)
        apart = settings.reference.model is not None and settings.strategy.cuts_model
        precision = settings.strategy.lowers_precision
        self._consult = not apart and not precision
        # with auto, what fails by a NaN in low precision may fail by a mismatch where some of it is high
        self._narrows = self.name == "auto" and not precision
        given = settings.reference.has_expected
        if (given or not self._consult) and rules.settings.golden is not Golden.ahead:
            # it cannot run what is cut from another model, and what it makes of a model in low precision is not
            # what is right; what it made of its own is recorded, and so is what files hold
            held = "those from files" if given else "computed once, before the search"
            log.info("the right outputs are %s", held)
            rules = dataclasses.replace(rules, settings=dataclasses.replace(rules.settings, golden=Golden.ahead))
        labels = read_labels(tools.at(rules.settings.labels) if rules.settings.labels else None)
        self._comparison = Comparison(rules, labels, lowest=precision, given=given)
        self._given = given
        # what the reference made of the whole model: "ran", "failed", "non-finite"; None until that is known
        self._known: str | None = None
        # its outputs that are masked, which is said once
        self._masks: list[str] = []
        # non-finite tensors of the whole model that are meant (a mask); None: not known, the reference is asked
        self._harmless: frozenset[str] | None = None
        self._reference_model = tools.at(settings.reference.model) if settings.reference.model else None

    def check(self, candidate: Candidate) -> Verdict:
        """Judge one candidate; its values are removed afterwards."""
        model = self._own_model or candidate.model
        if model is None:
            return Verdict(Outcome.UNRESOLVED, reason=f"checker={self.name} needs a model: set model=PATH")
        started = time.monotonic()
        candidate.folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="values_", dir=candidate.folder))
        try:
            may_run = self._consult and self._known != "failed"
            own = None if candidate.control else self._reference_model
            seeded = self._checker.flaky is not Flaky.always
            case = CandidateRuns(candidate, model, self._target, self._reference, work, may_run, own, seeded)
            case, unseen = case.divided() if candidate.unseen else (case, None)
            verdict = self._judge(case)
            if verdict.outcome is Outcome.UNRESOLVED:
                verdict = self._of_one_sample(case) or verdict
            if len(self._stages) > 1:
                verdict = self._comparison.with_table(verdict, case)
            if unseen and not self._comparison.learns:
                told = {**verdict.metrics, UNSEEN: self._judge(unseen).to_json()}
                verdict = dataclasses.replace(verdict, metrics=told)
            return dataclasses.replace(
                verdict,
                seconds=time.monotonic() - started,
                log=self._write_log(case, verdict),
                peak_rss_mb=case.peak_rss_mb,
            )
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def settle(self, verdict: Verdict) -> None:
        """Fix what is under study: with `auto` later stages than the one that failed are skipped from now on."""
        known = verdict.metrics.get("reference")
        self._known = known if known in {"ran", "failed", "non-finite"} else None
        self._comparison.settle(verdict)
        if self._narrows and verdict.outcome is Outcome.FAIL and verdict.signature:
            # the comparison looks for NaN and Inf itself
            stage = "compare" if verdict.signature.stage == "compare" else "finite"
            self._stages = ("run", stage) if stage == "compare" or verdict.signature.kind in WORDS else ("run",)

    @property
    def failing_error(self) -> float | None:
        """See `Comparison.failing_error`."""
        return self._comparison.failing_error

    @property
    def doubts(self) -> tuple[str, ...]:
        """See `Comparison.doubts`."""
        return self._comparison.doubts

    def reset(self) -> bool:
        """Look at all stages again; which of them were looked at, and within what tolerance, decided verdicts."""
        self._stages = _STAGES[self.name]
        return self._comparison.reset() or self._narrows

    def spare(self, harmless: frozenset[str]) -> None:
        """Hear which non-finite tensors of the whole model do not reach its outputs: any other one is the failure."""
        self._harmless = harmless

    def identity(self) -> dict[str, str]:
        """The checker's and both backends' settings."""
        return {
            "checker": json.dumps(context_of(self._checker), sort_keys=True),
            **self._target.identity(),
            **self._reference.identity(),
            **{f"checker {path}": sha for path, sha in digests_of(self._checker, self._tools.at).items()},
        }

    def describe(self) -> str:
        """The checker and both sides."""
        return f"checker={self.name}: {self._target} against {self._reference}"

    def _judge(self, case: CandidateRuns) -> Verdict:
        target = case.run("target")
        if target.invalid:
            return Verdict(Outcome.UNRESOLVED, reason=target.invalid)
        if target.signature:
            failed = Verdict(Outcome.FAIL, target.signature, one_line(target.message, 300), _said(case))
            return self._against(case.run("reference") if case.may_run_reference else None, failed)
        if "shapes" in self._stages:
            return self._shapes(case, self._checker)
        if case.candidate.marked:
            return self._comparison.measured(case)
        found = self._finite(case) if "finite" in self._stages else None
        if found is not None:
            return found
        return self._comparison.judge(case) if "compare" in self._stages else Verdict(Outcome.PASS)

    def _of_one_sample(self, case: CandidateRuns) -> Verdict | None:
        """Return the failure that one of several samples shows by itself: what is not known of another hides none."""
        for number, one in enumerate(case.alone()):
            verdict = self._judge(one)
            if verdict.outcome is Outcome.FAIL:
                return dataclasses.replace(verdict, metrics={**verdict.metrics, "sample": number})
        return None

    def _shapes(self, case: CandidateRuns, checker: RuntimeSettings) -> Verdict:
        """FAIL if an output of the engine has another shape than was recorded; what is dynamic is right."""
        metrics: dict[str, Any] = {"layers": len(case.target.layers), **case.target.seconds}
        if case.candidate.phase in TOLD_PHASES:
            metrics[FUSED] = [dict(layer) for layer in case.target.layers]
        passed = Verdict(Outcome.PASS, metrics=metrics)
        if not isinstance(checker, BuildsChecker) or not checker.shapes:
            return passed
        wrong = [
            (number, name, shape, wanted.shape)
            for number, sample in enumerate(case.samples)
            for name, shape in (case.target.shapes or {}).items()
            if (wanted := sample.expected.get(name)) and shape is not None and not _same_shape(shape, wanted.shape)
            if not (self._reference.builds and shape == (case.reference.shapes or {}).get(name))
        ]
        if not wrong:
            return passed
        number, name, shape, right = wrong[0]
        reason = f"{name} has the shape {[*shape]} instead of {[*right]}"
        found = {"output": name, "sample": number, **metrics}
        failed = Verdict(Outcome.FAIL, Signature("compare", "shape"), reason, found)
        inside = dict.fromkeys(case.candidate.inside, 0.0)
        return looked_inside(failed, inside | {one[1]: LARGEST for one in wrong}) if inside else failed

    def _against(self, reference: BackendRun | None, failed: Verdict) -> Verdict:
        """The failure stands unless the reference, which ran the whole model, cannot run this candidate.

        What another version of the same builder cannot build either is no difference between the two. None: it may not
        run it.
        """
        if reference is None:
            return _noted(failed, self._known or "not asked")
        why = one_line(reference.invalid or reference.message, 300)
        if not reference.invalid and reference.signature is None:
            return _noted(failed, "ran")
        if reference.invalid and self._reference.builds:
            return Verdict(Outcome.UNRESOLVED, reason=f"the reference was not tried: {why}")
        if self._known is None and self._reference.builds:
            return Verdict(Outcome.PASS, reason=f"the reference cannot build it either: {why}")
        if self._known is None:
            return _noted(failed, "failed")
        return _noted(Verdict(Outcome.UNRESOLVED, reason=f"the reference cannot run it either: {why}"), "failed")

    def _finite(self, case: CandidateRuns) -> Verdict | None:
        """FAIL for a NaN or Inf that the reference has not; None if there is none."""
        bad = [one for one in self._non_finite(case.target) if one[1] not in (self._harmless or ())]
        # what a reference with a model of its own has recorded, or files hold
        bad = [one for one in bad if not _expected_too(case, *one, given=self._given)]
        if not bad:
            return None
        if self._harmless is not None:
            found = self._failed_by(case, bad)
            if case.candidate.inside:
                right = {name: 0.0 for held in case.target.outputs for name in held}
                found = looked_inside(found, right | {name: LARGEST for _, name, _ in bad})
            return found
        reference = case.run("reference") if case.may_run_reference else None
        verdict = self._against(reference, self._failed_by(case, bad))
        if verdict.outcome is not Outcome.FAIL or verdict.metrics.get("reference") != "ran":
            return verdict
        # a mask of -inf is right where the reference has it too
        theirs = self._non_finite(case.reference)
        if own := [one for one in bad if one not in theirs]:
            return _noted(self._failed_by(case, own), "ran")
        if self._known == "non-finite" or (self._known is None and self._counts_anyway(case, bad)):
            return _noted(verdict, "non-finite")
        if "compare" in self._stages:
            return None
        return _noted(Verdict(Outcome.PASS, reason="not finite, but neither is the reference there"), "ran")

    def _non_finite(self, ran: BackendRun) -> list[Bad]:
        """Return sample, output and kind of what is looked for."""
        each = ((number, non_finite(held, nan=self._nan, inf=self._inf)) for number, held in enumerate(ran.outputs))
        return [(number, name, kind) for number, found in each for name, kind in found]

    def _failed_by(self, case: CandidateRuns, bad: list[Bad]) -> Verdict:
        return failed_by(bad, case.target.outputs, told=case.candidate.phase in TOLD_PHASES)

    def _counts_anyway(self, case: CandidateRuns, bad: list[Bad]) -> bool:
        """Whether the whole model fails though the reference is not finite either: with auto not for a mask."""
        if self.name == "finite" or any(kind == "nan" for _, _, kind in bad):
            return True
        meant = [masked_outputs(case.model, held) for held in case.target.outputs]
        if any(name not in meant[number] for number, name, _ in bad):
            return True
        if not self._masks:
            self._masks = sorted({name for _, name, _ in bad})
            log.warning("%s holds -Inf, taken for a mask of the model's own; checker=finite fails", listed(self._masks))
        return False

    def _write_log(self, case: CandidateRuns, verdict: Verdict) -> str | None:
        parts = [str(verdict.signature or ""), verdict.reason]
        for ran in case.runs:
            parts += [ran.invalid, ran.message]
            if ran.log and ran.log.is_file():
                parts.append(ran.log.read_text(encoding="utf-8", errors="replace"))
        text = "\n".join(dict.fromkeys(part for part in parts if part))
        if not text:
            return None
        path = case.candidate.folder / "check.log"
        path.write_text(text + "\n", encoding="utf-8")
        return self._tools.relative(path)


def _expected_too(case: CandidateRuns, number: int, name: str, kind: str, *, given: bool) -> bool:
    """Whether the recorded value, which alone counts where the reference cannot be asked, is not finite either.

    ``given``: files say what is right.
    """
    if not given and (case.may_run_reference or case.reference_model is None):
        return False
    expected = case.samples[number].expected.get(name)
    return expected is not None and not expected.finite and expected.nan == (kind == "nan")


def _said(case: CandidateRuns) -> dict[str, str]:
    """Return what the target said of the whole model, at length: it may name a node."""
    asked = case.candidate.phase == Phase.PREFLIGHT or case.candidate.inside
    return {SAID: one_line(case.target.message, LONGEST_SAID)} if asked else {}


def _noted(verdict: Verdict, reference: str) -> Verdict:
    """Note what the reference did."""
    return dataclasses.replace(verdict, metrics={**verdict.metrics, "reference": reference})


def _same_shape(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) == len(wanted) and all(mine in (-1, theirs) for mine, theirs in zip(shape, wanted, strict=True))


def _own_model(settings: Settings, tools: Tools) -> Path | None:
    """The target's own model for strategies that take models whole."""
    if settings.target.model and settings.strategy.cuts_model:
        raise UsageError(
            f"target.model={settings.target.model}: candidates are cut from the model under study, so the target "
            f"has no other. Set model={settings.target.model}, and reference.model to the one to compare with"
        )
    return tools.at(settings.target.model) if settings.target.model else None
