"""Runs `strategy=layerwise`: what every tensor holds on the target against what the reference says it should.

The whole model is run with as many tensors marked as outputs at a time as memory allows. Where that makes the failure
go away, fewer are marked, until it shows again or a single tensor hides it. Then the model is taken apart as the
runtime has optimized it, so that each part is judged on good values: what it adds, apart from what it inherits.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from runner import machine
from runner.disk_space import MEMORY
from runner.engine.check_trials import Judge
from runner.engine.session_question import NOTHING, SessionResult, study
from runner.exit_codes import CannotJudge, Status, UsageError
from runner.jobs.inspect import refused_by_target
from runner.jobs.job import Job
from runner.jobs.layerwise import findings
from runner.jobs.layerwise.findings import Findings, overflows
from runner.jobs.reduce.first_look import MOST_TENSORS, beside, known, mark
from runner.jobs.reduce.subgraph import Subgraph
from runner.judgment import NON_FINITE, measured
from runner.model.graph.graph_index import Graph
from runner.reference.load import Loaded, load, unlike_expected
from runner.reference.recording import weight_bytes
from runner.report.diagnosis_sections import ending_in, size_of
from runner.report.result_parts import Layers as LayersFound
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker, CompareChecker, FiniteChecker
from runner.schema.root import Settings
from runner.schema.strategy import LayerwiseSettings, chosen
from runner.text import counted, listed
from runner.verdict import REDUCE, Candidate, Invalid, Phase, Variant, Verdict, rows_of
from runner.workers.gpu_leases import OutOfTime
from strategies.search import Outcome, Space, Trial

# What marking tensors does to a model's own outputs: nothing, it changes them, or it hides or makes a failure.

Row = Mapping[str, Any]
SAME, HIDES, CHANGES, BREAKS = "same", "hides", "changes", "breaks"


@dataclass
class Marking:
    """``word``: what marks did so far; ``breaks``: what passes without marks fails with them."""

    word: str = SAME
    _plain: Mapping[str, Row] = field(default_factory=dict)
    _bad: Callable[[Row], bool] = bool
    _fails: bool = False

    def begin(self, plain: Mapping[str, Row], bad: Callable[[Row], bool], *, fails: bool) -> None:
        """Take in the rows of the model's outputs without marks.

        ``bad``: whether one is wrong by the check. ``fails``: whether the check says that the model fails.
        """
        self._plain, self._bad = dict(plain), bad
        self._fails = fails and any(map(bad, plain.values()))

    @property
    def hides(self) -> bool:
        """Whether some marks made the failure go away."""
        return self.word == HIDES

    def shows(self, rows: Iterable[Row]) -> bool:
        """Return whether the failure (if there is one) shows with tensors marked, and remember what the marks did.

        ``rows``: of a run that gave an answer. The outputs are the same if what their errors differ by would
        pass the check.
        """
        marked = {row["tensor"]: row for row in rows if row["tensor"] in self._plain}
        if self._fails and not any(map(self._bad, marked.values())):
            self.word = HIDES
            return False
        if not self._fails and any(self._bad(row) and not self._bad(self._plain[name]) for name, row in marked.items()):
            self.word = BREAKS
        elif self.word == SAME and any(not _alike(self._plain[name], row) for name, row in marked.items()):
            self.word = CHANGES
        return True


def _alike(before: Row, after: Row) -> bool:
    counts = [[row.get(key, (0, 0)) for key in ("nan", "inf")] for row in (before, after)]
    if [mine for mine, _ in counts[0]] != [mine for mine, _ in counts[1]]:
        return False
    if any(theirs for row in counts for _, theirs in row):  # the reference is another where it is run without marks
        return True
    return bool(abs(before["error"] - after["error"]) <= max(before["limit"], after["limit"]))


# Which tensors are looked at in one run: as many as the memory of a worker has room for.

BARE_MB = 160
"""MiB that a worker takes before it has a model: the interpreter, NumPy, the runtime."""
LEAST = 1 << 20
"""Bytes of values that are looked at in any case; a tensor is looked at however large it is."""


def windows(sizes: Mapping[str, int], room: int, most: int = MOST_TENSORS) -> list[tuple[str, ...]]:
    """Return the tensors, in their order, in runs of no more than ``room`` bytes; one tensor alone may be larger."""
    found: list[list[str]] = []
    left = 0
    for name, size in sizes.items():
        if not found or size > left or len(found[-1]) >= most:
            found.append([])
            left = room
        found[-1].append(name)
        left -= size
    return [tuple(one) for one in found]


def room_beside(graph: Graph, sizes: Mapping[str, int], memory_mb: int) -> int:
    """Return how many bytes of values a worker of so many MiB has room for, beside the model while it runs."""
    every = tuple(range(len(graph.nodes)))
    return max(LEAST, (memory_mb - BARE_MB << 20) - weight_bytes(graph, every) - alive(graph, sizes))


def alive(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Return the most bytes of inner values that are needed at one moment, node after node."""
    last = {name: node.index for node in graph.nodes for name in node.inputs}
    most = now = 0
    for node in graph.nodes:
        now += sum(sizes.get(name, 0) for name in node.outputs)
        most = max(most, now)
        ended = {name for name in (*node.inputs, *node.outputs) if last.get(name, -1) <= node.index}
        now -= sum(sizes.get(name, 0) for name in ended if name in graph.producers)
    return most


