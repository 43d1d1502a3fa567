"""A weight is compared with what does the same in the original, wherever it stands, and however it is read there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.reference.changed_weights import changed_weights
from runner.reference.fingerprints import Weights
from runner.reference.weighted_graph import WeightedGraph
from tests.harness import winnow
from tests.model.models import nodes_of

DRAW = np.random.default_rng(11)
W, V = (DRAW.normal(size=(6, 6)).astype(np.float32) for _ in range(2))
B = DRAW.normal(size=6).astype(np.float32)
K, KB = DRAW.normal(size=(6, 6, 3, 3)).astype(np.float32), DRAW.normal(size=6).astype(np.float32)
GAIN, SHIFT, MEAN = (DRAW.normal(size=6).astype(np.float32) for _ in range(3))
VARIANCE = np.abs(DRAW.normal(size=6)).astype(np.float32) + 0.5
SCALE = (GAIN / np.sqrt(VARIANCE + 1e-5)).astype(np.float32)
FOLDED, FOLDED_BIAS = K * SCALE[:, None, None, None], (KB - MEAN) * SCALE + SHIFT
R = DRAW.normal(size=(1, 24, 6)).astype(np.float32)
Part = tuple[list[NodeProto], Mapping[str, np.ndarray]]


def part(text: str, **weights: np.ndarray | None) -> Part:
    """Nodes that are named after what they make, and their weights; "..." stands for the names of these."""
    held = {name: one for name, one in weights.items() if one is not None}
    nodes = nodes_of(text.replace("...", ", ".join(held)))
    for one in nodes:
        one.name = f"{one.output[0]}/{one.op_type}"
    return nodes, held


def side(made: Part, folder: Path) -> WeightedGraph:
    nodes, weights = made
    kept = [numpy_helper.from_array(np.ascontiguousarray(one), name) for name, one in weights.items()]
    ends = ([helper.make_tensor_value_info(name, 1, None)] for name in ("x", "y"))
    opsets = [helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("", 22)]
    graph = Graph.of(helper.make_model(helper.make_graph(nodes, "g", *ends, kept), opset_imports=opsets))
    return WeightedGraph(graph, Weights(graph, Store(folder)))


def told(mine: Part, theirs: Part, folder: Path, *names: str) -> tuple[str, ...]:
    """What is said of the nodes that are named, else of all; tensors of the same name are partners."""
    child, parent = side(mine, folder / "mine"), side(theirs, folder / "theirs")
    makers = {name: parent.graph.nodes[index].name for name, index in parent.graph.producers.items()}
    origins = {each.name: makers[each.outputs[0]] for each in child.graph.nodes if each.outputs[0] in makers}
    return changed_weights(child, parent, origins, names or child.graph.names)


def matmul(weight: np.ndarray, bias: np.ndarray = B, *, flipped: bool = False) -> Part:
    return part(f"m = MatMul (x, w)  y = Add ({'b, m' if flipped else 'm, b'})", w=weight, b=bias)


def gemm(weight: np.ndarray, bias: np.ndarray | None = B, more: str = "") -> Part:
    return part(f"y = Gemm {more} (x, ...)", gw=weight, gb=bias)


def split(weight: np.ndarray, bias: np.ndarray = B) -> Part:
    """A Gemm as two nodes, the first of which has a tensor of its own."""
    return part("own = MatMul (x, sw)  y = Add (own, sb)", sw=weight, sb=bias)


def scaled(weight: np.ndarray, up: float, down: float) -> Part:
    """A Gemm as two nodes, between which all is multiplied and divided."""
    text = "own = MatMul (x, sw)  wide = Mul (own, up)  back = Div (wide, down)  y = Add (back, sb)"
    return part(text, sw=weight, sb=B, up=np.float32(up), down=np.float32(down))


def conv(weight: np.ndarray, bias: np.ndarray | None = KB, makes: str = "y", kind: str = "Conv") -> Part:
    return part(f"{makes} = {kind} (x, ...)", k=weight, kb=bias)


def normalized(weight: np.ndarray, bias: np.ndarray | None = KB) -> Part:
    nodes, weights = conv(weight, bias, "c")
    more, held = part("y = BatchNormalization (c, ...)", gain=GAIN, shift=SHIFT, mean=MEAN, variance=VARIANCE)
    return [*nodes, *more], {**weights, **held}


def lstm(recurrence: np.ndarray, bias: bool = True) -> Part:
    b = np.tile(B, 8).reshape(1, 48) if bias else None
    return part("y = LSTM <hidden_size = 6> (x, ...)", lw=R + 1, lr=recurrence, lb=b)


def through_transpose(weight: np.ndarray) -> Part:
    return part("turned = Transpose (tw)  y = MatMul (x, turned)", tw=weight)


def integers(weight: np.ndarray, axis: int | None = None, top: int = 127) -> tuple[np.ndarray, np.ndarray]:
    """A weight as int8, and its scale, one for each place along an axis."""
    others = None if axis is None else tuple(at for at in range(weight.ndim) if at != axis % weight.ndim)
    scale = np.abs(weight).max(others, keepdims=axis is not None) / top
    return np.rint(weight / scale).astype(np.int8), scale.reshape(-1 if axis is not None else ()).astype(np.float32)


def dequantized(weight: np.ndarray, axis: int | None = None, factor: float = 1.0) -> Part:
    q, scale = integers(weight, axis)
    more = f"<axis = {axis}>" if axis is not None else ""
    text = f"w = DequantizeLinear {more} (q, s, z)  m = MatMul (x, w)  y = Add (m, b)"
    return part(text, q=q, s=scale * np.float32(factor), z=np.zeros_like(scale, np.int8), b=B)


def quantized_here(weight: np.ndarray) -> Part:
    """As a training that knows of the integers leaves it: floats, and a pair behind them."""
    text = "i = QuantizeLinear (q, s, z)  w = DequantizeLinear (i, s, z)  m = MatMul (x, w)  y = Add (m, b)"
    return part(text, q=weight, s=integers(weight)[1], z=np.int8(0), b=B)


def quantized_bias(bias: np.ndarray, factor: int = 1) -> Part:
    t, (k, scale) = np.float32(1 / 1024), integers(K)
    c = factor * np.rint(bias / scale / t).astype(np.int32)
    return part("y = QLinearConv (x, t, z, k, s, z, t, z, c)", k=k, s=scale, c=c, t=t, z=np.int8(0))


def quantized_lstm(factor: float) -> Part:
    q, scale = integers(R.swapaxes(1, 2))
    own, (o, other) = np.tile(B, 8).reshape(1, 48), integers((R + 1).swapaxes(1, 2))
    held = {"o": o, "q": q, "lb": own, "t": other.reshape(1), "s": scale.reshape(1) * np.float32(factor)}
    text = "y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 6> (x, o, q, lb, , , , , t, z, s, z)"
    return part(text, **held, z=np.zeros(1, np.int8))


def in_eight_bit_floats(weight: np.ndarray) -> Part:
    nodes, held = dequantized(weight)
    scale, kind = np.float32(np.abs(weight).max() / 448), ml_dtypes.float8_e4m3fn
    return nodes, {**held, "q": (weight / scale).astype(kind), "s": scale, "z": np.zeros((), kind)}


def in_nibbles(weight: np.ndarray) -> Part:
    """As int4, with a scale for each block of two rows."""
    scale = np.abs(weight).reshape(3, 2, -1).max(1) / 7
    q = np.rint(weight / np.repeat(scale, 2, 0)).astype(ml_dtypes.int4)
    text = "w = DequantizeLinear <axis = 0, block_size = 2> (q, s)  m = MatMul (x, w)  y = Add (m, b)"
    return part(text, q=q, s=scale.astype(np.float32), b=B)


def dynamic(weight: np.ndarray) -> Part:
    q, scale = integers(weight, 1)
    text = """xq, xs, xz = DynamicQuantizeLinear (x)  i = MatMulInteger (xq, q, xz)  f = Cast <to = 1> (i)
        both = Mul (xs, s)  m = Mul (f, both)  y = Add (m, b)"""
    return part(text, q=q, s=scale, b=B)


def in_blocks(weight: np.ndarray) -> Part:
    """As MatMulNBits has it: four bits, a row for each output, padded to blocks of 16."""
    rows = np.pad(weight.T, ((0, 0), (0, 10)))
    q, scale = integers(rows, 0, 7)
    low, high = (q + 8).astype(np.uint8)[:, ::2], (q + 8).astype(np.uint8)[:, 1::2]
    text = "m = com.microsoft.MatMulNBits <K = 6, N = 6, bits = 4, block_size = 16> (x, q, s)  y = Add (m, b)"
    return part(text, q=(low | high << 4).reshape(6, 1, 8), s=scale, b=B)


def all_integers(weight: np.ndarray) -> Part:
    q, scale = integers(weight)
    return part("y = QLinearMatMul (x, one, z, q, s, z, one, z)", q=q, s=scale, z=np.int8(0), one=np.float32(1))


ALONE = part("y = MatMul (x, w)", w=W)
FORMS = (
    *((form, matmul(W)) for form in (dequantized, quantized_here, in_eight_bit_floats, in_nibbles)),
    (dynamic, matmul(W)),
    (in_blocks, matmul(W)),
    (all_integers, ALONE),
)
SINES = np.sin(np.arange(W.size)).reshape(W.shape)
LIMITS = np.arange(1, 7) / 4
ZEROS = dequantized(W, 1)[0], {**dequantized(W, 1)[1], "z": np.full(6, 20, np.int8)}
BACK = part("i = QLinearMatMul (x, one, z, q, s, z, one, z)  y = DequantizeLinear (i, one, z)", **all_integers(W.T)[1])
RELU = [*conv(K, makes="c")[0], *part("y = Relu (c)")[0]], conv(K)[1]
QS = integers(K[::-1])
MOST = np.abs(KB).max()
LARGE = (6e4 * W / np.abs(W).max()).astype(np.float32)
LARGE[2, 3] = 9e4
HELD = np.clip(LARGE, -65504, 65504).astype(np.float16)
ENDLESS = dequantized(W, 1)[0], {**dequantized(W, 1)[1], "s": np.float32([1, 1, np.inf, 1, 1, 1])}
SWAPPED = (gemm(V), (matmul(W)[0], {"w": W, "b": B, "v": V}))
GATES = np.concatenate([np.split(R, 4, 1)[at] for at in (0, 2, 1, 3)], 1)


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        # right ones: nothing is said, however differently the two are written
        (gemm(W), matmul(W), ()),
        (gemm(W), matmul(W, flipped=True), ()),
        (gemm(W.T, more="<transB = 1>"), matmul(W), ()),
        (gemm(W.T, more="<transB = 1>"), gemm(W), ()),
        (gemm(2 * W, B, more="<alpha = 0.5>"), matmul(W), ()),
        (gemm(W, 2 * B, more="<beta = 0.5>"), matmul(W), ()),
        (split(W), gemm(W), ()),
        (split(W), gemm(W.T, more="<transB = 1>"), ()),
        (matmul(W, B.reshape(1, 6)), gemm(W), ()),
        (through_transpose(W.T), ALONE, ()),
        (part("y = com.microsoft.FusedMatMul <transB = 1> (x, fw)", fw=W.T), ALONE, ()),
        (gemm(W.astype(np.float16), B.astype(np.float16)), matmul(W), ()),
        (conv(FOLDED, FOLDED_BIAS), normalized(K), ()),
        (conv(FOLDED, SHIFT - MEAN * SCALE), normalized(K, None), ()),
        (conv(np.flip(K.swapaxes(0, 1), (2, 3)), kind="ConvTranspose"), conv(K), ()),
        (lstm(R), lstm(R), ()),
        (part("y = QLinearConv (x, s, z, q, s, z, s, z, i)", q=K.astype(np.int8), s=B[:1]), conv(K), ()),
        (part("y = MatMulInteger (x, q)", q=K.astype(np.int8)), ALONE, ()),  # nothing says what its integers stand for
        (scaled(W, 2, 2), gemm(W), ()),
        (scaled(W / 2, 2, 1), gemm(W), ()),
        # wrong ones
        (scaled(W.T, 2, 2), gemm(W), ("sw is transposed, compared with gw of the original",)),
        (gemm(W.T), matmul(W), ("gw is transposed, compared with w of the original",)),
        (gemm(W.T), matmul(W, flipped=True), ("gw is transposed, compared with w of the original",)),
        (gemm(W, more="<transB = 1>"), matmul(W),
         ("gw is stored like w of the original, but y/Gemm reads it with transB=1",)),
        (gemm(W.astype(np.float16), more="<transB = 1>"), matmul(W),
         ("gw is stored like w of the original, but y/Gemm reads it with transB=1",)),
        (split(W.T), gemm(W.T, more="<transB = 1>"),
         ("sw is stored like gw of the original, but own/MatMul reads it as it is, not with transB=1",)),
        (gemm(W, more="<alpha = 0.5>"), matmul(W),
         ("gw is stored like w of the original, but y/Gemm reads it with alpha=0.5",)),
        (gemm(W.T * 3, more="<transB = 1>"), matmul(W), ("gw is scaled by 3, compared with w of the original",)),
        (gemm(W.T.astype(np.float16)), matmul(W), ("gw is transposed, compared with w of the original",)),
        (gemm(W, -B), matmul(W), ("gb is negated, compared with b of the original",)),
        (gemm(W, None), matmul(W), ("y/Gemm adds no bias; the original adds b",)),
        (split(W, B[::-1]), gemm(W), ("sb is reversed along axis 0, compared with gb of the original",)),
        (split(W.T), gemm(W), ("sw is transposed, compared with gw of the original",)),
        (*SWAPPED, ("gw holds v of the original, not w",)),
        (gemm(W, np.float32([0.2])), matmul(W, np.float32([1e-5])),
         ("gb is 0.2; b of the original is 1e-05",)),
        *((gemm(W, np.float32([own] * size)), matmul(W, np.float32([good] * size)),
           (f"gb is {own}; b of the original is {good}",))
          for own, good, size in ((0, 3, 1), (1, 0, 1), (-2, 2, 1), (1, 0, 6))),
        (gemm(W, np.full(6, 6e-8, np.float16)), matmul(W, np.linspace(1e-8, 2.5e-8, 6, dtype=np.float32)),
         ("gb is 5.96e-08 throughout, not 1e-08 to 2.5e-08, compared with b of the original",)),
        *((gemm(np.where(np.arange(36).reshape(6, 6) < many, np.inf, W).astype(kind)), matmul(W), (said,))
          for kind in (np.float16, np.float32)
          for many, said in ((1, "1 of 36 elements of gw is Inf"), (7, "7 of 36 elements of gw are Inf"))),
        (gemm(np.where(np.eye(6)[2][:, None], -W, W)), matmul(W),
         ("gw is negated in 1 of 6 places along axis 0, compared with w of the original",)),
        (through_transpose(W), ALONE,
         ("tw is stored like w of the original, but y/MatMul reads it behind turned/Transpose",)),
        (part("y = com.microsoft.FusedMatMul <transB = 1> (x, fw)", fw=W), ALONE,
         ("fw is stored like w of the original, but y/FusedMatMul reads it with transB=1",)),
        (conv(FOLDED * 2, FOLDED_BIAS), normalized(K),
         ("k is scaled by 2, compared with k of the original with y/BatchNormalization folded into it",)),
        (conv(FOLDED, FOLDED_BIAS + np.arange(FOLDED_BIAS.size)), normalized(K),
         ("kb differs from kb of the original with y/BatchNormalization folded into it",)),
        (conv(K, FOLDED_BIAS), normalized(K),
         (("k is stored like k of the original, "
          "but y/Conv reads it as it is, not with y/BatchNormalization folded into it"),)),
        (gemm(np.roll(W, 3, 1)), matmul(W), ("gw is permuted along axis 1, compared with w of the original",)),
        (conv(K, None), conv(K), ("y/Conv adds no bias; the original adds kb",)),
        (conv(np.flip(K, (2, 3)), kind="ConvTranspose"), conv(K),
         ("k is transposed, its axes in the order [1, 0, 2, 3], compared with k of the original",)),
        (conv(K, kind="ConvTranspose"), conv(K),
         ("k is stored like k of the original, but y/ConvTranspose reads it as a transposed convolution",)),
        (lstm(GATES), lstm(R),
         ("lr is permuted in its 4 gates (axis 1): their order is [0, 2, 1, 3], compared with lr of the original",)),
        (lstm(-R, bias=False), lstm(R), ("lr is negated, compared with lr of the original",)),
        # integers, in what they stand for
        *((form(W), whole, ()) for form, whole in FORMS),
        *((form(W.T), whole, ("q is transposed, compared with w of the original",)) for form, whole in FORMS),
        *((form(-W), whole, ("q is negated, compared with w of the original",)) for form, whole in FORMS),
        *((form(V), ([*whole[0]], {**whole[1], "v": V}), ("q holds v of the original, not w",))
          for form, whole in FORMS),
        (dequantized(W, 1), matmul(W), ()),
        (dequantized(W + 0.01 * SINES, 1), matmul(W), ()),  # fitted to data, perhaps
        (dequantized(np.clip(W, -LIMITS, LIMITS), 1), matmul(W), ()),  # calibrated
        (dequantized(W + SINES, 1), matmul(W), ("q differs from w of the original by up to 89 steps",)),
        (quantized_bias(KB), conv(K), ()),
        (quantized_bias(KB + 0.3), conv(K), ("c is shifted by 0.3, compared with kb of the original",)),
        (quantized_bias(KB, -25), conv(K),
         (f"c differs from kb of the original by up to {26 * MOST:.3g}, where its values reach {MOST:.3g}",)),
        (quantized_lstm(1), lstm(R), ()),
        (quantized_lstm(0.3), lstm(R), ("q is scaled by 0.3, compared with lr of the original",)),
        (ENDLESS, matmul(W), ("the scale of q is Inf for 6 of 36 elements",)),
        (gemm(HELD), matmul(LARGE),
         ("gw is cut off at 6.55e+04, where its values reach 9e+04, compared with w of the original",)),
        (ZEROS, matmul(W), ("q is shifted by -20 steps, as by another zero point, compared with w of the original",)),
        (part("y = QLinearConv (x, s, z, q, s, z, s, z)", q=QS[0], s=QS[1], z=np.int8(0)), RELU,
         ("q is reversed along axis 0, compared with k of the original",)),
        (conv(K[::-1], kind="com.microsoft.FusedConv"), RELU,
         ("k is reversed along axis 0, compared with k of the original",)),
        (BACK, ALONE, ("q is transposed, compared with w of the original",)),
        (dequantized(W + 0.5), matmul(W),
         ("q is shifted by 31 steps, as by another zero point, compared with w of the original",)),
        (dequantized(W, 0, 3), gemm(W.T, more="<transB = 1>"), ("q is scaled by 3, compared with gw of the original",)),
        (dequantized(np.clip(W, -1, 1)), matmul(W),
         ("q is cut off at -1 and 1, where its values reach 1.92, compared with w of the original",)),
    ],
)  # fmt: skip
def test_a_weight_is_compared_with_its_partner_as_both_are_read(
    tmp_path: Path, mine: Part, theirs: Part, said: tuple[str, ...]
) -> None:
    assert told(mine, theirs, tmp_path) == said


def test_of_a_weight_that_is_read_in_anothers_place_both_names_are_told(tmp_path: Path) -> None:
    (first, *rest), weights = split(W)
    weights["other"] = V
    theirs = [first, *rest, *part("z = MatMul (x, other)")[0]], weights
    mine = [*part("own = MatMul (x, other)")[0], *rest, *part("z = MatMul (x, sw)")[0]], weights
    said = ("own/MatMul reads other; the original reads sw there", "z/MatMul reads sw; the original reads other there")
    assert told(mine, theirs, tmp_path) == said


def test_a_quantized_weight_that_is_read_in_anothers_place_is_told_by_its_name(tmp_path: Path) -> None:
    """Its own scale may be another than that of the weight that belongs there."""
    nodes, held = dequantized(V, 1, 1.7)
    theirs = matmul(W)[0], {**matmul(W)[1], "v": V}
    for name in ("v_quantized", "v_DQ_Q4"):
        nodes[0].input[0] = name
        said = (f"m/MatMul reads {name}; the original reads w there",)
        (tmp_path / name).mkdir()
        assert told((nodes, {**held, name: held["q"]}), theirs, tmp_path / name) == said


def test_only_nodes_of_the_answer_are_asked(tmp_path: Path) -> None:
    wrong = split(W.T, -B)
    assert told(wrong, gemm(W), tmp_path, "own/MatMul") == ("sw is transposed, compared with gw of the original",)
    assert told(wrong, gemm(W), tmp_path, "y/Add") == ("sb is negated, compared with gb of the original",)


def test_a_node_that_turns_a_weight_stands_for_it(tmp_path: Path) -> None:
    said = ("tw is stored like w of the original, but y/MatMul reads it behind turned/Transpose",)
    assert told(through_transpose(W), ALONE, tmp_path, "turned/Transpose") == said


def test_a_bias_that_two_nodes_add_is_compared_with_neither(tmp_path: Path) -> None:
    nodes, weights = gemm(W, B)
    nodes[0].output[0] = "between"
    twice: Part = [*nodes, *part("y = Add (between, more)")[0]], {**weights, "more": KB}
    assert told(gemm(W, B + KB), twice, tmp_path) == ()


def layers(kind: str, *, wrong: int | None = None, transposed: bool = False) -> onnx.ModelProto:
    """Four layers, written as Gemm or as MatMul and Add; the weight of one is stored the other way round."""
    draw, nodes, weights, reads = np.random.default_rng(1), list[NodeProto](), [], "x"
    for at in range(4):
        weight, bias = (draw.normal(size=size).astype(np.float32) / 3 for size in ((8, 8), 8))
        weight = weight.T if transposed != (at == wrong) else weight
        kept = ((f"{kind}{at}.weight", weight), (f"{kind}{at}.bias", bias))
        weights += [numpy_helper.from_array(np.ascontiguousarray(one), name) for name, one in kept]
        own, made = f"{kind}{at}.weight {kind}{at}.bias".split(), f"{kind}{at}.sum"
        if kind == "Gemm":
            nodes.append(helper.make_node("Gemm", [reads, *own], [made], name=made, transB=int(transposed)))
        else:
            nodes.append(helper.make_node("MatMul", [reads, own[0]], [f"{made}/m"], name=f"{made}/m"))
            nodes.append(helper.make_node("Add", [f"{made}/m", own[1]], [made], name=made))
        reads = "y" if at == 3 else f"{kind}{at}.tanh"
        nodes.append(helper.make_node("Tanh", [made], [reads], name=reads))
    ends = ([helper.make_tensor_value_info(name, 1, [4, 8])] for name in ("x", "y"))
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(helper.make_graph(nodes, "g", *ends, weights), opset_imports=imports, ir_version=8)


def test_a_reduction_tells_what_became_of_the_weight(tmp_path: Path) -> None:
    onnx.save(layers("MatMul", wrong=1), tmp_path / "mine.onnx")
    onnx.save(layers("Gemm", transposed=True), tmp_path / "theirs.onnx")
    run = winnow("reduce", "mine.onnx", "--original", "theirs.onnx", folder=tmp_path / "run", cwd=tmp_path)
    said = "MatMul1.weight is stored like Gemm1.weight of the original, "
    said += "but MatMul1.sum/m reads it as it is, not with transB=1"
    assert "MatMul1.sum/m" in run.result["culprits"] and len(run.result["culprits"]) <= 2, run.output
    assert run.result["cause"]["status"] == "proven" and run.result["cause"]["weights"] == [said], run.output


def split_under_the_same_names(wrong: int, *, scaled: bool) -> onnx.ModelProto:
    """The layers, of which two are split: what the product makes is called as the Gemm's output, without the bias."""
    made = layers("Gemm", wrong=wrong)
    nodes: list[NodeProto] = []
    for node in made.graph.node:
        if node.name not in ("Gemm1.sum", "Gemm2.sum"):
            nodes.append(node)
            continue
        last, weight, bias = node.output[0], *node.input[1:]
        nodes.append(helper.make_node("MatMul", [node.input[0], weight], [last], name=f"{node.name}/MatMul"))
        for kind in ("Mul", "Div") if scaled else ():
            nodes.append(helper.make_node(kind, [last, "two"], [f"{last}/{kind}"], name=f"{node.name}/{kind}"))
            last = f"{last}/{kind}"
        nodes.append(helper.make_node("Add", [last, bias], [f"{node.name}/added"], name=f"{node.name}/Add"))
    for node in nodes:
        if node.op_type == "Tanh" and node.input[0] in ("Gemm1.sum", "Gemm2.sum"):
            node.input[0] = f"{node.input[0]}/added"
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.initializer.append(numpy_helper.from_array(np.float32(2), "two"))
    return made


