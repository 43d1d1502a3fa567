"""Partners of a child's tensors, where names were kept, lost, or given anew; with a bug on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper, numpy_helper

from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.reference.align import Matching, aligned, to_be_cut
from runner.reference.fingerprints import Weights, print_of
from runner.reference.parent import _inside_quantized
from runner.reference.quantized import as_floats
from runner.reference.tensor_pairs import FingerprintedGraph, How, Partner
from tests.model.models import model_of, tensor
from tests.reference.families import fused, maker, parent, renamed, set_attribute, set_weight


def kin(model: ModelProto, folder: Path) -> FingerprintedGraph:
    """A model as it runs on fixed inputs."""
    graph = Graph.of(model)
    shown = ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in graph.producers)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {
        one.name: np.random.default_rng(1).normal(size=one.shape).astype(np.float32) for one in session.get_inputs()
    }
    values = dict(zip(graph.producers, session.run(list(graph.producers), feeds), strict=True))
    told = as_floats(graph, Weights(graph, Store(folder)).array)
    values |= {name: one.floats(values[name]) for name, (one, *_) in told.readings.items() if name in values}
    prints = {name: print_of([one]) for name, one in {**feeds, **values}.items()}
    return FingerprintedGraph(told.graph, prints, Weights(graph, Store(folder), told.readings))


def matched(child: FingerprintedGraph, elder: FingerprintedGraph, named: bool = True, **known: str) -> dict[str, str]:
    pairs = {name: Partner(partner, How.map) for name, partner in known.items()}
    for mine, theirs in zip(child.graph.inputs, elder.graph.inputs, strict=True):
        pairs.setdefault(mine, Partner(theirs, How.position))
    matching = Matching(child, elder, pairs, named=named)
    matching.find()
    matching.place_outputs()
    return {name: one.tensor for name, one in matching.find().items()}


def wrong_axis(model: ModelProto) -> None:
    set_attribute(maker(model, "b1_softmax"), "axis", 1)


def wrong_weight(model: ModelProto) -> None:
    set_weight(model, maker(model, "b1_k").input[1], lambda weight: -weight)


def swapped_inputs(model: ModelProto) -> None:
    node = maker(model, "b1_mixed")
    node.input[:] = ["b1_softmax", "b1_q"]


def other_operator(model: ModelProto) -> None:
    maker(model, "relu0").op_type = "Softplus"


BUGS = [wrong_axis, wrong_weight, swapped_inputs, other_operator]


@pytest.fixture(scope="module")
def elder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FingerprintedGraph]:
    folder = tmp_path_factory.mktemp("elder")
    path = parent(folder / "parent.onnx")
    return path, kin(onnx.load(path), folder)


@pytest.mark.parametrize("bug", BUGS)
def test_without_any_name_every_tensor_is_known(
    tmp_path: Path, elder: tuple[Path, FingerprintedGraph], bug: Callable[[ModelProto], None]
) -> None:
    model = onnx.load(elder[0])
    bug(model)
    child, names = renamed(model)
    told = matched(kin(child, tmp_path), elder[1])
    tensors = [name for name in elder[1].graph.producers if name in names]
    missing = {name for name in tensors if names[name] not in told}
    assert missing <= {"relu0"}  # another operator there, and no value: nothing tells it
    assert {name: told[names[name]] for name in tensors if name not in missing} == {
        name: name for name in tensors if name not in missing
    }


@pytest.mark.parametrize("level", ["basic", "extended"])
@pytest.mark.parametrize("bug", BUGS[:2])
def test_no_partner_of_a_fused_child_is_wrong(
    tmp_path: Path, elder: tuple[Path, FingerprintedGraph], level: str, bug: Callable[[ModelProto], None]
) -> None:
    model = onnx.load(fused(elder[0], tmp_path / "fused.onnx", level))
    bug(model)
    child, names = renamed(model)
    told = matched(kin(child, tmp_path), elder[1])
    # what the optimizer makes keeps the name of the last of what it replaces
    known = {name: told[new] for name, new in names.items() if name in elder[1].graph.producers and new in told}
    assert known == {name: name for name in known}
    assert len(known) >= 0.9 * sum(name in elder[1].graph.producers for name in names)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("wrong", [(), (0,), (1,)])
def test_a_folded_normalization_under_its_old_name_or_a_new_one(
    tmp_path: Path, elder: tuple[Path, FingerprintedGraph], wrong: tuple[int, ...], anew: bool
) -> None:
    """Some simplifiers leave the convolution's name to what is the normalization's value by then, right or wrong.

    Without names, a wrong one has no value that tells what it is, and neither has what comes after it.
    """
    model = onnx.load(elder[0])
    held = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    for block in range(2):
        gain, bias, mean, variance = (held[f"{what}{block}"] for what in ("gain", "bias", "mean", "variance"))
        factor = gain / np.sqrt(variance + 1e-5) * (1.5 if block in wrong else 1)
        set_weight(model, f"k{block}", lambda k, factor=factor: k * factor[:, None, None, None])
        set_weight(model, f"kb{block}", lambda b, f=factor, m=mean, s=bias: (b - m) * f + s)
        normal, after = maker(model, f"norm{block}"), maker(model, f"relu{block}")
        after.input[0] = normal.input[0]
        model.graph.node.remove(normal)
    model, names = renamed(model) if anew else (model, {name: name for name in ("conv0", "relu0", "conv1", "relu1")})
    told = matched(kin(model, tmp_path), elder[1])
    found = [told[names[name]] for name in ("conv0", "relu0", "conv1", "relu1")]
    assert found == ["norm0", "relu0", "norm1", "relu1"]


def test_factors_in_one_under_the_name_of_the_first(tmp_path: Path) -> None:
    """However small what is put together is, and however wrongly."""
    two, three, five = (f"k{k} = Constant<value_float = {k}.0>()" for k in (2, 3, 5))
    whole = square(f"{two} {three} m = Mul(x, k2) n = Mul(m, k3) z = Tanh(n)")
    made = square(f"{five} m = Mul(x, k5) z = Tanh(m)")
    assert matched(kin(made, tmp_path), kin(whole, tmp_path))["m"] == "n"


def test_what_reads_factors_in_one_is_read_by_the_first_of_them(tmp_path: Path) -> None:
    """The activation before them is another one, so no value tells its partner."""
    held = "float two = {2}, float three = {3}, float six = {6}"
    whole = square("h = MatMul(x, w) m0 = Tanh(h) m = Mul(m0, two) n = Mul(m, three) z = Tanh(n)", held)
    made = square("h = MatMul(x, w) other = Softsign(h) m = Mul(other, six) z = Tanh(m)", held)
    told = matched(kin(made, tmp_path), kin(whole, tmp_path))
    assert (told["m"], told["other"]) == ("n", "m0")


def test_a_convolution_that_got_its_bias_from_a_norm_reads_what_the_original_s_reads(tmp_path: Path) -> None:
    """Wrong values above it tell nothing of what it reads, and no name does."""
    ends = [helper.make_tensor_value_info(name, 1, [1, 2, 4, 4]) for name in ("x", "z")]
    draw = np.random.default_rng(4)
    held = [tensor(f"k{at}", draw.normal(size=(2, 2, 1, 1)).astype(np.float32)) for at in range(2)]
    held += [tensor(name, draw.uniform(0.5, 2, 2).astype(np.float32)) for name in ("gain", "shift", "mean", "var")]
    norm = "BatchNormalization(c{}, gain, shift, mean, var)"
    body = f"c0 = Conv(x, k0) n0 = {norm.format(0)} r0 = Relu(n0) c1 = Conv(r0, k1) n1 = {norm.format(1)} z = Relu(n1)"
    gain, shift, mean, var = (numpy_helper.to_array(one) for one in held[2:])
    by = gain / np.sqrt(var + 1e-5)
    folded = [tensor(f"k{at}", numpy_helper.to_array(held[at]) * by[:, None, None, None] * (1 + at)) for at in range(2)]
    folded[0] = tensor("k0", numpy_helper.to_array(folded[0]) * 2)
    folded += [tensor("b", shift - mean * by)]
    child = model_of("a0 = Conv(x, k0, b) a1 = Relu(a0) a2 = Conv(a1, k1, b) z = Relu(a2)", ends[:1], ends[1:], folded)
    told = matched(kin(child, tmp_path), kin(model_of(body, ends[:1], ends[1:], held), tmp_path), z="z")
    assert told == {"x": "x", "a0": "n0", "a1": "r0", "a2": "n1", "z": "z"}


def test_a_convolution_is_told_by_the_direction_of_its_weights(tmp_path: Path) -> None:
    """A normalization is folded into both, and their outputs stand in another order."""
    ends = [helper.make_tensor_value_info(name, 1, [1, size, 4, 4]) for name, size in (("x", 2), ("z", 4))]
    draw = np.random.default_rng(8)
    held = [tensor(f"k{at}", draw.normal(size=(2, 2, 3, 3)).astype(np.float32)) for at in range(2)]
    held += [tensor(name, draw.uniform(0.5, 2, 2).astype(np.float32)) for name in ("gain", "shift", "mean", "var")]
    norms = "".join(
        f"c{at} = Conv<pads = [1, 1, 1, 1]>(h, k{at}) "
        f"n{at} = BatchNormalization(c{at}, gain, shift, mean, var) r{at} = Relu(n{at}) "
        for at in range(2)
    )
    gain, shift, mean, var = (numpy_helper.to_array(one) for one in held[2:])
    by = gain / np.sqrt(var + 1e-5)
    folded = [tensor(f"k{at}", numpy_helper.to_array(held[at]) * by[:, None, None, None]) for at in range(2)]
    folded.append(tensor("b", shift - mean * by))
    plain = "".join(f"c{at} = Conv<pads = [1, 1, 1, 1]>(h, k{at}, b) r{at} = Relu(c{at}) " for at in range(2))
    whole = model_of(f"h = Tanh(x) {norms} z = Concat<axis = 1>(r0, r1)", ends[:1], ends[1:], held)
    child = model_of(f"h = Sigmoid(x) {plain} z = Concat<axis = 1>(r1, r0)", ends[:1], ends[1:], folded)
    child, names = renamed(child)
    told = matched(kin(child, tmp_path), kin(whole, tmp_path))
    assert [told.get(names[one]) for one in ("c0", "r0", "c1", "r1")] == ["n0", "r0", "n1", "r1"]


@pytest.mark.parametrize("kept", [False, True])
def test_a_pair_that_does_the_work_of_a_relu_is_known_unless_the_relu_is_kept(tmp_path: Path, kept: bool) -> None:
    held = "float scale = {0.1}, uint8 zero = {0}"
    pair = "q = QuantizeLinear(h, scale, zero) d = DequantizeLinear(q, scale, zero)"
    whole = kin(square("h = MatMul(x, w) r = Relu(h) z = MatMul(r, w)", held), tmp_path)
    after = "r = Relu(d) z = MatMul(r, w)" if kept else "z = MatMul(d, w)"
    child = kin(square(f"h = MatMul(x, w) {pair} {after}", held), tmp_path)
    assert to_be_cut(child, whole, {"h": Partner("h", How.name)}) == (set() if kept else {"h"})


@pytest.mark.parametrize("normalized", [False, True])
def test_a_product_is_told_by_the_direction_of_its_weights(tmp_path: Path, normalized: bool) -> None:
    """A factor of each output, or a normalization, is folded into both, and their outputs stand in another order."""
    ends = [helper.make_tensor_value_info(name, 1, [2, size]) for name, size in (("x", 8), ("z", 16))]
    draw = np.random.default_rng(9)
    held = [tensor(f"w{at}", draw.normal(size=(8, 8)).astype(np.float32)) for at in range(2)]
    held += [tensor(one, draw.uniform(0.5, 2, 8).astype(np.float32)) for one in ("gain", "shift", "mean", "var")]
    gain, shift, mean, var = (numpy_helper.to_array(one) for one in held[2:])
    by = gain / np.sqrt(var + 1e-5) if normalized else gain
    folded = [tensor(one.name, numpy_helper.to_array(one) * by) for one in held[:2]]
    folded.append(tensor("b", shift - mean * by))
    after = "BatchNormalization(m{0}, gain, shift, mean, var)" if normalized else "Mul(m{0}, gain)"
    product = "Gemm(h, w{0}, b)" if normalized else "MatMul(h, w{0})"
    blocks = (
        "m{0} = MatMul(h, w{0}) s{0} = " + after + " r{0} = Relu(s{0}) ",
        "m{0} = " + product + " r{0} = Relu(m{0}) ",
    )
    scaled, plain = ("".join(block.format(at) for at in range(2)) for block in blocks)
    whole = model_of(f"h = Tanh(x) {scaled} z = Concat<axis = 1>(r0, r1)", ends[:1], ends[1:], held)
    child = model_of(f"h = Sigmoid(x) {plain} z = Concat<axis = 1>(r1, r0)", ends[:1], ends[1:], folded)
    child, names = renamed(child)
    told = matched(kin(child, tmp_path), kin(whole, tmp_path))
    assert [told.get(names[one]) for one in ("h", "m0", "r0", "m1", "r1")] == ["h", "s0", "r0", "s1", "r1"]


def test_the_last_node_of_a_norm_that_is_written_out_is_no_earlier_addition(tmp_path: Path) -> None:
    """The norm is wrong, and nothing has a name: its last addition does not do the work of the residual before it."""
    held = "float[8] gain = {1, 2, 1, 2, 1, 2, 1, 2}, float[8] shift = {1, 2, 3, 4, 5, 6, 7, 8}, float eps = {9}"
    start = "h = MatMul(x, w) wrong = Tanh(h) r = Add(x, wrong)"
    whole = square(f"{start} n = LayerNormalization(r, gain, shift) z = MatMul(n, w)", held)
    parts = """p = ReduceMean(r) s = Sub(r, p) s2 = Mul(s, s) v = ReduceMean(s2) v2 = Add(v, eps) d = Sqrt(v2)
        u = Div(s, d) t = Mul(u, gain) n = Add(t, shift) z = MatMul(n, w)"""
    child, names = renamed(square(f"{start.replace('Tanh', 'Sigmoid')} {parts}", held))
    told = matched(kin(child, tmp_path), kin(whole, tmp_path))
    assert all(told.get(names[one]) in (None, one) for one in ("h", "r", "n", "z")), told
    assert not {names[one] for one in ("s", "s2", "v", "v2", "d", "u", "t")} & told.keys(), told


def test_the_map_goes_first_and_names_without_partner_stay_alone(
    tmp_path: Path, elder: tuple[Path, FingerprintedGraph]
) -> None:
    child = kin(onnx.load(elder[0]), tmp_path)
    pairs = {"relu0": Partner("norm0", How.map)}
    found = Matching(child, elder[1], pairs, frozenset({"relu1"})).find()
    assert found["relu0"] == Partner("norm0", How.map)
    assert "relu1" not in found
    assert found["conv1"] == Partner("conv1", How.name)


def test_another_shape_for_a_while(tmp_path: Path, elder: tuple[Path, FingerprintedGraph]) -> None:
    """A product over the last axis that a converter writes as one of matrices."""
    model = onnx.load(fused(elder[0], tmp_path / "fused.onnx"))
    flat = next(node for node in model.graph.node if node.op_type == "Gemm" and node.output[0] != "logits")
    found = Matching(kin(model, tmp_path), elder[1], {}).find()
    assert found[flat.input[0]].tensor == "b0_f_ln" and found[flat.input[0]].reshaped
    assert found[flat.output[0]].tensor == "b0_upb" and found[flat.output[0]].reshaped


def halves(order: tuple[int, int], names: str, by: tuple[float, float] = (0.5, 0.25)) -> ModelProto:
    """x * 0.5 and x * 0.25, which stand in any order, and their difference."""
    text = "".join(f"{names}{at} = Mul (x, by{at}) " for at in order) + f"{names}2 = Sub ({names}0, {names}1)"
    held = [tensor(f"by{at}", np.float32(value)) for at, value in enumerate(by)]
    ends = [helper.make_tensor_value_info(name, 1, [40]) for name in ("x", f"{names}2")]
    return model_of(text, ends[:1], ends[1:], held)


def test_nodes_that_are_alike_are_told_by_their_values_and_not_by_their_order(tmp_path: Path) -> None:
    elder = kin(halves((0, 1), "p"), tmp_path)
    assert matched(kin(halves((1, 0), "c"), tmp_path), elder) == {"x": "x", "c0": "p0", "c1": "p1", "c2": "p2"}


def test_a_node_that_does_nothing_is_not_taken_for_what_it_reads(tmp_path: Path) -> None:
    elder = kin(halves((0, 1), "p"), tmp_path)
    told = matched(kin(halves((0, 1), "c", by=(0.5, 0.0)), tmp_path), elder)  # c0 - 0: its value is that of p0
    assert told["c2"] == "p2"


def square(body: str, more: str = "int64[1] one = {1}, int64[2] shape = {8, 8}") -> ModelProto:
    """A model of square matrices: its input, and a weight."""
    weights = f"int64[1] a = {{0}}, int64[1] b = {{4}}, int64[1] c = {{8}}, {more}"
    text = f'<ir_version: 8, opset_import: ["" : 18]> m (float[8,8] x) => (y) <{weights}> {{ {body} y = Neg(z) }}'
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(2).normal(size=(8, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


@pytest.mark.parametrize("named", [True, False])
def test_what_a_pair_cuts_off_is_known_before_and_after_that(tmp_path: Path, named: bool) -> None:
    """A quantizer takes out a Relu, and gives its name to what it read."""
    held = "float scale = {{{}}}, int8 zero = {{{}}}, float least = {{0}}, float most = {{3}}"
    pair = "r = MatMul(x, w) q = QuantizeLinear(r, scale, zero) d = DequantizeLinear(q, scale, zero) z = Softmax(d)"
    after = "r = Relu(p)", "r = Clip(p, least, most)", "r = Tanh(p)", "l = Relu(p) r = Clip(l, least, most)"
    texts = [f"p = MatMul(x, w) {one} z = Softmax(r)" for one in after]
    relu, clip, tanh, both = (kin(square(text, held.format(1, 0)), tmp_path) for text in texts)
    child, whole = (kin(square(pair, held.format(*ends)), tmp_path) for ends in ((0.02, -128), (0.1, 0)))
    for elder in (relu, clip):
        told = matched(child, elder, named)
        assert (told["r"], told["d"], told["z"]) == ("p", "r", "z")
    if named:  # and nothing says that a Relu is in the pair
        assert matched(child, tanh)["r"] == matched(whole, relu)["r"] == "r"
        assert [matched(child, both)[name] for name in "rd"] == ["p", "r"]


def test_good_values_tell_of_a_limit_that_a_wrong_weight_did_not_reach(tmp_path: Path) -> None:
    held = "float scale = {0.02}, int8 zero = {-128}, float small = {0.0001}, float one = {1}"
    pair = "q = QuantizeLinear(r, scale, zero) d = DequantizeLinear(q, scale, zero) z = Neg(d)"
    elder = kin(square("p = MatMul(x, w) r = Relu(p) z = Neg(r)", held), tmp_path)
    wrong, right = (
        kin(square(f"v = Mul(w, {one}) r = MatMul(x, v) {pair}", held), tmp_path) for one in ("small", "one")
    )
    first = Matching(wrong, elder, {"x": Partner("x", How.name)}).find()
    assert first["r"].tensor == "r"
    assert Matching(right, elder, first).find()["r"].tensor == "p"


@pytest.mark.parametrize(
    ("how", "zero", "step", "partner"),
    [
        (How.position, -128, 0.02, "l"),
        (How.position, -128, 0.002, "l"),
        (How.position, 0, 0.1, "p"),
        (How.map, -128, 0.02, "p"),
    ],
)
def test_an_operator_with_scales_makes_what_its_integers_leave(
    tmp_path: Path, how: How, zero: int, step: float, partner: str
) -> None:
    """Its weight is wrong, so no value tells. A Relu that the integers do not cut off is not in it; a map is right."""
    held = f"float one = {{0.05}}, float two = {{{step}}}, int8 none = {{0}}, int8 zero = {{{zero}}}"
    product = "QLinearMatMul(i, one, none, v, one, none, two, zero)"
    model = square(f"i = QuantizeLinear(x, one, none) r = {product} z = DequantizeLinear(r, two, zero)", held)
    wrong = np.random.default_rng(3).integers(-50, 50, (8, 8), np.int8)
    model.graph.initializer.append(numpy_helper.from_array(wrong, "v"))
    child, elder = kin(model, tmp_path), kin(square("p = MatMul(x, w) l = Relu(p) z = Neg(l)", held), tmp_path)
    pairs = {"x": Partner("x", How.name), "r": Partner("p", how)}
    assert Matching(child, elder, pairs, named=False).find()["r"].tensor == partner


@pytest.mark.parametrize("after", ["n = Exp(k) z = Sub(n, v)", "o = Sub(v, k) n = Exp(k) z = Div(n, o)"])
def test_a_slice_of_the_wrong_part_is_not_taken_for_that_part(tmp_path: Path, after: str) -> None:
    """Another slice has that value as well, and no other tensor is what the readers of this one ask for."""
    text = f"t = Tanh(x) k = Slice(t, {{}}, one) v = Slice(t, b, c, one) {after}"
    child, elder = (kin(square(text.format(part)), tmp_path) for part in ("b, c", "a, b"))
    assert matched(child, elder, named=False)["k"] == "k"


def test_nodes_that_together_do_nothing_are_not_taken_for_what_they_read(tmp_path: Path) -> None:
    """Two halves, put together along the other axis, are what was cut in two."""
    text = "t = Tanh(x) l = Slice(t, a, b, a) r = Slice(t, b, c, a) j = Concat<axis = {}>(l, r) z = Reshape(j, shape)"
    child, elder = (kin(square(text.format(axis)), tmp_path) for axis in (0, 1))
    assert matched(child, elder)["j"] == "z"


def test_another_shape_of_the_same_is_another_computation(tmp_path: Path) -> None:
    """It is broadcast along the other axis then, so that no value of the elder's is good there."""
    text = "t = Tanh(x) j = ReduceL1<keepdims = {}>(w, one) z = Sub(t, j)"
    child, elder = (kin(square(text.format(kept)), tmp_path) for kept in (0, 1))
    told = matched(child, elder)
    assert "j" not in told and told["z"] == "z"


