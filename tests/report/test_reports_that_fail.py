"""What was found is told whatever goes wrong beside it: a report that cannot be written, settings that break midway."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from runner.model.graph.graph_index import Graph
from runner.report.bundle import ReducedModel, write_bundle
from runner.report.markdown import Shown
from runner.report.page.data import PageData
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import RunsChecker
from runner.schema.root import Settings
from runner.verdict import Sample
from tests.harness import by_command, check_script, winnow
from tests.jobs.reduce.test_breadth import model_of, node, value
from tests.report.page.pages import page_in
from tests.report.rendered import report

REPORTS = ("REPORT.md", "repro.py", "replay.yaml", "bundle.zip", "report.html")


def chain(path: Path, operators: Mapping[int, str] = MappingProxyType({})) -> None:
    """Write a model of 32 nodes; ``operators``: of those that are no Abs."""
    nodes = [
        node(operators.get(at, "Abs"), ["x" if at == 0 else f"t{at - 1}"], [f"t{at}"], f"n{at}") for at in range(32)
    ]
    onnx.save(model_of(nodes, [value("x", [2])], [value("t31", [2])]), str(path))


def test_a_report_that_cannot_be_written_loses_no_answer(tmp_path: Path) -> None:
    """Where a file should go the check makes a folder: the rest is written, and the answer stands."""
    chain(tmp_path / "model.onnx")
    body = (
        "import os\n"
        f"for name in {REPORTS}:\n"
        f"    os.makedirs(os.path.join({str(tmp_path / 'run')!r}, name, 'x'), exist_ok=True)\n"
        "sys.exit(int('n7' in nodes))"
    )
    check = by_command(check_script(tmp_path, body))
    run = winnow(f"model={tmp_path / 'model.onnx'}", *check, folder=tmp_path / "run")
    assert (run.code, run.result["culprits"]) == (0, ["n7"]), run.output
    for name in REPORTS:
        assert f"{name} could not be written: IsADirectoryError" in run.output
        assert any(warning.startswith(f"{name} could not be written") for warning in run.result["warnings"])
    assert len(run.model().graph.node) == 1
    assert (run.folder / "test_data_set_0" / "input_0.pb").is_file()
    assert "Traceback" not in run.output


def test_the_answer_is_written_before_any_report(tmp_path: Path) -> None:
    """A bug in what is told of it (a node that is none) is named; nothing else is lost."""
    settings = Settings(target=OnnxRuntimeBackend(), reference=OnnxRuntimeBackend(), checker=RunsChecker())  # type: ignore[call-arg]
    told = Summary("found", 0, "reduce", culprits=("a",), model="reduced.onnx", nodes_after=1)
    write_bundle(settings, tmp_path, told, tmp_path, (), ReducedModel(None, ()))  # type: ignore[arg-type]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["culprits"] == ["a"]
    assert [warning.partition(" ")[0] for warning in result["warnings"]] == ["repro.py", "replay.yaml"]
    assert (tmp_path / "REPORT.md").is_file()


@pytest.mark.parametrize("lost", ["details for the page", "values for the page"])
def test_what_a_page_cannot_show_costs_nothing_else(lost: str, tmp_path: Path) -> None:
    chain(tmp_path / "reduced.onnx")
    model = onnx.load(tmp_path / "reduced.onnx")
    settings = Settings(target=OnnxRuntimeBackend(), reference=OnnxRuntimeBackend(), checker=RunsChecker())  # type: ignore[call-arg]
    told = Summary("found", 0, "reduce", culprits=("n7",), model="reduced.onnx", nodes_after=1)

    def material() -> PageData:
        if lost == "details for the page":
            raise ValueError("lost")
        return PageData(graph=Graph.of(model), elements="nodes")

    answer = ReducedModel(model, (Sample({} if lost == "details for the page" else {"x": None}),))  # type: ignore[dict-item]
    write_bundle(settings, tmp_path, told, tmp_path, (), answer, material=material)
    page, warnings = page_in(tmp_path), json.loads((tmp_path / "result.json").read_text())["warnings"]
    assert any(one.startswith(f"{lost} could not be written: ") for one in warnings)
    assert not any(one.startswith("report.html") for one in warnings)
    assert page.reduced if lost == "details for the page" else page.whole


def test_attributes_that_no_onnx_knows_have_a_row() -> None:
    odd = node("Odd", ["x"], ["y"], "n", axis=1)
    odd.attribute.add(name="outer", type=AttributeProto.INT, ref_attr_name="of_a_function")
    odd.attribute.add(name="weight", type=AttributeProto.TENSOR, t=TensorProto(data_type=99, dims=[2]))
    odd.attribute.add(name="future")
    graph = helper.make_graph([odd], "g", [], [])
    text = report(Summary("found", 0, "reduce", nodes_after=1), shown=Shown(helper.make_model(graph)))
    assert "(axis=1, outer=@of_a_function, weight=type 99[2], future=undefined)".strip("()") in text


def test_thousands_of_culprits_are_a_short_line(tmp_path: Path) -> None:
    names = tuple(f"encoder/layer.{number}/MatMul" for number in range(7300))
    told = Summary("found", 0, "reduce", culprits=names, nested=names, nodes_after=len(names), message=", ".join(names))
    text = report(told)
    assert "7100 more" in text
    assert max(map(len, text.splitlines())) < 5000


BREAKS = """
#include <stdio.h>
#include <unistd.h>
void *RegisterCustomOps(void *options, const void *api) {
    FILE *file = fopen(COUNT, "a");
    fputc('.', file);
    if (ftell(file) == 8) unlink(SELF);
    fclose(file);
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="building a library of operators needs a C compiler")
def test_settings_that_break_midway_leave_the_best_so_far(tmp_path: Path) -> None:
    """A library that was there when the search began is gone: exit 2, with what the search had found by then."""
    chain(tmp_path / "model.onnx", {19: "Neg", 20: "Log"})
    library = tmp_path / "libbreaks.so"
    (tmp_path / "breaks.c").write_text(
        f"#define COUNT {json.dumps(str(tmp_path / 'count'))}\n#define SELF {json.dumps(str(library))}\n{BREAKS}"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, tmp_path / "breaks.c"], check=True)
    run = winnow(
        f"model={tmp_path / 'model.onnx'}",
        "checker=finite",
        "checker.flaky=never",
        f"target.custom_ops=[{library}]",
        "strategy.look_inside=false",  # so that there is a midway
        folder=tmp_path / "run",
    )
    assert (run.code, run.result["status"]) == (2, "usage"), run.output
    assert "there is no such file" in run.result["message"]
    assert "the best so far" in run.result["message"] and f"resume={run.folder}" in run.result["message"]
    assert "n20" in run.result["culprits"] and run.result["nodes"]["after"] < 32
    assert len(run.model().graph.node) == run.result["nodes"]["after"]
    assert (run.folder / "REPORT.md").is_file() and (run.folder / "repro.py").is_file()
