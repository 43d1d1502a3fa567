"""Converted models whose nodes read each other's tensors: none is wrong by itself, and together they are the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.harness import Run, winnow
from tests.jobs.models import saved
from tests.jobs.reduce.test_cause import COMPARE

HEAD, END = "g (float[2,6] x) => (float[2,3] y) {", "[head] y = MatMul(z, last) }"
GATED = """[first] h = MatMul(x, wide) [split] a, b = Split<axis = 1, num_outputs = 2>(h) {} z0 = Mul({}, s)
    [tanh] z = Tanh(z0)"""
ATTENTION = """[q] q = MatMul(x, wq) [k] k = MatMul(x, wk) [v] v = MatMul(x, wv) [turn] t = Transpose<perm = [1, 0]>(k)
    [scores] s = MatMul(q, t) [p] p = Softmax(s) [mix] z = MatMul(p, v)"""


def asked(folder: Path, original: str, converted: str) -> Run:
    """Run a model whose inner names are lost beside its original."""
    draw = np.random.default_rng(7)
    shapes = {"wide": (6, 12), "wq": (6, 6), "wk": (6, 6), "wv": (6, 6), "last": (6, 3)}
    held = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    held |= {"ones": np.ones(6, np.float32), "zeros": np.zeros(6, np.float32), "zero": np.zeros(1, np.int64)}
    texts = {"original": original, "converted": converted}
    paths = [saved(folder / f"{name}.onnx", f"{HEAD} {text} {END}", opset=18, **held) for name, text in texts.items()]
    return winnow(f"model={paths[1]}", f"reference.model={paths[0]}", *COMPARE, folder=folder / "run")


def test_halves_of_a_split_in_the_other_order(tmp_path: Path) -> None:
    """Names say which nodes are meant, and each of the two makes what the original's makes of the other half."""
    run = asked(
        tmp_path, GATED.format("[gate] s = Sigmoid(b) [by]", "a"), GATED.format("[gate] s = Sigmoid(a) [by]", "b")
    )
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["gate", "by"], "proven"), run.output
    assert run.result["minimality"] == "one fault together"
    told = ["gate reads the output a of split; like the original it should read the output b of split"]
    told += ["by reads the output b of split; like the original it should read the output a of split"]
    assert run.result["cause"]["weights"] == told
    assert f"  why      {told[0]}; by differs too" in run.screen, run.screen
    assert not any("another fault" in one for one in run.result["warnings"])


@pytest.mark.slow
def test_queries_and_keys_with_each_others_weights(tmp_path: Path) -> None:
    """Weights tell nodes without names: what reads q and k reads them crosswise."""
    lost = "m1 = MatMul(x, wk) m2 = MatMul(x, wq) m3 = MatMul(x, wv) [turned] t = Transpose<perm = [1, 0]>(m2)"
    lost += "[product] s = MatMul(m1, t) p = Softmax(s) z = MatMul(p, m3)"
    run = asked(tmp_path, ATTENTION, lost)
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["turned", "product"], "proven"), run.output
    said = "{} reads the output of {}; like the original it should read the output of {}"
    assert run.result["cause"]["weights"] == [said.format("turned", "m2", "m1"), said.format("product", "m1", "m2")]


def test_a_residual_of_another_block_is_told(tmp_path: Path) -> None:
    """One node that reads another tensor is at fault by itself."""
    text = "[one] a = MatMul(x, wq) [act] b = Tanh(a) [two] c = MatMul(b, wk) [sig] d = Sigmoid(c) [add] z = Add({}, d)"
    run = asked(tmp_path, text.format("b"), text.format("x"))
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["add"], "proven"), run.output
    assert run.result["cause"]["weights"] == [
        "add reads the input x; like the original it should read the output of act"
    ]
    assert run.result["minimality"] == "1-minimal"


@pytest.mark.parametrize("begin", [("ones", "zeros"), ("first", "second")], ids=["constants", "tensors"])
def test_what_a_scan_begins_with_is_read_by_the_scan(tmp_path: Path, begin: tuple[str, str]) -> None:
    """Its body makes wrong values of it, and is right."""
    made = "[one] first = ReduceMax<keepdims = 0>(x, zero) [two] second = Sin(first)" * (begin[0] == "first")
    text = """{} [scan] sums, means, z = Scan({}, x) <num_scan_inputs = 1, body =
        body (float[6] s, float[6] t, float[6] v) => (float[6] a, float[6] b, float[6] o) {{
        [up] a = Add(s, v) [down] m = Mul(t, v) [sum] b = Add(m, v) [out] o = Sub(a, b) }}>"""
    run = asked(tmp_path, *(text.format(made, ", ".join(order)) for order in (begin, begin[::-1])))
    assert (run.result["culprits"], run.result["nested"]) == (["scan"], []), run.output
    told = [
        f"scan reads {one}; the original reads {other} there" for one, other in zip(begin[::-1], begin, strict=True)
    ]
    assert run.result["cause"]["weights"] == (told if "ones" in begin else ["scan reads its inputs in another order"])


