"""The floors of the house: what may import what, how large a module is, how deep a check, from the source and a run."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import onnx
from onnx.parser import parse_model

from tests.harness import ROOT

# a package imports from its own floor or from floors below; `runner` stands for the modules that lie in it directly
FLOORS = (
    ("strategies",),
    ("runner", "runner.schema", "runner.model", "runner.backends", "runner.workers"),
    ("runner.checkers", "runner.samples", "runner.journal", "runner.report"),
    ("runner.engine", "runner.reference"),
    (
        *("runner.jobs", "runner.jobs.reduce", "runner.jobs.precision", "runner.jobs.tactics", "runner.jobs.repeat"),
        *("runner.jobs.variants", "runner.jobs.extract", "runner.jobs.inspect", "runner.jobs.model_concerns"),
        *("runner.jobs.triage", "runner.jobs.layerwise", "runner.jobs.workaround"),
    ),
    ("runner.cli", "runner.sweeps", "runner.api", "runner.pytest_plugin", "runner.__main__"),
)
SEES_HYDRA = ("runner.__main__", "runner.cli", "runner.sweeps", "runner.schema")
MOST_LINES = 600
FEW_LINES = 100
MOST_MODULES = 300
MOST_FOLDERS = 3

# modules that may be shorter than `FEW_LINES`, at most 40: entries, and seams that would be lost in a larger one
SHORT = {
    "runner.__main__": "the entry",
    "runner.api": "the entry of programs",
    "runner.backends.errors": "what every backend raises of a setting, also one of an installed package",
    "runner.backends.versions": "imports nothing, as it tells what is installed",
    "runner.checkers.interactive": "one checker",
    "runner.cli.bounded_yaml": "reads files of anybody, for whatever reads YAML",
    "runner.cli.paths": "paths without Hydra, as programs read them",
    "runner.cli.supported_system": "imported before anything that another system lacks",
    "runner.jobs.processes": "opened before the rest of a job is imported",
    "runner.jobs.reduce.nodes_in_message": "text alone, which a stranger looks for by that",
    "runner.jobs.repeat": "one kind of run",
    "runner.model.passes.lift_constants": "one change to every model that is read",
    "runner.model.values.wire": "runs under Python 3.8",
    "runner.model.values.value_types": "runs under Python 3.8",
    "runner.report.typed_json": "the writer and the reader of all dataclasses of a result, which import it",
    "runner.schema.inputs": "one group of settings, where a new kind of inputs is declared",
    "strategies.registry": "finds the searches: imports all others of its folder",
    "strategies.repeat": "one search",
}


def modules() -> Iterator[tuple[str, Path]]:
    for folder in ("runner", "strategies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below, without the expressions in them, which are most of a module."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from statements(inner)


@cache
def read(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """All modules that a file names in an import, also in functions and for type checkers only; its public classes.

    Its tree is not kept: with all of them there, each collection of garbage takes longer.
    """
    found, tree = set(), ast.parse(path.read_text())
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    classes = (node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return frozenset(found), frozenset(name for name in classes if not name.startswith("_"))


def imports(path: Path) -> frozenset[str]:
    return read(path)[0]


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


# the entry runs sweeps, and sweeps compose what the entry composes
BESIDE_EACH_OTHER = {("runner.cli", "runner.sweeps")}


def test_what_modules_import_and_how_their_classes_are_called() -> None:
    """One test, since to read all modules takes as long as all else that tests of them do."""
    _imports_go_down_and_never_in_a_circle()
    _each_library_is_seen_where_it_belongs()
    _what_a_page_is_made_of_has_names_of_its_own()


def _imports_go_down_and_never_in_a_circle() -> None:
    edges = graph()
    up = {f"{name} -> {package_of(used)}" for name in edges for used in edges[name] if floor_of(used) > floor_of(name)}
    assert not sorted(up)
    assert not circle(edges)
    packages: dict[str, set[str]] = defaultdict(set)
    for name in edges:
        own = package_of(name)
        packages[own] |= {used for used in map(package_of, edges[name]) if used != own}
    for one, other in BESIDE_EACH_OTHER:
        packages[one].discard(other)
    assert not circle(packages)


def _each_library_is_seen_where_it_belongs() -> None:
    wrong = []
    for name, path in SOURCES.items():
        for used in imports(path):
            top = used.split(".")[0]
            right = (
                (not within(name, "strategies") or top in {"strategies", *sys.stdlib_module_names})
                and (top not in {"hydra", "omegaconf"} or within(name, *SEES_HYDRA))
                and (top not in {"onnxruntime", "tensorrt"} or within(name, "runner.backends", "runner.model.passes"))
                and not (within(name, "runner.model") and within(used, "runner.backends", "runner.workers"))
            )
            wrong += [] if right else [f"{name}: {used}"]
    assert not sorted(wrong)


def _what_a_page_is_made_of_has_names_of_its_own() -> None:
    """A `Trial` of the page is text and numbers, and no `Trial` that is searched: readers met two of each name."""
    homes: dict[str, set[str]] = defaultdict(set)
    for name, path in SOURCES.items():
        for kind in read(path)[1]:
            homes[kind].add(name)
    shared = {kind: sorted(where) for kind, where in homes.items() if len(where) > 1}
    assert not [one for one in shared.items() if any(within(where, "runner.report.page") for where in one[1])]


def test_a_module_is_one_topic_neither_a_fragment_nor_a_heap() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in SOURCES.items()}
    assert not {name: count for name, count in lines.items() if count > MOST_LINES}
    # a package whose `__init__` says what it is, or passes names on, is no module of its own
    own = {name for name, path in SOURCES.items() if path.name != "__init__.py" or name in SHORT}
    assert {name for name in own if lines[name] < FEW_LINES} == set(SHORT)
    assert len(SHORT) <= 40
    assert len(SOURCES) <= MOST_MODULES
    assert max(len(path.relative_to(ROOT).parent.parts) for path in SOURCES.values()) <= MOST_FOLDERS


WATCHED = """
import json, os, sys
from runner.cli.app import run
from runner.sweeps.sweep import Sweep
from runner.workers import worker

