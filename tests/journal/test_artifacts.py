"""The sorting policy, on real files."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from runner.exit_codes import UsageError
from runner.files import json_lines
from runner.journal.kept_files import Artifacts, model_of
from runner.schema.root import ArtifactSettings, Keep
from runner.verdict import Candidate, Signature, Verdict
from strategies.search import Outcome, Trial
from tests.model.models import model_of as built

FOLDERS = {"good", "bad", "different", "unresolved"}


class Run:
    """A run folder, a place where the user stands, and iterations."""

    def __init__(self, base: Path) -> None:
        self.folder, self.cwd = base / "run", base / "stand"
        self.folder.mkdir()
        self.cwd.mkdir()
        self.iteration = 0

    def artifacts(self, **settings: object) -> Artifacts:
        return Artifacts(ArtifactSettings(**settings), self.folder, self.cwd)  # type: ignore[arg-type]

    def sort(
        self,
        artifacts: Artifacts,
        outcome: Outcome,
        count: int,
        model: Path | None = None,
        label: str = "prefix 0..9",
        signature: Signature | None = None,
        phase: str = "search",
        given: tuple[str | Path, ...] = (),
        size: int = 9,
    ) -> None:
        """``given``: values that the check asks for, by name, or a file to which it leads a link in their place."""
        self.iteration += 1
        folder = self.folder / "trials" / str(self.iteration)
        folder.mkdir(parents=True)
        if model is None:
            model = folder / "model.onnx"
            model.write_bytes(f"{count} nodes".encode())
        candidate = Candidate(model, folder, Trial.of(range(count)), iteration=self.iteration, phase=phase, label=label)
        for name in given:
            path = folder / (name if isinstance(name, str) else "inputs.npz")
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(name, Path):
                path.symlink_to(name)
            else:
                path.write_bytes(bytes(size))
            candidate.values.append(folder / path.relative_to(folder).parts[0])
        failed = outcome is Outcome.FAIL
        signature = signature or (Signature("check", "exit 1") if failed else None)
        artifacts.sort(candidate, Verdict(outcome, signature, returncode=1 if failed else 0, seconds=0.5))

    def given(self, name: str, count: int, **more: object) -> Candidate:
        """What is handed over as ``name``."""
        place, folder = self.folder / f"{name}.onnx", self.folder / "trials" / name
        folder.mkdir(parents=True, exist_ok=True)
        place.write_text(name)
        details = {"iteration": 50, "phase": "re-check", "label": name, **more}
        return Candidate(place, folder, Trial.of(range(count)), **details)  # type: ignore[arg-type]

    def kept(self) -> list[str]:
        base = self.folder / "artifacts"
        files = (path.relative_to(base) for path in base.rglob("*") if path.is_file() and path.name != "index.jsonl")
        return sorted(map(str, files))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def index(artifacts: Artifacts) -> list[dict[str, object]]:
    return [json.loads(line) for line in (artifacts.folder / "index.jsonl").read_text().splitlines()]


def test_keep_all_sorts_by_outcome_under_telling_names(run: Run) -> None:
    artifacts = run.artifacts(keep=Keep.all)
    for number, outcome in enumerate(Outcome, 1):
        run.sort(artifacts, outcome, number)
    assert run.kept() == [
        "bad/00002_search_prefix-0..9_fail_rc1.onnx",
        "different/00003_search_prefix-0..9_different_rc0.onnx",
        "good/00001_search_prefix-0..9_pass_rc0.onnx",
        "unresolved/00004_search_prefix-0..9_unresolved_rc0.onnx",
    ]
    assert (artifacts.folder / "bad" / "00002_search_prefix-0..9_fail_rc1.onnx").read_text() == "2 nodes"
    rows = index(artifacts)
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    assert rows[1]["signature"] == "check: exit 1"
    assert (rows[1]["trial"], rows[1]["elements"], rows[1]["returncode"]) == ("0-1", 2, 1)
    assert rows[1]["model"] == "bad/00002_search_prefix-0..9_fail_rc1.onnx"


@pytest.mark.parametrize(("keep", "kept"), [(Keep.bad, 1), (Keep.none, 0)])
def test_keep_bad_and_none(run: Run, keep: Keep, kept: int) -> None:
    artifacts = run.artifacts(keep=keep)
    for outcome in Outcome:
        run.sort(artifacts, outcome, 3)
    assert len(run.kept()) == kept
    assert len(index(artifacts)) == 4


def test_keep_best_leaves_the_smallest_of_each_other_failure(run: Run) -> None:
    artifacts = run.artifacts(keep=Keep.best)
    for kind, count in [("exit 1", 9), ("death FPE", 4), ("exit 1", 3), ("exit 1", 7)]:
        run.sort(artifacts, Outcome.DIFFERENT, count, signature=Signature("check", kind))
    others = artifacts.others()
    assert {kind: place[:15] for kind, place in others.items()} == {
        "check: exit 1": "different/00003",
        "check: death FPE": "different/00002",
    }
    assert sorted(others.values()) == run.kept()
    assert run.artifacts(keep=Keep.best).others() == others


@pytest.mark.parametrize(("keep", "left"), [(Keep.best, 1), (Keep.bad, 2), (Keep.all, 2), (Keep.none, 0)])
def test_what_a_check_was_given_is_kept_beside_its_candidate(run: Run, keep: Keep, left: int) -> None:
    """It goes with it, and what the check has put in its place is left alone."""
    artifacts = run.artifacts(keep=keep)
    for count in (9, 3):
        run.sort(artifacts, Outcome.FAIL, count, given=("inputs.npz", "data/test_data_set_0/input_0.pb"))
    stem = "bad/00002_search_prefix-0..9_fail_rc1"
    values = [f"{stem}.data/test_data_set_0/input_0.pb", f"{stem}.inputs.npz"]
    assert len(run.kept()) == 3 * left and (not left or [name for name in run.kept() if name in values] == values)
    elsewhere = run.cwd / "mine.npz"
    elsewhere.write_text("mine")
    run.sort(artifacts, Outcome.FAIL, 2, given=(elsewhere,))
    assert elsewhere.exists() and not [name for name in run.kept() if "00003" in name and not name.endswith(".onnx")]


@pytest.mark.parametrize(("name", "left"), [("reduced", 0), ("min_good", 1)])
def test_the_values_of_min_good_are_kept_though_the_model_lies_elsewhere(run: Run, name: str, left: int) -> None:
    """Beside the answer lies a data set."""
    artifacts = run.artifacts(keep=Keep.best)
    for iteration in (50, 51):
        given = run.given(name, 2, iteration=iteration)
        (given.folder / "inputs.npz").write_text("values")
        given.values.append(given.folder / "inputs.npz")
        artifacts.hand_over(given, Verdict(Outcome.PASS if left else Outcome.FAIL))
    assert run.kept() == [f"good/00051_re-check_{name}_pass.inputs.npz"] * left
    artifacts.withdraw(run.folder / f"{name}.onnx")
    assert not run.kept()


def test_values_are_kept_within_the_disk_budget(run: Run) -> None:
    artifacts = run.artifacts(keep=Keep.all, disk_budget_mb=1)
    run.sort(artifacts, Outcome.FAIL, 3, given=("inputs.npz",), size=2 << 20)
    assert [Path(name).suffix for name in run.kept()] == [".onnx"]


def test_keep_best_leaves_no_whole_model_that_was_made_to_pass(run: Run) -> None:
    artifacts = run.artifacts(keep=Keep.best)
    for phase, count in (("search", 3), ("control", 9), ("cause", 9)):
        run.sort(artifacts, Outcome.PASS, count, phase=phase)
    assert [name[:10] for name in run.kept()] == ["good/00001"]


def test_keep_best_leaves_the_smallest_failing_and_the_largest_passing(run: Run) -> None:
    artifacts = run.artifacts(keep=Keep.best)
    for outcome, count in [
        ("fail", 9),
        ("pass", 2),
        ("fail", 5),
        ("fail", 7),
        ("pass", 4),
        ("pass", 3),
        ("different", 1),
    ]:
        run.sort(artifacts, Outcome(outcome), count)
    assert [name[:9] for name in run.kept()] == ["bad/00003", "different", "good/0000"]
    # a resumed run knows them, even behind half a row
    with (artifacts.folder / "index.jsonl").open("ab") as file:
        file.write(b'{"half')
    resumed = run.artifacts(keep=Keep.best)
    run.sort(resumed, Outcome.FAIL, 6)
    run.sort(resumed, Outcome.PASS, 8)
    assert [name[:9] for name in run.kept()] == ["bad/00003", "different", "good/0000"]
    assert "00009" in run.kept()[2]
    lines = (artifacts.folder / "index.jsonl").read_text().splitlines()
    assert len(lines) == 10
    assert json.loads(lines[-1])["iteration"] == 9


@pytest.mark.parametrize("keep", [Keep.best, Keep.all])
def test_what_is_handed_over_is_not_kept_a_second_time(run: Run, keep: Keep) -> None:
    """The best of its outcome and the candidate of its trial give way to it, also those of an interrupted run."""
    artifacts = run.artifacts(keep=keep)
    for outcome, count in ((Outcome.FAIL, 9), (Outcome.FAIL, 4), (Outcome.PASS, 2), (Outcome.PASS, 3)):
        run.sort(artifacts, outcome, count)
    artifacts = run.artifacts(keep=keep)  # as a resumed run does
    for name, outcome, count in (("reduced", Outcome.FAIL, 4), ("min_good", Outcome.PASS, 2)):
        given = run.given(name, count)
        for _ in range(2):
            artifacts.hand_over(given, Verdict(outcome))
        row = index(artifacts)[-1]
        assert (row["model"], row["elements"]) == (f"../{name}.onnx", count)
        assert (run.folder / f"{name}.onnx").read_text() == name
    assert [name[:10] for name in run.kept()] == ([] if keep is Keep.best else ["bad/00001_", "good/00004"])


def test_the_index_is_read_once_for_all_repeats_of_a_hand_over(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a row for each check: read for each repeat, they would take longer and longer."""
    artifacts, read = run.artifacts(keep=Keep.all), list[Path]()

    def counted(path: Path) -> Iterator[dict[str, object]]:
        read.append(path)
        return json_lines(path)

    monkeypatch.setattr("runner.journal.kept_files.json_lines", counted)
    for count in (5, 4):
        for _ in range(3):
            run.sort(artifacts, Outcome.FAIL, count)
        for _ in range(3):
            artifacts.hand_over(run.given("reduced", count), Verdict(Outcome.FAIL))
    assert len(read) == 1 and run.kept() == []


