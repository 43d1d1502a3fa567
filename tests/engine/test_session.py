"""The session on a subject without files: who is asked, who is given up, what is counted and claimed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from onnx import helper

from runner.checkers.interactive import Undo
from runner.engine.check_trials import Budget, CheckLimits, Judge
from runner.engine.min_good import HandOver, nearest
from runner.engine.repeated_checks import Rates, Reliability
from runner.engine.session import harms, scale_of
from runner.engine.session_question import NOTHING, CurrentAnswer, SessionResult
from runner.engine.subject import Kept
from runner.engine.tally import HANDED_OVER, Tally
from runner.exit_codes import CannotJudge, NotTried
from runner.jobs.run import Pipeline
from runner.journal.journal import Journal
from runner.journal.kept_files import Artifacts
from runner.judgment import ERROR, TOLERANCES, Scale
from runner.model.graph.graph_index import Graph
from runner.schema.checker import Flaky
from runner.schema.root import ArtifactSettings, Keep, LeaseMode
from runner.verdict import UNFIT, Candidate, Phase, Signature, Verdict
from runner.workers.gpu_leases import Leases
from runner.workers.gpus import Gpus
from runner.workers.pool import Pool
from strategies.minimal import linear, reduce
from strategies.repeat import repeat
from strategies.search import Answer, Ask, Claim, Closure, Done, Outcome, Space, Trial
from tests.model.models import model_of

FAIL = Verdict(Outcome.FAIL, Signature("check", "exit 1"), seconds=1.0)
PASS = Verdict(Outcome.PASS, seconds=1.0)
Rule = Callable[[Candidate], Verdict]


class Numbers:
    """A subject whose candidates are nothing but their trials."""

    def __init__(self, count: int) -> None:
        self.space = Space(tuple(range(count)))

    def identity(self):
        return {"kind": "numbers"}

    def names(self, trial):
        return tuple(str(number) for number in trial)

    def make(self, trial, folder):
        return Candidate(None, folder, trial)


class Rules:
    name, wants_feeds = "rules", False

    def __init__(self, rule: Rule) -> None:
        self.check = rule

    def settle(self, verdict):
        pass

    def reset(self):
        return False

    def identity(self):
        return {}

    def describe(self):
        return "the rule"


class Hands(HandOver):
    """Writes a line in place of a model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, subject, trial, name):
        path = self.folder / name
        path.write_text(trial.ranges)
        return path

    def withdraw(self, name):
        (self.folder / name).unlink(missing_ok=True)


def session(
    folder: Path,
    rule: Rule,
    *,
    count: int = 32,
    search=reduce,
    mode: Flaky = Flaky.never,
    refine=None,
    **means,
) -> Pipeline:
    subject = Numbers(count)
    judge = Judge(
        subject,
        Rules(rule),
        Journal(folder / "journal.jsonl", {}),
        Artifacts(ArtifactSettings(keep=Keep.none), folder, folder),
        folder / "checks",
        lambda told: None,
    )

    made = Pipeline(
        judge,
        search,
        means=CheckLimits(**means),
        reliability=Reliability(mode, 0.01),
        hand_over=Hands(folder),
    )
    if refine:
        made.refine = refine
    return made


def reduced(folder: Path, rule: Rule, **given) -> tuple[Pipeline, SessionResult]:
    """A session that has come to its end."""
    one = session(folder, rule, **given)
    assert one.preflight() is None
    return one, one.reduce()


def needs(*culprits: int) -> Rule:
    return lambda candidate: FAIL if candidate.trial.elements.issuperset(culprits) else PASS


def test_what_the_machine_did_not_let_be_checked_is_tried_anew_in_another_run(tmp_path):
    """Memory runs out on one day; what is said then would be an answer for ever."""

    def crowded(candidate):
        if len(candidate.trial) == 5:
            raise NotTried("it took more memory than one process may take here")
        return needs(7)(candidate)

    five = Trial.of(range(5, 10))
    for rule, wanted in ((crowded, Outcome.UNRESOLVED), (needs(7), Outcome.FAIL), (crowded, Outcome.FAIL)):
        judge = session(tmp_path, rule).judge
        verdict = judge.verdict(five, "search", "five", "search")
        assert verdict.outcome is wanted
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert [("more memory" in line, '"fail"' in line) for line in lines[1:]] == [(True, False), (False, True)]