ways, write = [], os.write

def watched(pipe, data):
    frame, way = sys._getframe(1), []
    if frame.f_code.co_filename == worker.__file__ and b'"op": "run"' in bytes(data):
        while frame:
            way.append((frame.f_code.co_filename, frame.f_code.co_name))
            frame = frame.f_back
        ways.append(way[::-1])
    return write(pipe, data)

os.write = watched
code = run(sys.argv[1:], Sweep())
os.write = write
loaded = {"onnxruntime", "tensorrt", "onnx.reference"} & sys.modules.keys()
print(json.dumps({"code": code, "ways": ways, "loaded": sorted(loaded)}))
"""
"""Runs a job; prints how each request to run a model came to its pipe (frames, outermost first), and what it loaded."""
MOST_FRAMES = 9
MOST_FROM_RUN = 23
MOST_ON_THE_WAY = 20


def ways(folder: Path) -> list[list[tuple[str, str]]]:
    """How each check of a reduction came to its pipe: module and function of each frame, from `runner.jobs.run` on.

    The process of a job never imports a runtime.
    """
    head = '<ir_version: 8, opset_import: ["": 17]> net (float[4] x) => (float[4] y)'
    onnx.save(parse_model(head + "{ [grow] a = Exp (x) [back] y = Log (a) }"), folder / "net.onnx")
    np.savez(folder / "x.npz", x=np.full(4, 200, np.float32))  # float32 ends before exp(200)
    given = [f"model={folder / 'net.onnx'}", "inputs=files", f"inputs.path={folder / 'x.npz'}", "checker=finite"]
    argv = [sys.executable, "-c", WATCHED, *given, "workers.count=1", f"hydra.run.dir={folder / 'run'}"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["code"], told["loaded"]) == (0, []), done.stdout
    names = {str(path): name for name, path in SOURCES.items()}
    found = []
    for way in told["ways"]:
        ours = [(names.get(file, file), function) for file, function in way]
        if ("runner.engine.check_trials", "check") in ours:
            found.append(ours[ours.index(("runner.jobs.run", "run")) :])
    assert found
    return found


def test_a_check_is_few_frames_deep_and_its_way_goes_through_few_modules(tmp_path: Path) -> None:
    """From the one check of the engine to the pipe of its worker; and all of it, from the start of the pipeline."""
    found = ways(tmp_path)
    depths = [len(way) - way.index(("runner.engine.check_trials", "check")) for way in found]
    assert max(depths) <= MOST_FRAMES, found[depths.index(max(depths))]
    assert max(map(len, found)) <= MOST_FROM_RUN, max(found, key=len)
    on_the_way = {module for way in found for module, _ in way if module in SOURCES}
    assert len(on_the_way) <= MOST_ON_THE_WAY, sorted(on_the_way)
