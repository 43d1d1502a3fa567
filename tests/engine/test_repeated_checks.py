"""Checks that cannot be relied on: noticed, measured, and answered rightly all the same."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from runner.engine.check_trials import Budget
from runner.engine.repeated_checks import Count, Rates, Reliability, doubtful
from runner.engine.session import SEARCHING, Stage
from runner.engine.tally import HANDED_OVER, Tally
from runner.exit_codes import CannotJudge
from runner.journal.journal import Journal
from runner.run_folder import MIN_GOOD
from runner.schema.checker import Flaky
from runner.verdict import Candidate, Phase, Purpose
from strategies.minimal import reduce
from strategies.search import Answer, Claim, Done, Trial
from tests.engine.test_session import FAIL, PASS, Numbers, needs, reduced, session


def flaky(hit: float, false_alarm: float, *culprits: int, seed: int = 0):
    """Fails with probability ``hit`` where the culprits are, else with ``false_alarm``."""
    draw, lock = random.Random(seed), threading.Lock()

    def rule(candidate):
        with lock:
            drawn = draw.random()
        return FAIL if drawn < (hit if candidate.trial.elements.issuperset(culprits) else false_alarm) else PASS

    return rule


@pytest.mark.variants
@pytest.mark.parametrize(("hit", "false_alarm"), [(0.7, 0.1), (0.5, 0.0), (1.0, 0.2)])
def test_a_flaky_check_is_noticed_and_the_answer_is_right(tmp_path, hit, false_alarm):
    noticed = []
    for seed in range(5):
        rule, folder = flaky(hit, false_alarm, 7, 8, 20, seed=seed), tmp_path / str(seed)
        one, ending = reduced(folder, rule, mode=Flaky.auto)
        assert (ending.status, ending.trial) == ("found", Trial.of([7, 8, 20]))
        noticed += [one.reliability] if one.reliability.rates else []
    assert len(noticed) >= 4
    assert all(known.whole.total >= 20 for known in noticed)


def test_workers_decide_on_flaky_checks_too(tmp_path):
    _, ending = reduced(tmp_path, flaky(0.6, 0.05, 3, 9, seed=4), mode=Flaky.always, workers=4)
    assert ending.trial == Trial.of([3, 9])


def test_all_that_proves_an_answer_is_wrong_more_rarely_than_is_allowed(tmp_path):
    culprits = (3, 9, 12, 20, 28)
    one, ending = reduced(tmp_path, flaky(0.6, 0.02, *culprits, seed=2), mode=Flaky.always)
    assert ending.trial == Trial.of(culprits)
    doubt, removals = one.reliability, [Trial.of({*culprits} - {element}) for element in culprits]
    for trial in (ending.trial, *removals):
        count = doubt.counted(one.judge.counted(trial))
        assert doubt.rates.decide(count, doubt.max_wrong / (len(removals) + 1)), "each by its share"


@pytest.mark.parametrize("culprits", [(7,), (7, 20), (3, 7, 12, 20, 28)])
def test_repeats_cost_what_proofs_need_and_two_checks_or_a_quarter_of_the_search(tmp_path, culprits):
    one, ending = reduced(tmp_path, needs(*culprits), mode=Flaky.auto)
    tally, doubt = one.judge.tally, one.reliability
    assert (ending.trial, doubt.rates) == (Trial.of(culprits), None)
    assert tally.parts == {"preflight": 1, "recheck": 2, "repeats": tally.parts["repeats"]}
    assert tally.paid["trust"] == sum(tally.parts.values())
    removals = 3 * len(culprits) if len(culprits) > 1 else 0
    assert 2 <= tally.parts["repeats"] <= max(5 + removals if removals else 2, tally.searched[0] / 4)
    assert len(doubt.second.agreed) == tally.parts["repeats"] + 2
    assert doubt.second.power == pytest.approx(1 - 0.7 ** len(doubt.second.agreed))


def test_repeats_of_one_answer_are_none_of_another(tmp_path):
    """Where an answer is refused in a repeat, or another one is found, the one that stands is repeated as often."""
    one = session(tmp_path, needs(7), mode=Flaky.auto)
    second, answers = one.reliability.second, (Trial.of([7]), Trial.of([8]))
    for attempt in (1, 2):
        second.agree(one.judge, answers[0], HANDED_OVER + attempt)
    assert [second.afforded(one.judge, answer, 1) for answer in answers] == [0, 2]


@pytest.mark.parametrize(("culprits", "repeats"), [((7,), 2), ((7, 20), 5 + 6)])
def test_repeats_beyond_that_take_no_more_than_their_share_of_the_time(tmp_path, culprits, repeats):
    """A check of the answer takes a minute, all others no time."""
    rule = needs(*culprits)

    def slow(candidate):
        return replace(rule(candidate), seconds=60.0 if len(candidate.trial) <= 2 else 0.01)

    one = session(tmp_path, slow, mode=Flaky.auto, count=256)
    one.preflight()
    assert one.judge.tally.paid["trust"] == 1
    one.reduce()
    assert one.judge.tally.parts["repeats"] <= repeats


@pytest.mark.parametrize(("told", "again"), [
    ({"7,20": "yes", "7": "no", "20": "no"}, {"7": 4, "20": 4}),
    ({"7,20": "yes", "7": "no", "7,9": "no", "0-19": "no", "1-19": "no", "20": "no"}, {"7": 3, "20": 4}),
    ({"7,20": "yes", "7": "no", "20": "no", "0-25": "no"}, {"0-25": 2, "7": 4, "20": 4}),
    ({"7": "yes", "0-9": "yes", "10-19": "no"}, {}),
])  # fmt: skip
def test_what_few_verdicts_show_is_checked_again(told, again):
    """Of an answer of several elements each removal, once more the fewer others pass without just that element."""
    known = {Trial.parse(ranges): Answer(said) for ranges, said in told.items()}
    found = min((trial for trial, said in known.items() if said is Answer.YES), key=len)
    assert doubtful(found, known) == {Trial.parse(ranges): times for ranges, times in again.items()}


def test_what_is_doubtful_of_an_answer_of_thousands_does_not_take_their_square():
    found = Trial.of(range(3000))
    refused = [Trial(found.elements - {element}) for element in (2999, 0, 1500)]
    known = {found: Answer.YES, **dict.fromkeys(refused, Answer.NO)}
    tracemalloc.start()
    try:
        again = doubtful(found, known)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [*again] == [refused[1], refused[2], refused[0]]
    assert peak < 5 << 20  # bytes; all removals took 300 MB


@pytest.mark.parametrize("seed", [168, 9])
def test_a_miss_does_not_make_an_answer_larger(tmp_path, seed):
    """Node 7 alone passes the first two times that it is asked for, and so does a set around it."""
    draw, missed = random.Random(seed), []

    def rule(candidate):
        failing = 7 in candidate.trial
        if failing and len(candidate.trial) == 1 and len(missed) < 2:
            missed.append(candidate.trial)
            return PASS
        return FAIL if failing and (len(candidate.trial) < 3 or draw.random() < 0.95) else PASS

    _, ending = reduced(tmp_path, rule, mode=Flaky.auto)
    assert ending.trial == Trial.of([7])


def test_a_model_that_fails_now_and_then_is_not_called_healthy(tmp_path):
    rule = flaky(0.4, 0.0, 3, seed=11)  # passes when first asked
    _, ending = reduced(tmp_path, rule, mode=Flaky.auto)
    assert ending.trial == Trial.of([3])


def test_a_healthy_model_is_healthy_whatever_is_asked(tmp_path):
    for mode in Flaky:
        folder = tmp_path / mode.value
        folder.mkdir()
        one = session(folder, lambda candidate: PASS, mode=mode)
        ending = one.preflight()
        assert ending is not None
        assert ending.exit_code == 4


def test_a_coin_cannot_judge(tmp_path):
    one = session(tmp_path, flaky(0.5, 0.5, 3), mode=Flaky.always)
    with pytest.raises(CannotJudge, match="too much to tell"):
        one.preflight()


def about_files(one):
    """The verdicts on what the session handed over."""
    return [entry for entry in one.judge.journal.entries() if entry.attempt >= HANDED_OVER]


def bought(one):
    """What the budget pays for: what a search asks, and what is repeated since the check is flaky."""
    return sum(one.judge.tally.paid[purpose] for purpose in SEARCHING)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("checks", [45, 90])
def test_repeats_are_part_of_the_budget(tmp_path, checks, workers):
    given = {"mode": Flaky.always, "workers": workers, "budget": Budget(checks)}
    one, ending = reduced(tmp_path, flaky(0.5, 0.0, 7, 20, seed=5), **given)
    # what was under way when the budget was spent is paid for as well
    assert checks <= bought(one) <= checks + workers - 1
    assert "the budget was reached before" in ending.message


@pytest.mark.parametrize("checks", [0, 25])
def test_a_budget_that_no_rates_can_be_measured_with(tmp_path, checks):
    one = session(tmp_path, flaky(0.3, 0.1, 7, seed=5), mode=Flaky.always, budget=Budget(checks))
    with pytest.raises(CannotJudge, match="the budget was reached while that was measured: it takes 20 to 60 checks"):
        one.preflight()
    assert bought(one) == checks


@pytest.mark.parametrize("seed", range(2))
def test_a_rate_between_the_two_does_not_overdraw_a_budget(tmp_path, seed):
    """What fails neither as often as the whole model nor as rarely as the control takes hundreds of repeats."""
    draw = random.Random(seed)

    def rule(candidate):
        held = len(candidate.trial.elements & {7, 20})
        return FAIL if draw.random() < (0.02, 0.32, 0.64)[held] else PASS

    one, ending = reduced(tmp_path, rule, mode=Flaky.always, budget=Budget(150))
    assert bought(one) <= 150
    assert ending.status in ("found", "could_not_judge")
    assert bought(one) < 150 or "the budget was reached before" in ending.message


def test_an_answer_that_no_budget_is_left_to_repeat_is_said_to_be_so(tmp_path):
    """A reliable check: the search ends within its time, and the repeats would not."""
    one = session(tmp_path, needs(7, 20), mode=Flaky.auto, budget=Budget(seconds=1e9))
    one.preflight()
    one.reliability.spent = lambda: True
    ending = one.reduce()
    assert ending.trial == Trial.of([7, 20])
    assert ending.message.endswith("the budget was reached before the answer was repeated often enough to be sure")
    assert one.judge.tally.paid["trust"] == 1 + 1 + 1  # the whole model, reduced, min_good


def test_what_is_reused_is_counted_once_and_all_of_it(tmp_path):
    """What the first run paid for, the second draws nothing anew for; files are checked anew, here with no chance."""
    runs, files = [], []
    for seed in (2, 9):
        drawn, certain = flaky(0.6, 0.0, 5, 6, seed=seed), needs(5, 6)

        def rule(candidate, drawn=drawn, certain=certain):
            return certain(candidate) if candidate.phase == "re-check" else drawn(candidate)

        one, _ = reduced(tmp_path, rule, mode=Flaky.always)
        runs.append(one.judge.tally)
        files.append(len({entry.ranges for entry in about_files(one)}))
    paid = sum(runs[0].paid.values())
    assert paid == sum(runs[0].outcomes.values())
    assert (runs[0].reused, runs[1].reused, runs[1].paid.total()) == (0, paid - files[0], files[1])


class OneStage:
    """A refinement of the first answer into three elements, of which any may go."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.begun = folder, False

    def next(self, standing):
        if self.begun:
            return None
        self.begun = True
        subject = Numbers(3)
        judge = standing.judge.beside(subject, Journal(self.folder / "stage.jsonl", {"stage": "smaller"}))
        space = subject.space
        return Stage("hoist", "smaller", judge, space, reduce(space, None), ("owner",))


