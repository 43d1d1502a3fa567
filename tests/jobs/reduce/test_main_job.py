"""The main job as a user runs it: a process, a command line, exit codes, files."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import onnx
import pytest

from tests.bundles import unpacked
from tests.harness import ROOT, by_command, check_script, interrupted, winnow

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
    drifted = tmp_path / "drifted.yaml"
    drifted.write_text((demo.folder / "replay.yaml").read_text().replace(demo.result["context"]["model"], "f" * 64))
    run = winnow(str(drifted), folder=tmp_path / "drift")
    assert (run.code, run.result["culprits"]) == (0, [CULPRIT]), run.output
    assert any("model changed" in warning for warning in run.result["warnings"]), run.output


@pytest.mark.slow
def test_a_check_that_cannot_judge(tmp_path: Path) -> None:
    check = f"checker.command={sys.executable} no_such_script.py {{model}}"
    run = winnow(MODEL, "checker=command", check, folder=tmp_path / "run")
    assert (run.code, run.result["status"]) == (3, "could_not_judge")
    assert "no_such_script.py" in run.output and "Traceback" not in run.output


@pytest.mark.slow
def test_a_plan_counts_what_is_kept_within_the_budget_of_the_disk(tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, node(CULPRIT)))
    run = winnow(MODEL, *check, "plan=true", "artifacts=all", "artifacts.disk_budget_mb=3", folder=tmp_path / "run")
    assert 3 < run.result["plan"]["disk_left_mb"] < 3.4


@pytest.mark.slow
@pytest.mark.parametrize("before", [5, 0, 2])
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
