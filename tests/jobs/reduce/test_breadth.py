"""All of ONNX that people export, through whole runs: a Sqrt of negative numbers is the culprit, wherever it stands."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.bundles import unpacked
from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import parsed
from tests.matrix import sample

FLOAT = TensorProto.FLOAT
CULPRIT = "culprit"


def node(kind: str, inputs: list[str], outputs: list[str], name: str = "", **attributes: object) -> NodeProto:
    return helper.make_node(kind, inputs, outputs, name=name, **attributes)


def value(name: str, shape: list[int | str] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def tensor(name: str, array: object) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def model_of(nodes, inputs, outputs, weights=(), *, opset=17, ir=None, domains=()) -> ModelProto:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    return helper.make_model(
        graph, opset_imports=imports, ir_version=ir or helper.find_min_ir_version_for(imports, ignore_unknown=True)
    )


def reduced(model: ModelProto | Path, folder: Path, *options: str) -> Run:
    """Reduce what is not finite; every candidate is kept, and must be of the model's own versions."""
    path = model if isinstance(model, Path) else folder / "m.onnx"
    if isinstance(model, ModelProto):
        onnx.save(model, path)
    original = onnx.load(path, load_external_data=False)
    run = winnow(
        f"model={path}", "checker=finite", "checker.flaky=never", "artifacts=all", *options, folder=folder / "run"
    )
    candidates = list(run.folder.rglob("*.onnx"))
    assert run.code == 0 and len(candidates) > 2, run.output
    for candidate in candidates:
        made = onnx.load(candidate, load_external_data=False)
        assert made.ir_version == original.ir_version
        assert list(made.opset_import) == [one for one in original.opset_import if one in made.opset_import]
    return run


def named_by_check(folder: Path, body: str, culprits: list[str]) -> Run:
    """Find nodes of the model in a folder by a check of names."""
    check = by_command(check_script(folder, body))
    run = winnow(f"model={folder / 'm.onnx'}", *check, folder=folder / "structural")
    assert run.result["culprits"] == culprits, run.output
    return run


def shows_itself(run: Run) -> None:
    """The bundle stands alone: unpacked elsewhere, its repro shows the failure."""
    shown = unpacked(run.folder, run.folder.parent / "elsewhere" / "unpacked")
    assert shown.code == 1, shown.text


# ---- opsets


def network(opset: int) -> ModelProto:
    """A small network of operators that every opset has; before IR version 4 weights are inputs too."""
    text = """g (float[1,3,6,6] x) => (float[1,4] y) <float half = {0.5}> {
        [conv] c = Conv<kernel_shape = [3, 3]>(x, w, b) [norm] n = BatchNormalization(c, one, b, b, one)
        [relu] r = Relu(n) [negate] neg = Neg(r) [below] below = Sub(neg, half) [culprit] root = Sqrt(below)
        [pool] pooled = GlobalAveragePool(root) [flatten] flat = Flatten(pooled)
        [gemm] gemm = Gemm<transB = 1>(flat, m, b) [softmax] y = Softmax<axis = 1>(gemm) }"""
    weights = {"w": np.full((4, 3, 3, 3), 0.1, np.float32), "m": np.ones((4, 4), np.float32)}
    weights |= {"b": np.zeros(4, np.float32), "one": np.ones(4, np.float32)}
    ir = helper.find_min_ir_version_for([helper.make_opsetid("", opset)], ignore_unknown=True)
    model = parsed(text, opset=opset, ir=ir, **weights)
    if model.ir_version < 4:
        model.graph.input.extend(value(one.name, list(one.dims)) for one in model.graph.initializer)
    return model


def newest() -> int:
    """The newest opset that the installed runtime reads without being told to."""
    for opset in range(onnx.defs.onnx_opset_version(), 7, -1):
        try:
            onnxruntime.InferenceSession(network(opset).SerializeToString(), providers=["CPUExecutionProvider"])
        except Exception:  # noqa: BLE001 - whatever it says about one that it does not read
            continue
        return opset
    raise AssertionError


@pytest.mark.variants
@pytest.mark.parametrize("opset", sample([7, 8, 9, 11, 13, 17, 21, newest()], 7))
def test_opsets(tmp_path, opset):
    run = reduced(network(opset), tmp_path)
    assert run.result["culprits"] == [CULPRIT]
    assert run.result["nodes"] == {"before": 10, "after": 1}
    onnx.checker.check_model(run.model())
    shows_itself(run)


# ---- order, names, shapes