def test_a_matrix_that_stands_for_a_multiple_of_itself_is_no_good_value(tmp_path: Path) -> None:
    """The original multiplies half of each matrix by two (alpha); so none may be fed as the other's."""
    theirs = layers("Gemm")
    for node in theirs.graph.node:
        if node.op_type == "Gemm":
            node.attribute.append(helper.make_attribute("alpha", 2.0))
    for weight in theirs.graph.initializer:
        if weight.name.endswith("weight"):
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) / 2, weight.name))
    mine = layers("MatMul", wrong=1)
    for node in mine.graph.node:
        node.name = node.name.replace("MatMul", "Gemm")
        for names in (node.input, node.output):
            names[:] = [name.replace("MatMul", "Gemm") for name in names]
    for weight in mine.graph.initializer:
        name = weight.name.replace("MatMul", "Gemm")
        if name.endswith("weight"):
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).T.copy(), f"{name}/T"))
            turn = helper.make_node("Transpose", [f"{name}/T"], [name], name=f"{name}/turn", perm=[1, 0])
            mine.graph.node.insert(0, turn)
        weight.name = f"{name}/T" if name.endswith("weight") else name
    onnx.save(mine, tmp_path / "mine.onnx")
    onnx.save(theirs, tmp_path / "theirs.onnx")
    run = winnow("reduce", "mine.onnx", "--original", "theirs.onnx", folder=tmp_path / "run", cwd=tmp_path)
    assert {*run.result["culprits"]} <= {"Gemm1.weight/turn", "Gemm1.sum/m", "Gemm1.sum"}, run.output


