"""The floors of the house: what may import what, read from the source and seen in a run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import ROOT, by_command, check_script

ENTRY = ("runner.__main__", "runner.cli", "runner.launcher", "runner.schema")
# a module belongs to the first of these that it lies in; it imports from its own floor or from below
FLOORS = {
    "runner.__main__": 6,
    "runner.cli": 5,
    "runner.launcher": 5,
    "runner.job": 4,
    "runner.context": 4,
    "runner.account": 4,
    "runner.answers": 4,
    "runner.raising": 4,
    "runner.reduction": 4,
    "runner.further": 4,
    "runner.tactic_bench": 4,
    "runner.tactic_compare": 4,
    "runner.tactic_runs": 4,
    "runner.ending": 3,
    "runner.cause": 3,
    "runner.experiments": 3,
    "runner.prover": 3,
    "runner.searches": 3,
    "runner.session": 3,
    "runner.judge": 3,
    "runner.crew": 3,
    "runner.controls": 3,
    "runner.preflight": 3,
    "runner.doubt": 3,
    "runner.inquiry": 3,
    "runner.recheck": 3,
    "runner.minimality": 3,
    "runner.stage": 3,
    "runner.refine": 3,
    "runner.refining": 3,
    "runner.descents": 3,
    "runner.loadable": 3,
    "runner.loading": 3,
    "runner.loads": 3,
    "runner.casting": 3,
    "runner.curve": 3,
    "runner.drift": 3,
    "runner.fixed": 3,
    "runner.gain": 3,
    "runner.heldout": 3,
    "runner.material": 3,
    "runner.dossier": 4,
    "runner.harm": 4,
    "runner.prior": 3,
    "runner.reasons": 3,
    "runner.raised": 3,
    "runner.restoring": 3,
    "runner.rounds": 3,
    "runner.shares": 3,
    "runner.trust": 3,
    "runner.units": 3,
    "runner.worth": 3,
    "runner.workers": 1,
    "runner.backends": 1,
    "runner.model": 1,
    "runner.candidate": 1,
    "runner.verdict": 1,
    "runner.schema": 1,
    "runner.machine": 0,
    "runner.errors": 0,
    "runner.plainfile": 0,
    "strategies": 0,
    "runner": 2,  # subjects, checkers, inputs, artifacts, journal, report ...
}


def modules() -> Iterator[tuple[str, Path]]:
    for folder in ("runner", "strategies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path) -> set[str]:
    """All modules that a file names in an import, also inside functions, but not those for type checkers only."""
    found = set()
    tree = ast.parse(path.read_text())
    checking = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in checking:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def floor(name: str) -> int:
    return next(level for package, level in FLOORS.items() if within(name, package))


ALL = [pytest.param(name, path, id=name) for name, path in modules()]


@pytest.mark.parametrize(("name", "path"), ALL)
def test_imports_go_down(name: str, path: Path) -> None:
    for used in imports(path):
        if within(used, "runner", "strategies"):
            assert floor(used) <= floor(name), f"{name} imports {used}"


@pytest.mark.parametrize(("name", "path"), ALL)
def test_each_library_is_seen_where_it_belongs(name: str, path: Path) -> None:
    for used in imports(path):
        if within(name, "strategies"):
            assert within(used, "strategies") or used.split(".")[0] in sys.stdlib_module_names, f"{name}: {used}"
        if within(used, "hydra", "omegaconf"):
            assert within(name, *ENTRY), f"{name}: {used}"
        if within(used, "onnxruntime", "tensorrt"):
            assert within(name, "runner.backends", "runner.model.shapes"), f"{name}: {used}"
        if within(name, "runner.model"):
            assert not within(used, "runner.backends", "runner.workers"), f"{name}: {used}"


def test_the_job_process_never_imports_a_runtime(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from runner.cli.app import run\n"
        "code = run('runner', sys.argv[1:])\n"
        "loaded = {'onnxruntime', 'tensorrt', 'onnx.reference'} & sys.modules.keys()\n"
        "sys.exit(f'exit code {code}, loaded: {loaded}' if code or loaded else 0)\n"
    )
    model = f"model={ROOT / 'examples' / 'overflow.onnx'}"
    node = "/bert/encoder/layer.5/output/dense/MatMul"
    check = by_command(check_script(tmp_path, f"sys.exit(1 if {node!r} in nodes else 0)"))
    argv = [sys.executable, "-c", script, model, *check, f"hydra.run.dir={tmp_path / 'run'}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
