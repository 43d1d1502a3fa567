"""Runs of a program: answers as values, errors before any work, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from runner import api as winnow
from runner.report.summary import Summary
from tests.api.programs import BAD, QUICK, chain, lacks, script
from tests.harness import winnow as command_line
from tests.report.fresh import show


def test_a_reduction_is_a_value_and_goes_on_with_what_is_known(tmp_path: Path) -> None:
    seen: list[winnow.CheckEvent] = []
    options: Any = {"inputs": {"t0": np.ones((2, 3), np.float32)}, "progress": seen.append, **QUICK}
    found = winnow.reduce(chain(), lacks("Neg"), folder=tmp_path / "run", **options)
    assert found.raise_for_status().found
    assert (found.culprits, found.minimality, found.status, found.exit_code) == ((BAD,), "1-minimal", "found", 0)
    assert (found.report, found.repro, found.folder) == (
        tmp_path / "run" / "REPORT.md",
        tmp_path / "run" / "repro.py",
        tmp_path / "run",
    )
    (fed,), (wanted,) = found.inputs, found.expected
    np.testing.assert_array_equal(-next(iter(fed.values())), next(iter(wanted.values())))
    assert found.verdicts == tuple(seen)
    assert len(seen) == found.checks.search + found.checks.trust
    assert (seen[0].phase, seen[0].size, seen[0].outcome) == ("pre-flight", 7, "fail")
    assert str(found).endswith(f"\n{tmp_path / 'run'}")
    assert repr(found) == f"<Result reduce: found {BAD}; {tmp_path / 'run'}>"
    assert found.to_dict()["culprits"] == [BAD]
    again = winnow.reduce(chain(), lacks("Neg"), resume=tmp_path / "run", **options)
    assert again.checks.reused > 0
    assert again.checks.search == 0
    with pytest.raises(winnow.UsageError, match=r"^the check or a module of yours .* found under other conditions"):
        winnow.reduce(chain(), lacks("Abs"), resume=tmp_path / "run", **options)
    html = winnow.Result(found.summary.__class__("found", 0, "reduce", "<b>&"), tmp_path)._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert "<script" not in html


def test_a_program_needs_no_hydra_and_no_guard_and_leaves_no_process(tmp_path: Path) -> None:
    body = (
        "import psutil\n"
        "from runner import api as winnow\n"
        "from tests.api.programs import chain, QUICK\n"
        "import onnx\n"
        "found = winnow.reduce(chain(), lambda model, *_: 'Neg' not in str(onnx.load(model)), **QUICK)\n"
        "loaded = {'hydra', 'onnxruntime', 'tensorrt'} & sys.modules.keys()\n"
        "print(found.culprits, loaded, psutil.Process().children(recursive=True), found.folder)\n"
    )
    done = subprocess.run(script(body), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"('{BAD}',) set() [] {tmp_path / 'outputs'}")


def test_a_crash_of_the_check_is_a_verdict(tmp_path: Path) -> None:
    found = winnow.repeat(None, lambda *_: os.abort(), strategy={"until": 1}, folder=tmp_path / "run")
    assert [one.outcome for one in found.verdicts] == ["fail"]
    assert found.to_dict()["signature"] == {"stage": "check", "kind": "death MEMORY", "detail": ""}


def test_a_bundle_says_where_it_lacks_the_data_of_a_function(tmp_path: Path) -> None:
    """It may be anything, also a model; what shows the failure is named, and where it has to lie."""
    data = os.urandom(1 << 17)

    def check(model: str, inputs: list[Any], expected: list[Any]) -> bool:
        return all(node.op_type != "Neg" for node in onnx.load(model).graph.node) or not data

    found = winnow.reduce(chain(), check, folder=tmp_path / "run", **QUICK)
    (held,) = (tmp_path / "run" / "given").glob("check-*.bin")
    report = (tmp_path / "run" / "REPORT.md").read_text()
    lacks = next(line for line in report.splitlines() if "bundle.zip is not complete" in line)
    assert held.name in lacks
    assert found.bundle is not None
    with zipfile.ZipFile(found.bundle) as archive:
        archive.extractall(tmp_path / "elsewhere")
    bundle = tmp_path / "elsewhere" / "bundle"
    assert held.name in (bundle / "README.txt").read_text()
    assert not [*bundle.rglob("*.bin")]
    assert show(sys.executable, bundle / "repro.py").code == 2
    (copied,) = bundle.rglob("check-*.py")
    assert str(copied.relative_to(bundle)) in lacks
    held.rename(copied.with_name(held.name))
    assert show(sys.executable, bundle / "repro.py").code == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"progres": print}, r"^progres: winnow.reduce takes no such argument \(did you mean progress\?\)"),
        ({"verbosity": "debug"}, r"^verbosity: winnow.reduce takes no such argument"),
        ({"checker": {"timout": 1}}, r"^checker.timout: there is no such key \(did you mean timeout\?\)"),
        ({"checker": {"timeout": "soon"}}, r"^checker.timeout: .*could not be converted to Float"),
        ({"checker": {"timeout": -1}}, r"^checker.timeout=-1: it must be at least"),
        ({"strategy": "reduce_minimum"}, r"^strategy=reduce_minimum: .*did you mean reduce_minimal"),
        ({"strategy": "precision"}, r"^strategy=precision: this is no choice of winnow.reduce"),
        ({"budget": 5}, r"^budget: int is no mapping"),
        ({"target": winnow.RandomInputs()}, r"^target: these are RandomInputs; it takes BackendSettings"),
        ({"plan": "yes"}, r"^plan='yes': it takes True or False"),
        ({"resume": "nowhere", "folder": "here"}, r"^folder and resume"),
        ({"check": lambda model: True}, r"^check: check\(model\) cannot be called"),
        ({"model": None}, r"^no model given; strategy=reduce with checker=python needs one"),
        ({"resume": "nowhere"}, r"^resume=nowhere: this is no folder of a run"),
        ({"progress": 3}, r"^progress: int is no function"),
        ({"folder": "a\0b"}, r"embedded null byte. Give another$"),
        ({"folder": "/proc/x/y"}, r"^folder=/proc/x/y: No such file or directory. Give another$"),
        ({"inputs": {"z": np.ones((2, 3), np.float32)}}, r"^inputs\[0\]: no value for input 't0', only for z"),
        ({"inputs": lambda: {}["t0"]}, r"^inputs: inputs raised KeyError: 't0'"),
    ],
)
def test_what_cannot_be_is_one_clear_error_and_leaves_no_folder(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(winnow.UsageError, match=message):
        winnow.reduce(**{"model": chain(), "check": lacks("Neg"), **options})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_the_program_raises_when_it_is_told_ends_the_run_and_comes_back(tmp_path: Path) -> None:
    def stop(checked: winnow.CheckEvent) -> None:
        if checked.iteration == 2:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        winnow.reduce(chain(), lacks("Neg"), progress=stop, folder=tmp_path / "run", workers={"count": 2}, **QUICK)
    assert '"interrupted"' in (tmp_path / "run" / "result.json").read_text()


def test_no_answer_is_no_exception_until_it_is_asked_for(tmp_path: Path) -> None:
    found = winnow.reduce(chain(), lambda *_: False, folder=tmp_path / "run", **QUICK)
    assert (found.status, found.model, found.cause) == ("could_not_judge", None, None)
    with pytest.raises(winnow.NoAnswerError) as raised:
        found.raise_for_status()
    assert raised.value.result is found


@pytest.mark.slow
def test_ctrl_c_is_a_keyboard_interrupt_after_all_is_written_down(tmp_path: Path) -> None:
    body = (
        "import time, psutil\n"
        "from pathlib import Path\n"
        "from runner import api as winnow\n"
        "from tests.api.programs import chain\n"
        "def check(*_):\n"
        "    Path('begun').touch()\n"
        "    time.sleep(30)\n"
        "try:\n"
        "    winnow.reduce(chain(), check, folder='run')\n"
        "except KeyboardInterrupt as error:\n"
        "    print(error, psutil.Process().children(recursive=True), Path('run/result.json').exists())\n"
    )
    process = subprocess.Popen(script(body), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "begun").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "interrupted" in said
    assert said.endswith("[] True\n")


@pytest.mark.slow
def test_the_terminal_of_a_program_is_its_own(tmp_path: Path) -> None:
    body = (
        "import logging, threading\n"
        "from runner import api as winnow\n"
        "from tests.api.programs import chain, lacks, QUICK\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "call = lambda bad: print(bad, *winnow.reduce(chain(bad), lacks(bad), **QUICK).culprits)\n"
        "threads = [threading.Thread(target=call, args=(bad,)) for bad in ('Neg', 'Abs')]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        script(body), cwd=tmp_path, stdout=theirs, stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the terminal is gone with the process
        while part := os.read(ours, 4096):
            said += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert sorted(said.decode().split("\r\n")) == ["", f"Abs {BAD}", f"Neg {BAD}"], "each thread has a run of its own"


def test_a_program_without_standard_streams_gets_its_result(tmp_path: Path) -> None:
    """A daemon closes them, and what a run opens gets their numbers."""
    body = (
        "import os\n"
        "said = os.dup(1)\n"
        "[os.close(number) for number in range(3)]\n"
        "from runner import api as winnow\n"
        "from tests.api.programs import chain, lacks, QUICK\n"
        "os.write(said, winnow.reduce(chain(), lacks('Neg'), **QUICK).status.encode())\n"
    )
    done = subprocess.run(script(body), cwd=tmp_path, stdout=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"found")


@pytest.mark.slow
def test_a_program_gets_what_the_command_line_writes(tmp_path: Path) -> None:
    check = tmp_path / "check.py"
    check.write_text("import onnx\n\ndef check(model, *_):\n    return 'Neg' not in str(onnx.load(model))\n")
    onnx.save(chain(), tmp_path / "net.onnx")
    typed = command_line(
        *(f"model={tmp_path / 'net.onnx'}", "checker=python", f"checker.file={check}", "budget.checks=30"),
        folder=tmp_path / "typed",
    ).result
    options: Any = {"checker": {"name": "python", "file": check}, "budget": {"checks": 30}}
    called = winnow.reduce(tmp_path / "net.onnx", folder=tmp_path / "called", **options).to_dict()
    assert {key for key in typed if typed[key] != called[key]} <= {"seconds", "peak_rss_mb"}


def test_a_function_is_called_by_its_name(tmp_path: Path) -> None:
    def judge(model: str, inputs: list[Any], expected: list[Any]) -> bool:
        return False

    found = winnow.repeat(chain(), judge, strategy={"until": 1}, folder=tmp_path / "run")
    assert [one.reason for one in found.verdicts] == ["judge returned False"]


def test_what_a_triage_hands_on_lies_with_the_step_that_answered(tmp_path: Path) -> None:
    step = tmp_path / "a #b?" / "steps" / "06-reduce"
    step.mkdir(parents=True)
    for path in (step / "bundle.zip", step / "repro.py", step / "report.html", step.parents[1] / "report.html"):
        path.touch()
    summary = Summary("found", 0, "triage", "", model="steps/06-reduce/reduced.onnx")
    found = winnow.Result(summary, step.parents[1])
    assert (found.bundle, found.repro) == (step / "bundle.zip", step / "repro.py")
    assert found.page == step.parents[1] / "report.html"


def test_links_of_a_notebook_lead_to_files_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "javascript:a #b?%20"
    folder.mkdir()
    (folder / "REPORT.md").touch()
    html = winnow.Result(Summary("found", 0, "reduce", ""), folder)._repr_html_()
    assert 'href="./javascript%3Aa%20%23b%3F%2520/REPORT.md"' in html


def test_where_there_are_no_locks_the_import_says_what_to_do(tmp_path: Path) -> None:
    body = "sys.modules['fcntl'] = None\nimport runner.api"
    done = subprocess.run(script(body), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: Winnow runs on Linux and macOS. On Windows it runs in")