@pytest.mark.variants
@pytest.mark.parametrize(("wrong", "scaled"), [(1, False), (2, True)])
def test_a_name_that_a_product_keeps_without_its_bias_makes_no_partner(
    tmp_path: Path, wrong: int, scaled: bool
) -> None:
    """The bias of the next layer was called wrong, and proven: with the Gemm's value it is added twice."""
    onnx.save(split_under_the_same_names(wrong, scaled=scaled), tmp_path / "mine.onnx")
    onnx.save(layers("Gemm"), tmp_path / "theirs.onnx")
    run = winnow("reduce", "mine.onnx", "--original", "theirs.onnx", folder=tmp_path / "run", cwd=tmp_path)
    culprits, cause = run.result["culprits"], run.result["cause"]
    assert f"Gemm{wrong}.sum/MatMul" in culprits, run.output
    assert all(name.startswith(f"Gemm{wrong}.sum/") for name in culprits), culprits
    assert cause["weights"] == [f"Gemm{wrong}.weight is transposed, compared with Gemm{wrong}.weight of the original"]


def test_an_attribute_that_differs_is_told_and_a_weight_that_differs_otherwise(tmp_path: Path) -> None:
    """One that is left out has its usual value; two ways to count an axis are one."""
    for kind, own, good, said in (
        ("Softmax", "<axis = 1>", "<axis = -1>", ()),
        ("LogSoftmax", "<axis = -1>", "", ()),
        ("Selu", "<gamma = 2.0>", "", ("y/Selu has gamma=2; the original has gamma=1.050701",)),
        ("LeakyRelu", "<alpha = 0.9>", "", ("y/LeakyRelu has alpha=0.9; the original has alpha=0.01",)),
        ("MaxPool", "<kernel_shape = [2, 2]>", "<kernel_shape = [2, 2], strides = [1, 1]>", ()),
        (
            "MaxPool",
            "<kernel_shape = [2, 2], dilations = [1, 2]>",
            "<kernel_shape = [2, 2]>",
            ("y/MaxPool has dilations=[1, 2]; the original has dilations=[1, 1]",),
        ),
        ("LRN", "<size = 12345679>", "<size = 3>", ("y/LRN has size=12345679; the original has size=3",)),
    ):
        parts = [part(f"y = {kind} {more} (x)") for more in (own, good)]
        (folder := tmp_path / f"{kind}{len(own)}").mkdir()
        found = told(*parts, folder)
        assert len(found) == len(said) and all(map(str.startswith, found, said)), found
    (tmp_path / "both").mkdir()
    found = told(gemm(2 * W, B + DRAW.normal(size=6).astype(np.float32)), gemm(W), tmp_path / "both")
    assert found == ("gw is scaled by 2, compared with gw of the original", "gb differs too")


