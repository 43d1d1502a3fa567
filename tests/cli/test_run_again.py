"""`winnow RUN` and `winnow resume RUN`: a run or a sweep goes on as it was started, wherever the user stands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import run_folder
from runner.cli import run_again
from runner.cli.arguments import options
from runner.cli.compose import FILES
from runner.cli.run_again import RunAgain
from runner.exit_codes import UsageError
from runner.run_folder import Marker
from tests.chain_models import chain
from tests.cli import in_process
from tests.fork_server import run_forked
from tests.harness import by_command, check_script

WINNOW = [sys.executable, "-m", "runner"]
SLOW = "import time\ntime.sleep(0.06)\nsys.exit(1 if 'n7' in nodes else 0)"


def winnow(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_forked([*WINNOW, *words], cwd=cwd, timeout=120)


def result(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a model and a check, and a YAML file that names them as they are seen from there."""
    home = tmp_path / "home"
    (tmp_path / "other").mkdir()
    home.mkdir()
    chain(home / "net.onnx", 16)
    command = yaml.safe_load(by_command(check_script(home, SLOW))[1].partition("=")[2])
    command = [Path(word).name if word.endswith(".py") else word for word in command]
    checker = {"name": "command", "command": command, "flaky": "never"}
    (home / "bug.yaml").write_text(yaml.safe_dump({"model": "net.onnx", "strategy": "reduce", "checker": checker}))
    return home


def folder_of(place: Path, config: Any = None, hydra: Any = None, sweep: Any = None) -> Path:
    (place / ".hydra").mkdir(parents=True)
    run_folder.write(place, Marker(running=True))
    for name, content in ((".hydra/config.yaml", config), (".hydra/hydra.yaml", hydra), ("multirun.yaml", sweep)):
        if content is not None:
            (place / name).write_text(yaml.safe_dump(content))
    return place


def test_a_folder_goes_on_from_where_it_was_started_wherever_the_user_stands(tmp_path: Path) -> None:
    stood = tmp_path / "home"
    stood.mkdir()
    runtime = {"runtime": {"cwd": str(stood)}}
    run = folder_of(tmp_path / "a run, [1]", config={"model": "net.onnx"}, hydra={"hydra": runtime})
    given, _, here = RunAgain(run, options(["budget.checks=3"])).for_hydra()
    content, _ = FILES[given.config_name]
    assert (content.model, content.cwd, here) == (str(stood / "net.onnx"), str(stood), None)
    assert given.overrides == ["budget.checks=3", f"resume='{run}'"] and not given.multirun
    typed = ["strategy.search=bisect,minimal", "budget.checks=9"]
    sweep = {"overrides": {"task": typed}, "sweeper": {"params": {"model": "a.onnx,b.onnx"}}, "launcher": {"n_jobs": 1}}
    swept = folder_of(tmp_path / "swept", sweep={"model": "net.onnx", "hydra": {**runtime, **sweep}})
    given, _, here = RunAgain(swept, options(["budget.checks=3"])).for_hydra()
    content, _ = FILES[given.config_name]
    assert (content.hydra.launcher.n_jobs, here, given.multirun) == (1, stood, True)
    changed = ["model=a.onnx,b.onnx", "strategy.search=bisect,minimal", "budget.checks=3", f"resume='{swept}'"]
    assert given.overrides == changed
    FILES.clear()