def test_inputs_that_are_swapped_below_another_bug_are_not_told_by_their_place(tmp_path: Path) -> None:
    """A node is left out above, so that no value agrees; the place among the inputs is what is wrong."""

    def made(names: str, above: tuple[str, ...], reads: tuple[str, str]) -> ModelProto:
        before = ["x", *(f"{names}_{operator}" for operator in above)]
        text = "".join(f"{names}_{one} = {one} ({read}) " for one, read in zip(above, before, strict=False))
        text += "".join(f"{names}_{one} = {one} ({before[-1]}) " for one in ("Sigmoid", "Tanh"))
        ends = [helper.make_tensor_value_info(name, 1, [40]) for name in ("x", f"{names}_Sub")]
        return model_of(f"{text} {names}_Sub = Sub ({names}_{reads[0]}, {names}_{reads[1]})", ends[:1], ends[1:])

    elder = kin(made("p", ("Erf", "Softplus"), ("Sigmoid", "Tanh")), tmp_path)
    told = matched(kin(made("c", ("Erf",), ("Tanh", "Sigmoid")), tmp_path), elder)
    assert told["c_Sub"] == "p_Sub"
    assert {told.get(f"c_{one}", f"p_{one}") for one in ("Sigmoid", "Tanh")} == {"p_Sigmoid", "p_Tanh"}
    assert told.get("c_Tanh") != "p_Sigmoid"


