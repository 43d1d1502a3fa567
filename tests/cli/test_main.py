"""The command line for real: exit codes, one clear error, result.json whatever happens, sweeps with one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.in_process import said
from tests.fork_server import run_forked
from tests.matrix import sample

STUB = Path(__file__).parents[1] / "stub"
ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(STUB), str(ROOT)]), "COLUMNS": "200", "PYTHONUTF8": "1"}


def winnow(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked([sys.executable, "-m", "runner", *arguments], cwd=folder, env=environment(), timeout=120)


def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def seen(folder: Path) -> tuple[dict[str, Any], list[str]]:
    settings, command, _ = json.loads((folder / "seen.json").read_text())
    return settings, command


def models(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / f"{name}.onnx").write_bytes(b"")


def test_a_bug_of_ours_keeps_its_traceback_in_the_log(tmp_path: Path) -> None:
    models(tmp_path, ["raises"])
    done = winnow(tmp_path, "model=raises.onnx", "hydra.run.dir=out")
    assert (done.returncode, result(tmp_path / "out")["status"]) == (1, "internal_error")
    assert "Traceback" not in done.stdout + done.stderr
    assert str(tmp_path / "out") in done.stderr.splitlines()[0]
    assert "  next     python -m runner resume out\n" in done.stderr
    assert "RuntimeError: boom" in (tmp_path / "out" / "winnow.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["target.optimization=al"],
            ["target.optimization=al", "none | basic | extended | layout | all", "did you mean all"],
        ),
        (["~target"], ["target: choose an option with target=NAME"]),
        (["+checker.foo=1"], ["checker.foo", "Keys: name"]),
        (["hydra.mode=MULTIRUN", "checker=finite", "checker.nan=fail,ingore"], ["checker.nan=ingore", "fail | ignore"]),
        (["stratgy=reduce"], ["stratgy=reduce", "did you mean strategy"]),
        (
            ["checker.comand=true"],
            ["did you mean checker.command?", "needs checker=command (--check 'python check.py {model}')"],
        ),
        (["inputs.pth=x"], ["did you mean inputs.path?", "inputs.path needs inputs=files (--inputs PATH)"]),
        (["checker.nan=ignore"], ["no key 'nan'. checker.nan needs checker=finite|compare."]),
        (["inputs.smaples=3"], ["did you mean samples or shapes?"]),
        (["+experiment=nope"], ["+experiment=nope", "optimizer_bug"]),
        (["typo.yaml"], ["checker.comand", "typo.yaml", "command"]),
    ],
)
def test_a_usage_error_is_one_clear_message_and_exit_2(tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    models(tmp_path, ["net"])
    (tmp_path / "typo.yaml").write_text("checker: {name: command, comand: x}\n")
    code, _, err = said(tmp_path, "model=net.onnx", *arguments)
    assert code == 2, err
    assert all(part in err for part in parts), err
    assert "Traceback" not in err and len(err.strip().splitlines()) == 1


def test_hydras_own_commands_work(tmp_path: Path) -> None:
    code, out, _ = said(tmp_path, "checker=finite", "--cfg", "job", "-p", "checker")
    assert code == 0 and "name: finite" in out
    assert said(tmp_path, "--cfg", "job", "-p", "nothing")[0] == 2


@pytest.mark.slow
def test_the_mode_is_what_the_file_says_and_else_that_of_a_run(tmp_path: Path) -> None:
    models(tmp_path, ["found"])
    (tmp_path / "some.yaml").write_text("model: found.onnx\nhydra: {mode: MULTIRUN, sweep: {dir: out}}\n")
    done = winnow(tmp_path, "some.yaml", "budget.checks=1,2", "hydra/launcher=basic")
    assert done.returncode == 0 and len(list(tmp_path.glob("out/*/result.json"))) == 2, done.stderr
    assert winnow(tmp_path, "model=found.onnx", "budget.checks=1,2").returncode == 2, "a run takes one value"
    assert winnow(tmp_path, "model=found.onnx", "hydra.run.dir=one").returncode == 0
    hydra = yaml.safe_load((tmp_path / "one" / ".hydra" / "hydra.yaml").read_text())["hydra"]
    assert (hydra["mode"], hydra["overrides"]["hydra"]) == ("RUN", ["hydra.run.dir=one", "hydra.mode=RUN"])


def test_settings_and_command_reach_the_job(tmp_path: Path) -> None:
    name = "name[1](a)=b$,${x}'.onnx"
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "home").mkdir()
    typed = [f"model={name}", "checker=command", "checker.command=python check.py {model}", "hydra.run.dir=out[1]"]
    done = winnow(tmp_path, *typed)
    assert done.returncode == 0, done.stderr
    settings, command = seen(tmp_path / "out[1]")
    assert settings["model"] == str(tmp_path / name)
    assert settings["checker"]["command"] == "python check.py {model}"
    assert command == ["python", "-m", "runner", *typed]
    resumed = winnow(tmp_path, f"model={name}", "resume=out[1]")
    assert resumed.returncode == 0 and not (tmp_path / "outputs").exists()


def test_files_of_a_users(tmp_path: Path) -> None:
    models(tmp_path, ["net"])
    (tmp_path / "config.yaml").write_text(
        "defaults: [config, override strategy: reduce_linear, _self_]\nmodel: net.onnx\n"
    )
    (tmp_path / "bug.yaml").write_text(
        "model: net.onnx\nstrategy: reduce_bisect\ncut: {record: off}\n"
        "checker:\n  name: command\n  command: [python, check.py, '{model}']\n"
    )
    assert winnow(tmp_path, "config.yaml", "hydra.run.dir=a").returncode == 0
    assert seen(tmp_path / "a")[0]["strategy"]["name"] == "reduce_linear"
    assert winnow(tmp_path, "bug.yaml", "hydra.run.dir=b").returncode == 0
    settings, _ = seen(tmp_path / "b")
    assert settings["strategy"]["name"] == "reduce_bisect" and settings["cut"]["record"] == "off"
    assert settings["checker"]["command"] == ["python", "check.py", "{model}"]


def test_the_users_folder_does_no_harm(tmp_path: Path) -> None:
    models(tmp_path, ["net"])
    for name in ("conf", "strategies", "hydra"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(9)\n")
    (tmp_path / "onnx.py").write_text("raise SystemExit(9)\n")
    assert winnow(tmp_path, "model=net.onnx").returncode == 0


@pytest.mark.parametrize("launcher", sample(["basic", "winnow", "joblib"], 3))
def test_a_sweep_ends_with_one_table(tmp_path: Path, launcher: str) -> None:
    models(tmp_path, ["net", "fine", "raises", "c[1]"])
    choices = "model=net.onnx,fine.onnx,raises.onnx,c[1].onnx,missing.onnx"
    extra = ["hydra.launcher.n_jobs=2"] if launcher != "basic" else []
    done = winnow(tmp_path, "-m", choices, "hydra.sweep.dir=sweep", f"hydra/launcher={launcher}", *extra)
    assert done.returncode == 7, done.stderr
    rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [row["exit_code"] for row in rows] == [0, 4, 1, 0, 2]
    assert [row["folder"] for row in rows] == ["0", "1", "2", "3", "4"]
    table = (tmp_path / "sweep" / "sweep.md").read_text()
    assert table.count("\n| ") == 5 and "a&#124;b" in table and "3 of 5 jobs ended well" in done.stdout
    assert any(line.split()[:5] == ["0", "found", "1", "of", "9"] for line in done.stdout.splitlines())
    assert "a|b" in done.stdout
    assert seen(tmp_path / "sweep" / "3")[0]["model"] == str(tmp_path / "c[1].onnx")
    again = winnow(tmp_path, "-m", "model=net.onnx,fine.onnx", "resume=sweep")
    assert again.returncode == 0 and len(json.loads((tmp_path / "sweep" / "sweep.json").read_text())) == 2


@pytest.mark.slow
def test_jobs_that_died_or_never_ran_are_in_the_table(tmp_path: Path) -> None:
    models(tmp_path, ["net", "dies"])
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.launcher.pre_dispatch=1"]
    done = winnow(tmp_path, "-m", "model=dies.onnx,net.onnx,net.onnx", "hydra.sweep.dir=sweep", *launcher)
    assert done.returncode == 7
    rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert len(rows) == 3 and rows[0]["status"] == "died"
    assert "To go on: python -m runner resume sweep\n" in done.stderr and "Traceback" not in done.stderr