def test_what_could_not_judge_the_whole_model_is_asked_anew(tmp_path):
    """Once what was missing is there, going on has to help."""
    missing = Verdict(Outcome.UNRESOLVED, reason="FileNotFoundError: limits.json")
    for _ in range(2):
        judging = session(tmp_path, lambda candidate: missing)
        with pytest.raises(CannotJudge, match=r"limits\.json"):
            judging.preflight()
        assert judging.judge.sure(judging.whole, Phase.PREFLIGHT, "the whole model") == missing
        assert judging.judge.tally.paid["trust"] == 1, "in one run it is paid for once"
    assert session(tmp_path, needs(7)).preflight() is None


@pytest.mark.parametrize("workers", [1, 4])
def test_every_number_comes_from_a_recorded_verdict(tmp_path, workers):
    one, ending = reduced(tmp_path, needs(7, 20), workers=workers)
    assert (ending.status, ending.trial) == ("found", Trial.of([7, 20]))
    tally, entries = one.judge.tally, one.judge.journal.entries()
    assert sum(tally.paid.values()) == len(entries) == sum(tally.outcomes.values())
    assert tally.paid["trust"] == 3
    assert tally.seconds == sum(entry.verdict.seconds for entry in entries)
    assert tally.outcomes["fail"] == sum(entry.verdict.outcome is Outcome.FAIL for entry in entries)


def test_nobody_waits_for_the_files_of_another_check(tmp_path, monkeypatch):
    """Models are copied when a check is over; the next one can begin meanwhile."""
    judge = session(tmp_path, needs(9)).judge
    copying, copied = threading.Event(), threading.Event()

    def sort(candidate, verdict, question):
        copying.set()
        assert copied.wait(30)

    monkeypatch.setattr(judge.artifacts, "sort", sort)
    with ThreadPoolExecutor(2) as threads:
        check = threads.submit(judge.verdict, Trial.of([9]), "search", "one", "search")
        assert copying.wait(30)
        number, _ = threads.submit(judge.make, Trial.of([8]), "search", "another").result(10)
        copied.set()
        assert number == 2 and check.result(30).outcome is Outcome.FAIL


def test_nobody_waits_for_checks_that_are_not_needed_any_more(tmp_path):
    """The passing checks last until their processes are killed; the answer needs only those of a chain of failures."""
    begun, killed = threading.Event(), threading.Event()

    def rule(candidate):
        (candidate.folder / "said").touch()
        if candidate.phase == "one at a time" and 9 not in candidate.trial:
            begun.set()
            killed.wait(30)
            return FAIL  # what a killed check says is worth nothing
        if candidate.phase == "one at a time":
            assert begun.wait(30)  # else there is nothing to kill when the answer is known
        return needs(9)(candidate)

    one = session(tmp_path, rule, count=10, search=one_question, workers=4, kill_checks=killed.set)
    one.find_min_good = False
    one.preflight()
    ending = one.reduce()
    assert killed.is_set()
    assert ending.trial == Trial.of(range(1, 10))
    known = {entry.ranges for entry in one.judge.journal.entries()}
    assert not any(9 not in Trial.parse(ranges) for ranges in known if ranges)
    left = {path.name for path in (tmp_path / "checks").iterdir()}
    assert left == {f"{entry.iteration:05d}" for entry in one.judge.journal.entries()}


def one_question(space):
    """May the first element go? YES ends the search; NO would lead to another question, which is speculated on."""
    without, other = Trial.of(space.order[1:]), Trial.of(space.order[:-1])

    def then(answer):
        if answer is Answer.YES:
            return Done(without, Claim.WINDOW)
        return Ask(other, lambda _: Done(space.whole, Claim.WINDOW), "one at a time")

    return Ask(without, then, "one at a time")


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interruption_keeps_the_best_so_far(tmp_path, workers):
    asked = []

    def rule(candidate):
        asked.append(candidate.trial)
        return needs(3)(candidate)

    one = session(tmp_path, rule, search=linear, workers=workers)
    one.preflight()
    take, taken = one.inquiry._take, []

    def interrupt(ask, future):
        take(ask, future)
        taken.append(ask.trial)
        if len(taken) == 6:
            raise KeyboardInterrupt

    one.inquiry._take = interrupt
    with pytest.raises(KeyboardInterrupt):
        one.reduce()
    ending = one.interrupted(130)
    assert (ending.status, ending.exit_code) == ("interrupted", 130)
    smallest = [trial for trial in taken if len(trial) == min(map(len, taken))]
    # several workers may end with several that are as small
    assert ending.trial in (smallest if workers > 1 else smallest[:1])
    assert ending.main == ending.trial
    assert f"{len(ending.trial)} nodes" in ending.message


