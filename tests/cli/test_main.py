"""The command line for real: exit codes, one clear error, result.json whatever happens, sweeps with one table."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
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


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stub puts in the place of a job, in this process."""
    before = list(sys.meta_path)
    stub = runpy.run_path(str(STUB / "sitecustomize.py"))
    sys.meta_path[:] = before
    job = ModuleType("runner.jobs.run")
    monkeypatch.setattr(job, "run", stub["run"], raising=False)
    monkeypatch.setitem(sys.modules, job.__name__, job)


def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def seen(folder: Path) -> tuple[dict[str, Any], list[str]]:
    settings, command, _ = json.loads((folder / "seen.json").read_text())
    return settings, command


def models(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / f"{name}.onnx").write_bytes(b"")


@pytest.mark.usefixtures("_stand_in")
def test_a_bug_of_ours_keeps_its_traceback_in_the_log(tmp_path: Path) -> None:
    models(tmp_path, ["raises"])
    code, out, err = said(tmp_path, "model=raises.onnx", "hydra.run.dir=out")
    assert (code, result(tmp_path / "out")["status"]) == (1, "internal_error")
    assert "Traceback" not in out + err
    assert str(tmp_path / "out") in err.splitlines()[0] and "  next     winnow resume out\n" in err
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
            ["did you mean checker.command?", "needs checker=command (--check COMMAND or FILE.py)"],
        ),
        (["inputs.pth=x"], ["did you mean inputs.path?", "inputs.path needs inputs=files (--inputs FILE)"]),
        (["checker.nan=ignore"], ["no key 'nan'. checker.nan needs checker=finite|compare."]),
        (["inputs.smaples=3"], ["did you mean samples or shapes?"]),
        (["+experiment=nope"], ["+experiment=nope", "optimizer_bug"]),
        (["typo.yaml"], ["checker.comand", "typo.yaml", "command"]),
        (["dotted.yaml"], ["Write it in its section: checker: {command: ...}"]),
    ],
)
def test_a_usage_error_is_one_clear_message_and_exit_2(tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    models(tmp_path, ["net"])
    (tmp_path / "typo.yaml").write_text("checker: {name: command, comand: x}\n")
    (tmp_path / "dotted.yaml").write_text("checker: command\nchecker.command: python check.py\n")
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
    (tmp_path / "some.yaml").write_text(
        "model: found.onnx\nhydra: {mode: MULTIRUN, launcher: basic, sweep: {dir: out}}\n"
    )
    done = winnow(tmp_path, "some.yaml", "budget.checks=1,2")
    assert done.returncode == 0 and len(list(tmp_path.glob("out/*/result.json"))) == 2, done.stderr
    assert winnow(tmp_path, "model=found.onnx", "budget.checks=1,2").returncode == 2, "a run takes one value"
    assert winnow(tmp_path, "model=found.onnx", "hydra.run.dir=one").returncode == 0
    hydra = yaml.safe_load((tmp_path / "one" / ".hydra" / "hydra.yaml").read_text())["hydra"]
    assert (hydra["mode"], hydra["overrides"]["hydra"]) == ("RUN", ["hydra.run.dir=one", "hydra.mode=RUN"])


@pytest.mark.usefixtures("_stand_in")
def test_settings_and_command_reach_the_job(tmp_path: Path) -> None:
    name = "name[1](a)=b$,${x}'.onnx"
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "home").mkdir()
    typed = [f"model={name}", "checker=command", "checker.command=python check.py {model}", "hydra.run.dir=out[1]"]
    assert said(tmp_path, *typed)[0] == 0
    settings, command = seen(tmp_path / "out[1]")
    assert settings["model"] == str(tmp_path / name)
    assert settings["checker"]["command"] == "python check.py {model}"
    assert command == ["winnow", *typed]
    assert said(tmp_path, f"model={name}", "resume=out[1]")[0] == 0 and not (tmp_path / "outputs").exists()


@pytest.mark.usefixtures("_stand_in")
def test_files_of_a_users(tmp_path: Path) -> None:
    models(tmp_path, ["net"])
    (tmp_path / "config.yaml").write_text(
        "defaults: [config, override strategy: reduce_linear, _self_]\nmodel: net.onnx\n"
    )
    (tmp_path / "bug.yaml").write_text(
        "model: net.onnx\nstrategy: reduce_bisect\ncut: {record: off}\n"
        "checker:\n  name: command\n  command: [python, check.py, '{model}']\n"
    )
    assert said(tmp_path, "config.yaml", "hydra.run.dir=a")[0] == 0
    assert seen(tmp_path / "a")[0]["strategy"]["name"] == "reduce_linear"
    assert said(tmp_path, "bug.yaml", "hydra.run.dir=b")[0] == 0
    settings, _ = seen(tmp_path / "b")
    assert settings["strategy"]["name"] == "reduce_bisect" and settings["cut"]["record"] == "off"
    assert settings["checker"]["command"] == ["python", "check.py", "{model}"]


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize("launcher", sample(["basic", "winnow", "joblib"], 3))
def test_a_sweep_ends_with_one_table(tmp_path: Path, launcher: str) -> None:
    models(tmp_path, ["net", "fine", "raises", "c[1]"])
    choices = "model=net.onnx,fine.onnx,raises.onnx,c[1].onnx,missing.onnx"
    extra = [f"hydra/launcher={launcher}", "hydra.launcher.n_jobs=2"]

    def swept(*words: str) -> tuple[int, str, str]:
        if launcher == "basic":  # its jobs run in the process of the sweep
            return said(tmp_path, "-m", *words, "hydra/launcher=basic")
        done = winnow(tmp_path, "-m", *words, *extra)
        return done.returncode, done.stdout, done.stderr

    code, out, err = swept(choices, "hydra.sweep.dir=sweep")
    assert code == 7, err
    rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [row["exit_code"] for row in rows] == [0, 4, 1, 0, 2]
    assert [row["folder"] for row in rows] == ["0", "1", "2", "3", "4"]
    table = (tmp_path / "sweep" / "sweep.md").read_text()
    assert table.count("\n| ") == 5 and "a&#124;b" in table and "3 of 5 jobs ended well" in out
    assert any(line.split()[:5] == ["0", "found", "1", "of", "9"] for line in out.splitlines())
    assert "a|b" in out
    assert seen(tmp_path / "sweep" / "3")[0]["model"] == str(tmp_path / "c[1].onnx")
    assert swept("model=net.onnx,fine.onnx", "resume=sweep")[0] == 0
    assert len(json.loads((tmp_path / "sweep" / "sweep.json").read_text())) == 2


@pytest.mark.slow
def test_jobs_that_died_or_never_ran_are_in_the_table(tmp_path: Path) -> None:
    models(tmp_path, ["net", "dies"])
    launcher = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.launcher.pre_dispatch=1"]
    done = winnow(tmp_path, "-m", "model=dies.onnx,net.onnx,net.onnx", "hydra.sweep.dir=sweep", *launcher)
    assert done.returncode == 7
    rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert len(rows) == 3 and rows[0]["status"] == "died"
    assert "To go on: python -m runner resume sweep\n" in done.stderr and "Traceback" not in done.stderr
