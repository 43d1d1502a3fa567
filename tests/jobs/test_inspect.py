"""What a model is made of, and what could trouble a run of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from runner.backends.onnxruntime import loads
from runner.backends.trt.engine import layers_in
from runner.exit_codes import ModelError
from runner.jobs import inspect as limits_module
from runner.jobs import model_concerns as describe_model_module
from runner.jobs.model_concerns import describe_model
from tests.fake_tensorrt import install
from tests.harness import PRETENDED_GPUS, winnow, without_nvml
from tests.jobs import models
from tests.matrix import slow

NORMAL = np.linspace(0.5, 1.5, 300, dtype=np.float32)


def value(name: str, dtype: int = T.FLOAT, shape: Sequence[int | str] | None = ("n", 300)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def saved(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, np.ndarray[Any, Any]],
    opset: int = 17,
    **more: Any,
) -> Path:
    """Write a model from x to y."""
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], tensors)
    imports = [helper.make_opsetid("", opset), *more.pop("imports", [])]
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=more.pop("ir", 8), **more), str(path))
    return path


def written(folder: Path, nodes: str, **weights: Any) -> Path:
    """Write a model from x to y that is given as text."""
    return models.saved(folder / "net.onnx", f"g (float[n,300] x) => (float[n,300] y) {{ {nodes} }}", **weights)


def added(*names: str) -> list[onnx.NodeProto]:
    """One Add after the other, of these weights, to x."""
    tensors = ["x", *(f"t{number}" for number in range(1, len(names))), "y"]
    return [
        helper.make_node("Add", [tensors[at], name], [tensors[at + 1]], name=f"add_{name}")
        for at, name in enumerate(names)
    ]


def concerns(path: Path) -> dict[str, list[str]]:
    return {one["kind"]: one["names"] for one in describe_model({"model": str(path)})["concerns"]}


def with_one(number: float, dtype: type = np.float32) -> np.ndarray[Any, Any]:
    array = NORMAL.astype(dtype)
    array[7] = number
    return array


def raw(dtype: int, data: bytes) -> T:
    return T(name="w", data_type=dtype, dims=[2], raw_data=data)


@pytest.mark.parametrize(
    ("kind", "weight"),
    [
        ("Inf, subnormal", raw(T.BFLOAT16, b"\x80\x7f\x01\x00")),
        ("NaN", raw(T.FLOAT8E4M3FN, b"\x7f\x00")),
        ("NaN", with_one(np.nan)),
        ("NaN", np.full(300, np.nan, np.float32)),
        ("Inf", with_one(np.inf)),
        ("Inf", with_one(-np.inf)),
        ("mask", np.where(NORMAL > 1, -np.inf, np.float32(0))),
        ("mask", np.float32(-3.4028235e38)),
        ("mask", np.float16(-65504)),
        ("mask", np.where(NORMAL > 1, np.float32(-1e9), np.float32(0))),
        ("beyond float16", with_one(1e5)),
        ("beyond float16, odd weight", with_one(-1e300, np.float64)),
        ("beyond float16, odd weight", with_one(2e38) * np.float32(0.02)),
        ("odd weight", np.where(NORMAL[7] == NORMAL, np.float16(65504), np.float16(0.02))),
        ("vanishes in float16", np.float32(1e-12)),
        ("vanishes in float16", np.full(300, -2e-8, np.float32)),
        ("subnormal", with_one(1e-40)),
        ("subnormal", with_one(1e-310, np.float64)),
        ("subnormal", np.full(300, 1e-6, np.float16)),
        ("beyond int32", np.array([1, 2**40])),
        ("beyond int32", np.array([0, 2**40, 2**63 - 1, -(2**63)])),
        ("", NORMAL),
        ("", np.array([0, 2**63 - 1, -(2**63)])),
        ("", with_one(1e-6, np.float16)),
        ("", np.float32(1e-5)),
        ("", np.zeros(300, np.float32)),
        ("", np.zeros(0, np.float32)),
        ("", np.float32(65504)),
    ],
)
def test_what_is_in_a_weight(tmp_path: Path, kind: str, weight: Any) -> None:
    path = saved(tmp_path, added("w"), {})
    model = onnx.load(str(path))
    model.graph.initializer.append(
        weight if isinstance(weight, T) else numpy_helper.from_array(np.asarray(weight), "w")
    )
    onnx.save(model, str(path))
    assert concerns(path) == {one: ["w"] for one in kind.split(", ") if one}


def test_plain_numbers_of_nodes(tmp_path: Path) -> None:
    """Constants, and an epsilon that float16 does not have."""
    nodes = """[c1] low = Constant<value_float = -3.4028235e38>() [c2] small = Constant<value_floats = [1e-12]>()
        [c3] far = Constant<value_ints = [1, 1099511627776]>() [sum] s = Sum(x, low, small) [r] t = Reshape(s, far)
        [norm] n = LayerNormalization<epsilon = 1e-12>(t, w) [kept] y = LayerNormalization<epsilon = 1e-5>(n, w)"""
    found = {"mask": ["low"], "vanishes in float16": ["small"], "beyond int32": ["far"], "epsilon": ["norm"]}
    assert concerns(written(tmp_path, nodes, w=NORMAL)) == found


def test_names_readers_and_duplicates(tmp_path: Path) -> None:
    nodes = "[twice] t1 = Add(x, a) [twice] t2 = Add(t1, b) [unread] dead = Exp(t2) y = Identity(t2)"
    weights = {"a": NORMAL, "b": NORMAL.copy(), "spare": NORMAL * 2, "spare_shape": np.array([1])}
    assert concerns(written(tmp_path, nodes, **weights)) == {
        "duplicate weights": ["b (as a)"],
        "unused weights": ["spare", "spare_shape"],
        "unread nodes": ["unread"],
        "duplicate names": ["twice"],
        "nodes without a name": ["y"],
    }


def test_what_a_branch_reads_is_read(tmp_path: Path) -> None:
    def branch(op: str) -> str:
        inner = f"[{op}] s_{op} = {op}(x, outer) [{op}_2] r_{op} = Add(s_{op}, in_{op})"
        return f"{op} () => (float[n,300] r_{op}) {{ {inner} }}"

    nodes = f"[if] y = If(c) <then_branch = {branch('Add')}, else_branch = {branch('Mul')}>"
    path = written(tmp_path, nodes, outer=NORMAL, c=np.array(True))
    model = onnx.load(str(path))
    for inner in model.graph.node[0].attribute:
        inner.g.initializer.append(numpy_helper.from_array(with_one(np.nan), f"in_{inner.g.name}"))
    onnx.save(model, str(path))
    found = describe_model({"model": str(path)})
    told = {one["kind"]: sorted(one["names"]) for one in found["concerns"]}
    assert told.pop("duplicate weights")
    assert told == {"NaN": ["in_Add", "in_Mul"]}
    assert found["operators"] == {"Add": 3, "If": 1, "Mul": 1}
    assert (found["nodes"], found["nested"]) == (1, 4)


def test_all_lines_count_the_same(tmp_path: Path) -> None:
    """Weights of one name in two branches are two, Constants count wherever they are, and 4-bit weights by number."""

    def branch(factor: int) -> onnx.GraphProto:
        lone = helper.make_node("Constant", [], ["lone"], value_floats=[1.0] * 300)
        nodes = [lone, *(helper.make_node(*one) for one in (("Add", ["x", "w"], ["a"]), ("Add", ["a", "lone"], ["r"])))]
        return helper.make_graph(nodes, "b", [], [value("r")], [numpy_helper.from_array(NORMAL * factor, "w")])

    product = {"K": 32, "N": 4, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
    nodes = [
        helper.make_node("Constant", [], ["lone"], value_float=1.0),
        helper.make_node("If", ["c"], ["i"], then_branch=branch(1), else_branch=branch(2)),
        helper.make_node("Mul", ["i", "lone"], ["y"]),
        helper.make_node("MatMulNBits", ["z", "packed", "scales"], ["p"], **product),
    ]
    packed = {"packed": np.zeros((4, 1, 16), np.uint8), "scales": np.ones((4, 1), np.float32)}
    path = saved(tmp_path, nodes, {"c": np.array(True), **packed})
    found = describe_model({"model": str(path)})
    assert (found["nodes"], found["constants"], found["nested"]) == (3, 3, 4)
    assert sum(found["operators"].values()) == 3 + 3 + 4
    kinds = {name: one["count"] for name, one in found["weights"]["dtypes"].items()}
    assert found["weights"]["count"] == 8 and kinds == {"float": 6, "uint8": 1, "bool": 1}
    assert found["weights"]["parameters"] == 4 * 300 + 1 + 4 + 4 * 32
    assert found["dtypes"] == {"float": 6 + 4, "uint8": 1, "bool": 1}  # and x, y, and what the branches give


def test_functions_and_domains(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "mine": 1]> g (float[n,300] x) => (float[n,300] y) {
        [call] t = mine.Soft(x) [nowhere] u = elsewhere.Gone(t) [odd] y = NoSuch(u) }
        <opset_import: ["": 17], domain: "mine"> Soft (i) => (o) { [inner] o = Exp(i) }"""
    path = models.saved(tmp_path / "net.onnx", text)
    found = describe_model({"model": str(path)})
    assert found["functions"] == ["mine.Soft"]
    assert found["operators"] == {"Exp": 1, "NoSuch": 1, "elsewhere.Gone": 1, "mine.Soft": 1}
    assert {one["kind"]: one["names"] for one in found["concerns"]} == {"domain not imported": ["elsewhere.Gone"]}
    assert found["unknown"] == [("", "NoSuch", ["odd"])]


