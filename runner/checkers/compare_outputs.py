"""The compare stage of a check and its table of tensors; outputs that show nothing, or hold a NaN or Inf."""

from __future__ import annotations

import filecmp
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from runner import verdict as keys
from runner.checkers import metrics, tolerances
from runner.checkers.candidate_runs import BackendRun, CandidateRuns
from runner.checkers.failure_text import as_number, finite
from runner.checkers.metrics import EPSILON, Array, blocks, compare_recorded, has_inf, real, side_of, statistics
from runner.checkers.task_metrics import Tasks, agreement
from runner.checkers.tolerances import Rules
from runner.exit_codes import ModelError, UsageError
from runner.judgment import MEASURE
from runner.model.files.parse_without_weights import ExternalFiles, chunks, parse
from runner.model.graph.data_dependence import handed_on
from runner.model.values import recorded
from runner.model.values.recorded import TensorFile, mapped
from runner.model.values.tensor_bytes import STRING, elements, is_external, set_raw
from runner.schema.checker import CompareChecker, Golden, Metric, NonFinite, Tolerance
from runner.text import LARGEST, in_tolerances, listed
from runner.verdict import Phase, Sample, Signature, Verdict
from strategies.search import Outcome

# A row of numbers for each tensor that a target handed out: how far it is from what it should be.


MIXED_UP = (
    "the original itself predicts the labels hardly better than chance: are the labels in the order of the inputs?"
)


@dataclass(frozen=True)
class Compared:
    """One output of one sample: its difference by one metric, and by which tolerance and noise it was judged."""

    sample: int
    output: str
    metric: Metric
    difference: metrics.Difference
    limit: float
    noise: float | None = None

    @property
    def fails(self) -> bool:
        """Whether it is wrong."""
        return self.difference.fails(self.limit)

    @property
    def how_bad(self) -> float:
        """By how much it fails, 0 where it does not; what is no matter of size is worse than anything."""
        if not self.fails:
            return 0.0
        return LARGEST if self.difference.kind not in ("", "mismatch") else finite(self.rank[1])

    @property
    def rank(self) -> tuple[int, float]:
        """The worst output has the largest."""
        return self.difference.rank(self.limit)


Sides = Sequence[tuple[Mapping[str, TensorFile], Mapping[str, TensorFile]]]
"""Of each sample the target's values, and the good ones."""


def _is_compared(one: Compared, mine: TensorFile) -> bool:
    """Whether any element was compared: there may be none, or the settings leave all of them out."""
    return bool(one.difference.kind) or not (one.difference.nothing or 0 in mine.shape)


def _row(one: Compared, mine: TensorFile, good: TensorFile, *, output: bool) -> dict[str, Any]:
    """Return the numbers of one tensor; ``bad``: it fails the check; ``of_limit``: its error, 1 is what passes.

    Where nothing was compared, ``compared`` says so, and the error is 0.
    """
    kind = one.difference.kind or ("mismatch" if one.fails else "")
    row = {
        "tensor": one.output,
        "sample": one.sample,
        "output": output,
        "type": mine.dtype,
        "shape": [*mine.shape],
        "bad": one.fails,
        "kind": kind,
        "error": finite(one.difference.error),
        "limit": finite(one.limit),
        "of_limit": LARGEST if kind not in ("", "mismatch") else finite(one.rank[1]),
    }
    row |= {} if _is_compared(one, mine) else {"compared": False}
    if mine.structure is not None or good.structure is not None:
        return row
    arrays = recorded.mapped(mine), recorded.mapped(good)
    return row | statistics(*arrays) | (agreement(*arrays) if output else {})


log = logging.getLogger(__name__)