@pytest.mark.parametrize(("workers", "checks"), [(1, 1), (4, 3)])
def test_a_budget_is_not_overdrawn(tmp_path, workers, checks):
    one, ending = reduced(tmp_path, needs(3, 28), search=linear, workers=workers, budget=Budget(checks))
    assert one.judge.tally.paid["search"] == checks
    assert ending.status == "found"
    assert ending.done.claim.value == "budget reached"


def test_a_wait_for_a_gpu_ends_with_the_budget(tmp_path, monkeypatch):
    """Somebody takes the GPU after one check and keeps it; nearly all of the budget has passed by then."""
    real, passed, taken = time.monotonic, [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: real() + passed[0])
    started, seconds = time.monotonic(), 600.0

    def leases():
        return Leases(lambda: Gpus(("GPU-one",)), 1, tmp_path / "locks", LeaseMode.gpu, tmp_path)

    with Pool(tmp_path / "workers", None, leases(), started + seconds) as pool:

        def passes(candidate):
            with pool.user_lease():
                pass
            if len(one.judge.journal.entries()) == 1:
                taken.append(leases().take("gpu"))
                passed[0] = started + seconds - 0.2 - real()
            return PASS

        budget = Budget(seconds=seconds, started=started)
        one = session(tmp_path, passes, search=lambda space: repeat("100"), budget=budget)
        ending = one.repeat()
        assert one.inquiry.stopped and ending.message == "2 checks: 2 pass (budget reached)"
        with pytest.raises(CannotJudge, match=r"budget\.seconds is over, .*GPU-one is held by process"):
            one.preflight()
        assert all(taken)


def test_an_answer_that_does_not_fail_again(tmp_path):
    """Its files stay, but nobody calls it an answer."""
    seen = set()

    def flaky(candidate):
        first = candidate.trial not in seen
        seen.add(candidate.trial)
        return needs(5)(candidate) if first else PASS

    _, ending = reduced(tmp_path, flaky)
    assert (ending.status, ending.exit_code) == ("could_not_judge", CannotJudge.exit_code)
    assert ending.trial == Trial.of([5])
    assert (tmp_path / "reduced").read_text() == "5"
    assert not (tmp_path / "min_good").exists()


def test_a_min_good_that_does_not_pass_again_is_taken_away(tmp_path):
    def rule(candidate):
        again = candidate.phase == "re-check" and "min_good" in candidate.label
        return FAIL if again else needs(5, 6)(candidate)

    _, ending = reduced(tmp_path, rule)
    assert (ending.status, ending.min_good) == ("found", None)
    assert not (tmp_path / "min_good").exists()


def test_min_good_is_the_largest_that_passes_below_the_answer(tmp_path):
    one, ending = reduced(tmp_path, needs(5, 6, 7))
    passed = [e.trial for e in one.judge.journal.entries() if e.verdict.outcome is Outcome.PASS and e.ranges]
    assert len(ending.min_good) == max(len(trial) for trial in passed if len(trial) < 3)


def test_min_good_of_a_single_node_is_the_model_up_to_it(tmp_path):
    """A smaller part passes as well, and lacks more than what makes the difference."""
    _, ending = reduced(tmp_path, needs(22))
    assert ending.trial == Trial.of([22]) and ending.min_good == Trial.of(range(22))


def test_of_passing_trials_that_differ_as_little_the_smaller_stands_first():
    passed = [Trial.of([]), Trial.of(range(5)), Trial.of(range(8)), Trial.of([8, 10])]
    failed = [Trial.of(range(9)), Trial.of([8, 9, 10])]
    assert nearest(passed, failed) == [passed[3], passed[2], passed[1]]


def test_a_spent_budget_refuses_nothing_that_the_journal_knows(tmp_path):
    reduced(tmp_path, needs(7, 20))
    second = session(tmp_path, needs(7, 20), budget=Budget(checks=0))
    second.preflight()
    # asked first by itself: a search whose questions were refused would ask them for ever
    asked = second.judge, Trial.of([7, 20]), Phase.SEARCH, "again"
    ruling = second.reliability.rule(*asked, spent=lambda: True)
    assert ruling and ruling.answer is Answer.YES
    ending = second.reduce()
    assert ending.trial == Trial.of([7, 20]) and ending.done.claim is Claim.ONE_MINIMAL
    assert not second.judge.tally.paid["search"]