def test_a_constant_that_is_as_it_was_is_not_called_changed(tmp_path: Path) -> None:
    """The node reads another one; of numbers that are all the same each is a multiple of any other."""
    for case, (one, other) in enumerate(((1.5, 0.5), (np.ones(6), np.zeros(6)), (B, B**2))):
        held = {"g": np.float32(one), "h": np.float32(other)}
        sides = [part(f"m = Mul (x, {own})  o = Add (m, g)  y = Sub (o, h)", **held) for own in ("h", "g")]
        (tmp_path / str(case)).mkdir()
        assert told(*sides, tmp_path / str(case)) == ("m/Mul reads h; the original reads g there",)


def test_a_constant_in_place_of_what_is_computed_is_told(tmp_path: Path) -> None:
    mine = part("s = Relu (x)  y = Div (s, four)", four=np.float32(4))
    theirs = part("s = Relu (x)  n = Size (x)  c = Cast <to = 1> (n)  y = Div (s, c)")
    assert told(mine, theirs, tmp_path) == (
        "y/Div reads the constant four; the original reads the output of c/Cast there",
    )


def test_of_a_weight_that_differs_here_and_there_is_told_how_much_and_where(tmp_path: Path) -> None:
    row, some = W.copy(), W.copy()
    row[3], some[[0, 1, 2], [0, 1, 0]] = 0, 9
    for case, (weight, said) in enumerate((
        (row, "6 of 36 elements of w differ from w of the original, at place 3 of axis 0; here they are 0"),
        (some, "3 of 36 elements of w differ from w of the original"),
        (W + V, "w differs from w of the original"),
    )):  # fmt: skip
        (folder := tmp_path / str(case)).mkdir()
        assert told(matmul(weight), matmul(W), folder) == (said,)