@pytest.mark.parametrize(
    ("reads", "gives", "said"),
    [
        (["ghost", "t"], ["t", "y"], "reads tensor 'ghost'"),
        (["t", "t"], ["t", "y"], "depends on its own output"),
        (["x", "x"], ["y", "y"], "an output of node 'n0' (Relu) and as an output of node 'n1' (Relu)"),
    ],
)
def test_a_graph_that_no_runtime_can_load(tmp_path: Path, reads: list[str], gives: list[str], said: str) -> None:
    nodes = [helper.make_node("Relu", [reads[at]], [gives[at]], name=f"n{at}") for at in (0, 1)]
    told = describe_model({"model": str(saved(tmp_path, nodes, {}))})["concerns"]
    assert [one["what"] for one in told if one["kind"] == "invalid graph" and said in one["what"]]


def test_opsets_that_are_missing_or_there_twice(tmp_path: Path) -> None:
    path = saved(tmp_path, [helper.make_node("Relu", ["x"], ["y"], name="r")], {})
    model = onnx.load(str(path))
    model.opset_import.add().CopyFrom(helper.make_opsetid("ai.onnx", 11))
    onnx.save(model, str(path))
    assert concerns(path) == {"opset imported twice": ["ai.onnx"]}
    del model.opset_import[:]
    onnx.save(model, str(path))
    assert concerns(path) == {"no opset": ["opset_import"]}
    model.opset_import.add().CopyFrom(helper.make_opsetid("com.mine", 1))
    onnx.save(model, str(path))
    assert concerns(path) == {"domain not imported": ["Relu"]}


