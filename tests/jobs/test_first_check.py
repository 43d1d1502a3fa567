"""The first check begins before the model is read, but only where nothing else decides what it is."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.chain_models import chain
from runner import machine
from runner.artifacts.disk_space import RESERVE
from runner.errors import UsageError
from runner.jobs import first_check
from runner.jobs.job import Job
from runner.jobs.processes import started
from runner.model.files.copy_for_check import copy_for_check
from runner.schema.checker import CommandChecker, RunsChecker
from runner.schema.root import Settings
from runner.schema.run import JournalSettings, LeaseMode, SanitizeSettings
from runner.schema.strategy import PrecisionSettings
from runner.workers.pool import Pool
from tests.harness import ROOT, by_command, check_script, winnow
from tests.jobs.test_processes import settings_of
from tests.workers.house import soon
from tests.workers.test_pool import gone

FAILS = "import sys\nsys.exit(1)\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(chain(tmp_path / "model.onnx", 3))


def calling(settings: Settings, **checker: object) -> Settings:
    given = {"command": ["true", "{model}"], **checker}
    return replace(settings, checker=CommandChecker(**given))  # type: ignore[arg-type]


def begun(settings: Settings, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    with started(settings, folder), Job.opened(settings, folder, ()) as job:
        return job.begun is not None


def test_a_fresh_reduction_begins_its_check_at_once(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert begun(settings, folder)
    assert not (folder / "checks").exists(), "nobody took it"


OTHERWISE: dict[str, Callable[[Settings], Settings]] = {
    "it asks for values": lambda one: calling(one, command=["true", "{model}", "{inputs}"]),
    "it asks for values by a variable": lambda one: calling(one, command=["sh", "-c", "true $WINNOW_DATA {model}"]),
    "it names no model": lambda one: calling(one, command=["true"]),
    "it reads a fixed path": lambda one: calling(one, place="placed.onnx"),
    "it is told of the iteration": lambda one: calling(one, iteration_info="told.json"),
    "it may measure time": lambda one: calling(one, measure="took (.*)"),
    "another check": lambda one: replace(one, checker=RunsChecker()),
    "another question": lambda one: replace(one, strategy=PrecisionSettings()),
    "the model is made another first": lambda one: replace(one, sanitize=SanitizeSettings(fold=True)),
    "verdicts are known": lambda one: replace(one, journal=JournalSettings(reuse=["elsewhere"])),
    "a lease is needed": lambda one: replace(one, workers=replace(one.workers, lease=LeaseMode.gpu)),
    "the reference needs a GPU": lambda one: replace(
        one, reference=replace(one.reference, providers=["CUDAExecutionProvider"])
    ),
    "there is no model": lambda one: replace(one, model="missing.onnx"),
}


@pytest.mark.parametrize("change", OTHERWISE.values(), ids=OTHERWISE)
def test_it_waits_where_it_depends_on_more(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Settings], Settings]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not begun(change(settings), tmp_path / "run")


@pytest.mark.parametrize("there", ["journal.jsonl", "checks", "steps"])
def test_it_waits_where_a_run_was_before(settings: Settings, tmp_path: Path, there: str) -> None:
    folder = tmp_path / "run"
    (folder / there).mkdir(parents=True)
    assert not begun(settings, folder)
    assert (folder / there).is_dir()


def test_it_waits_for_verdicts_of_the_same_sweep(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "multirun.yaml").touch()
    assert not begun(settings, tmp_path / "0")
    assert begun(replace(settings, journal=JournalSettings(share=False)), tmp_path / "1")


def test_it_waits_where_the_model_has_files_beside_it(tmp_path: Path) -> None:
    assert not begun(settings_of(chain(tmp_path / "model.onnx", 3, weight_mb=0.1)), tmp_path / "run")


@pytest.mark.parametrize(("room", "begins"), [(0, True), (1 << 60, False)])
def test_a_larger_model_is_checked_at_once_where_there_is_memory_for_both(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, begins: bool
) -> None:
    monkeypatch.setattr(first_check, "SMALL", 16)
    monkeypatch.setattr(first_check, "ROOM", room)
    assert begun(settings, tmp_path / "run") is begins


@pytest.mark.parametrize(("left", "begins"), [(1, False), (1000, True)])
def test_a_larger_model_is_not_checked_at_once_in_a_container_that_is_almost_full(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, begins: bool
) -> None:
    """Its limit alone says nothing: what it has taken already counts."""
    size, group = (tmp_path / "model.onnx").stat().st_size, tmp_path / "cgroup"
    group.mkdir()
    limit = 1 << 40
    (group / "memory.max").write_text(str(limit))
    (group / "memory.current").write_text(str(limit - left * size))
    monkeypatch.setattr(machine, "_groups", lambda _: iter([group]))
    monkeypatch.setattr(first_check, "SMALL", 16)
    assert begun(settings, tmp_path / "run") is begins


@pytest.mark.parametrize(("models", "begins"), [(1.5, False), (2, True)])
def test_a_larger_model_is_checked_at_once_where_the_disk_has_room_for_its_copy_and_its_weights(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: float, begins: bool
) -> None:
    monkeypatch.setattr(first_check, "SMALL", 16)
    free = RESERVE + int(models * (tmp_path / "model.onnx").stat().st_size)
    there = SimpleNamespace(f_blocks=1, f_bfree=free, f_bavail=free, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: there)
    assert begun(settings, tmp_path / "run") is begins


def test_of_a_copy_that_does_not_fit_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(file: Path, copy: Path) -> Path:
        copy.write_bytes(file.read_bytes()[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    model = chain(tmp_path / "model.onnx", 3)
    monkeypatch.setattr(shutil, "copyfile", copied)
    with pytest.raises(OSError, match="No space"):
        copy_for_check(model, tmp_path / "check")
    assert [*(tmp_path / "check").iterdir()] == []


def test_a_larger_model_is_copied_once_the_worker_that_reads_it_starts(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def copied(model: Path, _: Path) -> Path:
        steps.append("copied")
        return model  # as of one with files beside it

    monkeypatch.setattr(first_check, "SMALL", 16)
    monkeypatch.setattr(first_check, "copy_for_check", copied)
    monkeypatch.setattr(Pool, "start_ahead", lambda *_: steps.append("started"))
    begun(settings, tmp_path / "run")
    assert steps == ["started", "copied"]


def test_what_ends_a_run_early_ends_the_check(settings: Settings, tmp_path: Path) -> None:
    folder, told = tmp_path / "run", tmp_path / "pid"
    folder.mkdir()
    waits = calling(settings, command=["sh", "-c", f"echo $$ > {told}; exec sleep 600", "{model}"])

    def fails() -> None:
        with started(waits, folder):
            assert soon(lambda: told.is_file() and told.read_text().endswith("\n"))
            raise UsageError("no")

    with pytest.raises(UsageError):
        fails()
    assert gone(int(told.read_text()))
    assert list(folder.iterdir()) == []


def test_a_model_that_cannot_be_read_is_refused_as_ever(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_text("no model")
    check = check_script(tmp_path, FAILS)
    answers = []
    for name, flaky in (("begun", ()), ("waits", ("checker.measure=x",))):
        run = tmp_path / name
        answers.append(winnow(f"model={tmp_path / 'broken.onnx'}", *by_command(check), *flaky, folder=run))
        assert not (run / "checks").exists()
        assert not list(run.glob("journal*"))
    assert answers[0].code == answers[1].code != 0
    assert answers[0].result["message"] == answers[1].result["message"]
    assert answers[0].result["checks"] == answers[1].result["checks"]


LOGS = """
import os, sys
with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as file:
    file.write(os.environ["WINNOW_ITERATION"] + " " + "/".join(sys.argv[1].split("/")[-3:]) + "\\n")
