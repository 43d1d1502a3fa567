"""Where a start cannot be what it seems: another system, packages of our names, scripts of two names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.text import SCRIPTS, install, program_words
from tests.harness import ROOT

NAMES = ("runner", "strategies", "conf")


def start(*typed: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *typed]
    return subprocess.run(
        argv, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with packages of our names that must not be run."""
    for name in (*NAMES, "hydra", "onnx"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('theirs')\n")
    return tmp_path


@pytest.mark.variants
@pytest.mark.parametrize("path", ["", "theirs"])
def test_packages_of_our_names_elsewhere(theirs: Path, path: str) -> None:
    for name in ("hydra", "onnx"):
        shutil.rmtree(theirs / name)
    paths = os.pathsep.join([str(theirs), str(ROOT)] if path else [str(ROOT)])
    done = start("-m", "winnow_onnx", "--help", "nothing_like_it", cwd=theirs, PYTHONPATH=paths)
    assert done.returncode == 2 and "python -m winnow_onnx --help" in done.stderr, done.stderr
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    script = "import sys; sys.argv = ['/bin/winnow', '--version']; from winnow_onnx import main; main()"
    done = start("-c", script, cwd=theirs / "conf", PYTHONPATH=paths)
    assert done.returncode == 0 and done.stdout.startswith("winnow "), done.stderr


def test_packages_of_two_of_our_names_where_the_module_is_run(theirs: Path) -> None:
    """And those of libraries, where it is run from there."""
    shutil.rmtree(theirs / "runner")
    done = start("-m", "runner", "--version", cwd=theirs, PYTHONPATH=str(ROOT))
    assert done.returncode == 0 and done.stdout.startswith("winnow "), done.stderr


@pytest.mark.variants
@pytest.mark.parametrize("name", NAMES)
def test_a_package_that_another_one_was_written_over(name: str, tmp_path: Path) -> None:
    for one in NAMES:
        (tmp_path / one).mkdir()
        shutil.copy(ROOT / one / "__init__.py", tmp_path / one)
    for one in ("winnow_onnx.py", "runner/__main__.py"):
        shutil.copy(ROOT / one, tmp_path / one)
    (tmp_path / name / "__init__.py").write_text("")
    done = start("-m", "winnow_onnx", "--version", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"winnow: {name} in {tmp_path} is not Winnow's") and "pipx install" in done.stderr


def test_a_system_that_is_none_of_ours_hears_it_in_one_sentence(tmp_path: Path) -> None:
    """What Windows lacks of Python's modules and names is taken away before anything is loaded."""
    script = """
import runpy, signal, sys
for name in ("fcntl", "resource", "pwd", "termios"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGKILL", "pthread_sigmask", "SIG_UNBLOCK"):
    delattr(signal, name)
runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
"""
    for module in ("runner", "winnow_onnx"):
        done = start("-c", script, module, cwd=tmp_path, PYTHONPATH=str(ROOT))
        assert (done.returncode, done.stdout) == (6, "") and len(done.stderr.splitlines()) == 1, done.stderr
        assert all(word in done.stderr for word in ("Linux", "macOS", "WSL"))


def test_the_scripts_and_what_is_installed() -> None:
    """`uvx NAME` and `pipx run NAME` start the script that is called as the distribution is."""
    tomllib = pytest.importorskip("tomllib")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    scripts, wheel = declared["project"]["scripts"], declared["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*scripts} == {*SCRIPTS} and declared["project"]["name"] in scripts
    assert {*scripts.values()} == {"winnow_onnx:main"}
    assert {*wheel["packages"]} == {*NAMES, "winnow_onnx.py"}, "no tests and no benchmarks in site-packages"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/usr/bin/winnow", ("winnow",)),
        ("winnow-onnx", ("winnow-onnx",)),
        ("/x/runner/__main__.py", ("python", "-m", "runner")),
        ("/x/winnow_onnx.py", ("python", "-m", "winnow_onnx")),
        ("/x/pytest/__main__.py", ("winnow",)),
        ("", ("winnow",)),
    ],
)
def test_the_program_as_it_is_typed_again(
    program: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert program_words() == words


def test_an_extra_is_installed_from_the_clone_or_by_name(tmp_path: Path) -> None:
    assert install("plot", tmp_path) == "pip install 'winnow-onnx[plot]'"
    (tmp_path / "pyproject.toml").touch()
    assert install("plot", tmp_path) == "pip install -e '.[plot]' (in the clone of winnow-onnx)"
    named = [path for path in (ROOT / "runner").rglob("*.py") if "winnow-onnx[" in path.read_text()]
    assert not named, "messages ask for the words"
