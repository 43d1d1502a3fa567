"""python -m benchmarks.quantized_layers [--half seen|held] [--start float]: which layers must not be quantized?

24 networks of six architectures (Llama, BERT, ViT, convolutions, detector, speech), quantized by ONNX Runtime's own
tools to int4 (MatMulNBits, and DequantizeLinear in front of MatMul), dynamic int8, static int8 (per channel and per
tensor) and fp8. In each one layer has outlier channels: some channels of its input are made small and the rows of its
weight as much larger, which in float means the same.

The truth is told by ONNX Runtime outside Winnow (`Tool`): each layer alone is quantized, all others are excluded, and
the one with the largest error is the worst. A network is used only where that is the layer with the outliers, by twice
the next one at least. The tolerance lies between the error with everything quantized and that with all but the worst
(``sharp``), or so low that more than one layer has to stay (``tight``). What a static form is calibrated on has to do
for fresh samples as well: there, too, the error with all but the worst is about as small.

Winnow is given 24 samples. Its answer is judged with `Tool` again: the worst layer is in it; with these layers excluded
the tolerance holds, on these samples and on eight fresh ones; with any of them quantized after all, half of the
tolerance (what Winnow aims at by default) does not hold. Half of the networks are held back: they are not to be looked
at while anything is mended.

``--start quantized`` gives Winnow the quantized file and its original, ``--start float`` the original alone.

``--nncf PYTHON``: the static int8 networks beside NNCF's accuracy control, which that interpreter has. Both are given
the same samples and tolerance. Winnow is asked twice: as it is, when it aims at half of the tolerance, and for the
tolerance itself, at which NNCF aims. Evaluations: each call of the validation function, each check of Winnow's.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import math
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_dynamic, quantize_static

from benchmarks import print_head, print_row, quantized_faults
from benchmarks.planted_models import Network, attention, feed_forward, transformer
from benchmarks.quantized_faults import (
    CalibrationSamples,
    UnfitError,
    Values,
    asked,
    drawn,
    error,
    ran,
    save,
    through_files,
)

SAMPLES, FRESH = 24, 8
LAYERS = ("MatMul", "Gemm", "Conv")
BLOCK = 16
TRIES = 40
"""Seeds that are tried until a network is fit."""
STANDS_OUT = 2.0
"""The error of the worst layer alone, in errors of the next one, at least."""
FACTORS = {"fp8": (1e4, 1e5, 1e6), "int4": (30.0, 100.0), "int4 QDQ": (30.0, 100.0)}
"""How much smaller some channels are made; the first that makes a layer stand out is taken."""


# ---- networks


def llama(net: Network) -> None:
    """Two decoder blocks without biases, with gated feed-forward parts; logits of each token."""
    width, x = 32, net.input("x", 1, 8, 32)

    def linear(x: str, into: int = width, of: int = width) -> str:
        return net.add("MatMul", x, net.weight(of, into))

    def norm(x: str) -> str:
        mean = net.add("ReduceMean", net.add("Mul", x, x), axes=[-1])
        root = net.add("Sqrt", net.add("Add", mean, net.constant(np.float32(1e-5))))
        gain = net.constant(net.draw.normal(1, 0.1, width).astype(np.float32))
        return net.add("Mul", net.add("Div", x, root), gain)

    for _ in range(2):
        q, k, v = (linear(at) for at in [norm(x)] * 3)
        scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 2, 1]))
        weights = net.add("Softmax", net.add("Mul", scores, net.constant(np.float32(width**-0.5))), axis=-1)
        x = net.add("Add", x, linear(net.add("MatMul", weights, v)))
        gate, up = (linear(at, 64) for at in [norm(x)] * 2)
        gated = net.add("Mul", net.add("Mul", gate, net.add("Sigmoid", gate)), up)
        x = net.add("Add", x, linear(gated, of=64))
    net.add("MatMul", norm(x), net.weight(width, 64), out="logits")
    net.outputs.append("logits")


def encoder(net: Network, x: str, width: int = 32) -> str:
    """Two encoder blocks that normalize before each part, over [1, width, tokens]."""
    x = net.add("Transpose", x, perm=[0, 2, 1])
    for part in (attention, feed_forward) * 2:
        x = net.add("Add", x, part(net, net.norm(x, width), width))
    return x


def vit(net: Network) -> None:
    """Patches of an image by a convolution, then an encoder."""
    weight = net.weight(32, 3, 4, 4, gain=1.4)
    patches = net.add("Conv", net.input("image", 1, 3, 16, 16), weight, strides=[4, 4])
    net.mean_head(encoder(net, net.add("Reshape", patches, net.constant(np.array([1, 32, 16])))), 32)


def speech(net: Network) -> None:
    """A convolution over time in front of an encoder; log-probabilities of each frame."""
    weight = net.weight(32, 16, 3, 1, gain=1.4)
    frames = net.add("Relu", net.add("Conv", net.input("mel", 1, 16, 24, 1), weight, strides=[2, 1], pads=[1, 0, 1, 0]))
    x = encoder(net, net.add("Reshape", frames, net.constant(np.array([1, 32, 12]))))
    net.add("LogSoftmax", net.dense(x, 32, 24), axis=-1, out="frames")
    net.outputs.append("frames")


ARCHITECTURES = {
    "llama": llama,
    "bert": lambda net: transformer(net, False, layers=2, tokens=8, width=32),
    "vit": vit,
    "speech": speech,
    "cnn": quantized_faults.ARCHITECTURES["residual"],
    "detector": quantized_faults.detector,
}
FORMS = {
    "llama": ("int4", "int4 QDQ", "dynamic int8", "static int8"),
    "bert": ("int4", "dynamic int8", "static int8", "fp8"),
    "vit": ("int4", "int4 QDQ", "static int8", "fp8"),
    "speech": ("int4", "int4 QDQ", "dynamic int8", "static int8"),
    "cnn": ("static int8", "static int8 tensor", "dynamic int8", "fp8"),
    "detector": ("static int8", "static int8 tensor", "dynamic int8", "fp8"),
}
LOW = {"int4": "int4", "static int8": "int8", "fp8": "fp8"}
"""The forms that Winnow makes of a float model, as ``strategy.low``."""


@dataclass(frozen=True)
class Spec:
    """A network. ``held``: not to be looked at while anything is mended. ``seed``: the first that is tried."""

    network: str
    form: str
    tight: bool
    held: bool
    seed: int

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.network} {self.form}"

    @property
    def half(self) -> str:
        """Whether it may be looked at."""
        return "held" if self.held else "seen"


def _specs() -> Iterator[Spec]:
    every = [(network, form) for network, forms in FORMS.items() for form in forms]
    halves = [at % 2 == 1 for at in range(len(every))]
    np.random.default_rng(32).shuffle(halves)
    for at, ((network, form), held) in enumerate(zip(every, halves, strict=True)):
        yield Spec(network, form, at % 3 == 2, held, 320000 + 1000 * at)


SPECS = tuple(_specs())


# ---- ONNX Runtime's own tools


@dataclass(frozen=True)
class Tool:
    """ONNX Runtime's tool for a form. ``samples``: what a static form is calibrated on."""

    form: str
    parent: ModelProto
    samples: list[Values]

    @property
    def layers(self) -> list[str]:
        """The nodes that it quantizes."""
        weights = {one.name for one in self.parent.graph.initializer}
        kinds = ("MatMul",) if self.form.startswith("int4") else LAYERS
        known = [node for node in self.parent.graph.node if node.op_type in kinds]
        either = self.form.startswith(("static", "fp8"))  # these quantize what is no weight, too
        return [node.name for node in known if either or node.input[1] in weights]

    def quantized(self, exclude: Collection[str] = ()) -> ModelProto:
        """Return the network with all layers but these quantized."""
        excluded = list(exclude)
        if self.form.startswith("int4"):
            from onnxruntime.quantization import matmul_nbits_quantizer as nbits  # noqa: PLC0415 - needs onnx_ir

            kind = QuantFormat.QDQ if self.form == "int4 QDQ" else QuantFormat.QOperator
            given = {"is_symmetric": True, "nodes_to_exclude": excluded, "quant_format": kind}
            tool = nbits.MatMulNBitsQuantizer(deepcopy(self.parent), block_size=BLOCK, **given)
            tool.process()
            return tool.model.model
        kind = QuantType.QFLOAT8E4M3FN if self.form == "fp8" else QuantType.QInt8
        shared: dict[str, Any] = {
            "weight_type": kind,
            "per_channel": self.form not in ("fp8", "static int8 tensor"),
            "nodes_to_exclude": excluded,
            "op_types_to_quantize": list(LAYERS),
        }
        if self.form == "dynamic int8":
            return through_files(self.parent, quantize_dynamic, **shared)
        method = CalibrationMethod.Distribution if self.form == "fp8" else CalibrationMethod.MinMax
        shared |= {"activation_type": kind, "calibrate_method": method, "quant_format": QuantFormat.QDQ}
        return through_files(self.parent, quantize_static, CalibrationSamples(self.samples), **shared)


