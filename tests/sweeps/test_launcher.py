"""A sweep under Winnow's own launcher, with real processes that die, hang and are interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest
from hydra.errors import MissingConfigException

from runner.cli.explain_errors import explain
from runner.text import install
from tests import chain_models
from tests.fork_server import run_forked
from tests.harness import ROOT
from tests.matrix import sample

CULPRIT = "n5"
#: judges in a worker; what it does with the culprit depends on the model's producer
CHECK = f"""
import os, pathlib, signal, time
import onnx

def check(model, inputs, expected):
    graph = onnx.load(model)
    kind, place = graph.producer_name, pathlib.Path(__file__).parent
    with open(place / (kind + ".checks"), "a") as counted:
        counted.write("x")
    if kind == "waits":
        (place / "waiting").touch()
        time.sleep(120)
    if kind == "swaps" and len(graph.graph.node) < 12:  # not while that very file is judged
        (place / "swaps.onnx").write_bytes((place / "a.onnx").read_bytes())
    if {CULPRIT!r} not in [node.name for node in graph.graph.node]:
        return True
    if kind == "kills" and len(graph.graph.node) < 6 and not (place / "killed").exists():
        (place / "killed").touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if kind == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hangs":
        time.sleep(60)
    return False
"""
ASKED = ("strategy=reduce_bisect", "checker=python", "checker.file=check.py", "checker.flaky=never")


def chain(path: Path, kind: str, nodes: int = 12) -> None:
    """A chain whose producer is ``kind``."""
    model = onnx.load(chain_models.chain(path, nodes))
    model.producer_name = kind
    onnx.save(model, str(path))


def prepared(folder: Path, kinds: Sequence[str]) -> str:
    """Make a model of each kind and the check; return the choices of the sweep."""
    (folder / "check.py").write_text(CHECK)
    for kind in kinds:
        chain(folder / f"{kind}.onnx", kind)
    return f"model={','.join(f'{kind}.onnx' for kind in kinds)}"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "runner", "-m", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200"}


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked(command(*arguments), cwd=folder, env=environment(), timeout=120)


def table(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "sweep.json").read_text())


def states(folder: Path) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for line in (folder / "jobs.jsonl").read_text().splitlines():
        entry = json.loads(line)
        found.setdefault(entry["job"], []).append(entry["state"])
    return found


def until(what: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_only_what_is_missing_runs_again(tmp_path: Path) -> None:
    kinds = ["a", "kills", "b", "dies", "hangs", "c", "d", "e"]
    choices = prepared(tmp_path, kinds)
    arguments = [choices, *ASKED, "checker.timeout=1", "hydra.launcher.n_jobs=3"]
    first = sweep(tmp_path, *arguments, "hydra.sweep.dir=out")
    assert first.returncode == 7, first.stdout + first.stderr
    rows = table(tmp_path / "out")
    assert [row["exit_code"] for row in rows] == [0, None, 0, 0, 0, 0, 0, 0]
    assert [row["culprits"] for row in rows] == [[] if row["job"] == "1" else [CULPRIT] for row in rows]
    assert rows[1]["status"] == "died" and "SIGKILL" in rows[1]["message"]
    assert "#1 died by SIGKILL" in first.stderr
    results = {kind: json.loads((tmp_path / "out" / str(n) / "result.json").read_text())
               for n, kind in enumerate(kinds) if kind != "kills"}  # fmt: skip
    assert "MEMORY" in str(results["dies"]["signature"]) and "timeout" in str(results["hangs"]["signature"])
    told = [line for line in first.stdout.splitlines() if "INFO" in line]
    assert told and all("#" in line for line in told), "each line says whose it is"

    counted = {kind: (tmp_path / f"{kind}.checks").stat().st_size for kind in kinds}
    again = sweep(tmp_path, *arguments, "resume=out")
    assert again.returncode == 0, again.stdout + again.stderr
    rows = table(tmp_path / "out")
    assert [row["exit_code"] for row in rows] == [0] * 8 and rows[1]["culprits"] == [CULPRIT]
    more = {kind: (tmp_path / f"{kind}.checks").stat().st_size - counted[kind] for kind in kinds}
    assert [kind for kind in kinds if more[kind]] == ["kills"]
    # and of that one, what it had paid for before it was killed is not paid for again
    assert json.loads((tmp_path / "out" / "1" / "result.json").read_text())["checks"]["reused"] > 0
    history = states(tmp_path / "out")
    assert history[1] == ["queued", "running", "died", "queued", "running", "ended"]
    assert history[0] == ["queued", "running", "ended", "queued", "kept"]


@pytest.mark.slow
def test_a_job_whose_settings_or_model_changed_runs_again(tmp_path: Path) -> None:
    arguments = [prepared(tmp_path, ["a", "b", "swaps"]), *ASKED]
    assert sweep(tmp_path, *arguments, "hydra.sweep.dir=out").returncode == 0
    os.utime(tmp_path / "a.onnx")  # newer, and the same
    chain(tmp_path / "b.onnx", "b", nodes=13)
    os.utime(tmp_path / "b.onnx", (1.0, 1.0))  # older, and another
    again = sweep(tmp_path, *arguments, "resume=out", "verbosity=warning")
    assert again.returncode == 0, again.stdout + again.stderr
    ends = {number: seen[-1] for number, seen in states(tmp_path / "out").items()}
    assert ends == {0: "kept", 1: "ended", 2: "ended"}, "the third was another by the end of its run"
    assert table(tmp_path / "out")[1]["before"] == 13
    sweep(tmp_path, *arguments, "resume=out", "result.find_min_good=false")
    assert {seen[-1] for seen in states(tmp_path / "out").values()} == {"ended"}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", sample(["winnow", "basic"], 2))
def test_jobs_are_composed_as_by_hydras_own_launcher(tmp_path: Path, launcher: str) -> None:
    prepared(tmp_path, ["a"])
    mine = tmp_path / "mine" / "experiment"
    mine.mkdir(parents=True)
    (mine / "ours.yaml").write_text(
        "# @package _global_\nchecker:\n  timeout: 7\nbudget:\n  seconds: ${oc.env:SECONDS}\n"
    )
    (tmp_path / "my bug.yaml").write_text(
        "model: a.onnx\nstrategy: reduce_bisect\nchecker: {name: python, file: check.py}\ntarget: onnx_reference\n"
        "plan: true\nresult: {path: 'r-${now:%f}.onnx'}\n"
        "hydra: {sweep: {subdir: 'job-${hydra:job.num}'}}\n"
    )
    done = sweep(
        tmp_path, "my bug.yaml", "--config-dir", "mine", "+experiment=ours", "budget.checks=1,2", "+recorded.x=off",
        "hydra.sweep.dir=out/${now:%Y}", f"hydra/launcher={launcher}", "verbosity=warning",
        "+hydra.job.env_set.SECONDS='55'", "+hydra.job.env_set.NOTE='a b'",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    folder = next((tmp_path / "out").iterdir())
    composed = [(folder / f"job-{n}" / ".hydra" / "config.yaml").read_text() for n in (0, 1)]
    assert "checks: 1" in composed[0] and "checks: 2" in composed[1] and "${now:%f}" in composed[0]
    assert "timeout: 7" in composed[0] and "x: 'off'" in composed[0]
    for n in (0, 1):
        hydra = (folder / f"job-{n}" / ".hydra" / "hydra.yaml").read_text()
        assert f"num: {n}" in hydra and "NOTE: a b" in hydra and f"output_dir: {folder}/job-{n}" in hydra
        replay = (folder / f"job-{n}" / "replay.yaml").read_text()
        assert "seconds: 55" in replay
    assert [row["folder"] for row in table(folder)] == ["job-0", "job-1"]


@pytest.mark.slow
def test_a_job_is_a_plain_run_of_what_the_sweep_began_with(tmp_path: Path) -> None:
    """The user's file as it was, times that were read once, and callbacks of the user's in the job's own process."""
    chain(tmp_path / "a.onnx", "a")
    (tmp_path / "check.py").write_text(
        "import pathlib\n"
        "def check(model, inputs, expected):\n"
        "    (pathlib.Path(__file__).parent / 'bug.yaml').write_text('model: gone.onnx')\n"
        "    return True\n"
    )
    (tmp_path / "bug.yaml").write_text(
        "model: a.onnx\nchecker: {name: python, file: check.py, flaky: never}\nplan: true\n"
        "log: {file: 'log-${now:%H-%M-%S-%f}.txt'}\n"
    )
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "from hydra.experimental.callback import Callback\n"
        "class Heard(Callback):\n"
        "    def on_job_start(self, config, **_):\n"
        "        self.hear('start', config)\n"
        "    def on_job_end(self, config, **_):\n"
        "        self.hear('end', config)\n"
        "    def hear(self, what, config):\n"
        "        with open('heard', 'a') as file:\n"
        "            file.write(f'{what} {config.hydra.job.num} {os.getpid() == os.getsid(0)}\\n')\n"
    )
    given = ("bug.yaml", "budget.checks=1,2", "hydra.launcher.n_jobs=1", "+hydra.callbacks.mine._target_=mine.Heard")
    done = subprocess.run(
        command(*given), cwd=tmp_path, env={**environment(), "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "outputs").glob("*/*-sweep")
    assert [row["status"] for row in table(folder)] == ["nothing_to_find"] * 2
    assert [path.name for path in tmp_path.glob("log-*")] == [f"log-{folder.name.removesuffix('-sweep')}.txt"]
    heard = (tmp_path / "heard").read_text().split("\n")[:-1]
    assert heard == [f"{what} {job} True" for job in (0, 1) for what in ("start", "end")]


def test_values_of_the_environment_are_shown_nowhere(tmp_path: Path) -> None:
    """What jobs need to run, and to go on, holds them: Hydra's record, the journal, ended.json, result and replay."""
    chain(tmp_path / "a.onnx", "a", nodes=2)
    (tmp_path / "check.sh").write_text('test "$MY_KEY" != hunter1\n')
    given = ("model=a.onnx", "checker=command", "checker.command=[sh,check.sh]", "checker.env.MY_KEY=hunter1,hunter2")
    done = sweep(tmp_path, *given, "hydra.sweep.dir=out", "plan=true", "verbosity=debug")
    shown = [tmp_path / "out" / name for name in ("sweep.json", "sweep.md", "jobs.jsonl", "report.html")]
    for text in (done.stdout, done.stderr, *(path.read_text() for path in shown)):
        assert "hunter" not in text
    assert "#0 model=a.onnx" in done.stdout and done.stdout.count("checker.env.MY_KEY=...") >= 2
    assert all("checker.env.MY_KEY=..." in row["overrides"] for row in table(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), sample([(signal.SIGTERM, 143), (signal.SIGINT, 130)], 2))
def test_an_interrupted_sweep_says_how_to_go_on(tmp_path: Path, number: int, code: int) -> None:
    arguments = [prepared(tmp_path, ["a", "waits", "b"]), *ASKED, "hydra.launcher.n_jobs=1"]
    with subprocess.Popen(
        command(*arguments, "hydra.sweep.dir=out"), cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=_hears_interrupts,  # noqa: PLW1509
    ) as process:  # fmt: skip
        until(lambda: (tmp_path / "waiting").exists() or process.poll() is not None)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert [row["status"] for row in table(tmp_path / "out")] == ["found", "interrupted", "not run"]
    assert "To go on: python -m runner resume out\n" in output and "Traceback" not in output
    chain(tmp_path / "waits.onnx", "patient")
    again = sweep(tmp_path, *arguments, "resume=out")
    assert states(tmp_path / "out")[0][-1] == "kept", again.stdout


@pytest.mark.slow
def test_a_killed_launcher_leaves_nothing_behind(tmp_path: Path) -> None:
    arguments = [prepared(tmp_path, ["waits", "a"]), *ASKED, "hydra.launcher.n_jobs=2"]
    log = (tmp_path / "log").open("w")
    with log, subprocess.Popen(
        command(*arguments, "hydra.sweep.dir=out"), cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL,
        stdout=log, stderr=log,
    ) as process:  # fmt: skip
        ended = tmp_path / "out" / "1" / "result.json"
        until(lambda: ((tmp_path / "waiting").exists() and ended.exists()) or process.poll() is not None)
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 4, "a job, its worker, and a guardian of each"
        process.kill()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert states(tmp_path / "out")[0] == ["queued", "running"]
    chain(tmp_path / "waits.onnx", "patient")
    again = sweep(tmp_path, *arguments, "resume=out")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [row["status"] for row in table(tmp_path / "out")] == ["found", "found"]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("hydra.launcher.n_jobs=0", "hydra.launcher.n_jobs=0: give how many jobs run at once"),
        ("hydra.launcher.jobs=2", "hydra.launcher.jobs"),
    ],
)
def test_launcher_options_that_do_not_exist(tmp_path: Path, argument: str, words: str) -> None:
    done = sweep(tmp_path, "model=a.onnx,b.onnx", argument, "hydra.sweep.dir=out")
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.slow
def test_a_silent_sweep_says_nothing(tmp_path: Path) -> None:
    done = sweep(tmp_path, prepared(tmp_path, ["a", "b"]), *ASKED, "verbosity=silent", "hydra.sweep.dir=out")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out" / "sweep.md").read_text().count("| found |") == 2


def _hears_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_launcher_that_is_not_installed_says_what_to_install() -> None:
    missing = MissingConfigException("no", "hydra/launcher/submitit_slurm", options=["basic", "joblib", "winnow"])
    assert f"It comes with an extra: {install('slurm')}." in explain(missing)