def chain(names: list[str], tensors: list[str], culprit: int) -> tuple[list[NodeProto], list[onnx.ValueInfoProto]]:
    """Nodes one after another, each with a side branch of the input; the one at ``culprit`` takes the root."""
    nodes = []
    for at, name in enumerate(names):
        source, target = tensors[at], tensors[at + 1]
        if at == culprit:
            nodes.append(node("Sqrt", [source], [target], name))
        elif at == culprit - 1:
            nodes.append(node("Sub", [source, "nine"], [target], name))
        else:
            nodes.append(node("Tanh", [source], [target], name))
    return nodes, [value(tensors[0], [2, 3])]


ODD = [
    "",
    " ",
    "a name with spaces",
    "/a/path//../name",
    "../../etc/passwd",
    "quote ' and \" and `",
    "two\nlines",
    "tab\tand\rreturn",
    "ünïcode \u202e 模型 😀",
    "{model} ${oc.env:HOME} $HOME %s",
    "-starts=with,option [0] {a: b}",
    "l" * 3000,
    "esc\x1b[31m",
]


@pytest.mark.variants
@pytest.mark.parametrize("culprit", sample([2, 6, 8, 11], 3))
def test_names_of_any_kind(tmp_path, culprit):
    tensors = [f"{name}|{at}" for at, name in enumerate([*ODD, "end"])]
    nodes, inputs = chain(ODD, tensors, culprit)
    model = model_of(nodes, inputs, [value(tensors[-1], [2, 3])], [tensor("nine", np.float32(9))])
    run = reduced(model, tmp_path, "strategy.shrink=false")
    assert run.result["culprits"] == [ODD[culprit]]
    (kept,) = run.model().graph.node
    assert (kept.name, list(kept.input), list(kept.output)) == (
        ODD[culprit],
        [tensors[culprit]],
        [tensors[culprit + 1]],
    )
    assert "\x1b" not in run.output
    shows_itself(run)


@pytest.mark.slow
def test_missing_names_and_shapes(tmp_path):
    tensors = list("abcdefg")
    nodes, _ = chain([""] * 6, tensors, 3)
    model = model_of(nodes, [value("a", None)], [value("g", None)], [tensor("nine", np.float32(9))])
    run = reduced(model, tmp_path, "inputs.shapes={a: [2, 3]}")
    assert run.result["culprits"] == ["e"]  # called by what it makes
    onnx.checker.check_model(run.model())
    shows_itself(run)


@pytest.mark.slow
def test_equal_names_are_told_apart(tmp_path):
    tensors = list("abcdefg")
    nodes, inputs = chain(["same"] * 6, tensors, 4)
    onnx.save(model_of(nodes, inputs, [value("g", [2, 3])], [tensor("nine", np.float32(9))]), tmp_path / "m.onnx")
    named_by_check(tmp_path, "sys.exit(1 if {'c', 'f'} <= made else 0)", ["c", "f"])


@pytest.mark.slow
def test_the_order_of_sorted_nodes_is_kept(tmp_path):
    """Two branches that alternate: no other order would do for a failure that depends on it."""
    nodes = [node("Tanh", [f"{side}{at}"], [f"{side}{at + 1}"], f"{side}{at}") for at in range(4) for side in "ba"]
    model = model_of(nodes, [value("a0", [2]), value("b0", [2])], [value("a4", [2]), value("b4", [2])])
    onnx.save(model, tmp_path / "m.onnx")
    order = [one.name for one in nodes]
    body = f"order = {order!r}\nplaces = [order.index(name) for name in names if name]\n"
    named_by_check(tmp_path, f"{body}sys.exit(1 if places == sorted(places) and 'a2' in nodes else 0)", ["a2"])


# ---- weights


@pytest.mark.slow
def test_external_and_sparse_initializers(tmp_path):
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("sparse", FLOAT, [2], [-3.0, -4.0]), helper.make_tensor("sparse_at", 7, [2], [0, 5]), [2, 3]
    )
    text = """g (float[2,3] x) => (float[2,3] y) {
        [scale] a = Mul(x, outside) [shift] b = Add(a, sparse) [abs] c = Abs(b) [neg] d = Neg(c)
        [again] e = Add(d, sparse) [culprit] f = Sqrt(e) [last] y = Add(f, outside) }"""
    model = parsed(text, outside=np.ones((2, 3), np.float32))
    model.graph.sparse_initializer.append(sparse)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    run = named_by_check(tmp_path, "sys.exit(1 if {'scale', 'again'} <= nodes else 0)", ["scale", "again"])
    alone = onnx.load(run.folder / "reduced.onnx", load_external_data=False)
    assert len(alone.graph.sparse_initializer) == 1
    assert all(one.data_location == TensorProto.DEFAULT for one in alone.graph.initializer)
    onnx.checker.check_model(alone)
    found = reduced(tmp_path / "m.onnx", tmp_path)
    assert found.result["culprits"] == [CULPRIT]
    shows_itself(found)


