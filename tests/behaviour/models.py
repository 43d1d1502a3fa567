"""Small models of golden runs, in ONNX's own text form."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from onnx import numpy_helper

_HEAD = '<ir_version: 8, opset_import: ["": 17]>'

NET = f"""{_HEAD} net (float[2,3] x) => (float[2,3] y) {{
    [relu] a = Relu (x)
    [exp] b = Exp (a)
    [skip] c = Add (b, x)
    [tanh] d = Tanh (c)
    [neg] e = Neg (d)
    [join] f = Mul (e, b)
    [abs] g = Abs (f)
    [sqrt] h = Sqrt (g)
    [cos] i = Cos (h)
    [last] y = Sigmoid (i)
}}"""
"""Ten nodes with two skip connections."""

OTHERWISE = NET.replace("[neg] e = Neg (d)", "[same] e = Identity (d)")
"""The same without its Neg."""

BODIES = (
    NET.replace("y) {", "y) <bool go = {1}, int64 twice = {2}> {")
    .replace(
        "[neg] e = Neg (d)",
        """[choice] e = If (go) <
        then_branch = then () => (float[2,3] r) { [cube] q = Mul (d, c) [neg] r = Neg (q) },
        else_branch = other () => (float[2,3] s) { [same] s = Identity (d) }
    >""",
    )
    .replace(
        "[abs] g = Abs (f)",
        """[loop] g = Loop (twice, go, f) <
        body = again (int64 i, bool on, float[2,3] v) => (bool still, float[2,3] w) {
            [turn] w = Neg (v)
            [keep] still = Identity (on)
        }
    >""",
    )
)
"""The same, with its Neg in an If, and another one in a Loop."""

NESTED = f"""{_HEAD} net (float[2,3] x, bool taken) => (float[2,3] y) {{
    [before] a = Relu (x)
    [choice] b = If (taken) <
        then_branch = then () => (float[2,3] r) {{
            [first] s = Exp (a)
            [bad] t = Neg (s)
            [third] r = Tanh (t)
        }},
        else_branch = other () => (float[2,3] q) {{
            [only] q = Cos (a)
        }}
    >
    [after] y = Abs (b)
}}"""
"""An If whose then branch holds a Neg."""

OVERFLOW = f"""{_HEAD} net (float16[1,8] x) => (float16[1,8] y) <float16 large = {{31571}}> {{
    [tanh] t = Tanh (x)
    [exp] e = Exp (t)
    [up] wide = Mul (e, large)
    [down] back = Div (wide, large)
    [sin] y = Sin (back)
}}"""
"""Its product leaves the range of float16: the bits of ``large`` are those of 60,000."""

LAYERS = f"""{_HEAD} net (float[2,3] x) => (float[2,3] y) <float up = {{60000}}, float shift = {{4096}}> {{
    [soft] a = Softsign (x)
    [up] b = Mul (a, up)
    [down] c = Div (b, up)
    [tanh] d = Tanh (c)
    [more] e = Add (d, shift)
    [less] f = Sub (e, shift)
    [last] y = Sigmoid (f)
}}"""
"""In float16 one pair of its layers overflows and another one loses digits."""


GELU = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> net (float[2,3] x) => (float[2,3] y) {
    [tanh] a = Tanh (x)
    [exp] b = Exp (a)
    [gelu] c = com.microsoft.Gelu (b)
    [cos] d = Cos (c)
    [last] y = Sigmoid (d)
}"""
APPROXIMATE = 'target.config_entries={optimization.enable_gelu_approximation: "1"}'
"""Has ONNX Runtime take another Gelu than the one that is written there."""


def expected_outputs(folder: Path) -> None:
    """Write a data set with an input of `GELU` and what its output should be, and files that do not fit."""
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    b = np.exp(np.tanh(x.astype(np.float64)))
    c = 0.5 * b * (1 + np.vectorize(math.erf)(b / math.sqrt(2)))
    y = (1 / (1 + np.exp(-np.cos(c)))).astype(np.float32)
    place = folder / "sets" / "test_data_set_0"
    place.mkdir(parents=True)
    for name, file, value in (("x", "input_0.pb", x), ("y", "output_0.pb", y)):
        (place / file).write_bytes(numpy_helper.from_array(value, name).SerializeToString())
    np.savez(folder / "others.npz", y=1.5 * y)
    np.savez(folder / "named.npz", logits=y)


def scaled(**factors: float) -> str:
    """Return a model of six products, of which two are read by a skip connection; ``factors``: by node."""
    number = {"near": 1.0, "small": 0.2, "main": 1.0, "far": 1.0, **factors}
    weights = ", ".join(f"float w_{name} = {{{value}}}" for name, value in number.items())
    return f"""{_HEAD} net (float[2,3] x) => (float[2,3] z) <{weights}> {{
        [near] a = Mul (x, w_near)
        [small] b = Mul (a, w_small)
        [main] c = Mul (x, w_main)
        [sum] d = Add (b, c)
        [far] e = Mul (d, w_far)
        [neg] z = Neg (e)
    }}"""


def samples(folder: Path, **arrays: tuple[float, float]) -> None:
    """Write an npz for each sample, with evenly spaced values of ``x`` between two numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (low, high) in arrays.items():
        np.savez(folder / f"{name}.npz", x=np.linspace(low, high, 6, dtype=np.float32).reshape(2, 3))