@pytest.mark.parametrize(
    "order", [(1, 0, 2, 3), (2, 1, 0, 3), (0, 2, 1, 3), (0, 3, 2, 1), (1, 0, 3, 2), (0, 2, 2, 3), (0, 1, 1, 3)]
)
def test_layers_with_weights_of_others_are_told_by_what_they_read(order: tuple[int, ...], tmp_path: Path) -> None:
    """A weight names its node only where the graph does not say that the node is another one."""

    def made(names: str, order: Sequence[int]) -> ModelProto:
        draw = np.random.default_rng(3)
        weights = [draw.standard_normal((8, 8)).astype(np.float32) for _ in order]
        text, at = "", "x"
        for layer in range(len(order)):
            text += f"{names}_m{layer} = MatMul ({at}, {names}_w{layer})  {names}_t{layer} = Tanh ({names}_m{layer}) "
            at = f"{names}_t{layer}"
        held = [tensor(f"{names}_w{layer}", weights[one]) for layer, one in enumerate(order)]
        ends = [helper.make_tensor_value_info(name, 1, [4, 8]) for name in ("x", at)]
        return model_of(text, ends[:1], ends[1:], held)

    elder = kin(made("p", range(4)), tmp_path)
    told = matched(kin(made("c", order), tmp_path), elder)
    assert told == {"x": "x", **{f"c_{kind}{layer}": f"p_{kind}{layer}" for kind in "mt" for layer in range(4)}}