def halves(window: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return both halves of a window; of one tensor there are none."""
    middle = len(window) // 2
    return (tuple(window[:middle]), tuple(window[middle:])) if middle else ()


# Subject `layers`: the elements are the tensors inside a model, and a trial is those that are looked at.
#
# Either they are outputs of the whole model besides its own (marked), or the model is taken apart at all of them, and
# these are made of good values.


@dataclass(frozen=True)
class Layers:
    """``tensors``: in topological order. ``settings``: what the target is run with besides its own.

    ``apart``: each is made of good values. The empty trial is the user's file as it is.
    """

    base: Subgraph
    tensors: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    apart: bool = False

    @cached_property
    def space(self) -> Space:
        """The tensors, without structure."""
        return Space(tuple(range(len(self.tensors))))

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The element of each tensor."""
        return {name: number for number, name in enumerate(self.tensors)}

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256("\0".join(self.tensors).encode()).hexdigest()

    def identity(self) -> dict[str, str]:
        """Return the graph, how it is looked at, and the names of all tensors: a trial counts them."""
        kind = "layers apart" if self.apart else "layers marked"
        return {**self.base.identity(), "kind": kind, "tensors": self._digest}

    def names(self, trial: Trial) -> tuple[str, ...]:
        """Return the tensors by name."""
        return tuple(self.tensors[number] for number in trial)

    def make(self, trial: Trial, folder: Path) -> Candidate | Invalid:
        """Return the whole model, made so that it hands out these tensors."""
        if not trial:
            return replace(self.base.original(folder), trial=trial, variant=Variant(dict(self.settings)))
        made = self.base.make(self.base.space.whole, folder)
        if isinstance(made, Invalid):
            return made
        names = self.names(trial)
        told = self.tensors if self.apart else names
        if not self.apart:
            mark(made, self.base, names)
        return replace(
            beside(made, self.base, told),
            trial=trial,
            ours=False,
            marked=names,
            inside=told if self.apart else (),
            variant=Variant({**self.settings, **({"wanted": list(names)} if self.apart else {})}),
        )


log = logging.getLogger(__name__)

MOST_HALVINGS = 100
"""Runs that may be spent on marks that hide the failure."""
APART = 3
"""A tensor that is made apart is fed, made and written: so many times its bytes."""

Window = tuple[str, ...]


@dataclass
class Look:
    """One look, and the rows of tensors so far: as the whole model makes them (``rows``), and of good values (``own``).

    ``subject``: the tensors that are marked. ``hidden``: those whose mark hides the failure. ``unanswered``: those with
    whose mark the model gives no values; ``silent``: what the first such run said. ``own_unknown``: what was said where
    there are no values of parts. ``peak_mb``: the most memory of a worker. ``stopped``: the budget ended it.
    """

    job: Job
    subject: Layers
    judge: Judge
    marking: Marking
    rows: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    own: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    silent: str = ""
    own_unknown: str = ""
    peak_mb: float = 0.0
    runs: int = 0
    stopped: bool = False

    @property
    def findings(self) -> Findings:
        """What is known so far; of a model of which nothing but the outputs was seen nothing is."""
        inner = not self.subject.tensors or self.own or not self.rows.keys().isdisjoint(self.subject.tensors)
        hides = self.marking.hides or bool(self.silent)
        return Findings(self.subject.base.graph, self.rows if inner else {}, self.own, hides=hides)

    @property
    def not_asked(self) -> list[str]:
        """The tensors of which nothing is known, since nobody asked any more."""
        known = {*self.rows, *self.own, *self.hidden, *self.unanswered}
        return [name for name in self.subject.tensors if name not in known]

    @cached_property
    def marked(self) -> list[Window]:
        """The tensors that are marked in each run."""
        return self._windows(self.subject.tensors, 1)

    @cached_property
    def apart(self) -> list[Window]:
        """The tensors whose own errors each run tells; only finite values can be fed."""
        if not self._settings.own or not self.job.settings.target.holds_inner_values:
            return []
        return self._windows([*known(self.subject.base, finite=True)], APART)

    def take(self, into: dict[str, Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep rows; of a tensor that was looked at several times (an output of the model) the first."""
        for row in rows:
            into.setdefault(row["tensor"], {**row, "bad": self.is_bad(row)})

    def is_bad(self, row: Mapping[str, Any]) -> bool:
        """Whether a tensor is wrong as the check means it: of a model that fails by NaN or Inf one that holds these.

        Where the reference ends in NaN or Inf as well (in low precision it rounds what it hands out), such a value is
        wrong whatever the reference has.
        """
        studied = self.judge.studied.signature
        only_finite = isinstance(self.job.settings.checker, FiniteChecker) or (studied and studied.kind in NON_FINITE)
        wrong = bool(row["bad"]) and (not only_finite or row["kind"] in NON_FINITE)
        return wrong or (not self.is_sane and overflows(row))

    def look(self) -> None:
        """Look at tensors as outputs, then at what parts make of good values.

        Where marks hide the failure, or leave no answer, and the parts do not show it, the marks are looked at in
        halves: less is hidden.
        """
        hiding = [window for window in self.marked if not self._shows(window)]
        self._look_apart()
        queue, left = [half for window in reversed(hiding) for half in reversed(halves(window))], MOST_HALVINGS
        if any(row["bad"] for row in self.own.values()):
            return
        while queue and left and not self.stopped:
            window, left = queue.pop(), left - 1
            if not self._shows(window):
                queue += reversed(halves(window))

    def _shows(self, window: Window) -> bool:
        """Look at tensors as outputs; return whether the failure shows with these, or the budget is spent."""
        verdict = self._verdict(self.judge, window, "marked as outputs")
        if verdict is None:
            return True
        rows = rows_of(verdict)
        if rows and self.marking.shows(rows):
            self.take(self.rows, rows)
            return True
        self.silent = self.silent or ("" if rows else verdict.said)
        if len(window) == 1:
            (self.hidden if rows else self.unanswered).extend(window)
        return False

    def _look_apart(self) -> None:
        """Look at what parts make of good values; tensors that the runtime has fused away are not there."""
        tensors = tuple(name for window in self.apart for name in window)
        judge = self.judge.stage("apart", replace(self.subject, tensors=tensors, apart=True)) if tensors else self.judge
        for window in self.apart:
            if verdict := self._verdict(judge, window, "made of good values"):
                rows = rows_of(verdict)
                self.take(self.own, (row for row in rows if not row["output"]))
                if not rows and verdict.outcome is not Outcome.PASS:
                    self.own_unknown = self.own_unknown or verdict.said
        inside = findings.within(self.subject.base.graph, self.own, self.rows)
        if self.own and not inside:
            self.own_unknown = self.own_unknown or "the nodes are fused, so no value between them can be set"
        self.own = inside

    @property
    def _settings(self) -> LayerwiseSettings:
        return chosen(self.job.settings.strategy, LayerwiseSettings)

    @cached_property
    def is_sane(self) -> bool:
        """Whether the reference's outputs are finite."""
        base = self.subject.base
        return base.recorded.healthy(base.graph.outputs)

    def _windows(self, tensors: Sequence[str], copies: int) -> list[Window]:
        """Return the tensors in runs; each takes so many times its bytes."""
        base, most = self.subject.base, self._settings.memory_mb
        every = {name: max(sample[name].size for sample in base.recorded.values) for name in known(base, sizes=True)}
        room = min(MEMORY, int(machine.memory_mb() * 2**18)) if most is None else room_beside(base.graph, every, most)
        return windows({name: copies * every[name] for name in tensors}, room)

    def _verdict(self, judge: Judge, window: Window, how: str) -> Verdict | None:
        """Return the verdict on a run that hands out these tensors; None: the budget is spent."""
        subject = judge.subject
        assert isinstance(subject, Layers)
        trial = Trial.of([subject.places[name] for name in window])
        verdict = judge.recall(trial, 0, Phase.FIRST_LOOK, how)
        if verdict is None and not self._spent:
            try:
                verdict = judge.sure(trial, Phase.FIRST_LOOK, how)
            except OutOfTime as error:
                log.warning("%s", error)
        self.stopped = self.stopped or verdict is None
        self.runs += verdict is not None
        self.peak_mb = max(self.peak_mb, verdict.peak_rss_mb if verdict else 0.0)
        return verdict

    @property
    def _spent(self) -> bool:
        budget = self.job.means.budget
        paid = budget.checks is not None and self.judge.tally.paid["search"] >= budget.checks
        return paid or (budget.seconds is not None and time.monotonic() - budget.started >= budget.seconds)


WHOLE = "the model as it is"
WITHOUT_ARENA = {"enable_cpu_mem_arena": "false"}
"""ONNX Runtime's arena takes the next power of two, and gives nothing back."""
MOST_WORST = 20
"""Rows of the worst tensors that the report shows."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Compare all tensors and leave the result folder behind. Raises UsageError for a check that compares nothing."""
    if not isinstance(settings.checker, AutoChecker | CompareChecker | FiniteChecker):
        raise UsageError(
            f"strategy=layerwise checker={settings.checker.name}: it does not say what a tensor inside the model "
            "should hold. Take checker=auto, compare or finite"
        )
    if not settings.cut.records:
        raise UsageError("strategy=layerwise cut.record=off: there is nothing to compare with. Set cut.record=auto")
    with Job.opened(_within_memory(settings), folder, command) as job:
        if refused := refused_by_target(job):
            return refused
        loaded = load(job.settings, job.pool, job.folder)
        base = Subgraph.of_loaded(loaded, job.folder, job.settings.cut)
        sizes = job.settings.target.holds_inner_values  # a builder has outputs of its own for them
        inner = tuple(name for name in known(base, sizes=sizes) if name not in base.graph.output_set)
        subject = Layers(base, inner, _lean(job.settings))
        with job.judge(subject, loaded, "tensors") as judge:
            job.drop_stale_results()
            asked = _Layerwise(job, loaded, judge, Look(job, subject, judge, Marking()))
            summary = asked.told(job.ended(asked.interrupted, asked.ending))
            job.bundle(summary)
    return summary


def _within_memory(settings: Settings) -> Settings:
    """Return settings by which the reference is recorded in no more memory than the target may take."""
    most = chosen(settings.strategy, LayerwiseSettings).memory_mb
    if most is None or settings.cut.memory is not None:
        return settings
    return replace(settings, cut=replace(settings.cut, memory=f"{max(most // 4, 1)}M"))


def _lean(settings: Settings) -> dict[str, Any]:
    """Return settings of the target by which it takes no more memory than it needs."""
    target = settings.target
    if chosen(settings.strategy, LayerwiseSettings).memory_mb is None or not isinstance(target, OnnxRuntimeBackend):
        return {}
    return {"session_options": {**WITHOUT_ARENA, **target.session_options}}


@dataclass(frozen=True)
class _Layerwise:
    """What is asked, and what is said of the answer."""

    job: Job
    loaded: Loaded
    judge: Judge
    look: Look

    def interrupted(self, exit_code: int) -> SessionResult:
        """Return that somebody stopped it: what was measured is in the journal."""
        return SessionResult(Status.interrupted, "", code=exit_code)

    def ending(self) -> SessionResult:
        """Look at all tensors. Raises CannotJudge where the target gives nothing to look at."""
        look, plain = self.look, self.judge.sure(NOTHING, Phase.PREFLIGHT, WHOLE)
        settings = self.job.settings
        if plain.outcome is Outcome.FAIL:
            study(self.judge, plain, WHOLE)
        measure = measured(plain.metrics)
        if plain.outcome is Outcome.FAIL and (why := unlike_expected(settings, self.loaded.recorded, measure)):
            raise CannotJudge(why)
        if not rows_of(plain):
            raise CannotJudge(f"{WHOLE} gives no values to compare: {plain.said}; {REDUCE}")
        look.take(look.rows, rows_of(plain))
        look.marking.begin(look.rows, look.is_bad, fails=plain.outcome is Outcome.FAIL)
        if settings.plan:
            runs = len(look.marked) + len(look.apart)
            tensors = {*look.rows, *(name for window in (*look.marked, *look.apart) for name in window)}
            said = f"{counted(len(tensors), 'tensor')} would be compared in {counted(runs, 'run')}"
            return SessionResult(Status.planned, f"{said}; stopped before that, as asked", remaining=runs)
        look.look()
        if look.findings.first_bad:
            if look.findings.reference_is_wrong and not look.is_sane:
                raise CannotJudge(
                    f"the reference is not finite from {look.findings.first_bad.tensor} of "
                    f"{listed(look.findings.culprits)} on, and the target is: the reference is wrong"
                )
            return SessionResult(Status.found, self._said(plain), signature=self.judge.studied.signature)
        return self._nothing(plain)

    def _nothing(self, plain: Verdict) -> SessionResult:
        """Return how it ends where no tensor is wrong that is made of right ones."""
        look = self.look
        if any(row["bad"] for row in look.rows.values()):
            hides = look.marking.hides
            said = "marking tensors as outputs hides the failure" if hides else "the first wrong tensor is not known"
            raise CannotJudge(f"{said}{self._left}; {REDUCE}")
        if plain.outcome is Outcome.FAIL:
            raise CannotJudge(f"{WHOLE} fails ({plain.said}), but no tensor differs from the recorded values; {REDUCE}")
        empty = [f"'{name}'" for name, row in look.rows.items() if not row.get("compared", True)]
        seen, nothing = counted(len(look.rows) - len(empty), "tensor"), len(look.rows) == len(empty)
        but = f"; nothing is compared of {listed(empty)}{self._left}" if empty else self._left
        if look.stopped or look.unanswered or (look.silent and look.not_asked) or nothing:
            return SessionResult(Status.could_not_judge, f"{seen} compared, none is wrong by this check{but}")
        return SessionResult(Status.nothing_to_find, f"all of {seen} are right by this check{but}")

    def _said(self, plain: Verdict) -> str:
        found = self.look.findings
        first, own, hidden = found.first_bad, found.largest_own, self.look.hidden
        assert first
        outside = "" if plain.outcome is Outcome.FAIL else f"{WHOLE} is not judged ({plain.reason}), but inside it "
        if plain.outcome is Outcome.PASS:
            outside = f"{WHOLE} passes, but inside it "
        parts = [f"{outside}the first wrong tensor is {first.tensor}, the output of {listed(found.culprits)}"]
        if own:
            place = f"the fused part {listed(own.nodes)}" if len(own.nodes) > 1 else f"{ending_in(own)}{own.node}"
            parts.append(f"given right inputs, {place} has the largest error ({size_of(own.kind, own.own)})")
        if self.look.marking.word == BREAKS:
            parts.append("it fails once tensors are marked as outputs")
        elif self.look.marking.hides:
            parts.append(f"marking {listed(hidden) or 'tensors as outputs'} hides the failure")
        return "; ".join(parts) + self._left

    @property
    def _left(self) -> str:
        """What is not known, and why."""
        look, parts = self.look, []
        if look.unanswered:
            parts.append(f"with {listed(look.unanswered)} marked as an output there is no answer ({look.silent})")
        elif look.silent and look.not_asked:
            parts.append(f"with tensors marked as outputs there is no answer ({look.silent})")
        parts += [f"the errors with right inputs are not known: {look.own_unknown}"] if look.own_unknown else []
        if look.stopped:
            parts.append(f"the budget was reached before {counted(len(look.not_asked), 'tensor')} could be compared")
        return "".join(f"; {part}" for part in parts)

    @property
    def _warnings(self) -> Iterator[str]:
        path, most = self.job.settings.result.path, chosen(self.job.settings.strategy, LayerwiseSettings).memory_mb
        if path:
            yield f"result.path={path}: strategy=layerwise hands no model over; nothing is written there"
        if most is not None and self.look.peak_mb > most:
            yield f"strategy.memory_mb={most} was not kept: a worker took {self.look.peak_mb:.0f} MiB"

    def told(self, ending: SessionResult) -> Summary:
        """Return what is reported, and write the rows of all tensors beside it."""
        look = self.look
        found = look.findings if ending.status is Status.found else Findings(self.loaded.graph, {}, {})
        summary = self.job.summary(self.judge, ending, self.loaded)
        summary = replace(summary, warnings=(*summary.warnings, *self._warnings))
        if ending.status not in (Status.found, Status.nothing_to_find, Status.could_not_judge) or not look.rows:
            return summary
        rows = findings.full_rows(self.loaded.graph, look.rows, look.own)
        findings.write(self.job.folder, rows)
        worst = sorted((row for row in rows if row.get("bad")), key=lambda row: -row["of_limit"])
        told = LayersFound(
            tensors=len({*look.rows, *look.own}),
            runs=look.runs,
            first_bad=found.first_bad,
            largest_own=found.largest_own,
            marking=look.marking.word,
            hidden=tuple(look.hidden),
            unanswered=tuple(look.unanswered),
            not_asked=tuple(look.not_asked),
            own_unknown=look.own_unknown,
            suspects=found.suspects,
            outputs=tuple(row for row in rows if row.get("output")),
            worst=tuple(worst[:MOST_WORST]),
            files=findings.FILES,
        )
        return replace(summary, layers=told, culprits=found.culprits)
