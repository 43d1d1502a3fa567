"""Graphs in columns, and pages that stay within their size whatever the graph."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from runner.model.graph.graph_index import Graph as Index
from runner.model.values.recorded import TensorFile
from runner.report.document import section, table
from runner.report.page.data import Page, PageData, PageGraph
from runner.report.page.graph_columns import MOST_NESTED, MOST_TEXT, TOP, columns, types_of
from runner.report.page.html import MOST_ROWS, page_text
from runner.report.page.run_page import fitted, page_of, size_of, trials_of
from runner.report.summary import Summary
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from tests.model.models import model_of
from tests.report.page.page_values import nested_model
from tests.report.page.page_values import page as empty
from tests.report.page.pages import whole, whole_graph

SETTINGS = Settings(checker=AutoChecker(), target=OnnxRuntimeBackend(), inputs=RandomInputs())


def chain(names: Sequence[str], **attributes: object) -> ModelProto:
    ends = [f"t{at}" for at in range(len(names) + 1)]
    nodes = [
        helper.make_node("Relu", [ends[at]], [ends[at + 1]], name=name, **attributes) for at, name in enumerate(names)
    ]
    shown = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in (ends[0], ends[-1])]
    return model_of(nodes, shown[:1], shown[1:])


def page_from(model: ModelProto, folder: Path) -> Page:
    index = Index.of(model)
    summary = Summary("found", 0, "reduce", culprits=(index.nodes[0].name,))
    return page_of(SETTINGS, folder, summary, ("winnow",), None, None, PageData(graph=index, elements="nodes"))


def test_blocks_are_scopes_or_else_stretches() -> None:
    scoped = columns(Index.of(chain(["/m/a/X", "/m/a/Y", "/m/b/X", "loose"])), {})
    assert [scoped["blocks"][one] for one in scoped["block"]] == ["m/a", "m/a", "m/b", TOP]
    dotted = columns(Index.of(chain(["m.layer.0.relu", "m.layer.1.relu"])), {})
    assert dotted["blocks"] == ["m/layer/0", "m/layer/1"]
    plain = columns(Index.of(chain([f"n{at}" for at in range(1100)])), {})
    assert plain["blocks"] == ["nodes 0 to 499", "nodes 500 to 999", "nodes 1000 to 1099"]


def test_a_long_graph_takes_little_more_than_what_its_page_holds() -> None:
    """What is equal (types, blocks, names) is one object, and what each node reads is not listed twice."""
    count = 4_000
    index = Index.of(chain([f"n{at}" for at in range(count)]))
    recorded = {f"t{at}": TensorFile(f"t{at}", Path("t.pb"), TensorProto.FLOAT, (3, 3)) for at in range(count)}
    assert index.names
    tracemalloc.start()
    try:
        types = types_of(index, PageData(recorded=recorded))
        of_types = tracemalloc.get_traced_memory()[0]
        made = columns(index, types)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made["types"][1] == "float32[3, 3]"
    assert of_types < count * 40  # bytes: the entries of one dictionary
    assert peak - of_types < count * 450  # the columns themselves take 320


def test_omitted_inputs_captured_tensors_weights_and_attributes() -> None:
    body = [helper.make_graph([helper.make_node("Neg", ["c"], ["r"])], "g", [], [onnx.ValueInfoProto(name="r")])] * 2
    nodes = [
        helper.make_node("Clip", ["x", "", "high"], ["c"], name="clip"),
        helper.make_node("If", ["which"], ["y"], name="if", then_branch=body[0], else_branch=body[1]),
        helper.make_node("Own", ["y"], ["z"], name="own", domain="my.ops", axes=list(range(40)), mode=b"\xff<b>"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "which", "z")]
    weight = helper.make_tensor("high", TensorProto.FLOAT16, [1], [1.0])
    index = Index.of(model_of(nodes, ends[:2], ends[2:], [weight]))
    graph = columns(index, types_of(index, PageData()), ["own"])
    whole_graph(graph)
    named = [[graph["tensors"][one] if one >= 0 else None for one in row] for row in graph["inputs"]]
    assert named[:3] == [["x", None, "high"], ["which", "c"], ["y"]], "a captured tensor is read as well"
    assert graph["inputs"][3:] == [graph["outputs"][0]] * 2, "and so it is inside"
    assert [graph["tensors"][one] for one in graph["constants"]] == ["high"] and graph["culprits"] == [2]
    assert graph["types"][graph["tensors"].index("high")] == "float16[1]"
    assert graph["operators"][graph["operator"][2]] == "my.ops.Own"
    held = {name: text for row in graph["attributes"].values() for name, text in row}
    assert held["then_branch"] == "a graph of 1 node" and held["axes"].endswith("15, ...]")
    assert held["mode"] == "\\xff<b>"


def nested_in(graph: PageGraph, path: str) -> list[tuple[str, str, list[str]]]:
    """Operator, name and what each node of a nested graph reads."""
    (body,) = (one for one in graph["bodies"] if one["path"] == path)
    return [
        (
            graph["operators"][graph["operator"][node]],
            graph["names"][node],
            [graph["tensors"][one] for one in graph["inputs"][node] if one >= 0],
        )
        for node in range(body["node"], body["node"] + body["nodes"])
    ]


def test_nested_graphs_follow_the_top_level_with_their_own_tensors() -> None:
    index = Index.of(nested_model())
    graph = columns(index, {"a": "float32[1, 8]"}, ["gate", "gate.then_branch/loop", "gate.then_branch/loop.body/bad"])
    whole_graph(graph)
    assert graph["names"][:4] == [*index.names] and graph["undrawn"] == 0
    assert [(one["owner"], one["name"], one["path"]) for one in graph["bodies"]] == [
        (1, "then branch", "gate.then_branch"),
        (1, "else branch", "gate.else_branch"),
        (5, "body", "gate.then_branch/loop.body"),
        (2, "function Swish", "first.Swish"),
        (3, "function Swish", "second.Swish"),
    ]
    # a Constant is data
    assert nested_in(graph, "gate.then_branch") == [("Neg", "turn", ["a"]), ("Loop", "loop", ["count", "n"])]
    assert nested_in(graph, "gate.then_branch/loop.body")[0] == ("Mul", "step0", ["s", "a"])
    # two branches have each a tensor of that name; what is captured is the one outside
    assert len({one for body in graph["bodies"][:2] for one in body["results"]}) == 2
    step = graph["names"].index("step0")
    assert graph["inputs"][step][1] == graph["outputs"][0][0] and graph["types"][graph["outputs"][0][0]]
    first, second = (one["feeds"] for one in graph["bodies"][3:])
    assert first != second and graph["constants"] == [graph["tensors"].index("count")]
    assert [graph["names"][one] for one in graph["culprits"]] == ["bad"], "not the nodes around it"


def test_nested_graphs_have_an_end_and_that_of_a_culprit_comes_first() -> None:
    node, graph = helper.make_node, helper.make_graph
    inner = [node("Relu", ["a"], [f"r{at}"]) for at in range(MOST_NESTED // 2)]
    many = [
        node(
            "If",
            ["x"],
            [f"y{at}"],
            f"if{at}",
            then_branch=graph(inner, "g", [], []),
            else_branch=graph([], "e", [], []),
        )
        for at in range(3)
    ]
    held = columns(Index.of(model_of(many, [], [])), {}, ["if2.then_branch/r7"])
    whole_graph(held)
    assert {one["path"] for one in held["bodies"]} == {"if2.then_branch", "if2.else_branch"} and held["undrawn"] == 4
    # a function that calls itself is no model, and no reason to go on for ever
    again = helper.make_function("own", "F", ["v"], ["w"], [node("F", ["v"], ["w"], "f", domain="own")], [])
    call = node("F", ["x"], ["y"], "f", domain="own")
    deep = columns(Index.of(model_of([call], [], [], functions=[again])), {})
    whole_graph(deep)
    assert 1 < len(deep["names"]) < 100 and deep["undrawn"]
    # a long name stands in the file once, and in a page for each call
    long = helper.make_function("own", "F", ["v"], ["w"], [node("Relu", ["v"], ["w"], "n" * (MOST_TEXT // 8))], [])
    calls = [node("F", ["x"], [f"y{at}"], f"f{at}", domain="own") for at in range(20)]
    wide = columns(Index.of(model_of(calls, [], [], functions=[long])), {})
    assert len(wide["bodies"]) == 7 and wide["undrawn"] == 13
    # nor are as many empty graphs as one likes
    empty = [
        node("If", ["x"], [f"y{at}"], then_branch=graph([], "g", [], []), else_branch=graph([], "e", [], []))
        for at in range(MOST_NESTED)
    ]
    assert len(columns(Index.of(model_of(empty, [], [])), {})["bodies"]) == MOST_NESTED


def test_a_name_of_megabytes_is_no_sentence(tmp_path: Path) -> None:
    page = page_from(chain(["<" * 10_000_000]), tmp_path)
    assert size_of(page) < 9_000_000 and len(page.verdict) <= 2000 and page.whole is None


def test_what_another_run_kept_in_the_same_index_is_not_of_these_nodes(tmp_path: Path) -> None:
    index = tmp_path / "index.jsonl"
    index.write_text("".join(f'{{"iteration": {at}, "question": "q", "trial": "0-{at}"}}\n' for at in (1, 7)))
    graph = Index.of(chain(["a", "b", "c"]))
    material = PageData(graph=graph, elements="nodes", questions=frozenset({"q"}), index=index)
    assert [one["kept"] for one in trials_of(tmp_path, material)[0]] == [[[0, 1]], []]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=30) | st.just("<" * 300), min_size=1, max_size=40), st.integers(8000, 60000))
def test_the_page_of_any_graph_is_json_within_its_size(names: list[str], room: int) -> None:
    usable = [name.encode("utf-8", "ignore").decode() for name in names]
    page, most = page_from(chain(usable), Path("/nonexistent")), size_of(empty()) + room
    whole(page)
    small = fitted(page, most)
    whole(small)
    assert size_of(small) <= most and len(page_text(small).encode()) <= most, "as a page of HTML holds it"
    assert small == page or len(small.warnings) > len(page.warnings)


def test_tables_count_as_the_html_that_they_become_and_are_cut_to_what_a_browser_shows(tmp_path: Path) -> None:
    page = page_from(chain(["a"]), tmp_path)
    rows = [(at, '"' * 400) for at in range(MOST_ROWS + 1)]
    tables = replace(page, sections=section("T", [table(("", ""), rows)]))
    text = page_text(tables)
    assert size_of(tables) > len(text) / 2 > 150 * len("&quot;") * MOST_ROWS / 2
    assert text.count("<td>") == 2 * MOST_ROWS and f"The first {MOST_ROWS} of {MOST_ROWS + 1} rows are shown" in text
    small = fitted(tables, size_of(tables) - 1)
    assert not small.sections and "REPORT.md has them" in small.warnings[-1]
    warned = fitted(replace(page, warnings=["w" * 1000] * 20_000))
    assert len(warned.warnings) == 101 and "19900 further warnings" in warned.warnings[-1]