def test_outputs_of_a_split_in_the_other_order(tmp_path: Path) -> None:
    text = GATED.format("[gate] s = Sigmoid(b) [by]", "a")
    run = asked(tmp_path, text, text.replace("a, b = Split", "b, a = Split"))
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["split"], "proven"), run.output
    assert run.result["cause"]["weights"] == ["split makes its outputs in another order"]


def blocks(path: Path, *, fused: bool, late: tuple[int, ...] = ()) -> Path:
    """Save five blocks: a sum of what comes in and a product of its norm; sums in ``late`` read the block before."""
    text, ends, draw = "", ["x", "x"], np.random.default_rng(4)
    held = {"eps": np.float32(1e-5)}
    for at in range(5):
        held |= {f"{name}{at}": draw.normal(1, 0.2, 8).astype(np.float32) for name in ("gain", "shift")}
        held[f"w{at}"] = draw.normal(0, 0.4, (8, 8)).astype(np.float32)
        mean = "ReduceMean<axes = [-1]>"
        apart = f"""a{at} = {mean}({ends[-1]}) b{at} = Sub({ends[-1]}, a{at}) c{at} = Mul(b{at}, b{at})
            d{at} = {mean}(c{at}) e{at} = Add(d{at}, eps) f{at} = Sqrt(e{at}) g{at} = Div(b{at}, f{at})
            h{at} = Mul(g{at}, gain{at}) n{at} = Add(h{at}, shift{at}) """
        norm = f"[ln{at}] n{at} = LayerNormalization<epsilon = 1e-5>({ends[-1]}, gain{at}, shift{at}) "
        text += norm if fused else apart
        left = ends[-2] if at in late else ends[-1]
        ends.append(f"t{at}" if fused else f"o{at}")
        text += f"m{at} = MatMul(n{at}, w{at}) [sum{at}] {ends[-1]} = Add({left}, m{at}) "
    return saved(path, f"g (float[4,8] x) => (float[4,8] y) {{ {text} y = Tanh({ends[-1]}) }}", **held)


@pytest.mark.parametrize("late", [(1, 3), (1, 2, 3)])
def test_the_same_wrong_residual_in_several_blocks(tmp_path: Path, late: tuple[int, ...]) -> None:
    """What comes after the first has no value that tells what it is, and a fused norm says nothing of what it reads."""
    parts = blocks(tmp_path / "original.onnx", fused=False), blocks(tmp_path / "converted.onnx", fused=True, late=late)
    run = winnow(f"model={parts[1]}", f"reference.model={parts[0]}", *COMPARE, folder=tmp_path / "run")
    wrong = {f"sum{at}" for at in late}
    assert run.result["cause"]["status"] in ("proven", "joint") and set(run.result["culprits"]) <= wrong, run.output
    said = [one for one in run.result["cause"]["weights"] if " reads the output of " in one]
    assert said and all(" it should read the output of sum" in one for one in said), said


@pytest.mark.parametrize(
    ("fault", "culprits", "why"),
    [
        ("[act] b = Softsign(a)", ["act"], "Softsign, where the original has Tanh"),
        ("[same] b = Identity(a)", ["same"], "the original's Tanh is missing here"),
        ("[act] b = Sub(x, a)", ["act"], "act reads its inputs in another order"),
        ("[act] b0 = Tanh(a) [more] b = Relu(b0)", ["more"], "Relu, which the original does not have there"),
    ],
)
def test_another_operator_is_told(tmp_path: Path, fault: str, culprits: list[str], why: str) -> None:
    """One in its place, one left out, one more; or the same one the other way round."""
    text = "[one] a = MatMul(x, wq) {} [two] c = MatMul(b, wk) [sig] z = Sigmoid(c)"
    good = "[act] b = Sub(a, x)" if "Sub" in fault else "[act] b = Tanh(a)"
    run = asked(tmp_path, text.format(good), text.format(fault))
    assert (run.result["culprits"], run.result["cause"]["status"]) == (culprits, "proven"), run.output
    assert run.result["cause"]["weights"] == [why]