def test_a_weight_that_undoes_the_scale_of_a_tensor_without_a_partner_is_no_cause(tmp_path: Path) -> None:
    """Of what makes that tensor attributes are told; any other change of the weight is one of its own."""
    text = "{0} = LayerNormalization <epsilon = {1}> (x, g)  m = MatMul ({0}, w)  y = Add (m, b)"
    good = part(text.format("t", "0.00001"), g=GAIN, w=W, b=B)
    rows = np.abs(GAIN) + 0.5
    for weight, more in ((W * rows[:, None], ()), (W * rows, ("w is scaled by",)), (W.T, ("w is transposed",))):
        found = told(part(text.format("own", "0.5"), g=GAIN / rows, w=weight.astype(np.float32), b=B), good, tmp_path)
        wanted = (*more, "own/LayerNormalization has epsilon=0.5; the original has epsilon=1e-05")
        assert all(map(str.startswith, found, wanted)) and len(found) == len(wanted), found


def test_an_attribute_that_became_an_input_is_compared_and_a_factor_of_zero_is_told(tmp_path: Path) -> None:
    old = part("t = ReduceSum <axes = [2]> (x)  y = Tanh (t)")
    said = [told(part("t = ReduceSum (x, a)  y = Tanh (t)", a=np.array([axis])), old, tmp_path) for axis in (1, -1)]
    assert said == [("t/ReduceSum has axes=[1]; the original has axes=[2]",), ()]
    assert told(gemm(W, B, "<beta = 0.0>"), gemm(W, B), tmp_path) == (
        "y/Gemm reads gb with beta=0, so it has no effect",
    )