# ---- element types


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "opset"), sample([("BFLOAT16", 17), ("FLOAT8E4M3FN", 19), ("FLOAT8E5M2", 19), ("INT4", 21)], 3)
)
def test_activations_and_weights_of_small_types(tmp_path, dtype, opset):
    """The culprit reads what was cut in a type that numpy lacks: Cast and Sqrt, fed with the recorded bits."""
    number = TensorProto.DataType.Value(dtype)
    text = f"""g (float[2,4] x) => (float[2,4] y) <float nine = {{9.0}}> {{
        [abs] a = Abs(x) [to_small] a_small = Cast<to = {number}>(a) [from_small] b = Cast<to = 1>(a_small)
        [weight] w_float = Cast<to = 1>(w) [mul] c = Mul(b, w_float) [sub] d = Sub(c, nine) [culprit] y = Sqrt(d) }}"""
    model = parsed(text, opset=opset, ir=10 if opset == 21 else 9)
    model.graph.initializer.append(helper.make_tensor("w", number, [2, 4], [1, 2, 1, 2, 1, 2, 1, 2]))
    run = reduced(model, tmp_path, "inputs.ranges={x: [-1, 1]}")
    assert run.result["culprits"] == [CULPRIT]
    wanted = ["from_small", "weight", CULPRIT]
    run = named_by_check(tmp_path, f"sys.exit(1 if set({wanted!r}) <= nodes else 0)", wanted)
    model = run.model()
    onnx.checker.check_model(model)
    kinds = {one.name: one.type.tensor_type.elem_type for one in model.graph.input}
    assert kinds["a_small"] == number
    places = {one.name: at for at, one in enumerate(model.graph.input)}
    recorded = TensorProto.FromString((run.folder / f"test_data_set_0/input_{places['a_small']}.pb").read_bytes())
    assert (recorded.data_type, list(recorded.dims)) == (number, [2, 4])
    assert np.isfinite(numpy_helper.to_array(recorded).astype(np.float32)).all()


@pytest.mark.slow
def test_strings(tmp_path):
    text = """g (string[4] s) => (float[4] y, string[4] z) <float nine = {9.0}> {
        [concat] t = StringConcat(s, suffix) [equal] same = Equal(t, wanted) [cast] f = Cast<to = 1>(same)
        [sub] d = Sub(f, nine) [culprit] y = Sqrt(d) [text] z = Identity(t) }"""
    words = {"suffix": np.array(["ä"], dtype=object), "wanted": np.array(["aä"], dtype=object)}
    model = parsed(text, opset=20, ir=9, **words)
    run = reduced(model, tmp_path)
    assert run.result["culprits"] == [CULPRIT]
    run = named_by_check(tmp_path, "sys.exit(1 if 'equal' in nodes else 0)", ["equal"])
    (fed,) = run.model().graph.input
    assert fed.type.tensor_type.elem_type == TensorProto.STRING
    recorded = TensorProto.FromString((run.folder / "test_data_set_0/input_0.pb").read_bytes())
    assert {text.decode() for text in recorded.string_data} <= {"aä", "bä"} and len(recorded.string_data) == 4


# ---- operators of other domains