print("broken")
sys.exit("Relu" in open(sys.argv[1], "rb").read().decode("latin-1"))
"""


def recorded(run: Path) -> list[tuple[int, str, str]]:
    """Iteration, label and log of each recorded verdict."""
    lines = [json.loads(line) for path in run.glob("journal*.jsonl") for line in path.read_text().splitlines()]
    told = [(one["iteration"], one["label"], one["verdict"]["log"]) for one in lines if "verdict" in one]
    return sorted(told)


def test_its_verdict_is_the_first_of_the_run_and_paid_for_once(tmp_path: Path) -> None:
    """Runs with it and without it differ in nothing: numbers, folders, journals, what is shown."""
    model, shown, calls = chain(tmp_path / "model.onnx", 3), [], []
    for name, waits in (("begun", ()), ("waits", ("checker.measure=nothing",))):
        run = tmp_path / name
        (tmp_path / f"{name}.check").mkdir()
        check = check_script(tmp_path / f"{name}.check", LOGS)
        given = (f"model={model}", *by_command(check), *waits)
        answer = winnow(*given, folder=run)
        assert answer.code == 0, answer.output
        assert len((check.parent / "calls").read_text().splitlines()) == len(recorded(run))
        shown.append([line for line in answer.output.splitlines() if "iteration" in line or "broken" in line])
        again = winnow(*given, f"resume={run}", folder=run)
        assert again.code == 0, again.output
        calls.append((check.parent / "calls").read_text().replace(f"{name}/", "").splitlines())
        assert calls[-1].count("1 checks/00001/model.onnx") == 1
    assert calls[0] == calls[1]
    assert shown[0] == shown[1]
    assert recorded(tmp_path / "begun") == recorded(tmp_path / "waits")


@pytest.mark.parametrize("change", ["open(sys.argv[1], 'ab').write(b'x')", "os.remove(sys.argv[1])"])
def test_a_check_that_changes_its_model_is_found_out(tmp_path: Path, change: str) -> None:
    check = check_script(tmp_path, f"import os, sys\n{change}\nsys.exit(1)\n")
    run = tmp_path / "run"
    answer = winnow(f"model={chain(tmp_path / 'model.onnx', 3)}", *by_command(check), folder=run)
    assert "the check changes the files that it is given" in answer.output
    assert recorded(run) == []


@pytest.mark.parametrize("what", ["engine", "switches", "python"])
def test_what_a_reduction_does_not_make_is_refused_as_ever(tmp_path: Path, what: str) -> None:
    check, run = check_script(tmp_path, FAILS), tmp_path / "run"
    command = f"checker.command={json.dumps([sys.executable, str(check), '{model}', f'{{{what}}}'])}"
    answer = winnow(f"model={chain(tmp_path / 'model.onnx', 3)}", "checker=command", command, folder=run)
    assert answer.result["status"] == "could_not_judge"
    assert f"the command asks for {{{what}}}, which this strategy does not make" in answer.output


LOOKS = """
import sys
from runner.cli.app import run
from runner.jobs.job import Job
from runner.sweeps.sweep import Sweep
from tests.workers.house import soon
bundle = Job.bundle