class Comparison:
    """Compares by the rules; with ``tolerance=auto`` it learns the failing model's error from `settle`.

    A pass that ends the run before its search must rest on an output that shows something. ``lowest``: which one that
    is: that of the empty trial (precision: nothing is raised); else the first (the whole model). ``given``: files hold
    what is right; outputs of the whole model that they do not hold are not compared. ``labels``: by output.
    """

    def __init__(self, rules: Rules, labels: Mapping[str, Array], *, lowest: bool = False, given: bool = False) -> None:
        self._rules = rules
        self._tasks = Tasks(rules.settings, rules.tasks, labels)
        self._own: frozenset[str] | None = None
        self._labeled = False
        self._settings = rules.settings
        self._lowest = lowest
        self._given = given
        self.failing_error: float | None = rules.settings.failing_error
        self._settled = self._seen = False
        self._left_out: frozenset[str] = frozenset()

    @property
    def doubts(self) -> tuple[str, ...]:
        """Ask whether the labels are in order, where what is right predicts hardly any of them."""
        return (MIXED_UP,) if self._tasks.guessed else ()

    @property
    def learns(self) -> bool:
        """Whether the failing model is to fix the tolerance, and has not yet."""
        return self._settings.tolerance is Tolerance.auto and self.failing_error is None

    def settle(self, verdict: Verdict) -> None:
        """Fix the tolerance, and which outputs of the whole model are not compared, from its verdict's metrics."""
        if not self._settled:  # of another failure it is not said again
            self._left_out = frozenset(verdict.metrics.get("left_out") or ())
            self._own = frozenset(verdict.metrics.get("own") or ())
        self._settled = True
        self.failing_error = self._error_of(verdict) or self.failing_error

    def _error_of(self, verdict: Verdict) -> float | None:
        """Return the failing model's error, as its verdict says it and the settings do not; None: they fix no limit."""
        error, given = verdict.metrics.get("error"), self._settings.failing_error
        mismatch = verdict.signature is not None and verdict.signature.kind == "mismatch"
        mismatch = mismatch and not verdict.metrics.get("exact")  # a share of elements, no error of real numbers
        if self._settings.tolerance is Tolerance.auto and mismatch and isinstance(error, int | float) and error > 0:
            return float(error) if given is None else given
        return None

    def reset(self) -> bool:
        """Forget the failing model's error: there will be another. Return whether verdicts depended on it."""
        self.failing_error = given = self._settings.failing_error
        return self._settings.tolerance is Tolerance.auto and given is None

    def judge(self, case: CandidateRuns) -> Verdict:
        """FAIL with the kind of the worst output, PASS, or UNRESOLVED if there is nothing to compare with."""
        names = self._names(case)
        if not names:
            return Verdict(Outcome.UNRESOLVED, reason="none of its outputs is to be compared")
        lacking = self._lacks_values(case, names) and case.may_run_reference
        expected = self._expected(case, names, case.run("reference") if lacking else None)
        if isinstance(expected, str):
            return Verdict(Outcome.UNRESOLVED, reason=expected, metrics={"reference": "failed"})
        both = list(zip(case.target.outputs, expected, strict=True))
        every = [
            one
            for number, (mine, theirs) in enumerate(both)
            for name in names
            if name in theirs and name in mine
            for one in self._each(case, number, name, both)
        ]
        if not every:
            return Verdict(Outcome.UNRESOLVED, reason="target and reference have no output in common")
        compared = [one for one in every if not one.difference.nothing]
        if not compared:
            ignored = [key for key in ("nan", "inf") if getattr(self._settings, key) is NonFinite.ignore]
            how = " ".join(f"checker.{key}=ignore" for key in ignored)
            reason = f"nothing is left to compare of {listed(sorted({one.output for one in every}))} ({how})"
            return Verdict(Outcome.UNRESOLVED, reason=reason)
        found: dict[str, Any] = {"reference": "ran" if case.has_reference else "recorded"}
        if not self._settled and (left_out := sorted({*case.target.outputs[0]} - {*names})):
            found["left_out"] = left_out
        if not self._settled and self._rules.tasks:
            found["own"] = sorted(names)
        told = self._verdict(compared, found, fixes=self._is_first(case))
        if case.candidate.inside:
            told = looked_inside(told, {one.output: one.how_bad for one in sorted(every, key=lambda one: one.how_bad)})
        wrong = {one.output for one in compared if one.fails}
        first, self._seen = not (self._settled or self._seen), True  # of a repeat, which has no pre-flight
        if case.candidate.phase == Phase.PREFLIGHT or first:
            return self._with_evidence(told, case, expected, {name: name in wrong for name in names})
        return told

    def measured(self, case: CandidateRuns) -> Verdict:
        """Return what each tensor that a candidate hands out is like; FAIL if one of the model's own is wrong.

        All are held against what was recorded: a reference that hands out as many would need as much memory again.
        """
        rows = self._table(case)
        failing = [one for one in rows if one["bad"] and one["output"]]
        found: dict[str, Any] = {"reference": "recorded", keys.TABLE: rows}
        if not failing:
            return Verdict(Outcome.PASS, metrics=found)
        worst = max(failing, key=lambda one: float(one["of_limit"]))
        reason = f"{worst['tensor']}: {worst['kind']}, {in_tolerances(worst['of_limit'])}"
        return Verdict(Outcome.FAIL, Signature("compare", worst["kind"]), reason, found)

    def with_table(self, verdict: Verdict, case: CandidateRuns) -> Verdict:
        """Note, of what is looked at before a search, what each of the model's outputs is like."""
        if case.candidate.phase != Phase.PREFLIGHT or not case.target.outputs:
            return verdict
        heard = copy(self)  # which judges as later checks do
        heard.failing_error = self.failing_error or (self._error_of(verdict) if self._is_first(case) else None)
        return replace(verdict, metrics={**verdict.metrics, keys.TABLE: heard._table(case)})

    def _is_first(self, case: CandidateRuns) -> bool:
        """Whether this is the model whose failure will be studied, or whose pass ends the run."""
        return not case.candidate.trial if self._lowest else not self._settled

    def _table(self, case: CandidateRuns) -> list[dict[str, Any]]:
        """Return a row for each tensor that is known, of the sample and by the metric in which it is worst."""
        theirs = case.reference.outputs if case.has_reference and not case.candidate.marked else ()
        expected = [{**one.expected, **(theirs[at] if theirs else {})} for at, one in enumerate(case.samples)]
        both, rows = list(zip(case.target.outputs, expected, strict=True)), []
        for name in dict.fromkeys(name for ran in case.target.outputs for name in ran):
            each = [
                (one, mine[name], good[name])
                for number, (mine, good) in enumerate(both)
                if name in mine and name in good
                for one in self._each(case, number, name, both)
            ]
            if each:
                worst = max(each, key=lambda one: (one[0].fails, _is_compared(one[0], one[1]), *one[0].rank))
                rows.append(_row(*worst, output=name not in case.candidate.marked))
        return rows

    def _each(self, case: CandidateRuns, number: int, name: str, both: Sides) -> list[Compared]:
        """Judge a tensor of a sample by each metric; by those of all samples where it is the first one's."""
        mine, good = both[number]
        inside = name in case.candidate.marked or (self._own is not None and name not in self._own)
        real = mine[name].structure is None and mine[name].dtype in EPSILON
        tasks = [] if inside else self._tasks.of(name, mine[name].shape, real=real)
        found = []
        for metric in tasks if not number else ():
            read = self._settings.boxes if name in self._settings.boxes else [name]
            theirs, right = (
                [{key: recorded.mapped(one[key]) for key in read if key in one} for one in side]
                for side in zip(*both, strict=True)
            )
            difference = self._tasks.judge(metric, name, theirs, right, self._numbers(case))
            found.append(Compared(0, name, metric, difference, difference.limit))
        if (tasks and not self._rules.asked) or (name in self._settings.boxes and not inside):
            return found
        rules = self._rules.of_output(name)
        return [*found, *(self._one(case, number, (name, rule), mine[name], good[name]) for rule in rules)]

    def _numbers(self, case: CandidateRuns) -> list[int | None]:
        """Return which of the given samples each is, by the folder of its values; None: one that was made or recorded.

        Raises UsageError where labels have belonged to none so far.
        """
        folders = ([one.path.parent.name for one in sample.feeds.values()] for sample in case.samples)
        found = [next((name[7:] for name in names if re.fullmatch(r"sample_\d+", name)), None) for names in folders]
        self._labeled = self._labeled or any(found)
        if self._settings.labels and not self._labeled:
            raise UsageError("checker.labels: labels belong to samples from files, as they are fed. Give inputs.path=")
        return [None if number is None else int(number) for number in found]

    def _with_evidence(
        self, told: Verdict, case: CandidateRuns, expected: list[Mapping[str, TensorFile]], names: Mapping[str, bool]
    ) -> Verdict:
        """Note which outputs show nothing. A pass that rests on nothing else is none, where the run would end by it.

        And which are not finite in what they are compared with either. ``names``: of all outputs, and which are wrong:
        these show something.
        """
        lacking = [
            {name for name in names if name in one and not one[name].finite} - masked_outputs(case.model, one)
            for one in expected
        ]
        held = {name: [one[name] for one in expected if name in one] for name in names}
        none = [
            name for name, some in held.items() if some and all(not one.structure and 0 in one.shape for one in some)
        ]
        full = [name for name in names if name not in none]
        constant = blank(full, expected, case.samples)
        counts = {name: _not_finite(held[name]) for name in sorted(set().union(*lacking))}
        unread = [name for name, (bad, of) in counts.items() if 0 < of == bad and not names[name]]
        found: dict[str, Any] = {
            keys.CONSTANT: [name for name in constant if not names[name]],
            keys.FILED: [name for name in constant if names[name] and self._given],
            keys.NEITHER: {name: one for name, one in counts.items() if name not in unread},
        }
        where = "the original" if case.reference_model else "the reference"
        every = {*found[keys.CONSTANT], *none, *unread} == {*names}
        alone = every and "left_out" not in told.metrics
        for remark in [] if self._settled else said(found, where, every=alone):
            log.warning("%s", remark)
        found |= {keys.EMPTY: none, keys.NONE_FINITE: unread}
        told = replace(told, metrics={**told.metrics, **{key: some for key, some in found.items() if some}})
        ends = case.candidate.phase == Phase.PREFLIGHT and self._is_first(case)
        if ends and told.outcome is Outcome.PASS and every:
            told = replace(told, outcome=Outcome.UNRESOLVED, reason=said(found, where, every=alone)[0])
        return told

    def _verdict(self, compared: list[Compared], found: dict[str, Any], *, fixes: bool) -> Verdict:
        """``fixes``: where no tolerance is fixed, a failure is measured in the one that it fixes for later checks."""
        failing = [one for one in compared if one.fails]
        worst = max(failing or compared, key=lambda one: one.rank)
        if failing and fixes and self.failing_error is None and worst.noise is not None:
            worst = replace(worst, limit=tolerances.limit(worst.noise, worst.difference.error))
        numbers = worst.difference.numbers() | ({"limit": worst.limit} if worst.difference.measured else {})
        found |= {"output": worst.output, "sample": worst.sample}
        found |= {"outputs": _outputs(compared), "failing": _outputs(failing)}
        found |= {keys.ALONE: worst.output} if {one.output for one in failing} == {worst.output} else {}
        found |= {"metric": worst.metric.value} if len(self._rules.metrics) > 1 or self._rules.tasks else {}
        found |= {"exact": True} if worst.difference.exact else {}
        found |= {keys.FLIPPED: [list(one) for one in flips]} if (flips := worst.difference.flips) else {}
        found |= numbers | ({} if worst.noise is None else {"noise": worst.noise})
        if worst.difference.measured and worst.difference.kind in ("", "mismatch"):
            found[MEASURE] = as_number(worst.rank[1])
        if not failing:
            close = self._too_close(worst)
            if close:
                log.warning("%s", close)
            return Verdict(Outcome.PASS, reason=close, metrics=found)
        kind = worst.difference.kind or "mismatch"
        reason = worst.difference.detail or (
            f"{worst.output}: error {worst.difference.error:.3g} beyond {worst.limit:.3g} "
            f"({found['metric'] + ', ' if 'metric' in found else ''}max abs {worst.difference.max_abs:.3g})"
        )
        return Verdict(Outcome.FAIL, Signature("compare", kind), reason, found)

    def _names(self, case: CandidateRuns) -> list[str]:
        """The outputs to compare: all of the candidate's, but not those of the whole model that the user leaves out."""
        present = [name for name in case.target.outputs[0] if name not in self._left_out]
        held = {name for sample in case.samples for name in sample.expected} if self._given else ()
        if self._settled:
            return present
        asked = {key: getattr(self._settings, key) for key in ("outputs", "ignore", "boxes")}
        for key, names in {**asked, "labels": self._tasks.labels}.items():
            if unknown := [name for name in names if name not in present and name not in case.target.skipped]:
                raise UsageError(
                    f"checker.{key}: the model has no output {', '.join(map(repr, unknown))}; "
                    f"its outputs are {', '.join(present)}"
                )
        named = self._tasks.named if self._rules.tasks and not self._rules.asked else ()
        return [
            name
            for name in present
            if self._settings.selects(name) and name in (held or present) and name in (named or present)
        ]

    def _lacks_values(self, case: CandidateRuns, names: list[str]) -> bool:
        """Whether the reference has to tell what is right, which was not recorded."""
        if self._settings.golden is Golden.ahead:
            return not all(name in sample.expected for sample in case.samples for name in names)
        # it would have to be run with all of these as outputs, as it was to record them
        return not case.candidate.inside

    def _expected(
        self, case: CandidateRuns, names: list[str], reference: BackendRun | None
    ) -> list[Mapping[str, TensorFile]] | str:
        """For each sample the values to compare with; or why there are none. ``reference``: None: it was not run."""
        recorded = [sample.expected for sample in case.samples]
        if not self._lacks_values(case, names):
            return recorded
        if self._settings.golden is not Golden.ahead:
            recorded = [{} for _ in case.samples]
        if reference is None:
            if any(name in sample for sample in recorded for name in names):
                # a reference with a model of its own has the tensors that both models share
                return recorded
            if case.reference_model is not None:
                return "there is nothing to compare with: none of its outputs has a partner in reference.model"
            return "there is nothing to compare with: no output was recorded, and the reference cannot run it"
        if reference.invalid or reference.signature:
            return f"the reference cannot run it: {reference.invalid or reference.message}"
        return [{**ran, **golden} for ran, golden in zip(reference.outputs, recorded, strict=True)]

    def _one(
        self, case: CandidateRuns, number: int, by: tuple[str, CompareChecker], mine: TensorFile, theirs: TensorFile
    ) -> Compared:
        name, rule = by
        difference = compare_recorded(mine, theirs, rule)
        found = Compared(number, name, Metric(rule.metric), difference, difference.limit)
        if rule.tolerance is Tolerance.fixed or difference.kind or difference.exact:
            return found
        floor, failing = difference.floor or 1e-12, self.failing_error
        if failing is not None and difference.error <= tolerances.limit(floor, failing):
            # noise can only raise the limit: no run is needed to know that it passes
            return replace(found, limit=tolerances.limit(floor, failing), noise=floor)
        noise = floor
        noisy = case.run("noisy").outputs if case.may_run_reference else ()
        if noisy and name in noisy[number]:
            moved = compare_recorded(noisy[number][name], theirs, rule)
            noise = max(floor, 0.0 if moved.kind else moved.error)
        # of the whole model (or one whose failure is no matter of size) the error has to stand out of the noise clearly
        limit = tolerances.CLEAR * noise if failing is None else tolerances.limit(noise, failing)
        return replace(found, limit=limit, noise=noise)

    def _too_close(self, worst: Compared) -> str:
        if self._settled or self.failing_error or worst.noise is None or worst.difference.kind or worst.fails:
            return ""
        if worst.difference.error <= worst.noise:
            return ""
        return (
            f"checker.tolerance=auto: the error of '{worst.output}' ({worst.difference.error:.3g}) is less than "
            f"{tolerances.CLEAR:g} times the noise ({worst.noise:.3g}): they cannot be told apart, so nothing "
            "fails. Give the tolerance yourself: checker.tolerance=fixed checker.rtol=.."
        )