EVIL = {"_target_": "subprocess.Popen", "args": ["touch", "done"]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"config": {"hydra": {"callbacks": {"x": EVIL}}}}, "a file may not set this"),
        ({"config": {"hydra": {"launcher": EVIL}}}, "a file may not set this"),
        ({"config": {"modle": "net.onnx"}}, "modle"),
        ({"config": ["model"]}, "no mapping"),
        (
            {"sweep": {"hydra": {"overrides": {"task": ["model=a,b", "hydra.launcher._target_=os.abort"]}}}},
            "sweeps over",
        ),
        ({"sweep": {"hydra": {"overrides": {"task": ["+hydra/job_logging=evil", "model=a,b"]}}}}, "sweeps over"),
        ({"sweep": {"hydra": {"overrides": {"task": ["--config-dir=evil", "model=a,b"]}}}}, "no key=value"),
        ({"sweep": {"hydra": {"overrides": {"task": ["-cn=evil", "model=a,b"]}}}}, "no key=value"),
        ({"sweep": {"hydra": {"sweeper": {"params": {"hydra.callbacks.x._target_": "os.abort"}}}}}, "sweeps over"),
        ({"sweep": {"hydra": {"launcher": {"x": EVIL}}}}, "a file may not set this"),
    ],
)
def test_a_folder_from_elsewhere_brings_no_code(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    folder = folder_of(tmp_path / "run", **given)
    code, _, err = in_process.said(tmp_path, "resume", "run")
    assert code == 2 and said in err and "Traceback" not in err, err
    assert not (folder / "done").exists() and not (tmp_path / "done").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def meant(words: list[str]) -> RunAgain | None:
    return run_again.meant(options(words))


def test_which_words_mean_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "reduce"):
        folder_of(tmp_path / name, config={})
    (tmp_path / "empty").mkdir()
    found = meant(["resume", "run", "checker.timeout=3"])
    assert found and (found.folder, found.changes.overrides, found.sweep) == (
        tmp_path / "run",
        ["checker.timeout=3"],
        False,
    )
    assert meant(["resume", "reduce"]), "a strategy's name is none behind resume"
    for chosen in ("python", "command"):
        folder_of(tmp_path / chosen, config={"checker": {"name": chosen}})
        again = meant(["resume", chosen, "checker.file=c.py"])
        words = again.for_hydra()[0].overrides if again else []
        assert ("checker=python" in words) is (chosen != "python"), "what it is about stays as the run had it"
    step = tmp_path / "run" / "steps" / "06-reduce"
    folder_of(step)
    (step / "result.json").write_text('{"status": "found", "exit_code": 0}')
    shown = meant(["run/steps/06-reduce"])
    assert shown and (answer := shown.answer()) and answer.status == "found"
    for words in (["reduce", "net.onnx"], ["empty"], ["net.onnx"], ["model=run"], []):
        assert meant(words) is None
    for words, said in (
        (["resume"], "which run"),
        (["resume", "empty"], "no folder of a run"),
        (["resume", "gone"], "no folder of a run"),
        (["run", "net.onnx"], "changes of its settings"),
        (["resume", "run/steps/06-reduce"], "asked anew by its file: .*06-reduce/replay.yaml"),
        (["run/steps/06-reduce", "checker.timeout=3"], "a step of a triage is shown by its name"),
        (["run"], "a run without a result is not started by its name"),
        (["./reduce", "checker.timeout=3"], "a run with other settings is not started by its name"),
    ):
        with pytest.raises(UsageError, match=said):
            meant(words)