def near_a_limit(failures: int):
    """Fails where 7 and 20 are; the smallest refined answer fails so many times, and passes from then on."""
    left = count(failures, -1)

    def rule(candidate):
        if candidate.trial.elements == {0}:
            return FAIL if next(left) > 0 else PASS
        return FAIL if candidate.trial.elements in ({0, 1, 2}, {0, 1}) else needs(7, 20)(candidate)

    return rule


@pytest.mark.parametrize(
    ("mode", "failures"), [(Flaky.never, 1), (Flaky.never, 2), (Flaky.auto, 1), (Flaky.auto, 6), (Flaky.auto, 7)]
)
def test_a_refinement_whose_failure_is_not_reliable_is_refused(tmp_path, failures, mode):
    """The answer before it stands, and nothing else is asked again. Made of a weak answer, it is repeated as often."""
    plain, _ = reduced(tmp_path / "plain", needs(7, 20), mode=mode)
    one, ending = reduced(tmp_path, near_a_limit(failures), mode=mode, refine=OneStage(tmp_path).next)
    refused = failures <= (1 if mode is Flaky.never else 6)
    assert ending.status == "found"
    assert (ending.standing.judge is one.judge, ending.main) == (refused, Trial.of([7, 20]))
    assert one.reliability.rates is None
    assert (tmp_path / "reduced").read_text() == ("7,20" if refused else "0")
    assert one.judge.tally.paid["search"] <= plain.judge.tally.paid["search"] + 5