def test_products_that_read_what_a_node_left_out_reads_are_told_by_their_weights(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    held = [tensor(name, draw.standard_normal((8, 8)).astype(np.float32)) for name in ("w", "v")]
    ends = [helper.make_tensor_value_info(name, 1, [8, 8]) for name in ("x", "y")]
    whole = "t = Tanh(x) q = MatMul(t, w) k = MatMul(t, v) y = Add(q, k)"
    wrong = "b = MatMul(x, v) a = MatMul(x, w) y = Add(b, a)"
    child, elder = (kin(model_of(text, ends[:1], ends[1:], held), tmp_path) for text in (wrong, whole))
    assert matched(child, elder, named=False) == {"x": "x", "a": "q", "b": "k", "y": "y"}


def test_an_addition_of_what_is_computed_is_not_taken_for_that_of_a_bias(tmp_path: Path) -> None:
    """The bias before it was left out, so both read the product alone."""
    draw = np.random.default_rng(3)
    held = [tensor(name, draw.standard_normal((8, 8)).astype(np.float32)) for name in ("w", "v", "b")]
    ends = [helper.make_tensor_value_info(name, 1, [8, 8]) for name in ("x", "y")]
    whole = "m = MatMul(x, w) a = Add(m, b) r = Add(a, x) y = MatMul(r, v)"
    wrong = "n = MatMul(x, w) s = Add(n, x) y = MatMul(s, v)"
    child, elder = (kin(model_of(text, ends[:1], ends[1:], held), tmp_path) for text in (wrong, whole))
    assert matched(child, elder, named=False) == {"x": "x", "n": "m", "s": "r", "y": "y"}


def test_integers_that_no_original_has_are_no_matter_where_what_they_end_in_is_compared() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) <float s = {0.5}, uint8 z = {0}> {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        y = Relu(d) }"""
    graph = Graph.of(onnx.parser.parse_model(text))
    alone = [{"q"}, {"q", "d"}, {"d"}, {"q", "d", "y"}]
    assert [_inside_quantized(graph, one) for one in alone] == [{"q"}, {"q", "d"}, set(), set()]


def test_two_thousand_nodes_that_are_alike_are_told_by_their_order() -> None:
    assert list(aligned([0] * 2000, [1, *[0] * 2000])) == [(at, at + 1) for at in range(2000)]