def looked_inside(verdict: Verdict, found: Mapping[str, float]) -> Verdict:
    """Note how bad each tensor inside a model is; 0: it is right."""
    return replace(verdict, metrics={**verdict.metrics, keys.INSIDE: dict(found)})


def _outputs(compared: Sequence[Compared]) -> int:
    """How many outputs of how many samples, whatever the number of metrics."""
    return len({(one.sample, one.output) for one in compared})


# Outputs that show nothing: whatever goes wrong inside a model, a constant looks right.

NO_OUTPUT_TELLS = "so no fault could show"
"""What a reason says where there are no others."""


def blank(
    names: Sequence[str], expected: Sequence[Mapping[str, TensorFile]], samples: Sequence[Sample]
) -> tuple[str, ...]:
    """Return the outputs whose right values, ``expected`` of each sample, show nothing.

    They are zero in all samples, or the same in all of several samples whose inputs differ. A single
    sample cannot show what is constant: there an output of several equal elements is taken to be. NaN and Inf are
    another matter, and only tensors are looked at.
    """
    several = any(_fed_otherwise(one.feeds, samples[0].feeds) for one in samples[1:])
    found = []
    for name in names:
        held = [one[name] for one in expected if name in one]
        if held and all(one.structure is None and one.finite for one in held) and _is_blank(held, several=several):
            found.append(name)
    return tuple(found)