class TwoStages:
    """A refinement of the first answer into element 30, and one of that into element 31."""

    def __init__(self, folder: Path, *elements: int) -> None:
        self.folder, self.left = folder, [*elements] or [30, 31]

    def next(self, standing):
        if not self.left:
            return None
        subject, smaller = Numbers(32), Trial.of([self.left.pop(0)])
        judge = standing.judge.beside(subject, Journal(self.folder / f"{smaller.ranges}.jsonl", {"of": smaller.ranges}))
        space, done = replace(subject.space, order=tuple(smaller)), Done(smaller, Claim.SMALLEST_SEEN)
        return Stage("shrink", "smaller", judge, space, done, (), Purpose.REFINE)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_was_made_of_a_refinement_that_is_not_reliable_is_refused_with_it(tmp_path, workers):
    """Only the last one is repeated; the one below it turns out to be as little reliable, the first answer is."""
    asked = Counter[int]()

    def rule(candidate):
        refined = [element for element in (30, 31) if candidate.trial.elements == {element}]
        if not refined:
            return needs(7, 20)(candidate)
        asked[refined[0]] += 1
        return FAIL if asked[refined[0]] % 2 else PASS

    one, ending = reduced(
        tmp_path,
        rule,
        mode=Flaky.auto,
        refine=TwoStages(tmp_path).next,
        workers=workers,
    )
    assert (ending.status, ending.standing.judge is one.judge, ending.trial) == ("found", True, Trial.of([7, 20]))
    assert one.reliability.rates is None
    assert (tmp_path / "reduced").read_text() == "7,20"
    assert asked[30] == 2, "one verdict made it an answer, and the next one contradicted that"


