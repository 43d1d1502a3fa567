"""The main job as a user runs it: a process, a command line, exit codes, files."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import onnx
import pytest

from tests.bundles import unpacked
from tests.fork_server import run_forked
from tests.harness import ROOT, by_command, check_script, interrupted, winnow
from tests.matrix import sample

EXAMPLE = ROOT / "examples" / "overflow.onnx"
MODEL = f"model={EXAMPLE}"
CULPRIT = "/bert/encoder/layer.5/output/dense/MatMul"
KEYS = {
    *(
        "status",
        "exit_code",
        "strategy",
        "nodes",
        "culprits",
        "nested",
        "minimality",
        "checks",
        "outcomes",
        "signature",
    ),
    *("model", "min_good", "seconds", "peak_rss_mb"),
}


def node(name: str) -> str:
    return f"sys.exit(1 if {name!r} in nodes else 0)"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("demo") / "run"
    return winnow("examples/overflow.yaml", folder=folder, cwd=ROOT)


def test_the_example_names_the_culprit(demo) -> None:
    assert demo.code == 0, demo.output
    assert demo.result["culprits"] == [CULPRIT]
    assert demo.result["nodes"] == {"before": 550, "after": 1}
    assert demo.result["checks"]["search"] <= 12
    assert demo.result.keys() >= KEYS
    assert CULPRIT in demo.screen[0]


def test_the_result_folder_stands_alone(demo) -> None:
    onnx.checker.check_model(demo.model())
    onnx.checker.check_model(demo.model("min_good.onnx"))
    assert (demo.folder / "test_data_set_0" / "input_0.pb").is_file()
    assert "MatMul" in (demo.folder / "REPORT.md").read_text()
    shown = unpacked(demo.folder, demo.folder.parent / "unpacked")
    assert shown.code == 1, shown.text
    leftovers = {path.name for path in demo.folder.iterdir()}
    assert not leftovers & {"values", "target", "inputs", "store"}


def test_a_replay_runs_again_and_names_drift(demo, tmp_path: Path) -> None:
    replay = demo.folder / "replay.yaml"
    again = winnow(str(replay), folder=tmp_path / "again")
    assert again.code == 0, again.output
    assert again.result["culprits"] == [CULPRIT]
    text = replay.read_text()
    digest = json.loads((demo.folder / "result.json").read_text())["context"]["model"]
    drifted = tmp_path / "drifted.yaml"
    drifted.write_text(text.replace(digest, "f" * 64))
    run = winnow(str(drifted), folder=tmp_path / "drift")
    assert any("model changed" in warning for warning in run.result["warnings"]), run.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "shown"),
    [
        ("python no_such_script.py {model}", "no_such_script.py"),
        ("false {model}", "false"),
        ("no-such-program {model}", "no-such-program"),
    ],
)
def test_a_check_that_cannot_judge(tmp_path: Path, check: str, shown: str) -> None:
    run = winnow(MODEL, "checker=command", f"checker.command={check}", folder=tmp_path / "run")
    assert (run.code, run.result["status"]) == (3, "could_not_judge")
    assert shown in run.output
    assert "Traceback" not in run.output


@pytest.mark.slow
def test_a_plan_counts_what_is_kept_within_the_budget_of_the_disk(tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, node(CULPRIT)))
    run = winnow(MODEL, *check, "plan=true", "artifacts=all", "artifacts.disk_budget_mb=3", folder=tmp_path / "run")
    assert 3 < run.result["plan"]["disk_left_mb"] < 3.4


@pytest.mark.slow
def test_workers_do_not_change_the_answer(tmp_path: Path) -> None:
    other = "/bert/encoder/layer.2/attention/self/Softmax"
    check = by_command(check_script(tmp_path, f"sys.exit(1 if {{{CULPRIT!r}, {other!r}}} <= nodes else 0)"))
    runs = [
        winnow(MODEL, *check, "checker.flaky=auto", f"workers.count={count}", folder=tmp_path / f"{count}")
        for count in (1, 3)
    ]
    for run in runs:
        assert run.result["culprits"] == [other, CULPRIT], run.output
        assert run.result["minimality"] == "1-minimal"
        assert "(known)" not in run.output  # what was checked ahead is shown once
    alone, several = runs
    assert (alone.folder / "min_good.onnx").read_bytes() == (several.folder / "min_good.onnx").read_bytes()
    parts = ("preflight", "control", "recheck")
    assert [alone.result["checks"][part] for part in parts] == [several.result["checks"][part] for part in parts]


@pytest.mark.slow
def test_another_failure_is_not_followed(tmp_path: Path) -> None:
    """Exit 1 is the failure; without the culprit the check fails otherwise, and must not be led astray."""
    body = f"sys.exit(1 if {CULPRIT!r} in nodes else 9 if len(nodes) > 100 else 0)"
    run = winnow(MODEL, *by_command(check_script(tmp_path, body)), folder=tmp_path / "run")
    assert run.result["culprits"] == [CULPRIT]
    assert run.result["outcomes"]["different"] > 0


@pytest.mark.variants
@pytest.mark.parametrize("before", sample([5, 12, 0, 2], 2))
def test_resume_after_kill_9(tmp_path: Path, before: int) -> None:
    """Kill a run at work on a check, after so many others, and go on with it; no set of nodes is asked about twice."""
    log, hanging = tmp_path / "log", tmp_path / "hanging"
    body = (
        "import hashlib, os, time\n"
        "digest = hashlib.sha256('\\n'.join(sorted(made)).encode()).hexdigest()\n"
        f"open({str(log)!r}, 'a').write(os.path.basename(os.path.dirname(sys.argv[1])) + ' ' + digest + '\\n')\n"
        f"if len(open({str(log)!r}).readlines()) > {before} and not os.path.exists({str(hanging)!r}):\n"
        f"    open({str(hanging)!r}, 'w').close()\n"
        "    time.sleep(600)\n"
        f"{node(CULPRIT)}"
    )
    check, folder = (*by_command(check_script(tmp_path, body)), "strategy.shrink=false"), tmp_path / "run"
    assert interrupted(MODEL, *check, folder=folder, ready=hanging, number=signal.SIGKILL) == -signal.SIGKILL
    journal = folder / "journal.jsonl"  # it is opened when the model was read, and the first check runs by then
    lines = [json.loads(line) for line in journal.read_text().splitlines()[1:]] if before or journal.exists() else []
    assert len(lines) == max(before - 1, 0)  # that of the file itself comes with the next one
    done = {f"{line['iteration']:05d}" for line in lines if line.get("attempt") == 0}
    first = dict(line.split() for line in log.read_text().splitlines())
    log.unlink()
    run = winnow(MODEL, *check, f"resume={folder}", folder=folder)
    assert run.result["culprits"] == [CULPRIT], run.output
    after = [line.split() for line in log.read_text().splitlines()]
    paid = {first[iteration] for iteration in done if iteration in first}
    again = [digest for iteration, digest in after if iteration.isdigit()]
    assert bool(paid) == bool(before) and not paid & set(again)
    assert len(again) == len(set(again))


@pytest.mark.slow
def test_a_journal_of_another_check_is_refused(tmp_path: Path) -> None:
    one = by_command(check_script(tmp_path, node(CULPRIT), "one.py"))
    two = by_command(check_script(tmp_path, "sys.exit(1)", "two.py"))
    first = winnow(MODEL, *one, "budget.checks=2", folder=tmp_path / "run")
    assert first.code == 0
    before = first.result
    other = winnow(MODEL, *two, f"resume={tmp_path / 'run'}", folder=tmp_path / "run")
    assert other.code == 2
    assert "check" in other.output
    assert other.result == before


@pytest.mark.slow
def test_a_sweep_survives_a_corrupt_model_and_a_check_that_hangs(tmp_path: Path) -> None:
    slow, corrupt = tmp_path / "slow, model.onnx", tmp_path / "corrupt.onnx"
    model = onnx.load(str(EXAMPLE))
    model.producer_name = "slow"
    onnx.save(model, str(slow))
    corrupt.write_bytes(EXAMPLE.read_bytes()[:5000])
    body = f"import time\nif model.producer_name == 'slow': time.sleep(60)\n{node(CULPRIT)}"
    check = check_script(tmp_path, body)
    sweep = tmp_path / "sweep"
    done = run_forked(
        [
            *(sys.executable, "-m", "runner", "-m", "strategy=reduce,reduce_bisect"),
            f"model={EXAMPLE},{corrupt},'{slow}'",
            *by_command(check),
            *("checker.timeout=1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"hydra.sweep.dir={sweep}"),
        ],
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 7, done.stdout + done.stderr
    rows = json.loads((sweep / "sweep.json").read_text())
    rows = rows["jobs"] if isinstance(rows, dict) else rows
    assert len(rows) == 6
    assert sorted(row["exit_code"] for row in rows) == [0, 0, 2, 2, 3, 3]
    assert (sweep / "sweep.md").read_text().count("\n|") >= 7
    results = [json.loads(path.read_text()) for path in sweep.glob("*/result.json")]
    found = [result for result in results if result["status"] == "found"]
    assert [result["culprits"] for result in found] == [[CULPRIT], [CULPRIT]]
    # two strategies asked the same questions: the second one did not pay again
    assert sum(result["checks"]["reused"] for result in found) > 0