def _fed_otherwise(mine: Mapping[str, TensorFile], theirs: Mapping[str, TensorFile]) -> bool:
    return mine.keys() != theirs.keys() or not all(
        filecmp.cmp(mine[name].path, theirs[name].path, shallow=False) for name in mine
    )


def said(told: Mapping[str, Any], where: str, filling: str = "", *, every: bool = False) -> list[str]:
    """Say what is wrong with the outputs that the metrics of a verdict list. ``where``: what they are compared with.

    ``filling``: inputs with which those that are empty, or have no finite value, show more. ``every``: these are all.
    """
    found, none = list[str](), f"Give inputs of which {where} makes none (inputs=files inputs.path=..), or mend it"
    ways = {
        keys.EMPTY: ("empty with these inputs", "Give inputs that fill {} (inputs=files inputs.path=..)", "fills {}"),
        keys.NONE_FINITE: (f"NaN or Inf throughout, in {where} too", none, "makes {} finite"),
        keys.CONSTANT: (
            "constant",
            "Give inputs that make a difference (inputs=files inputs.path=..), or several samples (inputs.samples)",
            "",
        ),
    }
    alone = every and sum(key in told and bool(told[key]) for key in ways) == 1
    for key, (what, advice, fills) in ways.items():
        if quoted := [f"'{name}'" for name in told.get(key, ())]:
            who, be, it = (listed(quoted), "is", "it") if len(quoted) == 1 else (listed(quoted), "are", "them")
            who = who if not alone else f"the only output, {who}," if be == "is" else f"all outputs ({who})"
            how = f"What was made up decides that: {filling} {fills}" if filling and fills else advice
            found.append(f"{who} {be} {what}, {NO_OUTPUT_TELLS}{'' if alone else ' there'}. {how.replace('{}', it)}")
    if filed := told.get(keys.FILED):
        names = listed([f"'{name}'" for name in filed])
        found.append(f"your files of expected outputs hold constant values for {names}, and the model computes others")
    for name, (bad, of) in told.get(keys.NEITHER, {}).items():
        some = f"{bad} of {of} values" if of else "values"
        found.append(f"{some} of '{name}' are NaN or Inf in {where} too, and were not compared. {none}")
    return found