class AllAtOnce:
    """Makes element 31 of the first answer in one step, else element 30, and 31 of that one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.at, self.left = folder, None, iter(())

    def next(self, standing):
        if standing is not self.at:
            after = {frozenset({7, 20}): (31, 30), frozenset({30}): (31,)}
            self.at, self.left = standing, iter(after.get(standing.trial.elements, ()))
        made = next(self.left, None)
        return made and TwoStages(self.folder, made).next(standing)


@pytest.mark.parametrize(("failures", "left"), [(1, "30"), (9, "31")])
@pytest.mark.parametrize("mode", [Flaky.auto, Flaky.never])
def test_what_was_made_in_one_step_and_is_not_reliable_is_made_in_part(tmp_path, mode, failures, left):
    """As if the steps had been taken one by one; what they ask again is in the journal."""
    asked = Counter[frozenset[int]]()

    def rule(candidate):
        asked[held := candidate.trial.elements] += 1
        if held in ({30}, {31}):
            return PASS if held == {31} and asked[held] > failures else FAIL
        return needs(7, 20)(candidate)

    one, ending = reduced(tmp_path, rule, mode=mode, refine=AllAtOnce(tmp_path).next, count=24)
    assert (ending.status, (tmp_path / "reduced").read_text()) == ("found", left)
    assert one.reliability.rates is None
    assert asked[frozenset({31})] <= (2 if failures == 1 else 6)


class StagesOfEach:
    """Of the first answer one that makes it element 30, and of that one inside it: asked for anew of each answer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.at, self.left, self.begun = folder, None, iter(()), 0

    def next(self, standing):
        if standing is not self.at:
            self.at, self.left, self.begun = standing, self._stages(standing), self.begun + 1
            assert self.begun <= 3, "of the first answer, of the one made of it, and of the first one again"
        return next(self.left, None)

    def _stages(self, standing):
        subject, last = Numbers(44), standing.trial.elements
        if last == {7, 20}:
            smaller = Trial.of([30])
            judge = standing.judge.beside(subject, Journal(self.folder / "sinks.jsonl", {"of": "sinks"}))
            done = Done(smaller, Claim.SMALLEST_SEEN)
            space = replace(subject.space, order=tuple(smaller))
            yield Stage("sinks", "smaller", judge, space, done, (), Purpose.REFINE)
        elif last == {30}:
            space = replace(subject.space, order=(40, 41, 42, 43))
            judge = standing.judge.beside(subject, Journal(self.folder / "inside.jsonl", {"of": "inside"}))
            yield Stage("inside", "inside", judge, space, reduce(space, None), ())


