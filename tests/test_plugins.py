"""Choices that installed packages add: the example package is installed without a network, and each choice is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

from tests.harness import ROOT, Run, command

EXAMPLE = ROOT / "examples" / "plugin"
BROKEN = {
    "winnow.checkers": {"gone": "no_such_package:Check", "auto": "winnow_example.settings:HasOperator"},
    "winnow.inputs": {"wrong": "winnow_example.settings:HasOperator"},
}


def entry_points() -> dict[str, dict[str, str]]:
    """Those that the example's pyproject.toml declares (Python 3.10 cannot read TOML)."""
    sections = re.split(r'^\[project\.entry-points\."(.*)"\]$', (EXAMPLE / "pyproject.toml").read_text(), flags=re.M)
    pairs = zip(sections[1::2], sections[2::2], strict=True)
    return {group: dict(re.findall(r'^(\w+) = "(.*)"$', text.split("\n[")[0], re.M)) for group, text in pairs}


def installed(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """Write what an installer leaves of a package: its name, and its entry points."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    text = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in groups.items()
    )
    (info / "entry_points.txt").write_text(text)


@pytest.fixture
def winnow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run Winnow where the example package is installed, on a model of Exp, Relu and Sqrt."""
    installed(tmp_path / "site", "winnow-example", entry_points())
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{EXAMPLE}{os.pathsep}{ROOT}")
    text = """<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {
        [exp] a = Exp (x) [relu] b = Relu (a) [sqrt] y = Sqrt (b)
    }"""
    onnx.save(parse_model(text), str(tmp_path / "m.onnx"))

    def run(*overrides: str) -> Run:
        folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
        argv = command(f"model={tmp_path / 'm.onnx'}", *overrides, folder=folder)
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        return Run(done.returncode, folder, done.stdout + done.stderr)

    return run


def shown_by(run: Run) -> str:
    script = [sys.executable, str(run.folder / "repro.py")]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_a_search_and_a_checker_of_another_package(winnow) -> None:
    run = winnow("strategy=from_start", "checker=has_operator", "checker.operator=Relu")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["relu", "sqrt"] and run.result["checker"] == "has_operator"
    assert run.result["minimality"] == "smallest seen"
    again = winnow(f"{run.folder / 'replay.yaml'}")
    assert again.result["culprits"] == ["relu", "sqrt"], again.output


@pytest.mark.slow
def test_a_backend_and_inputs_of_another_package(winnow) -> None:
    # 2.718 becomes 2.7, and its root 1.6487 becomes 1.6: only that is off by more than 0.03
    overrides = ("target=digits", "target.digits=2", "inputs=constant", "checker=compare")
    run = winnow(*overrides, "checker.rtol=0", "checker.atol=0.03")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["sqrt"] and "target=digits" in run.result["check"]
    assert "another package judged" in shown_by(run)
    fed = onnx.load_tensor(str(run.folder / "test_data_set_0" / "input_0.pb"))
    np.testing.assert_allclose(onnx.numpy_helper.to_array(fed), [np.e] * 2, rtol=1e-6)


@pytest.mark.slow
def test_a_subject_of_another_package(winnow) -> None:
    run = winnow("each_sample", "checker=finite", "inputs.samples=2", "target=onnx_reference")
    assert run.code == 0, run.output
    assert run.result["message"] == "0 of 2 samples fail: none" and run.result["checks"]["search"] == 2


@pytest.mark.slow
def test_a_broken_package_is_one_line_for_whoever_asks_for_it(winnow, tmp_path: Path) -> None:
    installed(tmp_path / "site", "broken-example", BROKEN)
    gone = winnow("checker=gone")
    assert (gone.code, len(gone.output.splitlines())) == (2, 1)
    assert "checker=gone: the installed package broken-example should add it, but no_such_package:Check" in gone.output
    assert "ModuleNotFoundError" in gone.output
    wrong = winnow("inputs=wrong")
    assert wrong.code == 2 and "it is no InputsSettings" in wrong.output
    # our own choice stays what it is, and whoever asks for none of these hears nothing
    run = winnow("strategy=repeat", "strategy.until=1", "checker=auto")
    assert run.code == 0 and "broken-example" not in run.output and run.result["checker"] == "auto"
    argv = [sys.executable, "-m", "runner", "--help"]
    shown = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False).stdout
    assert re.search(r"(?s)checker +\[auto\], .*\bhas_operator\b.*target", shown), shown
    assert re.search(r"target +digits, onnx_reference", shown), shown
    shown = subprocess.run(
        [*argv, "checker=has_operator"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    ).stdout
    told = ("Fails if the candidate holds an operator.", "checker.operator=MatMul", "seconds one check may take")
    assert all(part in shown for part in told), shown
    unknown = winnow("checker=has_operater")
    assert unknown.code == 2 and "did you mean has_operator?" in unknown.output


def said_of_each(tmp_path: Path, choices: Iterable[str]) -> list[str]:
    """Return what runs print, in one process: the lines of each, the last of which is its exit code."""
    script = """
import sys
from runner.cli.app import run
from runner.sweeps.sweep import Sweep
for number, override in enumerate(sys.argv[2:]):
    given = [sys.argv[1], "verbosity=warning", *override.split(), f"hydra.run.dir=run{number}"]
    print("exit", run(given, Sweep()), flush=True)
"""
    argv = [sys.executable, "-c", script, f"model={tmp_path / 'm.onnx'}", *choices]
    done = subprocess.run(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )
    return re.findall(r"(?s)(.*?exit \d+)\n", done.stdout)


CHOICES = """
from typing import TYPE_CHECKING
from runner.schema.checker import CheckerSettings
from runner.schema.settings import settings
from strategies.search import Procedure, Task

if TYPE_CHECKING:
    from pathlib import Path

def declared(name, kind="str", default="", decorated=settings):
    members = {"__annotations__": {"name": str, "own": kind}, "name": name, "own": default}
    return decorated(type("K", (CheckerSettings,), {**members, "__module__": __name__, "implementation": "a:b"}))

refused = declared("refused", "list[str]", None)
typed = declared("typed", "Path", None)
plain = declared("plain", decorated=lambda kind: kind)
unread, nowhere, bare, twice, alone = map(declared, ("unread", "nowhere", "bare", "twice", "alone"))
misnamed = Procedure("other", Task.SUBSET, None)
"""


@pytest.mark.slow
def test_each_mistake_of_a_package_is_told_to_whoever_asks_for_it(winnow, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "slips" / "conf" / "checker").mkdir(parents=True)
    for file in ("__init__.py", "conf/__init__.py"):
        (site / "slips" / file).touch()
    for file in ("slips/choices.py", "onemod.py"):
        (site / file).write_text(CHOICES)
    frozen = "from dataclasses import dataclass\nfrom runner.schema.checker import RunsChecker\n"
    (site / "slips/frozen.py").write_text(f"{frozen}@dataclass(frozen=True)\nclass Kind(RunsChecker): ...\n")
    (site / "slips/conf/checker/unread.yaml").write_text("defaults: [\n")
    (site / "slips/conf/checker/bare.yaml").write_text("name: bare\n")
    names = ("refused", "typed", "plain", "unread", "nowhere", "bare", "twice")
    checkers = {"frozen": "slips.frozen:Kind", **{name: f"slips.choices:{name}" for name in names}}
    installed(site, "slips", {"winnow.checkers": checkers, "winnow.searches": {"misnamed": "slips.choices:misnamed"}})
    installed(site, "one", {"winnow.checkers": {name: f"onemod:{name}" for name in ("twice", "alone")}})
    asked = {
        "checker=refused": "slips should add it, but slips.choices:refused cannot be loaded: ",
        "checker=typed": "NameError: name 'Path' is not defined",
        "checker=frozen": "TypeError: cannot inherit frozen",
        "checker=plain": "it has to be decorated with @settings",
        "checker=alone": "one should add it, but onemod:alone cannot be loaded: TypeError: onemod is a single module",
        "checker=unread": "slips/conf/checker/unread.yaml, line 2: not valid YAML",
        "checker=nowhere": "an installed package adds it, but its conf/checker/nowhere.yaml is missing",
        "checker=bare": "(name: bare) has to begin with `defaults: [/schema/checker/NAME@_here_, _self_]`",
        "checker=twice": "several installed packages add it (one, slips). Uninstall all but one",
        "strategy.search=misnamed": 'Procedure("misnamed", ...)',
        "strategy.subject=nosuch": "is about subgraph",
    }
    every = said_of_each(tmp_path, asked)
    assert len(every) == len(asked)
    for told, (override, said) in zip(every, asked.items(), strict=True):
        line, code = told.splitlines()
        assert override.rpartition("=")[2] in line and said in line and code == "exit 2", every


BUGS = """
from dataclasses import dataclass
from runner.backends.onnx_reference import OnnxReference
from runner.schema.backend import BackendSettings
from runner.schema.checker import CheckerSettings
from runner.schema.settings import settings

@settings
class Checks(CheckerSettings):
    implementation = "bugs.choices:Check"
    name: str = "bugs"
    gives_none: bool = False

@settings
class Runs(BackendSettings):
    implementation = "bugs.choices:Backend"
    name: str = "bugs"

class Check:
    name, wants_feeds = "bugs", False
    def __init__(self, checker, tools, run):
        self.gives_none = checker.gives_none
    def check(self, candidate):
        return None if self.gives_none else 1 / 0
    def identity(self):
        return {}
    def describe(self):
        return "bugs"

class Backend(OnnxReference):
    def run(self, outputs, feeds):
        raise ZeroDivisionError("of its own")
"""


def test_a_bug_of_a_package_is_not_called_ours(winnow, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "bugs" / "conf").mkdir(parents=True)
    for file in ("__init__.py", "conf/__init__.py"):
        (site / "bugs" / file).touch()
    (site / "bugs" / "choices.py").write_text(BUGS)
    for group in ("checker", "target"):
        (site / "bugs" / "conf" / group).mkdir()
        (site / f"bugs/conf/{group}/bugs.yaml").write_text(f"defaults: [/schema/{group}/bugs@_here_, _self_]\n")
    entry = {"winnow.checkers": {"bugs": "bugs.choices:Checks"}, "winnow.backends": {"bugs": "bugs.choices:Runs"}}
    installed(site, "bugs-example", entry)
    asked = ("checker=bugs", "checker=bugs checker.gives_none=true", "target=bugs checker=runs")
    raised, misled, judged = said_of_each(tmp_path, asked)
    package = "of the installed package bugs-example 0.1.0"
    assert f"ZeroDivisionError: division by zero. This is a bug of checker=bugs {package}; traceback" in raised
    assert f"This is a bug of Winnow or checker=bugs {package}; traceback: " in misled
    assert f"target=bugs {package}: ZeroDivisionError: of its own" in judged
    assert [one.splitlines()[-1] for one in (raised, misled, judged)] == ["exit 1", "exit 1", "exit 3"]
    for log in ("run0/winnow.log", "run2/checks/00001/check.log"):
        assert re.search(r'choices.py", line \d+', (tmp_path / log).read_text())