def test_the_same_trial_of_another_question_is_another_model(run: Run) -> None:
    artifacts = run.artifacts(keep=Keep.all)
    run.sort(artifacts, Outcome.FAIL, 4)
    artifacts.hand_over(run.given("reduced", 4), Verdict(Outcome.FAIL), "inside")
    assert len(run.kept()) == 1


def test_artifacts_elsewhere_are_kept_beside_what_is_handed_over(run: Run, tmp_path: Path) -> None:
    artifacts = run.artifacts(keep=Keep.best, folder=str(tmp_path / "mine"))
    run.sort(artifacts, Outcome.FAIL, 4)
    artifacts.hand_over(run.given("reduced", 4), Verdict(Outcome.FAIL))
    assert len(list((artifacts.folder / "bad").iterdir())) == 1
    assert index(artifacts)[-1]["model"] == str(run.folder / "reduced.onnx")


def test_files_folders_and_globs_are_moved(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    artifacts = run.artifacts(
        keep=Keep.none, paths=["out.bin", "dump", "t-*.json", "gone.txt", "none-*", "{dir}/own.log"]
    )
    for text in "first", "second":
        (run.cwd / "out.bin").write_text(text)
        (run.cwd / "dump").mkdir()
        (run.cwd / "dump" / "a.txt").write_text(text)
        (run.cwd / "t-1.json").write_text(text)
        (run.cwd / "t-2.json").write_text(text)
        own = run.folder / "trials" / str(run.iteration + 1)
        own.mkdir(parents=True)
        (own / "own.log").write_text(text)
        own.rename(run.folder / "held")
        (run.folder / "trials").mkdir(exist_ok=True)
        run.iteration += 1
        (run.folder / "held").rename(own)
        candidate = Candidate(None, own, Trial.of([1]), iteration=run.iteration, phase="search", label="x")
        artifacts.sort(candidate, Verdict(Outcome.FAIL, returncode=-11))
        assert list(run.cwd.iterdir()) == []
    stem = "bad/00001_search_x_fail_rc-11__"
    assert [name for name in run.kept() if "00001" in name] == [
        stem + rest for rest in ("dump/a.txt", "out.bin", "own.log", "t-1.json", "t-2.json")
    ]
    assert (artifacts.folder / (stem + "out.bin")).read_text() == "first"
    assert index(artifacts)[0]["missing"] == ["gone.txt", "none-*"]
    assert caplog.text.count("gone.txt is not there") == 2


def test_nothing_is_written_over(run: Run) -> None:
    run.sort(run.artifacts(keep=Keep.all), Outcome.FAIL, 3)
    run.iteration = 0
    (run.folder / "trials").rename(run.folder / "old")
    run.sort(run.artifacts(keep=Keep.all), Outcome.FAIL, 4)
    names = run.kept()
    assert names == ["bad/00001_search_prefix-0..9_fail_rc1.onnx", "bad/00001_search_prefix-0..9_fail_rc1_2.onnx"]
    assert (run.folder / "artifacts" / names[0]).read_text() == "3 nodes"


def test_names_are_safe(run: Run) -> None:
    artifacts = run.artifacts(keep=Keep.all)
    run.sort(artifacts, Outcome.FAIL, 3, label="../../é\n|" + "long " * 100)
    (name,) = run.kept()
    assert name.startswith("bad/00001_search_")
    assert len(name) < 120
    assert "\n" not in name


def test_the_disk_budget_is_kept_and_given_back(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def big(count: int) -> Path:
        path = run.cwd / f"{count}.onnx"
        path.write_bytes(b"x" * 700_000)
        return path

    artifacts = run.artifacts(keep=Keep.all, disk_budget_mb=1)
    run.sort(artifacts, Outcome.FAIL, 9, big(9))
    run.sort(artifacts, Outcome.FAIL, 8, big(8))
    assert len(run.kept()) == 1
    assert "disk_budget_mb=1" in caplog.text
    assert index(artifacts)[1]["model"] is None
    # what lies there counts for a resumed run too
    run.sort(run.artifacts(keep=Keep.all, disk_budget_mb=1), Outcome.FAIL, 7, big(7))
    assert len(run.kept()) == 1
    best = run.artifacts(keep=Keep.best, disk_budget_mb=2)
    run.sort(best, Outcome.FAIL, 6, big(6))
    run.sort(best, Outcome.FAIL, 5, big(5))
    run.sort(best, Outcome.FAIL, 4, big(4))
    assert [name[:9] for name in run.kept()] == ["bad/00006"]


def test_over_budget_files_of_the_user_stay_where_they_are(run: Run) -> None:
    (run.cwd / "huge").write_bytes(b"x" * 2_000_000)
    run.sort(run.artifacts(keep=Keep.none, paths=["huge"], disk_budget_mb=1), Outcome.FAIL, 1)
    assert (run.cwd / "huge").stat().st_size == 2_000_000


def test_the_run_itself_is_never_moved(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    artifacts = run.artifacts(keep=Keep.none, paths=["..", str(run.folder), "/"])
    run.sort(artifacts, Outcome.PASS, 1)
    assert caplog.text.count("holds the run itself") == 3
    assert run.folder.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_no_device_is_moved_away(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    artifacts = run.artifacts(keep=Keep.none, paths=["null", "devices"])
    (run.cwd / "devices" / "deep").mkdir(parents=True)
    for place in (run.cwd / "null", run.cwd / "devices" / "deep" / "null"):
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    run.sort(artifacts, Outcome.PASS, 1)
    assert run.kept() == []
    assert (run.cwd / "null").is_char_device()
    assert (run.cwd / "devices" / "deep" / "null").is_char_device()
    assert "devices was not moved: it holds a device" in caplog.text


def test_a_link_is_moved_as_what_it_points_to(run: Run) -> None:
    artifacts = run.artifacts(keep=Keep.none, paths=["link.txt", "broken"])
    (run.cwd / "real.txt").write_text("text")
    (run.cwd / "link.txt").symlink_to("real.txt")
    (run.cwd / "broken").symlink_to("nowhere")
    run.sort(artifacts, Outcome.PASS, 1)
    (name,) = run.kept()
    assert (artifacts.folder / name).read_text() == "text"
    assert (run.cwd / "real.txt").exists()
    assert not (run.cwd / "link.txt").exists()


def test_what_was_there_before_and_no_check_has_touched_is_not_moved(run: Run) -> None:
    (run.cwd / "data" / "deep").mkdir(parents=True)
    for name in ("mine.log", "log.txt", "data/deep/x"):
        (run.cwd / name).write_text("before")
    os.mkfifo(run.cwd / "pipe")
    artifacts = run.artifacts(keep=Keep.none, paths=["mine.log", "log.txt", "data", "pipe"])
    (run.cwd / "log.txt").write_text("by the check")
    run.sort(artifacts, Outcome.PASS, 1)
    assert [name.partition("__")[2] for name in run.kept()] == ["log.txt"]
    (run.cwd / "data" / "deep" / "x").write_text("by the check")
    (run.cwd / "pipe").unlink()
    os.mkfifo(run.cwd / "pipe")
    run.sort(artifacts, Outcome.PASS, 1)
    assert sorted(path.name for path in run.cwd.iterdir()) == ["mine.log", "pipe"]


def test_an_index_of_a_users_is_not_added_to(run: Run) -> None:
    mine = run.cwd / "data" / "index.jsonl"
    mine.parent.mkdir()
    mine.write_text('{"file": "a.png"}\n')
    with pytest.raises(UsageError, match=r"index\.jsonl that is no run's"):
        run.artifacts(folder="data")
    assert mine.read_text() == '{"file": "a.png"}\n'
    for _ in range(2):
        run.sort(run.artifacts(folder="mine"), Outcome.PASS, 1)


def test_trouble_with_the_disk_does_not_end_a_run(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    artifacts = run.artifacts(keep=Keep.all)
    (artifacts.folder / "bad").write_text("a file where a folder should be")
    run.sort(artifacts, Outcome.FAIL, 1)
    run.sort(artifacts, Outcome.PASS, 1, run.cwd / "absent.onnx")
    assert caplog.text.count("was not kept") == 2
    assert len(index(artifacts)) == 2


def test_a_large_candidate_is_pointed_at_or_materialized(run: Run, tmp_path: Path) -> None:
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1 << 12], b"\1" * (1 << 14), raw=True)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1 << 12]) for name in "xy"]
    model = built([helper.make_node("Add", ["x", "w"], ["y"])], ends[:1], ends[1:], [weights])
    store = run.folder / "store"
    store.mkdir()
    # what a store beside a large model looks like: the structure refers to weights.bin
    large = store / "1.onnx"
    onnx.save(model, large, save_as_external_data=True, location="weights.bin", size_threshold=0)
    pointing = run.artifacts(keep=Keep.all)
    run.sort(pointing, Outcome.FAIL, 1, large)
    (name,) = run.kept()
    assert name.endswith(".onnx.txt")
    held = model_of(pointing.folder / name)
    assert held and held.resolve().parent == store
    assert held.read_bytes() == large.read_bytes()
    best = run.artifacts(keep=Keep.best, folder="best")
    run.sort(best, Outcome.FAIL, 5, large)
    run.sort(best, Outcome.FAIL, 4, large)
    assert len(list((best.folder / "bad").iterdir())) == 1
    assert len(list(store.glob("kept.*"))) == 2
    materialized = run.artifacts(keep=Keep.all, materialize=True, folder="out")
    run.sort(materialized, Outcome.FAIL, 1, large)
    (place,) = (materialized.folder / "bad").iterdir()
    alone = onnx.load(place / "model.onnx")
    onnx.checker.check_model(str(place / "model.onnx"))
    assert alone.graph.initializer[0].raw_data == b"\1" * (1 << 14)