def _not_finite(held: Sequence[TensorFile]) -> list[int]:
    """Return how many elements are NaN or Inf, and of how many; of what is no tensor [0, 0]."""
    if any(one.structure is not None for one in held):
        return [0, 0]
    sides = [side_of(mapped(one).reshape(-1)) for one in held]
    return [sum(one["nan"] + one["inf"] for one in sides), sum(math.prod(one.shape) for one in held)]


def _is_blank(held: Sequence[TensorFile], *, several: bool) -> bool:
    # each map keeps a file handle: one is opened when it is looked at
    if all(one.dtype != STRING for one in held) and not any(_any(mapped(one)) for one in held):
        return True
    if several and len(held) > 1:
        return all(filecmp.cmp(held[0].path, one.path, shallow=False) for one in held[1:])
    return all(array.size > 1 and _is_one_value(array) for array in map(mapped, held))


def _any(array: Array) -> bool:
    """Whether anything but zeros is in an array."""
    return any(np.any(real(block) if block.dtype.kind == "V" else block) for block in blocks(array.reshape(-1)))


def _is_one_value(array: Array) -> bool:
    flat = array.reshape(-1)
    return all(bool((block == flat[0]).all()) for block in blocks(flat))


# Which outputs of a run hold a NaN or an Inf, and how many of their elements do.

