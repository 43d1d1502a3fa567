"""Recorded tactics as files, and their comparison as a user runs it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.exit_codes import UsageError
from runner.jobs.tactics.recordings import (
    Choice,
    Recording,
    Tactics,
    collect,
    differences,
    nearest,
    read,
    suspects,
    write,
)
from strategies.search import Trial
from tests.backends.test_tactics_log import FAST, FIRST, KEY_1, NODES, SECOND, SLOW
from tests.harness import Run, winnow


def key(number: int) -> str:
    return f"0x{number:032x}"


def build(*tactics: int, names: str = "abcdefgh", **more: Any) -> Recording:
    """A build whose layers a, b, c ... got these tactics."""
    choices = (
        Choice(name, key(place), f"0x{tactic:x}", f"kernel{tactic}")
        for place, (name, tactic) in enumerate(zip(names, tactics, strict=False))
    )
    return Recording(tuple(choices), **more)


SWAPPED = [("a", "0x2", 1, {"kernel1 (0x1)": 1}), ("a", "0x1", 1, {"kernel2 (0x2)": 1})]
UNNAMED = Recording((Choice(key(0), key(0), "0x1"), Choice(key(1), key(1), "0x7")))


# ---- comparing


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        (
            [build(1, 2, 3), build(1, 5, 3), build(1, 2, 3)],
            [build(1, 2, 9), build(7, 5, 9)],
            [("c", "0x9", 2, {"kernel3 (0x3)": 3}), ("a", "0x7", 1, {"kernel1 (0x1)": 3})],
        ),
        ([build(1, 2), build(1, 5)], [build(1, 5)], []),
        pytest.param([build(1)], [build(1, 4)], [("b", "0x4", 1, {})], id="a layer that no good build has"),
        pytest.param(
            *([build(1)], [Recording(build(2).choices * 2)], [("a", "0x2", 1, {"kernel1 (0x1)": 1})]),
            id="a layer decided twice in a build counts once",
        ),
        pytest.param([build(1, 2, names="aa")], [build(2, 1, names="aa")], SWAPPED, id="told apart by their keys"),
        pytest.param([build(1, 2)], [UNNAMED], [("b", "0x7", 1, {"kernel2 (0x2)": 1})], id="names of the others"),
    ],
)
def test_tactics_of_bad_builds_only_with_what_good_builds_chose(
    good: list[Recording], bad: list[Recording], told: list[tuple[str, str, int, dict[str, int]]]
) -> None:
    found = suspects(good, bad)
    assert [(one.layer, one.tactic, one.bad_builds, dict(one.good)) for one in found] == told
    assert told is not SWAPPED or [one.key for one in found] == [key(0), key(1)]


@pytest.mark.parametrize("key", ["model", "library"])
def test_builds_of_two_models_or_two_libraries_are_not_compared(key: str) -> None:
    one, other = build(1, **{key: "one"}, source="x.json"), build(2, **{key: "other"}, source="y.json")
    for good, bad in (([one], [other]), ([one, other], [one])):
        with pytest.raises(UsageError, match=rf"x.json is of {key} one, y.json of {key} other"):
            suspects(good, bad)
    assert len(suspects([one, build(1)], [build(2)])) == 1, "one that does not tell is taken to be of the others'"


def test_the_pair_with_the_fewest_differences() -> None:
    good, bad = [build(1, 1, 1), build(1, 1, 2)], [build(3, 3, 3), build(1, 1, 3), build(1, 1, 1)]
    pair = nearest(good, bad)
    assert pair is not None
    assert len(differences(*pair)) == 1
    assert nearest([build(1, 2)], [build(1, 2)]) is None
    assert differences(build(1, 2), build(1, 2, 3)) == (), "a key of one build only is no choice"


def test_a_trial_is_the_bad_choices_that_are_pinned(tmp_path: Path) -> None:
    good, bad = build(1, 1, 1, 1), build(1, 2, 1, 3)
    subject = Tactics(tmp_path / "m.onnx", differences(good, bad), (), good, bad, (tmp_path / "cache",))
    assert subject.names(subject.space.whole) == ("b: kernel2 (0x2)", "d: kernel3 (0x3)")
    assert subject.pins(Trial.of([])) == {key(number): "0x1" for number in range(4)}
    assert subject.pins(Trial.of([1])) == {**{key(number): "0x1" for number in range(3)}, key(3): "0x3"}
    subject.make(Trial.of([0]), tmp_path)
    asked = json.loads((tmp_path / "request.json").read_text())
    assert asked["pins"] == subject.pins(Trial.of([0])) and asked["error_on_miss"]
    assert asked["load"] == [str(tmp_path / "cache")]


# ---- files


def test_an_own_file_reads_back_as_it_was(tmp_path: Path) -> None:
    first = Choice("a (b)", key(1), "0x1f", "k", 0.5, ("/n/MatMul", "é"))
    recording = Recording(
        (first,), model="ab" * 32, library="tensorrt 10.9.0", iteration=3, cache=b"\0\xff", built=False
    )
    write(tmp_path / "tactics.json", recording)
    again = read(tmp_path / "tactics.json")
    assert again.source == str(tmp_path / "tactics.json")
    assert Recording(**{**vars(again), "source": ""}) == recording


REPLAY = {
    "replay": {
        "conv1": {
            "implementation": 2147483657,
            "tactic": 6767548733843469815,
            "inputs": [
                {"dtype": "DataType.FLOAT", "strides": [9, 3, 1], "vectorized_dim": -1, "components_per_element": 1}
            ],
            "outputs": [
                {"dtype": "DataType.HALF", "strides": [9, 3, 1], "vectorized_dim": 1, "components_per_element": 4}
            ],
            "__polygraphy_encoded_Algorithm": "__polygraphy_encoded_Algorithm",
        }
    },
    "__polygraphy_encoded_TacticReplayData": "__polygraphy_encoded_TacticReplayData",
}


def replay(path: Path, tactic: int) -> None:
    content = json.loads(json.dumps(REPLAY))
    content["replay"]["conv1"]["tactic"] = tactic
    path.write_text(json.dumps(content))


def test_a_replay_of_polygraphy(tmp_path: Path) -> None:
    replay(tmp_path / "replay.json", -42)
    recording = read(tmp_path / "replay.json")
    (choice,) = recording.choices
    assert (choice.layer, choice.key, recording.kind) == ("conv1", "", "polygraphy")
    assert choice.tactic == "implementation 2147483657, tactic -42: FLOAT(9,3,1) -> HALF(9,3,1) x4@1"
    assert not any(choice.key for choice in recording.choices)


def test_older_replays_describe_tensors_by_lists(tmp_path: Path) -> None:
    old = {"implementation": 1, "tactic": 2, "inputs": [["TensorFormat.LINEAR", "DataType.FLOAT", "(1, 2)"]]}
    (tmp_path / "r.json").write_text(json.dumps({"replay": {"x": {**old, "outputs": ["(FLOAT, (1,))"]}}}))
    (choice,) = read(tmp_path / "r.json").choices
    assert "TensorFormat.LINEAR DataType.FLOAT (1, 2) -> (FLOAT, (1,))" in choice.tactic


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "neither"),
        ('{"a": 1}', "neither"),
        ('{"replay": {"x": {"tactic": 1}}}', "incomplete"),
        ('{"replay": {"x": 5}}', "incomplete"),
        ('{"format": "winnow.tactics", "version": 2, "choices": []}', "version 2"),
        ('{"format": "winnow.tactics", "version": 1}', "incomplete"),
        ('{"format": "winnow.tactics", "version": 1, "choices": [{"key": "0x1", "tactic": "0x1"}]}', "32 hexadecimal"),
        ('{"format": "winnow.tactics", "version": 1, "choices": [], "cache": "?"}', "Invalid|incomplete|base64"),
    ],
)
def test_a_file_that_is_none_says_why(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=why):
        read(tmp_path / "x.json")


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "2.log").write_text("\n".join(FIRST))
    (tmp_path / "10.txt").write_text("nothing\n")
    (tmp_path / "sub" / "1.json").write_text("{}")
    (tmp_path / "model.onnx").write_bytes(b"x")
    write(tmp_path / "1.json", build(1))
    found, skipped = collect(tmp_path)
    assert [Path(one.source).name for one in found] == ["1.json", "2.log"]
    assert sorted(path.name for path in skipped) == ["1.json", "10.txt"]
    with pytest.raises(OSError, match="none"):
        collect(tmp_path / "none.json")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that nobody can read from its beginning")
def test_what_cannot_be_read_or_holds_no_tactics_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "good"
    folder.mkdir()
    write(folder / "a.json", build(1))
    write(folder / "empty.json", build())
    (folder / "replay.json").write_text('{"replay": {}}')
    os.mkfifo(folder / "pipe.log")
    (folder / "gone.json").symlink_to(tmp_path / "nowhere")
    (folder / "folder.json").mkdir()
    (folder / "mem.log").symlink_to("/proc/self/mem")  # which nobody can read from its beginning
    locked = folder / "locked"
    locked.mkdir()

    def walk(top: Path, onerror: Callable[[OSError], None]) -> Iterator[Any]:
        onerror(PermissionError(errno.EACCES, "Permission denied", str(locked)))
        yield from walked(top)

    walked = os.walk
    monkeypatch.setattr(os, "walk", walk)
    found, skipped = collect(folder)
    assert [Path(one.source).name for one in found] == ["a.json"]
    assert {path.name: why for path, why in skipped.items()} == {
        "empty.json": "no tactics stand in it",
        "replay.json": "no tactics stand in it",
        "pipe.log": "it is no plain file",
        "gone.json": "No such file or directory",
        "mem.log": "Input/output error",
        "locked": "Permission denied",
    }
    with pytest.raises(OSError, match="Input/output"):
        collect(folder / "mem.log")
    with pytest.raises(PermissionError):
        collect(locked)


# ---- as a user runs it


def compared(folder: Path, good: Path, bad: Path) -> Run:
    return winnow("strategy=tactic_compare", f"strategy.good={good}", f"strategy.bad={bad}", folder=folder / "run")


def test_logs_are_compared_without_tensorrt(tmp_path: Path) -> None:
    for side in ("good", "bad"):
        (tmp_path / side).mkdir()
    bad_first = [*FIRST[:5], FIRST[5].replace("0x665ded9abbf88", "0x393e4ef8ad243")]
    (tmp_path / "good" / "a.log").write_text("\n".join([*FIRST, *SECOND]))
    (tmp_path / "good" / "b.log").write_text("\n".join([*FIRST, *SECOND]))
    (tmp_path / "bad" / "c.txt").write_text("\n".join([*bad_first, *SECOND]))
    run = compared(tmp_path, tmp_path / "good", tmp_path / "bad")
    assert run.code == 0, run.output
    (one,) = run.result["suspects"]
    assert (one["layer"], one["key"], one["tactic"], one["kernel"]) == ("matMul1", KEY_1, "0x393e4ef8ad243", SLOW)
    assert (one["bad_builds"], one["of"], one["good"]) == (1, 1, {f"{FAST} (0x665ded9abbf88)": 2})
    report = (run.folder / "REPORT.md").read_text()
    assert "Suspect tactics" in report and "`matMul1`" in report
    assert f"`{SLOW} (0x393e4ef8ad243)`" in report
    assert "1 tactic of 1 layer seen in bad builds only" in run.screen[0]


def test_builds_that_chose_alike_end_in_4(tmp_path: Path) -> None:
    for side in ("good", "bad"):
        (tmp_path / f"{side}.log").write_text("\n".join(NODES))
    run = compared(tmp_path, tmp_path / "good.log", tmp_path / "bad.log")
    assert (run.code, run.result["suspects"]) == (4, [])


@pytest.mark.slow
def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "bad.log").write_text("\n".join(FIRST))
    empty = compared(tmp_path, tmp_path / "good", tmp_path / "bad.log")
    assert empty.code == 2 and "no recorded tactics there" in empty.output
    (tmp_path / "good" / "x.log").write_text("hello\n")
    other = compared(tmp_path, tmp_path / "good", tmp_path / "bad.log")
    assert other.code == 2 and "x.log: no autotuning" in other.output
    replay(tmp_path / "good" / "replay.json", 1)
    mixed = compared(tmp_path, tmp_path / "good", tmp_path / "bad.log")
    assert mixed.code == 2 and "name tactics in different ways" in mixed.output
    missing = winnow("strategy=tactic_compare", f"strategy.bad={tmp_path / 'bad.log'}", folder=tmp_path / "run")
    assert missing.code == 2 and "strategy.good=" in missing.output
    nowhere = compared(tmp_path, tmp_path / "none", tmp_path / "bad.log")
    assert nowhere.code == 2 and "No such file" in nowhere.output


@pytest.mark.slow
def test_builds_that_were_pinned_are_left_out_and_those_of_another_library_refused(tmp_path: Path) -> None:
    for name, recording in (
        ("good/a", build(1, 2, library="tensorrt 10.9")),
        ("bad/a", build(1, 3)),
        ("bad/pinned", build(9, 2, pinned=True)),
        ("pinned/a", build(9, 2, pinned=True)),
        ("other/a", build(1, 3, library="tensorrt 10.13")),
    ):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        write(path, recording)
    os.mkfifo(tmp_path / "pipe")
    run = compared(tmp_path, tmp_path / "good", tmp_path / "bad")
    assert run.code == 0, run.output
    assert [(one["layer"], one["bad_builds"], one["of"]) for one in run.result["suspects"]] == [("b", 1, 1)]
    assert "pinned.json: left out: its tactics were pinned" in " ".join(run.output.split())
    for bad, words in (
        ("pinned", "the tactics of all builds there were pinned"),
        ("other", "of library tensorrt 10.9"),
        ("pipe", "pipe: it is no plain file"),
    ):
        refused = compared(tmp_path, tmp_path / "good", tmp_path / bad)
        assert refused.code == 2 and words in refused.output, refused.output