def test_a_refinement_that_is_refused_with_what_was_made_of_it_is_not_taken_up_again(tmp_path):
    """What is refused inside it shows that it is not reliable either; its first verdict is recorded, and failed."""
    asked = Counter[frozenset[int]]()

    def rule(candidate):
        held = candidate.trial.elements
        if held != {30} and not held & {40, 41, 42, 43}:
            return needs(7, 20)(candidate)
        if held >= {40, 41}:
            return FAIL
        asked[held] += 1
        return FAIL if asked[held] == (1 if held == {30} else 2) else PASS

    one, ending = reduced(tmp_path, rule, mode=Flaky.auto, refine=StagesOfEach(tmp_path).next, count=24)
    assert (ending.standing.judge is one.judge, ending.trial) == (True, Trial.of([7, 20]))
    assert asked[frozenset({30})] == 2


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_check_that_says_what_may_be_tried_may_be_the_last_one_of_a_budget(tmp_path, more):
    plain, _ = reduced(tmp_path / "plain", needs(7, 20))

    def asks_first(standing):
        if stage := two.next(standing):
            standing.judge.sure(Trial.of([30]), Phase.CONTROL, "what may be tried", Purpose.REFINE)
        return stage

    two, checks = TwoStages(tmp_path, 31), bought(plain) + more
    one, ending = reduced(tmp_path, needs(7, 20), refine=asks_first, budget=Budget(checks))
    assert ending.trial == Trial.of([7, 20])
    assert bought(one) == checks


def test_a_flaky_check_is_noticed_in_a_refinement_too(tmp_path):
    """What was reliable so far fails only now and then from the refinement on: it is not the refinement."""
    late = []

    def rule(candidate):
        if candidate.trial.elements == {0}:
            late.append(1)
            return FAIL if len(late) % 2 else PASS
        verdict = near_a_limit(0)(candidate)
        return PASS if late and len(late) % 2 == 0 and not late.append(1) else verdict

    one, _ = reduced(tmp_path, rule, mode=Flaky.auto, refine=OneStage(tmp_path).next)
    assert one.reliability.rates is not None


def test_an_answer_is_judged_by_its_own_repeats_too(tmp_path):
    """The whole model failed in 18 of 20 repeats, by luck; 8 failures of 20 handed over are no reason to refuse."""
    one = session(tmp_path, needs(7))
    doubt = Reliability(Flaky.always, 0.01)
    doubt.whole, doubt.control = Count(18, 2), Count(3, 17)
    doubt.rates = Rates.measured(doubt.whole, doubt.control)
    answer = Trial.of([7])
    for attempt in range(12):
        one.judge.journal.put(answer, attempt, FAIL if attempt < 8 else PASS, "doubt", "7", attempt)
    rates = doubt.rates_of(one.judge, answer)
    assert doubt.rates is not None
    assert rates is not None
    assert doubt.rates.decide(Count(8, 12), 0.01) is Answer.NO
    assert rates.decide(Count(8, 12), 0.01) is None