WORDS: Mapping[str, str] = {"nan": "a NaN", "inf": "an Inf"}
"""What is looked for, by the kind of the failure."""
Bad = tuple[int, str, str]
"""The number of a sample, the name of an output, and the kind of what it holds."""


def non_finite(outputs: Mapping[str, TensorFile], *, nan: bool, inf: bool) -> Iterator[tuple[str, str]]:
    """The outputs (name, kind) that hold what is looked for; NaN comes before Inf."""
    for name, tensor in outputs.items():
        if tensor.finite:
            continue
        if nan and tensor.nan:
            yield name, "nan"
        elif inf and (not tensor.nan or has_inf(tensor)):
            yield name, "inf"


_LARGEST_MASK = 16 << 20
"""Elements of a constant that is looked at as a mask."""
_VERY_LOW = -6e4
"""A mask puts it in place of what does not count: -Inf, or once two of them are added or rounded to float16."""


def masked_outputs(path: Path, outputs: Mapping[str, TensorFile]) -> frozenset[str]:
    """Return the outputs whose only infinities are a mask: -Inf, which operators that move values put there.

    ``path``: of the model. It holds that mask: very low numbers, and nothing above zero.
    """
    low = {name for name, held in outputs.items() if not held.finite and not held.nan and held.structure is None}
    low = {name for name in low if not (mapped(outputs[name]) == math.inf).any()}
    if not low:
        return frozenset()
    model = parse(path)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    held |= {one.output[0]: item.t for one in model.graph.node for item in one.attribute if item.name == "value"}
    return frozenset(low) & handed_on(model.graph.node, {name for name, one in held.items() if _is_mask(one, path)})