def contents(folder: Path) -> dict[str, bytes]:
    """Return what a folder holds, but for the log and the marker of its last run."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if path.name not in ("winnow.log", run_folder.NAME)}


@pytest.mark.variants
@pytest.mark.parametrize("wrong", ["strategy=layerwise", "model=gone.onnx"])
def test_settings_that_are_refused_change_nothing_of_a_run(home: Path, done_run: Path, wrong: str) -> None:
    before = contents(done_run)
    code, _, err = in_process.said(home, "resume", str(done_run), wrong)
    assert code == 2 and "usage: " in err
    assert contents(done_run) == before
    (done_run / "result.json").unlink()
    assert in_process.said(home, "resume", str(done_run), wrong)[0] == 2
    again = winnow(home, "resume", str(done_run))
    assert again.returncode == 0 and result(done_run)["culprits"] == ["n7"], again.stdout + again.stderr


@pytest.fixture
def done_run(home: Path) -> Path:
    check_script(home, SLOW.replace("0.06", "0"))
    done = winnow(home, "bug.yaml", "hydra.run.dir=done", "result.find_min_good=false")
    assert done.returncode == 0, done.stdout + done.stderr
    return home / "done"


@pytest.mark.slow
def test_a_sweep_keeps_its_answers_and_its_settings_where_others_are_refused(home: Path) -> None:
    check_script(home, SLOW.replace("0.06", "0"))
    chain(home / "small.onnx", 9)
    done = winnow(home, "-m", "bug.yaml", "model=small.onnx,net.onnx", "hydra.sweep.dir=swept")
    assert done.returncode == 0, done.stdout + done.stderr
    sweep = home / "swept"
    answers = {name: (sweep / name).read_bytes() for name in ("0/result.json", "1/result.json", "1/reduced.onnx")}
    settings = (sweep / "multirun.yaml").read_bytes()
    refused = winnow(home, "resume", "swept", "strategy=layerwise")
    assert refused.returncode == 7 and "is kept)" in refused.stdout and "usage" in refused.stdout, refused.stdout
    for name, held in answers.items():
        assert (sweep / name).read_bytes() == held
    assert (sweep / "multirun.yaml").read_bytes() == settings
    again = winnow(home, "resume", "swept")
    assert again.returncode == 0 and again.stdout.count("had ended before") == 2, again.stdout


@pytest.mark.variants
@pytest.mark.parametrize("mend", ["script", "command"])
def test_a_run_that_could_not_judge_goes_on_once_its_check_is_mended(home: Path, mend: str) -> None:
    """The command that its last screen prints works: nothing that the broken check said is used."""
    script = home / "check.py"
    check_script(home, SLOW.replace("0.06", "0"))
    good = script.read_text()
    script.write_text("import sys\nsys.exit(1)\n")
    bad = winnow(home, "bug.yaml", "hydra.run.dir=typo")
    assert bad.returncode == 3, bad.stdout + bad.stderr
    more = []
    if mend == "script":
        script.write_text(good)
    else:
        (home / "mended.py").write_text(good)
        words = yaml.safe_load((home / "bug.yaml").read_text())["checker"]["command"]
        more = [f"checker.command={json.dumps([word.replace('check.py', 'mended.py') for word in words])}"]
    done = winnow(home, "resume", "typo", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert result(home / "typo")["culprits"] == ["n7"]
    assert result(home / "typo")["checks"]["reused"] == 0
    assert "the run starts over" in done.stdout


@pytest.mark.slow
def test_a_mistake_in_a_command_line_is_not_the_latest_run(home: Path) -> None:
    check_script(home, "sys.exit(0)")
    assert winnow(home, "bug.yaml").returncode == 4
    latest = (home / "outputs" / "latest").resolve()
    assert winnow(home, "reduce", "nosuch.onnx").returncode == 2
    assert (home / "outputs" / "latest").resolve() == latest
    assert winnow(home, "outputs/latest").returncode == 4


def test_no_words_at_all_show_the_help_and_leave_no_folder(tmp_path: Path) -> None:
    code, out, _ = in_process.said(tmp_path)
    assert code == 2 and out.startswith("Winnow finds the smallest part of a model that still fails")
    assert not [*tmp_path.iterdir()]


def test_a_check_that_always_fails_is_asked_whether_it_ever_passes(home: Path) -> None:
    """And what is typed next is what helps: to go on with a mended check, not to see it fail five times more."""
    (home / "check.py").write_text("import sys\nprint('no')\nsys.exit(1)\n")
    bad = winnow(home, "bug.yaml", "hydra.run.dir=always")
    assert bad.returncode == 3
    assert "If it fails on every model, mend it" in bad.stderr
    assert "resume always --inputs x.npz --original good.onnx" in bad.stderr
    assert "[1] the check printed:" in bad.stdout and "(fail)" not in bad.stdout
    before = contents(home / "always")
    code, out, err = in_process.said(home, "always")
    assert code == 3 and "could_not_judge" in out + err
    assert contents(home / "always") == before, "to show a run starts and changes nothing"