def test_what_is_handed_over_is_checked_by_the_run_that_hands_it_over(tmp_path):
    """A job with the same journal handed over a file that fails; the one of this job does not."""
    _, ending = reduced(tmp_path, needs(7, 20))
    assert ending.status == "found"
    second, ending = reduced(tmp_path, lambda candidate: PASS if candidate.model else needs(7, 20)(candidate))
    assert (ending.exit_code, ending.trial) == (3, Trial.of([7, 20]))
    assert second.judge.tally.paid == {"trust": 1}
    kept = second.judge.journal.get(Trial.of([7, 20]), HANDED_OVER)
    assert kept and kept.outcome is Outcome.PASS


def test_a_measure_is_an_error_unless_the_checker_says_otherwise(tmp_path):
    """A limit is known of those that count in tolerances: 1."""
    judge = session(tmp_path, needs(7)).judge
    assert scale_of(judge) == ERROR
    judge.checker.in_tolerances = True
    assert scale_of(judge) == TOLERANCES
    judge.checker.higher_is_better = True
    assert scale_of(judge, [0.5, 0.9]) == Scale(0.9, higher_is_better=True)
    for attempt, measure in enumerate((0.4, 0.7)):
        judge.journal.put(NOTHING, attempt, replace(PASS, metrics={"measure": measure}), "control", "", attempt)
    assert scale_of(judge) == Scale(0.7, higher_is_better=True)


def test_how_much_milder_an_answer_is_takes_two_measures(tmp_path):
    """A check may print a number for the whole model and none for a part of it."""
    one = session(tmp_path, needs(7))
    trials = {"whole": Trial.of(range(32)), "part": Trial.of([7, 8]), "silent": Trial.of([7])}
    for name, measure in (("whole", 4.0), ("part", 0.5), ("silent", None)):
        one.judge.journal.put(trials[name], 0, replace(FAIL, metrics={"measure": measure}), "search", name, 1)

    def told(smaller, before):
        return harms(one.judge, trials[smaller], CurrentAnswer(one.judge, trials[before]), ERROR)

    assert told("part", "whole") == (4.0, 0.5)
    assert told("silent", "whole") is None
    assert told("part", "silent") is None


@pytest.mark.parametrize("known", ["flaky", "spent"])
def test_repeats_that_may_not_be_needed_are_not_made_ahead(tmp_path, known):
    """Of a flaky check verdicts tell how many it takes, here one; of a spent budget none is left for them."""
    one = session(tmp_path, needs(7), mode=Flaky.auto, workers=4)
    doubt = one.reliability
    if known == "flaky":
        doubt.rates = Rates(0.99, 0.01)
    else:
        doubt.spent = lambda: True
    assert one.recheck.rule(one.judge, Trial.of([7]), "reduced", times=3).answer is Answer.YES
    assert one.judge.tally.parts == {"recheck": 1}


def test_where_no_search_asks_there_is_nothing_to_undo_and_it_is_asked_again(tmp_path):
    """Before the search, after it, and of what has no answer before it: a person who undoes is asked again."""
    undone = set()

    def hesitant(rule: Rule) -> Rule:
        def asked(candidate):
            question = candidate.phase, candidate.label
            if (Phase.of(candidate.phase).counted or not undone) and question not in undone:
                undone.add(question)
                raise Undo
            return rule(candidate)

        return asked

    one = session(tmp_path / "reduce", hesitant(lambda candidate: FAIL if candidate.trial else PASS))
    assert one.preflight() is None
    one.confirm_nothing()  # as an isolation of tactics does
    assert (one.reduce().status, one.judge.tally.paid["trust"]) == ("found", 4)
    assert {phase for phase, _ in undone} == {"pre-flight", "control", "re-check"}
    undone.clear()
    again = session(tmp_path / "repeat", hesitant(lambda candidate: PASS), search=lambda space: repeat("2"))
    assert again.repeat().message == "2 checks: 2 pass"


def test_a_control_that_gives_no_answer_is_none_of_a_flaky_check_either(tmp_path):
    one = session(
        tmp_path, lambda candidate: FAIL if candidate.trial else Verdict(Outcome.UNRESOLVED, reason="no pins")
    )
    one.reliability.rates = Rates(0.6, 0.05)
    with pytest.raises(CannotJudge, match="no pins"):
        one.confirm_nothing()
    one.confirm_nothing(unjudged=True)


