"""Pages of real runs in a browser: a run of each kind and a sweep are made here, and their pages are looked at.

    python -m benchmarks.page_runs [reduce nested ...] [--keep DIR] [--pictures DIR] [--docs] [--times 5]

``reduce``: 25,000 nodes; ``tactics``: builds of the stand-in for TensorRT (tests/fake_tensorrt), no GPU. In every
model a node has the name HOSTILE. The columns are those of `benchmarks.pages`; an element of HTML that a name made
counts as an error. ``--keep``: where the runs go; those that are there already are not made again. ``--docs``: makes
the pictures of docs/pictures.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper
from playwright.sync_api import Browser

from benchmarks.pages import HEAD, browser, loaded, measured
from benchmarks.planted_half_precision import half_precision_failure
from tests.fake_tensorrt import install
from tests.harness import PRETENDED_GPUS, ROOT, by_command, check_script, winnow, without_nvml

HOSTILE = "<img src=x onerror=alert(1)>"
NODES, LAYERS = 25_000, 100
OPERATORS = ("MatMul", "Add", "Relu", "Mul", "Tanh")


def _saved(path: Path, nodes: list[onnx.NodeProto], weights: list[TensorProto], result: str, side: int = 8) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, side]) for name in ("x", result)]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def network(path: Path, count: int) -> str:
    """Write a residual network of so many nodes, in scopes; return the name of a product past its middle."""
    weights = [numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"), _vector("b", 0.1), _vector("g", 0.9)]
    last, begun, nodes = "x", "x", []
    for number in range(count):
        kind, layer = OPERATORS[number % 5], number * LAYERS // count
        if kind == "MatMul":
            begun = last
        more = {"MatMul": ["w"], "Add": ["b"], "Mul": ["g" if number % 10 < 5 else begun]}.get(kind, [])
        name = f"/net/layer.{layer}/part.{number // 25}/{kind}_{number}"
        nodes.append(helper.make_node(kind, [last, *more], [f"t{number}"], name))
        last = f"t{number}"
    nodes[1].name = HOSTILE
    _saved(path, nodes, weights, last)
    return str(nodes[count * 5 // 8].name)


def _vector(name: str, value: float) -> TensorProto:
    return numpy_helper.from_array(np.full(8, value, np.float32), name)


def _renamed(model: ModelProto) -> ModelProto:
    model.graph.node[0].name = HOSTILE
    return model


def _large_reduction(folder: Path) -> None:
    guilty = network(folder / "net.onnx", NODES)
    check = check_script(folder, f"print(len(nodes), 'nodes')\nsys.exit(1 if {guilty!r} in nodes else 0)")
    winnow("reduce", str(folder / "net.onnx"), *by_command(check), folder=folder / "run", timeout=900)


def _nested(folder: Path) -> None:
    """A node inside a branch makes NaN of what is negative."""
    value = helper.make_tensor_value_info
    body = [helper.make_node("Neg", ["a"], ["t"], "turn"), helper.make_node("Log", ["t"], ["u"], "bad")]
    then = helper.make_graph(body, "then", [], [value("u", TensorProto.FLOAT, [1, 8])])
    plain = [helper.make_node("Relu", ["a"], ["v"], HOSTILE)]
    other = helper.make_graph(plain, "else", [], [value("v", TensorProto.FLOAT, [1, 8])])
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], "before"),
        helper.make_node("If", ["yes"], ["b"], "branch", then_branch=then, else_branch=other),
        helper.make_node("Tanh", ["b"], ["y"], "after"),
    ]
    _saved(folder / "net.onnx", nodes, [numpy_helper.from_array(np.array(True), "yes")], "y")
    winnow("reduce", str(folder / "net.onnx"), "checker=finite", "checker.flaky=never", folder=folder / "run")


def _flaky(folder: Path) -> None:
    """A check that fails 7 times in 10 where a node is."""
    coin = "import random\nprint('seen' if bad else 'not seen')\nsys.exit(1 if bad and random.random() < 0.7 else 0)"
    guilty = network(folder / "net.onnx", 120)
    check = check_script(folder, f"bad = {guilty!r} in nodes\n{coin}")
    winnow("reduce", str(folder / "net.onnx"), *by_command(check)[:2], "checker.flaky=auto", folder=folder / "run")


def _precision(folder: Path) -> None:
    planted = half_precision_failure("residual_overflow")
    onnx.save(_renamed(planted.parent), str(folder / "net.onnx"))
    winnow("precision", str(folder / "net.onnx"), "checker=compare", "checker.rtol=0.01", folder=folder / "run")


def _triage(folder: Path) -> None:
    planted = half_precision_failure("residual_overflow")
    onnx.save(_renamed(planted.child), str(folder / "net.onnx"))
    winnow("triage", str(folder / "net.onnx"), "target=onnx_reference", folder=folder / "run", timeout=900)


def _tactics(folder: Path) -> None:
    made = install(folder, "10")
    made.plant("bad_tactic:add2")
    names = ["add0", HOSTILE, "add2", "add3"]
    chain = ["x", *(f"a{number}" for number in range(4))]
    nodes = [helper.make_node("Add", [chain[at], "w"], [chain[at + 1]], name) for at, name in enumerate(names)]
    _saved(folder / "net.onnx", nodes, [numpy_helper.from_array(np.full(64, 0.25, np.float32), "w")], "a3", 64)
    target = ("target=tensorrt", f"target.python={made.python}", "checker=compare", "checker.flaky=never")
    gpus = (f"workers.gpus=[{PRETENDED_GPUS[0]}]", f"workers.lease_folder={folder / 'locks'}")
    words = ("tactic_repeat", str(folder / "net.onnx"), *target, *gpus, "strategy.until=8")
    winnow(*words, folder=folder / "run", environment=without_nvml())


def _sweep(folder: Path) -> None:
    guilty = {network(folder / f"net{count}.onnx", count) for count in (100, 200)}
    check = check_script(folder, f"sys.exit(1 if nodes & {guilty!r} else 0)")
    words = ("strategy=reduce,reduce_bisect,reduce_linear", "model=net100.onnx,net200.onnx", *by_command(check))
    winnow("-m", *words, f"hydra.sweep.dir={folder / 'run'}", folder=folder / "unused", cwd=folder)


RUNS: Mapping[str, Callable[[Path], None]] = {
    "reduce": _large_reduction,
    "nested": _nested,
    "flaky": _flaky,
    "precision": _precision,
    "triage": _triage,
    "tactics": _tactics,
    "sweep": _sweep,
}

PICTURES = {
    "report-graph": ("reduce", "desktop", "#graph"),
    "report-nested": ("nested", "desktop", "#graph"),
    "report-search": ("reduce", "desktop", "#trials"),
    "report-precision": ("precision", "desktop", "#graph"),
    "report-layers": ("triage", "desktop", "#layers"),
    "report-sweep": ("sweep", "desktop", "#jobs"),
    "report-phone": ("precision", "phone", "#graph"),
}
"""Pictures in the documentation: of which run, how wide, of which section."""


def photograph(one: Browser, runs: Path, into: Path, names: Collection[str]) -> None:
    """Make the pictures of the runs that are there."""
    for name, (run, width, section) in PICTURES.items():
        if run not in names:
            continue
        with loaded(one, runs / run / "run" / "report.html", width) as seen:
            page, path = seen.page, into / f"{name}.png"
            if page.locator("#tab-whole").count():
                page.click("#tab-whole")
            if section == "#graph":
                page.wait_for_selector("#panel-whole [aria-busy=false]")
            if section == "#trials":
                page.click(".path .line >> nth=4")
            page.locator(section).screenshot(path=path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*RUNS], metavar="NAME")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    given = parser.parse_args()
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browser(given.chromium) as one:
        runs = (given.keep or Path(scratch)).resolve()
        sys.stdout.write(f"{HEAD}\n")
        for name in given.names:
            folder = runs / name
            page = folder / "run" / "report.html"
            if not page.is_file():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                RUNS[name](folder)
            sys.stdout.write(f"{measured(one, name, page, given.times, given.pictures)}\n")
            sys.stdout.flush()
        if given.docs:
            photograph(one, runs, ROOT / "docs" / "pictures", given.names)


if __name__ == "__main__":
    main()