def test_a_scale_on_other_tensors_of_several_blocks_costs_no_partner_beyond_these(tmp_path: Path) -> None:
    """The original divides the scores of each attention, the converted model multiplies q before."""
    texts, held = {"original": "", "converted": ""}, {"much": np.float32(4), "little": np.float32(0.25)}
    for at in range(2):
        before = f"h{at - 1}" if at else "x"
        for name in "qkvm":
            held[f"{name}{at}w"] = np.random.default_rng(at).normal(0, 0.4, (6, 6)).astype(np.float32)
        start = "".join(f"{name}{at} = MatMul({before}, {name}{at}w) " for name in "qkv")
        start += f"t{at} = Transpose<perm = [1, 0]>(k{at}) "
        end = f"p{at} = Softmax(s{at}) c{at} = MatMul(p{at}, v{at}) r{at} = Add({before}, c{at}) "
        end += f"[mlp{at}] h{at} = {{}}(r{at}) "
        texts["original"] += f"{start} o{at} = MatMul(q{at}, t{at}) s{at} = Div(o{at}, much) {end.format('Tanh')}"
        wrong = end.format("Softsign" if at == 0 else "Tanh")
        texts["converted"] += f"{start} y{at} = Mul(q{at}, little) s{at} = MatMul(y{at}, t{at}) {wrong}"
    paths = [
        saved(tmp_path / f"{name}.onnx", f"g (float[4,6] x) => (float[4,6] h1) {{ {text} }}", **held)
        for name, text in texts.items()
    ]
    run = winnow(f"model={paths[1]}", f"reference.model={paths[0]}", *COMPARE, folder=tmp_path / "run")
    assert (run.result["culprits"], run.result["cause"]["status"]) == (["mlp0"], "proven"), run.output
    assert not any("s0" in one or "h1" in one for one in run.result["warnings"]), run.result["warnings"]
    said = "2 of 21 tensors have no partner in the original: y0, y1. The others: "
    assert any(one.startswith(said) for one in run.result["warnings"]), run.result["warnings"]


def test_inputs_that_lost_their_names_and_their_order(tmp_path: Path) -> None:
    """With the other pairing nothing is wrong, so no node is to blame; a fault that stays with it is found."""
    held = {name: np.random.default_rng(at).normal(size=(6, 6)).astype(np.float32) for at, name in enumerate("vw")}
    text = (
        "g (float[2,6] {}, float[2,6] {}) => (float[2,6] y) {{ [a] s = MatMul({}, v) t = MatMul({}, w) y = {}(s, t) }}"
    )
    texts = {"original": ("q", "k", "q", "k", "Sub"), "crossed": ("i0", "i1", "i1", "i0", "Sub")}
    texts["faulty"] = ("i0", "i1", "i0", "i1", "Add")
    paths = {name: saved(tmp_path / f"{name}.onnx", text.format(*how), **held) for name, how in texts.items()}
    original = f"reference.model={paths['original']}"
    run = winnow(f"model={paths['crossed']}", original, folder=tmp_path / "run")
    assert run.code == 3 and "Paired otherwise (i0 is k, i1 is q) all outputs are right" in run.output, run.output
    assert run.result["lacks"] == ["reference.map={i0: k, i1: q}"]
    triage = winnow("strategy=triage", f"model={paths['crossed']}", original, folder=tmp_path / "triage")
    assert (triage.code, triage.result["lacks"]) == (3, run.result["lacks"]), triage.output
    again = winnow(str(run.folder / "replay.yaml"), *run.result["lacks"], folder=tmp_path / "again")
    assert again.code == 4, again.output
    other = winnow(f"model={paths['faulty']}", original, *COMPARE, folder=tmp_path / "other")
    assert other.code == 0 and "Say otherwise with reference.map" in other.output, other.output


@pytest.mark.parametrize("fault", ["a part of the weight", "a part of the bias"])
def test_a_wrong_part_of_a_joined_product_is_not_the_node_that_splits_it(tmp_path: Path, fault: str) -> None:
    """The other parts are right, and without its bias a part is what the product alone makes in the original."""
    draw = np.random.default_rng(3)
    weights, biases = draw.normal(size=(3, 6, 6)).astype(np.float32), draw.normal(size=(3, 6)).astype(np.float32)
    head, to = "g (float[4,6] x) => (float[2,2,6] y) {{ {} {} }}", np.array([2, 2, 6])
    parts = "".join(f"[p{at}] p{at} = MatMul(x, w{at}) [b{at}] b{at} = Add(p{at}, c{at}) " for at in range(3))
    joined = "[product] j = MatMul(x, w) [bias] k = Add(j, c) [split] {0}0, {0}1, {0}2 = Split<axis = 1>(k) "
    after = """[r0] {0}r = Reshape({0}0, to) [r1] {0}s = Reshape({0}1, to) [r2] {0}v = Reshape({0}2, to)
        [turn] {0}t = Transpose<perm = [0, 2, 1]>({0}s) [scores] {0}a = MatMul({0}r, {0}t) [soft] {0}p = Softmax({0}a)
        [mix] y = MatMul({0}p, {0}v)"""
    held = {f"w{at}": weights[at] for at in range(3)} | {f"c{at}": biases[at] for at in range(3)}
    original = saved(tmp_path / "original.onnx", head.format(parts, after.format("b")), **held, to=to)
    if fault == "a part of the weight":
        weights[1] = weights[1].T.copy()
    else:
        biases[2] = 0
    held = {"w": np.concatenate([*weights], 1), "c": np.concatenate([*biases])}
    converted = saved(tmp_path / "converted.onnx", head.format(joined.format("m"), after.format("m")), **held, to=to)
    run = winnow(f"model={converted}", f"reference.model={original}", *COMPARE, folder=tmp_path / "run")
    assert run.result["culprits"] == ["product", "bias", "split"], run.output
    assert run.result["cause"]["status"] == "proven"
    assert not run.result["cause"].get("weights"), "a Split beside one product is no fault"