@pytest.mark.parametrize(("max_wrong", "fails"), [(0.2, 3), (0.001, 4)])
def test_what_is_known_of_a_trial_is_as_sure_as_a_search_or_the_run_has_to_be(tmp_path, max_wrong, fails):
    """With these rates a failure multiplies the odds by 6."""
    one = session(tmp_path, needs(7))
    doubt, answer = Reliability(Flaky.always, max_wrong, rates=Rates(0.6, 0.1)), Trial.of([7])
    for attempt in range(fails):
        assert doubt.known(one.judge, answer) is None
        one.judge.journal.put(answer, attempt, FAIL, "doubt", "7", attempt)
    assert doubt.known(one.judge, answer) is Answer.YES


@pytest.mark.parametrize(("before", "said"), [((PASS,), Answer.YES), ((PASS, PASS), Answer.NO)])
def test_what_a_budget_ends_is_taken_for_what_it_rather_is(tmp_path, before, said):
    """The file fails: more often than not with one pass before, and not with two."""
    one = session(tmp_path, lambda candidate: FAIL)
    doubt, answer = one.reliability, Trial.of([7])
    doubt.rates, doubt.spent = Rates(0.6, 0.15), lambda: True
    for attempt, verdict in enumerate(before):
        one.judge.journal.put(answer, attempt, verdict, "doubt", "7", attempt)
    assert one.recheck.rule(one.judge, answer, MIN_GOOD).answer is said
    doubt.spent = lambda: False
    assert doubt.unsure and not doubt.out_of_budget() and doubt.unsure


def test_repeats_share_nothing_with_other_checks_and_no_check_does_that_is_flaky(tmp_path):
    """What shares a process with others may answer as they do: that would hide what is looked for here."""
    for name, rule, mode in (
        ("reliable", needs(7), Flaky.auto),
        ("flaky", flaky(0.6, 0.05, 7), Flaky.always),
    ):
        asked = []

        def noted(candidate, rule=rule, asked=asked):
            asked.append(candidate)
            return rule(candidate)

        _, ending = reduced(tmp_path / name, noted, mode=mode)
        assert ending.trial == Trial.of([7])
        seen = set[tuple[Trial, bool]]()
        for number, candidate in enumerate(asked):
            place = candidate.trial, candidate.phase == "re-check"
            again = place in seen or candidate.phase == "re-check"
            # the first check comes before anything is known of how reliable it is
            assert candidate.fresh is (again or (number > 0 and name == "flaky"))
            seen.add(place)


def test_what_draws_random_numbers_shares_no_process(tmp_path, monkeypatch):
    """A generator goes on where the check before it stopped."""
    asked = []

    def noted(candidate):
        asked.append(candidate.fresh)
        return needs(7)(candidate)

    monkeypatch.setattr(Numbers, "make", lambda self, trial, folder: Candidate(None, folder, trial, draws=True))
    _, ending = reduced(tmp_path, noted)
    assert ending.trial == Trial.of([7])
    assert asked and all(asked)


def test_what_makes_an_answer_simpler_earns_no_repeats():
    """A quarter of the search is a quarter of what looked for the answer."""
    tally, second = Tally(), replace(PASS, seconds=2.0)
    for purpose, phase in (
        (Purpose.SEARCH, "earliest end"),
        (Purpose.REFINE, "several at once"),
        (Purpose.REFINE, Phase.SHRINK),
    ):
        tally.pay(second, purpose, phase, 0)
    tally.pay(second, Purpose.REFINE, Phase.CONTROL, 0)
    assert (tally.searched, tally.paid["refine"]) == ((2, 4.0), 3)