def test_what_is_no_question_of_a_shrunk_answer_asks_for_no_other_settings() -> None:
    tally = Tally()
    for phase in ("one at a time", *[Phase.SHRINK] * 9):
        tally.count(
            Verdict(Outcome.UNRESOLVED if phase == Phase.SHRINK else Outcome.PASS, reason="the reference"), phase
        )
    assert not tally.unknown.advice("")
    assert tally.unknown.reasons == {"the reference": 9}


@pytest.mark.parametrize("culprits", [(7,), (7, 20)])
def test_more_workers_hand_over_the_same_in_as_many_checks(tmp_path, culprits):
    """The repeats and the file that is handed over are checked at once, and none of them twice."""
    ends = []
    for count in (1, 4):
        folder, most, running = tmp_path / str(count), [0], threading.Semaphore(count)
        folder.mkdir()

        def rule(candidate, running=running, most=most, count=count):
            with running:
                most[0] = max(most[0], count - running._value)
                time.sleep(0.01)  # long enough to be seen together on a busy machine
                return needs(*culprits)(candidate)

        one, ending = reduced(folder, rule, mode=Flaky.auto, workers=count)
        parts = dict(one.judge.tally.parts)
        ends.append((ending.trial, ending.min_good, (folder / "min_good").read_text(), parts["recheck"]))
        assert most[0] == count
        assert len(one.reliability.second.agreed) == parts["repeats"] + parts["recheck"]
        assert one.recheck.hand_over is not None
    assert ends[0] == ends[1]


@pytest.mark.parametrize("fails", [(3,), (3, 20)])
def test_where_nothing_passed_the_model_without_the_answer_is_asked(tmp_path, fails):
    """A search that is shown the culprit asks nothing else; what is left may fail by another instance of it."""
    instances = [needs(one) for one in fails]

    def rule(candidate):
        return next((FAIL for one in instances if one(candidate) is FAIL), PASS)

    def shown(space):
        return Ask(Trial.of([3]), lambda _: Done(Trial.of([3]), Claim.ONE_MINIMAL), "first look")

    one, ending = reduced(tmp_path, rule, search=shown, mode=Flaky.auto)
    assert ending.status == "found" and ending.trial == Trial.of([3]) and one.reliability.rates is None
    others = Trial.of(element for element in range(32) if element != 3)
    assert ending.min_good == (others if len(fails) == 1 else None)
    assert (tmp_path / "min_good").exists() is (len(fails) == 1)


def test_what_the_answer_leaves_is_not_asked_where_inputs_or_outputs_are_kept(tmp_path, monkeypatch):
    """It would be no set of that kind."""
    asked = []

    def rule(candidate):
        asked.append(candidate.trial)
        return needs(3)(candidate)

    kept = Space(tuple(range(32)), (), Closure.ANCESTORS)
    monkeypatch.setattr(Numbers, "__init__", lambda self, count: setattr(self, "space", kept))
    one = session(tmp_path, rule, search=lambda _: Done(Trial.of(range(4)), Claim.WINDOW))
    assert one.preflight() is None
    ending = one.reduce()
    assert (ending.trial, ending.min_good) == (Trial.of(range(4)), None)
    assert Trial.of(range(4, 32)) not in asked


def test_what_is_left_is_told_of_the_search_and_of_repeats(tmp_path):
    one = session(tmp_path, needs(5, 20), mode=Flaky.auto)
    told = []
    one.judge.report = told.append
    assert one.preflight() is None
    assert one.reduce().main == Trial.of([5, 20])
    left = {phase: [check.left for check in told if check.phase == phase] for phase in ("doubt", "re-check")}
    assert left["doubt"] == [*reversed(range(len(left["doubt"])))]
    assert left["re-check"][-1] == 0 and sorted(left["re-check"][:3], reverse=True) == left["re-check"][:3]
    searched = [check.left for check in told if Phase.of(check.phase).searching]
    assert searched[0] >= 4 and searched[-1] == 0 and min(searched[:-1]) >= 0


def test_what_was_no_node_says_nothing_of_removals() -> None:
    known = Verdict(Outcome.UNRESOLVED, reason=f"{UNFIT[0]} x")
    kept = Kept(Graph.of(model_of([helper.make_node("Neg", ["x"], ["y"])], ["x"], ["y"], [])), Trial.of([0]))
    journal = SimpleNamespace(refresh=lambda: None, removals=lambda _: (known,))
    judge: Any = SimpleNamespace(journal=journal, subject=SimpleNamespace(), _relative=lambda one: one)
    assert Judge.unfit(judge, Trial.of([3, 4]))
    judge.subject.kept = lambda _: kept
    assert not Judge.unfit(judge, Trial.of([3, 4]))