@pytest.mark.slow
def test_contrib_operators(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[2,3] x) => (float[2,3] y)
        <float nine = {9.0}> {
        [gelu] a = com.microsoft.Gelu(x) [matmul] b = com.microsoft.FusedMatMul<alpha = 0.5>(a, w)
        [sub] c = Sub(b, nine) [culprit] d = Sqrt(c) [quick] y = com.microsoft.QuickGelu(d) }"""
    model = parsed(text, w=np.ones((3, 3), np.float32))
    run = reduced(model, tmp_path, "inputs.ranges={x: [-1, 1]}")
    assert run.result["culprits"] == [CULPRIT]
    run = named_by_check(tmp_path, "sys.exit(1 if {'gelu', 'matmul'} <= nodes else 0)", ["gelu", "matmul"])
    assert {one.domain: one.version for one in run.model().opset_import} == {"": 17, "com.microsoft": 1}


def odd_operator() -> ModelProto:
    return parsed("""<ir_version: 8, opset_import: ["": 17, "odd.ops": 1]> g (float[2,3] x) => (float[2,3] y) {
        [tanh] a = Tanh(x) [culprit] b = odd.ops.Poison(a) [exp] y = Exp(b) }""")


def test_an_unknown_operator_is_the_failure(tmp_path):
    onnx.save(odd_operator(), tmp_path / "m.onnx")
    run = winnow(f"model={tmp_path / 'm.onnx'}", folder=tmp_path / "run")
    assert run.code == 0 and run.result["culprits"] == [CULPRIT], run.output
    assert "give the library of odd.ops: target.custom_ops=" in run.result["message"]


@pytest.mark.variants
@pytest.mark.parametrize("library", ["no/such/library.so", "m.onnx"])
def test_a_library_that_is_not_there_is_said(tmp_path, library):
    onnx.save(odd_operator(), tmp_path / "m.onnx")
    options = [f"{side}.custom_ops=[{json.dumps(library)}]" for side in ("target", "reference")]
    run = winnow(f"model={tmp_path / 'm.onnx'}", *options, folder=tmp_path / "run")
    assert run.code in (2, 3), run.output
    assert "custom_ops=" in run.output and library in run.output
    assert "Traceback" not in run.output


# the parts of ONNX Runtime's C interface that it promises never to change (version 1), by place in its table
LIBRARY = """
#include <math.h>
#include <stddef.h>
#include <stdint.h>
typedef struct { const void *const *(*get)(uint32_t); const char *(*version)(void); } Base;
typedef void *(*Call1)(const void *, void *);
typedef void *(*Call2)(void *, const void *);
static const void *const *api;
#define API(at, type) ((type)api[at])
static void *create(const void *op, const void *a, const void *info) { return (void *)op; }
static const char *name(const void *op) { return "Poison"; }
static const char *provider(const void *op) { return NULL; }
static int type(const void *op, size_t at) { return 1; }
static int required(const void *op, size_t at) { return 0; }
static size_t one(const void *op) { return 1; }
static void destroy(void *kernel) {}
static void compute(void *kernel, void *context) {
  const void *in; void *out, *info; float *from, *to; size_t rank, count, i; int64_t dims[8];
  API(90, void *(*)(const void *, size_t, const void **))(context, 0, &in);
  API(65, void *(*)(const void *, void **))(in, &info);
  API(61, void *(*)(const void *, size_t *))(info, &rank);
  API(62, void *(*)(const void *, int64_t *, size_t))(info, dims, rank);
  API(64, void *(*)(const void *, size_t *))(info, &count);
  API(99, void (*)(void *))(info);
  API(91, void *(*)(void *, size_t, const int64_t *, size_t, void **))(context, 0, dims, rank, &out);
  API(51, void *(*)(void *, void **))((void *)in, (void **)&from);
  API(51, void *(*)(void *, void **))(out, (void **)&to);
  for (i = 0; i < count; i++) to[i] = i ? from[i] : NAN;
}
static const struct {
  uint32_t version;
  void *(*create)(const void *, const void *, const void *);
  const char *(*name)(const void *), *(*provider)(const void *);
  int (*input)(const void *, size_t); size_t (*inputs)(const void *);
  int (*output)(const void *, size_t); size_t (*outputs)(const void *);
  void (*compute)(void *, void *), (*destroy)(void *);
  int (*input_is)(const void *, size_t), (*output_is)(const void *, size_t);
  void *later[40];
} op = {8, create, name, provider, type, one, type, one, compute, destroy, required, required, {0}};
void *RegisterCustomOps(void *options, const Base *base) {
  static void *domain;
  api = base->get(1);
  if (!domain) {
    API(26, void *(*)(const char *, void **))("odd.ops", &domain);
    API(27, void *(*)(void *, const void *))(domain, &op);
  }
  return API(28, void *(*)(void *, void *))(options, domain);
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="building a library of operators needs a C compiler")
def test_a_library_of_custom_operators(tmp_path):
    (tmp_path / "odd.c").write_text(LIBRARY)
    library = tmp_path / "libodd.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, tmp_path / "odd.c"], check=True)
    options = [f"{side}.custom_ops=[{json.dumps(str(library))}]" for side in ("target", "reference")]
    run = reduced(odd_operator(), tmp_path, *options)
    assert run.result["culprits"] == [CULPRIT]
    assert run.result["signature"]["kind"] == "nan"
    assert {one.domain for one in run.model().opset_import} >= {"odd.ops"}
    shows_itself(run)