# ---- planting


@dataclass(frozen=True)
class Planted:
    """A network with outliers in a layer. ``alone``: the error of each layer when it alone is quantized.

    ``rtol``: the tolerance.
    """

    spec: Spec
    seed: int
    tool: Tool
    child: ModelProto
    fresh: list[Values]
    alone: dict[str, float]
    rtol: float

    @property
    def worst(self) -> str:
        """The layer with the largest error of its own."""
        return max(self.alone, key=lambda name: self.alone[name])

    def error(self, exclude: Collection[str], *, fresh: bool = False) -> float:
        """Return the error with these layers excluded."""
        samples = self.fresh if fresh else self.tool.samples
        return error(ran(self.tool.quantized(exclude), samples), ran(self.tool.parent, samples))


def plant(model: ModelProto, name: str, factor: float, draw: np.random.Generator) -> None:
    """Make two channels of a layer's input smaller, and the weight's rows larger by the same factor."""
    held = {one.name: one for one in model.graph.initializer}
    place, node = next((at, node) for at, node in enumerate(model.graph.node) if node.name == name)
    weight = onnx.numpy_helper.to_array(held[node.input[1]]).copy()
    axis = 1 if node.op_type == "Conv" else 0
    chosen = draw.choice(weight.shape[axis], size=min(2, weight.shape[axis] // 2), replace=False)
    scales = np.ones(weight.shape[axis], np.float32)
    scales[chosen] = 1 / factor
    weight /= scales.reshape([-1 if at == axis else 1 for at in range(weight.ndim)])
    held[node.input[1]].CopyFrom(onnx.numpy_helper.from_array(weight, node.input[1]))
    shape = (-1, *[1] * (weight.ndim - 2)) if node.op_type == "Conv" else (-1,)
    model.graph.initializer.append(onnx.numpy_helper.from_array(scales.reshape(shape), "outliers"))
    smaller = onnx.helper.make_node("Mul", [node.input[0], "outliers"], ["smaller"], name="/smaller")
    node.input[0] = "smaller"
    model.graph.node.insert(place, smaller)


def made(spec: Spec) -> Planted:
    """Return the first fit network of a spec. Raises UnfitError."""
    for seed in range(spec.seed, spec.seed + TRIES):
        for factor in FACTORS.get(spec.form, (30.0, 100.0)):
            with contextlib.suppress(UnfitError):
                return _made(spec, seed, factor)
    raise UnfitError(f"{spec.name}: none of {TRIES} seeds is fit")


def _made(spec: Spec, seed: int, factor: float) -> Planted:
    net, draw = Network(seed), np.random.default_rng([seed, 32])
    ARCHITECTURES[spec.network](net)
    parent = onnx.version_converter.convert_version(net.model(), 21)
    parent.ir_version = 10
    every = drawn(net, draw, SAMPLES + FRESH)
    samples, weights = every[:SAMPLES], {one.name for one in parent.graph.initializer}
    known = {node.name: node for node in parent.graph.node}
    names = Tool(spec.form, parent, samples).layers
    planted = str(draw.choice([name for name in names if known[name].input[1] in weights]))
    plant(parent, planted, factor, draw)
    tool, good = Tool(spec.form, parent, samples), ran(parent, samples)

    def off(exclude: Collection[str]) -> float:
        return error(ran(tool.quantized(exclude), samples), good)

    alone = {name: off([one for one in tool.layers if one != name]) for name in tool.layers}
    largest = sorted(alone.values())
    child = tool.quantized()
    low, others = error(ran(child, samples), good), off([planted])
    if alone[planted] != largest[-1] or largest[-1] < STANDS_OUT * largest[-2]:
        raise UnfitError("the layer does not stand out")
    # half of the tolerance is aimed at
    rtol = 1.2 * others if spec.tight else 2 * math.sqrt(others * low)
    if not 0 < others < rtol < low < 1e3 or (not spec.tight and others > 0.4 * rtol):
        raise UnfitError("there is no room for a tolerance")
    made = Planted(spec, seed, tool, child, every[SAMPLES:], alone, float(f"{rtol:.3g}"))
    if made.error([planted], fresh=True) > (1.5 if spec.tight else 0.5) * rtol:
        raise UnfitError("what it was calibrated on does not do for other samples")
    return made


# ---- asking


def ask(planted: Planted, at: Path, start: str, *more: str) -> dict[str, Any]:
    """Run Winnow; return its result. ``more``: settings."""
    save(at, planted.tool.parent, planted.child, planted.tool.samples)
    low = LOW.get(planted.spec.form)
    if start == "float" and low:
        wanted = [f"model={at / 'float.onnx'}", f"strategy.low={low}", f"strategy.quantize.block_size={BLOCK}"]
    else:
        wanted = [f"model={at / 'quantized.onnx'}", f"reference.model={at / 'float.onnx'}", "strategy.low=quantized"]
    judged = (f"checker.rtol={planted.rtol}", "checker.atol=0", "target.optimization=none")  # as the truth is told
    return asked(at, "strategy=precision", *wanted, f"strategy.quantize.operators=[{','.join(LAYERS)}]", *judged, *more)


@dataclass(frozen=True)
class Row:
    """What Winnow answered, judged by ONNX Runtime."""

    planted: Planted
    result: dict[str, Any]

    @property
    def answer(self) -> list[str]:
        """The layers of the float model that stay: a tool names what it makes of a node after that."""
        layers = self.planted.tool.layers
        raised = self.result.get("culprits") or []
        found = (max((one for one in layers if name.startswith(one)), key=len, default=name) for name in raised)
        return list(dict.fromkeys(found))

    def cells(self) -> tuple[str, ...]:
        """Return the row: what was planted, and what was answered."""
        p, answer = self.planted, self.answer
        checks, k = (self.result.get("checks") or {}).get("search", 0), len(answer)
        most = 2 * k + math.ceil(math.log2(len(p.tool.layers)))
        ordered = sorted(p.alone.values())
        told = [f"exit {self.result['exit']}", "", "", "", ""]
        if k:
            aim = p.rtol / 2
            minimal = all(p.error([one for one in answer if one != name]) > aim for name in answer)
            holds = [p.error(answer) <= p.rtol, p.error(answer, fresh=True) <= p.rtol]
            told = ["yes" if word else "no" for word in (p.worst in answer, minimal, *holds, checks <= most)]
            told[-1] = "" if p.spec.tight else told[-1]
        return (
            *(p.spec.name, p.spec.half, str(p.seed), str(len(p.tool.layers)), "tight" if p.spec.tight else "sharp"),
            *(f"{p.rtol:g}", f"{ordered[-1]:.2g} / {ordered[-2]:.2g}", str(k), *told),
            *(f"{checks} ({k + 1} to {most})", f"{self.result.get('seconds', {}).get('total', 0):.0f}"),
        )


TITLES = (
    *("network", "half", "seed", "layers", "tolerance", "rtol", "worst / next alone", "answer", "worst in it"),
    *("1-minimal", "holds", "on fresh samples", "checks as promised", "checks", "seconds"),
)
JUDGED = TITLES[8:13]


def totals(rows: list[tuple[str, ...]]) -> None:
    """Print how many rows say yes, by half."""
    print()
    print_head("half", "networks", *JUDGED)
    for half in ("seen", "held", "both"):
        some = [row for row in rows if half in (row[1], "both")]
        if some:
            counts = (sum(row[8 + at] == "yes" for row in some) for at in range(len(JUDGED)))
            print_row(half, len(some), *counts)


NNCF_TITLES = "network", "half", "tool", "layers in float", "error / tolerance, fresh", "evaluations", "seconds"
NNCF = """
import json, sys, time, warnings
import nncf, numpy as np, onnx, onnxruntime
from pathlib import Path

at, rtol, count = Path(sys.argv[1]), float(sys.argv[2]), 0
samples = [dict(np.load(at / "samples" / f"{number}.npz")) for number in range(len(list((at / "samples").iterdir())))]

def ran(model, number):
    # its models are not loaded where ONNX Runtime's fusions rename what they make
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, samples[one]) for one in number]

model = onnx.load(at / "float.onnx")
good = ran(model, range(len(samples)))

def validate(model, data):
    global count
    count += 1
    data = list(data)
    pairs = zip(ran(model, data), (good[one] for one in data))
    errors = [max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(mine, best)) for mine, best in pairs]
    return 1 - max(errors), [1 - one for one in errors]

begun = time.time()
data = nncf.Dataset(list(range(len(samples))))
searched = [one for number, one in enumerate(samples) if number % 3 != 2]
told = dict(max_drop=rtol, drop_type=nncf.DropType.ABSOLUTE)
made = nncf.quantize_with_accuracy_control(model, nncf.Dataset(searched), data, validate, **told)
onnx.save(made, at / "nncf.onnx")
print(json.dumps({"evaluations": count, "seconds": time.time() - begun}))
"""


def stays(model: onnx.ModelProto, layers: list[str]) -> int:
    """Return how many layers read something that is not quantized."""
    made_by = {name: node.op_type for node in model.graph.node for name in node.output}
    held = (node for node in model.graph.node if node.name in layers and node.op_type in LAYERS)
    return sum(any(made_by.get(name) != "DequantizeLinear" for name in node.input[:2]) for node in held)


def beside_nncf(planted: Planted, at: Path, python: str) -> list[tuple[str, ...]]:
    """Return the rows of both for a network in static int8, from the float model; calibration counts."""
    good, answers = ran(planted.tool.parent, planted.fresh), []
    for more in ((), ("strategy.margin=1",)):
        begun, place = time.time(), at.with_name("-".join((at.name, *more)))
        told = ask(planted, place, "float", *more)
        checks = sum(told["checks"][key] for key in ("search", "trust"))
        mixed = onnx.load(place / "run" / "mixed.onnx")
        answers.append((" ".join(("Winnow", *more)), len(told["culprits"]), mixed, checks, time.time() - begun))
    done = subprocess.run([python, "-c", NNCF, str(at), str(planted.rtol)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        other, model = json.loads(done.stdout.strip().splitlines()[-1]), onnx.load(at / "nncf.onnx")
        kept = stays(model, planted.tool.layers)
        answers.append(("NNCF", kept, model, other["evaluations"], other["seconds"]))
    found = []
    for who, kept, model, evaluations, spent in answers:
        off = error(ran(model, planted.fresh), good) / planted.rtol
        counts = f"{kept} of {len(planted.tool.layers)}", f"{off:.2f}", str(evaluations), f"{spent:.1f}"
        found.append((planted.spec.name, planted.spec.half, who, *counts))
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=["seen", "held"])
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--start", choices=["quantized", "float"], default="quantized")
    parser.add_argument("--out", type=Path, help="leave models and runs here")
    parser.add_argument("--nncf", metavar="PYTHON", help="an interpreter with NNCF, which is measured beside Winnow")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    out = (given.out or Path(tempfile.mkdtemp(prefix="quantized-layers-"))).absolute()
    print_head(*(NNCF_TITLES if given.nncf else TITLES))
    if given.nncf:
        for spec in (one for one in SPECS if one.form == "static int8"):
            with contextlib.redirect_stdout(io.StringIO()):
                planted = made(spec)
            for row in beside_nncf(planted, out / f"{spec.name.replace(' ', '_')}-nncf", given.nncf):
                print_row(*row)
        return
    rows, specs = [], [spec for spec in SPECS if given.only in spec.name and given.half in (None, spec.half)]
    for spec in (one for one in specs if given.start == "quantized" or one.form in LOW):
        with contextlib.redirect_stdout(io.StringIO()):
            planted = made(spec)
        result = ask(planted, out / f"{spec.name.replace(' ', '_')}-{given.start}", given.start)
        with contextlib.redirect_stdout(io.StringIO()):
            rows.append(Row(planted, result).cells())
        print_row(*rows[-1])
    totals(rows)


if __name__ == "__main__":
    main()