def test_the_runtime_is_asked_about_the_opsets_of_the_model_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "opsets.onnx"
    limits_module._write(path, [], {"opsets": {"com.mine": 3}, "ir_version": 8})
    assert [(one.domain, one.version) for one in onnx.load(str(path)).opset_import] == [("com.mine", 3)]
    found = loads({"model": str(path), "levels": ["disable"], "custom_ops": []})
    assert found["levels"]["disable"] == ""


def test_external_data_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = saved(tmp_path, added("w", "v"), {"w": NORMAL, "v": NORMAL * 3})
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert concerns(path) == {}
    (tmp_path / "w.bin").write_bytes((tmp_path / "w.bin").read_bytes()[:1300])
    assert concerns(path) == {"unreadable weights": ["v"]}
    (tmp_path / "w.bin").unlink()
    assert concerns(path) == {"unreadable weights": ["w", "v"]}
    run = winnow(str(path), folder=tmp_path / "run")
    assert "no runtime can load the model" in run.result["message"], run.output
    assert not any(run.result["checks"].values()), "no search can tell more"
    assert [one["name"] for one in run.result["triage"]["steps"]] == ["inspect"]


def test_a_run_asks_the_runtime_and_checks_nothing(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 999, "com.microsoft": 1]> g (float[n,300] x) => (float[n,300] y) {
        [known] t = com.microsoft.Gelu(x) [unknown] u = com.microsoft.Nothing(t) [add] y = Add(u, w) }"""
    path = models.saved(tmp_path / "net.onnx", text, w=NORMAL)
    run = winnow("inspect", str(path), folder=tmp_path / "run", cwd=tmp_path)
    assert run.code == 0, run.output
    found = run.result["inspection"]
    told = {one["kind"]: one["names"] for one in found["concerns"]}
    assert told == {"opset": ["ai.onnx 999"], "unknown operator": ["com.microsoft.Nothing"]}
    (opset,) = (one["what"] for one in found["concerns"] if one["kind"] == "opset")
    assert "refuses any model with these versions, even one Identity node: Current official support for " in opset
    assert "Current official support for domain ai.onnx is till opset" in opset
    assert not any(run.result["checks"].values())


# ---- why it does not load


def misdeclared(folder: Path, half: type = np.float16) -> Path:
    """Three tensors are declared float16, and made of float32: what a converter leaves that misses an output."""
    later = [f"[unsqueeze_{at}] u{at} = Unsqueeze(kept, axis) [add_{at}] a{at} = Add(u{at}, half)" for at in range(3)]
    nodes = f"[square] kept = Mul(x, x) {' '.join(later)} [sum] y = Sum(a0, a1, a2)"
    path = written(folder, nodes, axis=np.array([0]), half=half(0.5))
    model = onnx.load(str(path))
    model.graph.output[0].CopyFrom(value("y", T.FLOAT16, (1, "n", 300)))
    model.graph.value_info.extend(value(f"u{at}", T.FLOAT16, (1, "n", 300)) for at in range(3))
    onnx.save(model, str(path))
    return path


def refusal(path: Path) -> str:
    return str(loads({"model": str(path), "levels": ["all"]})["levels"]["all"])


FIRST = "u0 is declared float16, Unsqueeze makes float of kept; 2 more like it"


def test_types_that_are_declared_wrongly_are_the_reason_and_are_mended(tmp_path: Path) -> None:
    run = winnow("inspect", str(misdeclared(tmp_path)), folder=tmp_path / "run", cwd=tmp_path)
    found = run.result["inspection"]
    told = {one["kind"]: (one["what"], one["names"]) for one in found["concerns"]}
    assert told["declared type"] == (FIRST, [f"unsqueeze_{at}" for at in range(3)])
    assert FIRST in found["why"] and "does not match expected type" in found["refused"]
    assert run.result["whose"] == "model" and FIRST in run.result["message"]
    # dropping what is declared does not help here: float32 meets float16 further on
    assert (
        "with a Cast" in found["cure"] and loads({"model": str(run.folder / "workaround.onnx")})["levels"]["all"] == ""
    )
    mixed = tmp_path / "other"
    mixed.mkdir()
    run = winnow("inspect", str(misdeclared(mixed, np.float32)), folder=mixed / "run")
    assert "is declared float16" in run.result["inspection"]["why"]
    assert run.result["inspection"]["cure"].startswith("without the types"), "which is tried first"
    mended = run.model("workaround.onnx")
    assert not mended.graph.value_info and refusal(run.folder / "workaround.onnx") == ""
    read_only = winnow("inspect", str(tmp_path / "net.onnx"), "strategy.run=false", folder=tmp_path / "read")
    assert "refused" not in read_only.result["inspection"] and not (tmp_path / "read" / "workaround.onnx").exists()
    assert any(one["kind"] == "declared type" for one in read_only.result["inspection"]["concerns"])


def test_nodes_of_one_name_are_the_reason(tmp_path: Path) -> None:
    """ONNX Runtime refuses them: a search named two of them, as its own bug."""
    text = "g (float[2] x) => (float[2] y) { [n] a = Relu (x) [n] b = Neg (a) [k] y = Abs (b) }"
    models.saved(tmp_path / "net.onnx", text)
    run = winnow("reduce", "net.onnx", folder=tmp_path / "run", cwd=tmp_path)
    assert (run.code, run.result["culprits"], run.result["whose"]) == (0, ["n"], "model"), run.output
    assert "several nodes have the same name" in run.result["message"] and not run.result["checks"]["search"]


def test_a_triage_of_it_searches_nothing(tmp_path: Path) -> None:
    run = winnow(str(misdeclared(tmp_path)), folder=tmp_path / "run")
    assert (
        run.code == 0
        and run.result["status"] == "found"
        and run.result["culprits"] == [f"unsqueeze_{at}" for at in range(3)]
    )
    assert not any(run.result["checks"].values()) and len(run.output.splitlines()) < 10, run.output
    assert FIRST in run.screen[0] and "whose bug: the model itself" in run.screen[0]
    assert (run.folder / run.result["model"]).is_file()
    assert (
        "the target does not load" in run.output or "does not load the model" in (run.folder / "REPORT.md").read_text()
    )


@pytest.mark.parametrize(
    ("operator", "domain", "said", "whose"),
    [
        ("Gelu", "", "ai.onnx 17 has no Gelu, 20 has; export the model with opset 20, or raise its", "model"),
        slow(("Reluu", "", "ai.onnx 17 has no such operator; is Relu meant?", "model")),
        slow(("Upsample", "", "ai.onnx has no Upsample since opset 10", "model")),
        ("Swish", "com.acme", "give the library of com.acme: target.custom_ops=[/path/to/library.so]", None),
    ],
)
def test_what_to_do_about_an_operator_that_nobody_knows(
    operator: str, domain: str, said: str, whose: str | None, tmp_path: Path
) -> None:
    nodes = [helper.make_node(operator, ["x"], ["y"], name="act", domain=domain)]
    path = saved(tmp_path, nodes, {}, opset=17, imports=[helper.make_opsetid(domain, 1)] if domain else [])
    run = winnow("triage", str(path), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["whose"]) == (0, ["act"], whose), run.output
    assert said in run.result["message"] and said in run.screen[0]
    assert len(run.output.splitlines()) <= 8 and run.result["checks"]["search"] == 0, run.output
    report = (run.folder / "REPORT.md").read_text()
    assert report.partition("\n")[0].endswith(" does not load the model")
    advice = report.partition("## What to do now\n\n")[2].partition("\n\n")[0]
    assert ("`target.custom_ops=[/path/to/library.so]`" in advice) == (whose is None)


@pytest.mark.slow
def test_an_operator_is_told_by_its_opset_and_by_its_name(tmp_path: Path) -> None:
    """What else changed between two opsets is named; a name that is wrong is no matter of a library."""
    text = """<ir_version: 8, opset_import: ["": 17, "me": 1]> g (float[n,300] x) => (float[n,300] y) {
        [mean] m = ReduceMean<axes = [-1]>(x) [gelu] g = Gelu(m) y = me.My(g) }"""
    path = models.saved(tmp_path / "net.onnx", text)
    run = winnow("triage", str(path), folder=tmp_path / "run")
    assert "with opset 20; to raise its opset_import is not enough: ReduceMean changed" in run.result["message"]
    advice = (run.folder / "REPORT.md").read_text().partition("## What to do now\n\n")[2].partition("\n\n")[0]
    assert advice.startswith("- Correct `Gelu` in the file\n- Give the library")


def test_all_operators_without_a_kernel_are_named(tmp_path: Path) -> None:
    nodes = """[cast] d = Cast<to = 11>(x) [elu_1] e = Elu(d) [elu_2] f = Elu(e) [hardmax] h = Hardmax(f)
        [back] y = Cast<to = 1>(h)"""
    run = winnow("inspect", str(written(tmp_path, nodes)), folder=tmp_path / "run")
    found = run.result["inspection"]
    assert "no kernel" in found["why"] and "Elu" in found["refused"] and run.result["whose"] is None
    assert run.result["culprits"] == ["elu_1", "elu_2", "hardmax"]
    assert "Elu of double, Hardmax of double" in run.result["message"].replace(" and ", ", ")


def test_what_contradicts_itself(tmp_path: Path) -> None:
    made = (("Add", "x half", "t"), ("Sin", "flags", "u"), ("Reshape", "x to", "y"), ("ReduceMean", "x axes", "v"))
    made += (("Add", "x gemm_input_shape", "w"),)
    nodes = [helper.make_node(op, reads.split(), [gives], name=gives) for op, reads, gives in made]
    held = {"half": np.float16(1), "flags": np.array([True]), "to": np.array([3, 100]), "axes": np.array([0])}
    path = saved(tmp_path, nodes, {**held, "gemm_input_shape": np.float32(1)})
    run = winnow("inspect", str(path), "strategy.run=false", folder=tmp_path / "run")
    told = {one["kind"]: one["names"] for one in run.result["inspection"]["concerns"]}
    found = {kind: told.get(kind) for kind in ("mixed types", "type not taken", "declared shape", "inputs")}
    assert found == {"mixed types": ["t"], "type not taken": ["u"], "declared shape": ["y"], "inputs": ["v"]}
    assert told["names of fusions"] == ["gemm_input_shape"]


def test_a_model_that_nothing_takes_is_no_bug_of_the_runtime(tmp_path: Path) -> None:
    """Shapes that do not fit each other: the checker says so as well, and nothing is reported."""
    path = saved(
        tmp_path, [helper.make_node("MatMul", ["x", "w"], ["y"], name="bad")], {"w": np.ones((7, 2), np.float32)}
    )
    run = winnow(str(path), folder=tmp_path / "run")
    assert run.code == 0 and run.result["whose"] == "model", run.output
    assert run.result["message"].startswith("the target and onnx.checker refuse the file: "), run.output
    assert "Report the failure" not in run.output + (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_weights_of_a_gigabyte_are_never_in_memory_at_once(tmp_path: Path) -> None:
    path = saved(tmp_path, added("w"), {})
    model = onnx.load(str(path))
    weight = model.graph.initializer.add(name="w", data_type=T.FLOAT, dims=[1 << 28], data_location=T.EXTERNAL)
    for key, text in (("location", "w.bin"), ("offset", "0"), ("length", str(1 << 30))):
        weight.external_data.add(key=key, value=text)
    onnx.save(model, str(path))
    with (tmp_path / "w.bin").open("wb") as file:  # nothing but its end takes room on the disk
        file.seek((1 << 30) - 4)
        file.write(np.float32(np.nan).tobytes())
    run = winnow("inspect", str(path), folder=tmp_path / "run", cwd=tmp_path)
    # the checker is right: 300 and 2^28 elements are not added
    assert [one["kind"] for one in run.result["inspection"]["concerns"]] == ["NaN", "onnx.checker"]
    assert run.result["peak_rss_mb"]["workers"] < 300


def test_an_engine_s_layers(tmp_path: Path) -> None:
    made = install(tmp_path, "10")
    path = saved(tmp_path, added("w"), {"w": NORMAL})
    header = b'{"ranges": {}, "slow": []}'
    (tmp_path / "net.engine").write_bytes(header + b"\0" + path.read_bytes())
    gpus = (f"workers.gpus=[{PRETENDED_GPUS[0]}]", f"workers.lease_folder={tmp_path / 'locks'}")
    given = ("inspect", "net.engine", "target=tensorrt", f"target.python={made.python}", *gpus)
    run = winnow(*given, folder=tmp_path / "run", cwd=tmp_path, environment=without_nvml())
    assert run.code == 0, run.output
    found = run.result["inspection"]
    assert found["library"] == "tensorrt 10.13.3.9"
    assert found["operators"] == {"Add": 1}
    assert found["layers"][0]["tactic"] == "kernel_of_Add"
    assert found["dynamic"] == {"x": ["?"]}


def test_the_text_of_an_inspector() -> None:
    assert layers_in('{"Layers": ["a", "b"]}') == layers_in("a\nb\n")
    assert layers_in("") == []


@pytest.mark.parametrize("limit", [0, 32 << 20])
def test_a_file_that_is_replaced_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Else the digest of one is told beside the description of the other."""
    path = saved(tmp_path, added("a"), {"a": NORMAL})
    (tmp_path / "later").mkdir()
    later = saved(tmp_path / "later", added("a", "b"), {"a": NORMAL, "b": NORMAL})

    monkeypatch.setattr(describe_model_module, "check_text", lambda _: later.replace(path))
    monkeypatch.setattr(describe_model_module, "_WHOLE", limit)
    with pytest.raises(ModelError, match="changed while it was read"):
        describe_model({"model": str(path)})
