"""The journal, with real processes: nothing lost, nothing glued, nothing of another context."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.engine.check_trials import Judge
from runner.exit_codes import UsageError
from runner.journal import journal
from runner.journal.journal import FORMAT, Journal, context_digest
from runner.verdict import Signature, Verdict
from strategies import search as trial_module
from strategies.search import Outcome, Trial

CONTEXT = {"model": "abc", "check": "def"}
PASS = Verdict(Outcome.PASS, seconds=0.5)
FAIL = Verdict(
    Outcome.FAIL, Signature("infer", "death MEMORY", "SIGSEGV"), "died", {"worst": 0.25}, 1.5, "a/log", -11, 7.5
)

FORKS = multiprocessing.get_context("fork")


def write(path: Path, name: str, start: int, count: int, said: int) -> None:
    """What a process writes; it says each number once that is recorded."""
    journal = Journal(path, CONTEXT, writer=name)
    for number in range(start, start + count):
        verdict = Verdict(Outcome.FAIL, reason="x" * (number * 37 % 9000))
        journal.put(Trial.of([number]), 0, verdict, "search", f"prefix 0..{number}", number)
        os.write(said, b"%d\n" % number)


def claim(folder: Path, name: str) -> None:
    journal = Journal(folder / "journal.jsonl", CONTEXT, writer=name, shared=True)
    for number in range(8):
        trial = Trial.of([number])
        with journal.claimed(trial):
            journal.refresh()
            if journal.get(trial) is None:
                with (folder / "paid").open("a") as file:
                    file.write(f"{number}\n")
                time.sleep(0.02)
                put(journal, [number])


def started(target: Callable[..., None], *given: object) -> BaseProcess:
    process = FORKS.Process(target=target, args=given)
    process.start()
    return process


def put(journal: Journal, elements: list[int], verdict: Verdict = PASS, attempt: int = 0) -> Verdict:
    return journal.put(Trial.of(elements), attempt, verdict, "search", "label", 3)


def test_a_verdict_comes_back_whole_in_a_new_process_image(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    put(Journal(path, CONTEXT, writer="job 0"), [0, 1, 2, 9], FAIL)
    again = Journal(path, dict(reversed(CONTEXT.items())))
    assert again.get(Trial.of([9, 2, 1, 0])) == FAIL
    assert again.get(Trial.of([9, 2, 1, 0]), 1) is None
    assert again.get(Trial.of([9])) is None
    (entry,) = again.entries()
    assert (entry.ranges, entry.trial, entry.attempt) == ("0-2,9", Trial.of([0, 1, 2, 9]), 0)
    assert (entry.phase, entry.label, entry.iteration, entry.writer) == ("search", "label", 3, "job 0")
    header, record = (json.loads(line) for line in path.read_text().splitlines())
    assert header == {"winnow": FORMAT, "context": CONTEXT}
    assert record["ranges"] == "0-2,9"


@pytest.mark.parametrize("made_by_another", [False, True])
def test_a_verdict_is_synced_with_the_name_of_its_file_and_a_header_waits_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, made_by_another: bool
) -> None:
    path, synced = tmp_path / "journal.jsonl", list[str]()
    if made_by_another:
        Journal(path, CONTEXT)  # and ended before it had a verdict

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = Journal(path, CONTEXT)
    assert synced == []
    for size in (1, 2):
        put(journal, [*range(size)])
    assert synced == [path.name, tmp_path.name, path.name]


def test_the_first_verdict_of_a_place_counts_everywhere(tmp_path: Path) -> None:
    one, two = Journal(tmp_path / "j", CONTEXT), Journal(tmp_path / "j", CONTEXT)
    assert put(one, [1], FAIL) == FAIL
    assert put(two, [1], PASS) == FAIL
    assert one.refresh() == 1
    assert one.get(Trial.of([1])) == two.get(Trial.of([1])) == FAIL
    assert put(two, [1], PASS, attempt=1) == PASS


def test_forget_voids_until_the_next_put(tmp_path: Path) -> None:
    journal, other = Journal(tmp_path / "j", CONTEXT), Journal(tmp_path / "j", CONTEXT)
    put(journal, [1], FAIL)
    journal.forget(Trial.of([1]), 0)
    assert journal.get(Trial.of([1])) is None
    assert journal.entries() == ()
    assert put(journal, [1], PASS) == PASS
    other.refresh()
    assert other.get(Trial.of([1])) == PASS
    assert [entry.verdict for entry in Journal(tmp_path / "j", CONTEXT).entries()] == [PASS]


def test_another_context_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "j"
    put(Journal(path, CONTEXT), [1])
    path.write_bytes(path.read_bytes() + b'{"torn')
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"check changed: def -> xyz; more changed: \(none\) -> 1") as caught:
        Journal(path, {"model": "abc", "check": "xyz", "more": "1"})
    assert "model:" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_journal_of_another_context_without_verdicts_is_begun_anew(tmp_path: Path) -> None:
    """A run that was refused at its first check leaves one: it must not bar the mended command."""
    path = tmp_path / "j"
    Journal(path, CONTEXT)
    other = {"model": "abc", "check": "xyz"}
    put(Journal(path, other), [1])
    with pytest.raises(UsageError, match="check changed"):
        Journal(path, CONTEXT)
    with pytest.raises(UsageError, match="check changed"):
        Journal(path, CONTEXT, shared=True)


def test_of_a_part_that_is_a_configuration_only_what_changed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j"
    put(Journal(path, {"target": '{"name": "onnxruntime", "threads": 1}'}), [1])
    with pytest.raises(UsageError, match=r"target threads changed: 1 -> 2\. "):
        Journal(path, {"target": '{"name": "onnxruntime", "threads": 2}'})


OTHER = "is a journal of format {}[0. ]*, written by another version of Winnow.*start a new run folder"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello\n", "is not a journal"),
        (b"precious text", "is not a journal"),
        (b'[1]\n{"a": 1}\n', "is not a journal"),
        (b'{"winnow": 99, "context": {}}\n', OTHER.format(99)),
        (b'{"winnow": 1%s, "context": {}}\n' % (b"0" * 400), OTHER.format("10000")),
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    path.parent.mkdir()
    path.write_bytes(content)
    for use in (lambda: Journal(path, CONTEXT), lambda: Journal(tmp_path / "new", CONTEXT).reuse([path.parent])):
        with pytest.raises(UsageError, match=said) as told:
            use()
        assert "\n" not in str(told.value) and "0" * 40 not in str(told.value)
    assert path.read_bytes() == content


def test_a_last_line_torn_anywhere_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path, CONTEXT)
    put(journal, [1], FAIL)
    whole = len(path.read_bytes())
    put(journal, [2], FAIL)
    full = path.read_bytes()
    for end in range(whole, len(full)):
        path.write_bytes(full[:end])
        torn = Journal(path, CONTEXT)
        assert torn.get(Trial.of([1])) == FAIL
        put(torn, [3])
        again = Journal(path, CONTEXT)
        assert again.get(Trial.of([1])) == FAIL
        assert again.get(Trial.of([3])) == PASS
        assert all(isinstance(json.loads(line), dict) for line in path.read_bytes().splitlines())
    assert again.get(Trial.of([2])) == FAIL  # only its line end was missing


def test_a_journal_open_elsewhere_follows_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "j"
    reader = Journal(path, CONTEXT)
    put(reader, [1])
    with path.open("ab") as file:
        file.write(b'{"key": "half')
    assert reader.refresh() == 0
    put(Journal(path, CONTEXT), [2])
    assert reader.refresh() == 1
    assert reader.get(Trial.of([2])) == PASS


def test_odd_metrics_do_not_lose_a_verdict(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    metrics = {"worst": numpy.float32(0.5), "path": Path("a"), "all": numpy.zeros(2), "nan": float("nan")}
    put(Journal(tmp_path / "j", CONTEXT), [1], Verdict(Outcome.FAIL, metrics=metrics, reason="\udcff \u2028 line"))
    back = Journal(tmp_path / "j", CONTEXT).get(Trial.of([1]))
    assert back is not None
    assert back.metrics["worst"] == 0.5
    assert back.reason == "\udcff \u2028 line"


def test_reuse_reads_other_runs_and_never_writes_them(tmp_path: Path) -> None:
    old = tmp_path / "old" / "journal.jsonl"
    put(Journal(old, CONTEXT), [1], FAIL)
    put(Journal(old, CONTEXT), [2], FAIL)
    before = old.read_bytes()
    journal = Journal(tmp_path / "new" / "journal.jsonl", CONTEXT)
    assert journal.reuse([old.parent]) == 2
    assert journal.get(Trial.of([1])) == FAIL
    assert journal.entries() == ()
    journal.forget(Trial.of([1]))
    assert journal.get(Trial.of([1])) is None
    put(journal, [2], PASS)
    assert journal.get(Trial.of([2])) == PASS
    assert journal.reuse([old]) == 2
    assert old.read_bytes() == before


def test_reuse_finds_the_journal_of_its_context_in_a_folder_of_several(tmp_path: Path) -> None:
    for context in ({"model": "other"}, CONTEXT):
        put(Journal(tmp_path / "sweep" / "journals" / f"{context_digest(context)}.jsonl", context), [1], FAIL)
    journal = Journal(tmp_path / "j", CONTEXT)
    assert journal.reuse([tmp_path / "sweep"]) == 1
    assert journal.get(Trial.of([1])) == FAIL


def test_reuse_refuses_another_context_and_a_folder_without_a_journal(tmp_path: Path) -> None:
    other = tmp_path / "old" / "journal.jsonl"
    Journal(other, {"model": "zzz", "check": "def"})
    journal = Journal(tmp_path / "j", CONTEXT)
    with pytest.raises(UsageError, match="model changed: zzz -> abc"):
        journal.reuse([other.parent])
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "absent"):
        with pytest.raises(UsageError, match=r"no journal at journal\.reuse="):
            journal.reuse([path])


def ended(processes: Iterable[BaseProcess]) -> list[int | None]:
    return [process.join(60) or process.exitcode for process in processes]


def test_what_another_process_is_checking_is_waited_for(tmp_path: Path) -> None:
    assert ended([started(claim, tmp_path, str(number)) for number in range(4)]) == [0] * 4
    assert sorted(map(int, (tmp_path / "paid").read_text().split())) == list(range(8))


def test_kill_at_random_moments_loses_no_finished_record(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    dice = random.Random(7)
    finished: set[str] = set()
    for kill in range(8):
        said, reports = os.pipe()
        starts = [kill * 100_000, *([kill * 100_000 + 50_000] if kill % 2 else [])]
        writers = [started(write, path, f"life {start}", start, 100_000, reports) for start in starts]
        os.close(reports)
        first = os.read(said, 1)  # until there is one
        time.sleep(dice.random() * 0.1)
        for process in writers:
            process.kill()
        assert ended(writers) == [-signal.SIGKILL] * len(writers)
        with open(said, "rb") as pipe:  # noqa: PTH123 - a descriptor
            finished.update((first + pipe.read()).decode().split())
    journal = Journal(path, CONTEXT)
    put(journal, [999_999_999])
    entries = {entry.ranges: entry for entry in journal.entries()}
    assert finished <= set(entries)
    assert len(finished) >= 8
    for line in path.read_bytes().splitlines():
        assert isinstance(json.loads(line), dict)
    for ranges, entry in entries.items():
        assert ranges == "999999999" or len(entry.verdict.reason) == int(ranges) * 37 % 9000


@pytest.mark.parametrize(
    ("part", "value"), [("seconds", "x"), ("metrics", {"left_out": "y"}), ("signature", ["a", 1, "c"]), ("reason", "z")]
)
def test_a_record_that_no_run_writes_is_skipped(tmp_path: Path, part: str, value: object) -> None:
    """Whoever changes a line by hand changes no answer: what readers rely on may not hold of it."""
    path = tmp_path / "journal.jsonl"
    put(Journal(path, CONTEXT), [0, 1], FAIL)
    put(Journal(path, CONTEXT), [2], FAIL)
    lines = path.read_text().splitlines()
    record = json.loads(lines[1])
    record["verdict"][part] = value
    path.write_text("\n".join([lines[0], json.dumps(record), *lines[2:]]) + "\n")
    (entry,) = Journal(path, CONTEXT).entries()
    assert entry.trial == Trial.of([2])


def test_bad_lines_are_named_a_few_times_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.jsonl"
    put(Journal(path, CONTEXT), [2], FAIL)
    with path.open("ab") as file:
        file.write(b"\x00\xff\xfe\n{\n[]\n" + b"[" * 100_000 + b"\n")
        file.write(journal._line_of(b'{"key": "1", "attempt": 0, "verdict": 5'))  # a digest, and no verdict
        file.write(b"{}\n" * 500 + b'{"key": 1, "attempt": 1e999}\n')
    again = Journal(path, CONTEXT)
    put(again, [3])
    assert len(again.entries()) == 2
    assert 0 < caplog.text.count("is no record and is skipped") < 20 and "line 3 is no record" in caplog.text


@pytest.mark.parametrize(
    "reason",
    ["the check could not import what it needs: No module named 'torch'", "the command could not run: exit 127"],
)
def test_that_a_check_could_not_run_is_no_verdict_for_the_next_run(tmp_path: Path, reason: str) -> None:
    path = tmp_path / "journal.jsonl"
    broken, unknown = Verdict(Outcome.UNRESOLVED, reason=reason), Verdict(Outcome.UNRESOLVED, reason="exit 3")
    journal, neighbor = (Journal(path, CONTEXT, writer=name, shared=True) for name in ("a", "b"))
    put(journal, [1], broken)
    put(journal, [2], unknown)
    put(neighbor, [3], broken)
    assert journal.get(Trial.of([1])) == broken, "in the run that was told so it stands"
    again = Journal(path, CONTEXT, writer="a", shared=True)
    assert again.get(Trial.of([1])) is None
    assert again.get(Trial.of([2])) == unknown
    assert again.get(Trial.of([3])) == broken, "another job's, which may be at work"
    put(again, [1], PASS)
    assert Journal(path, CONTEXT, writer="a", shared=True).get(Trial.of([1])) == PASS
    other = Journal(tmp_path / "new" / "journal.jsonl", CONTEXT)
    assert other.reuse([path]) == 2
    assert other.get(Trial.of([3])) is None
    assert Journal(path, CONTEXT, writer="moved").get(Trial.of([3])) is None, "a folder's own"


def test_removals_are_those_that_would_be_found_one_by_one(tmp_path: Path) -> None:
    rng = random.Random(5)
    for number in range(40):
        whole = Trial.of(rng.sample(range(12), rng.randrange(2, 8)))
        journals = [Journal(tmp_path / str(number) / f"{name}.jsonl", CONTEXT) for name in "abc"]
        for at in range(60):
            sets = rng.choice([whole.elements - {rng.choice(list(whole))}, rng.sample(range(12), rng.randrange(8))])
            verdict = Verdict(rng.choice([Outcome.UNRESOLVED, Outcome.FAIL]), reason=str(at))
            rng.choice(journals).put(Trial.of(sets), rng.choice([0, 0, 1]), verdict, "search", "", at)
            if rng.random() < 0.2:
                rng.choice(journals).forget(Trial.of(sets))
        own = journals[0]
        own.reuse([journal.path for journal in journals[1:]])
        known = [own.get(Trial(whole.elements - {element})) for element in whole]
        assert own.removals(whole) == tuple(one for one in known if one)


def test_removals_from_a_set_of_thousands_are_looked_for_among_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, whole = Journal(tmp_path / "journal.jsonl", CONTEXT), Trial.of(range(0, 10_000, 2))
    put(journal, [*whole])
    put(journal, [*whole][1:], FAIL)
    written: list[int] = []
    original = trial_module._written
    monkeypatch.setattr(trial_module, "_written", lambda some: written.append(len(some)) or original(some))
    judge: Any = SimpleNamespace(journal=journal, subject=SimpleNamespace(), _relative=lambda one: one)
    assert Judge.unfit(judge, whole) == ()
    assert len(written) < 10
    assert journal.removals(whole) == (FAIL,)


def test_a_header_that_was_not_written_or_synced_to_its_end_bars_nobody(tmp_path: Path) -> None:
    Journal(tmp_path / "whole.jsonl", CONTEXT)
    header = (tmp_path / "whole.jsonl").read_bytes()
    torn = [header[:length] for length in range(len(header))]
    for number, content in enumerate([*torn, *(one.ljust(len(header), b"\0") for one in torn)]):
        for name, context in (("same", CONTEXT), ("other", {"model": "another"})):
            path = tmp_path / f"{name}{number}.jsonl"
            path.write_bytes(content)
            put(Journal(path, context), [1])
            assert Journal(path, context).get(Trial.of([1])) == PASS
            assert path.read_bytes().count(b'"context"') == 1