def _is_mask(tensor: TensorProto, path: Path) -> bool:
    """Whether a constant of the model at ``path`` holds very low numbers, and nothing above zero."""
    if tensor.data_type not in EPSILON or elements(tensor.dims) > _LARGEST_MASK:
        return False
    with suppress(ModelError, ValueError, OSError):
        if is_external(tensor):
            set_raw(tensor, b"".join(chunks(*ExternalFiles(path, own=True).region(tensor))))
        array = recorded.to_array(tensor)
        return array.size > 0 and bool(array.max() <= 0) and bool(array.min() <= _VERY_LOW)
    return False


def failed_by(bad: Sequence[Bad], outputs: Sequence[Mapping[str, TensorFile]], *, told: bool) -> Verdict:
    """Return the failure that these outputs are, named by the first of them, a NaN before an Inf.

    ``outputs``: of each sample. ``told``: a person will read of it, so elements are counted, which reads the tensor.
    """
    number, name, kind = min(bad, key=lambda one: one[2] != "nan")
    numbers: dict[str, Any] = {"output": name, "sample": number, "samples": len(outputs), "failing": len(bad)}
    tensor = outputs[number].get(name)
    if told and tensor is not None and tensor.structure is None:
        array = mapped(tensor)
        side = side_of(array.reshape(-1))
        numbers[keys.NOT_FINITE] = {
            "nan": side["nan"],
            "inf": side["inf"],
            "elements": array.size,
            "type": tensor.dtype,
        }
    return Verdict(Outcome.FAIL, Signature("infer", kind), f"{name} has {WORDS[kind]}", numbers)