def test_the_name_of_the_users_folder_is_no_pattern(tmp_path: Path) -> None:
    base = tmp_path / "a[1]*"
    base.mkdir()
    run = Run(base)
    artifacts = run.artifacts(paths=["*.log"])
    (run.cwd / "one.log").touch()
    run.sort(artifacts, Outcome.FAIL, 3)
    assert not (run.cwd / "one.log").exists()
    assert len(list((run.folder / "artifacts" / "bad").glob("*one.log"))) == 1


@pytest.mark.parametrize("listed", ["/{outside}", "../../{name}", "good/../../../{name}", "good/x.onnx.txt", "notes"])
@pytest.mark.parametrize("broken", ["", "[" * 9999])
def test_an_index_from_elsewhere_removes_nothing_of_a_users(run: Run, tmp_path: Path, listed: str, broken: str) -> None:
    """The index and the pointers in a run folder may name any path; what is better than they say replaces only ours."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "kept.net.onnx").touch()
    folder = run.folder / "artifacts"
    (folder / "notes").mkdir(parents=True)
    (folder / "good").mkdir(parents=True)
    (folder / "good" / "x.onnx.txt").write_text(f"model: {mine / 'kept.net.onnx'}\n")
    model = listed.format(outside=str(mine).lstrip("/"), name=mine.name)
    rows = [{"outcome": "pass", "elements": 1, "model": model}, {"outcome": "pass", "elements": [], "model": 7}]
    (folder / "index.jsonl").write_text("\n".join([*map(json.dumps, rows), broken]) + "\n")
    run.sort(run.artifacts(keep=Keep.best), Outcome.PASS, 5)
    assert (mine / "kept.net.onnx").exists()
    assert (folder / "notes").is_dir()