def looks(*given):
    print("loaded:", soon(lambda: "runner.report.page.html" in sys.modules))
    bundle(*given)


Job.bundle = looks
sys.exit(run("winnow", sys.argv[1:], Sweep()))
"""


def test_what_writes_results_is_loaded_while_checks_run(tmp_path: Path) -> None:
    check = check_script(tmp_path, FAILS)
    given = (f"model={chain(tmp_path / 'model.onnx', 3)}", *by_command(check), f"hydra.run.dir={tmp_path / 'run'}")
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LOOKS, *given], capture_output=True, text=True, env=path, check=False)
    assert "loaded: True" in done.stdout, done.stderr


REPLACED = """
import shutil, sys
from runner.cli.app import run
from runner.jobs import processes
from runner.sweeps.sweep import Sweep
begin, other = processes.begun_check, sys.argv.pop(1)


def replaced(settings, tools, **size):
    begun = begin(settings, tools, **size)
    if begun:
        begun._ended.result()
        shutil.copy(other, settings.model)
        print("replaced")
    return begun


processes.begun_check = replaced
sys.exit(run("winnow", sys.argv[1:], Sweep()))
"""


def test_a_file_that_is_replaced_before_it_is_read_is_checked_anew(tmp_path: Path) -> None:
    check = check_script(tmp_path, "sys.exit(int('n2' in nodes))")
    model, other, run = chain(tmp_path / "model.onnx", 3), chain(tmp_path / "other.onnx", 2), tmp_path / "run"
    given = [str(other), f"model={model}", *by_command(check), f"hydra.run.dir={run}"]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", REPLACED, *given]
    done = subprocess.run(words, capture_output=True, text=True, env=path, check=False)
    assert "replaced" in done.stdout, done.stderr
    assert json.loads((run / "result.json").read_text())["status"] == "nothing_to_find", done.stdout
    assert [number for number, *_ in recorded(run)] == [2], "the first check is of no model that was read"
