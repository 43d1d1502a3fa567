"""The floors of the house: what may import what, read from the source and seen in a run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.harness import ROOT, by_command, check_script

# a package imports from its own floor or from floors below; `runner` stands for the modules that lie in it directly
FLOORS = (
    ("strategies",),
    ("runner", "runner.schema", "runner.model", "runner.backends", "runner.workers"),
    ("runner.checkers", "runner.inputs", "runner.journal", "runner.artifacts", "runner.report"),
    ("runner.session", "runner.loading", "runner.reference"),
    (
        *("runner.jobs", "runner.jobs.reduce", "runner.jobs.precision", "runner.jobs.tactics", "runner.jobs.repeat"),
        *("runner.jobs.variants", "runner.jobs.extract", "runner.jobs.inspect"),
        *("runner.jobs.triage", "runner.jobs.layerwise", "runner.jobs.workaround"),
    ),
    ("runner.cli", "runner.sweeps", "runner.api", "runner.pytest_plugin", "runner.__main__"),
)
SEES_HYDRA = ("runner.__main__", "runner.cli", "runner.sweeps", "runner.schema")
MOST_LINES = 600


def modules() -> Iterator[tuple[str, Path]]:
    for folder in ("runner", "strategies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def imports(path: Path) -> frozenset[str]:
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
    return frozenset(found)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


PACKAGES = {package: floor for floor, packages in enumerate(FLOORS) for package in packages}
SOURCES = dict(modules())


def module_of(name: str) -> str:
    """The module that an import names, which may name something in it."""
    while name not in SOURCES:
        name = name.rpartition(".")[0]
    return name


def package_of(module: str) -> str:
    """The smallest package of the floors that a module lies in; a loose module is a package of its own."""
    package = max((one for one in PACKAGES if within(module, one)), key=len)
    return module if package == "runner" else package


def floor_of(module: str) -> int:
    return PACKAGES.get(package_of(module), 1)


def graph() -> Mapping[str, set[str]]:
    """What each module imports of the project."""
    ours = {
        name: {module_of(used) for used in imports(path) if within(used, "runner", "strategies")}
        for name, path in SOURCES.items()
    }
    return {name: used - {name, "runner"} for name, used in ours.items()}


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_go_down_and_never_in_a_circle() -> None:
    edges = graph()
    up = {f"{name} -> {package_of(used)}" for name in edges for used in edges[name] if floor_of(used) > floor_of(name)}
    assert not sorted(up)
    assert not circle(edges)
    packages: dict[str, set[str]] = defaultdict(set)
    for name in edges:
        own = package_of(name)
        packages[own] |= {used for used in map(package_of, edges[name]) if used != own}
    assert not circle(packages)


def test_each_library_is_seen_where_it_belongs_and_no_module_is_too_long() -> None:
    wrong = []
    for name, path in SOURCES.items():
        for used in imports(path):
            top = used.split(".")[0]
            right = (
                (not within(name, "strategies") or top in {"strategies", *sys.stdlib_module_names})
                and (top not in {"hydra", "omegaconf"} or within(name, *SEES_HYDRA))
                and (
                    top not in {"onnxruntime", "tensorrt"}
                    or within(name, "runner.backends", "runner.model.passes.infer_shapes")
                )
                and not (within(name, "runner.model") and within(used, "runner.backends", "runner.workers"))
            )
            wrong += [] if right else [f"{name}: {used}"]
        lines = len(path.read_text().splitlines())
        wrong += [f"{name}: {lines} lines"] if lines > MOST_LINES else []
    assert not sorted(wrong)


def test_the_job_process_never_imports_a_runtime(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from runner.cli.app import run\n"
        "from runner.sweeps.sweep import Sweep\n"
        "code = run('runner', sys.argv[1:], Sweep())\n"
        "loaded = {'onnxruntime', 'tensorrt', 'onnx.reference'} & sys.modules.keys()\n"
        "sys.exit(f'exit code {code}, loaded: {loaded}' if code or loaded else 0)\n"
    )
    model = f"model={ROOT / 'examples' / 'overflow.onnx'}"
    node = "/bert/encoder/layer.5/output/dense/MatMul"
    check = by_command(check_script(tmp_path, f"sys.exit(1 if {node!r} in nodes else 0)"))
    argv = [sys.executable, "-c", script, model, *check, f"hydra.run.dir={tmp_path / 'run'}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_page_is_made_of_has_names_of_its_own() -> None:
    """A `Trial` of the page is text and numbers, and no `Trial` that is searched: readers met two of each name."""
    homes: dict[str, set[str]] = defaultdict(set)
    for name, path in SOURCES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(name)
    shared = {kind: sorted(where) for kind, where in homes.items() if len(where) > 1}
    assert not [one for one in shared.items() if any(within(where, "runner.report.page") for where in one[1])]
