"""python -m benchmarks.quantized_faults [--half seen|held] [--option key=value]: is a fault of quantization found?

30 networks of eight architectures, quantized by ONNX Runtime's `quantize_static` (QDQ, per tensor and per channel,
calibrated on samples that are drawn), each with one fault planted: the scale of a bias that is wrong, that of a weight
60 times too small, a zero point that is wrong, two scales that are swapped. A network is used only where the healthy
one stays within half of the tolerance and the fault takes it beyond four, with ONNX Runtime's optimizations and
without: this is verified here, before Winnow is asked ``model=quantized reference.model=float checker=compare``.

An answer is right if it holds a node of the fault and at most one node that is not of it. Of the fault are the
DequantizeLinear or QuantizeLinear whose constant is wrong, the operator that reads what these give, and the
DequantizeLinear and QuantizeLinear around that, which runtimes fuse with it. Half of the networks are held back: they
are not to be looked at while anything is mended.

Eight further networks are sound: the bias of a Gemm is stored with another scale, and means the same. ONNX Runtime's
optimized Gemm takes no notice of that scale, so that its results are wrong; without optimizations they are right.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from benchmarks import print_head, print_row, session, winnow
from benchmarks.planted_models import Network, mixer, residual, transformer, unet

Values = dict[str, np.ndarray]
SAMPLES = 8
"""Samples of the calibration; the first of them is what Winnow is given."""
LEAST_RTOL, MOST_RTOL = 0.02, 0.1
HEALTHY, LOUD = 0.5, 4.0
"""The error at the outputs, in tolerances: without the fault at most, and with it at least."""
TRIES = 60
"""Seeds that are tried until a network is fit."""


def cnn(net: Network) -> None:
    """Convolutions one after the other, with Relu and pooling."""
    x, width = net.input("x", 1, 3, 16, 16), 3
    for into in (8, 8, 12, 12):
        x = net.relu(net.conv(x, into, width))
        width = into
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    net.head(net.relu(net.conv(x, 12, 12)), 12, "y")


def depthwise(net: Network) -> None:
    """Inverted residual blocks: convolutions over channels, then one for each channel."""
    x = net.leaky(net.conv(net.input("x", 1, 3, 8, 8), 8, 3))
    for _ in range(3):
        wide = net.relu(net.conv(x, 16, 8, 1))
        deep = net.relu(net.conv(wide, 16, 1, group=16))
        x = net.add("Add", x, net.conv(deep, 8, 16, 1))
    net.head(x, 8, "y")


def detector(net: Network) -> None:
    """A backbone with two heads and two outputs."""
    x = net.relu(net.conv(net.input("x", 1, 3, 8, 8), 8, 3))
    x = net.relu(net.conv(x, 8, 8))
    for name in ("boxes", "scores"):
        at = x
        for _ in range(3):
            at = net.leaky(net.conv(at, 8, 8))
        net.head(at, 8, name)


def gated(net: Network) -> None:
    """A gated recurrent cell, unrolled: each weight and each bias has a reader in every step."""
    width, steps = 12, 3
    parts = [(net.weight(8, width), net.weight(width, width, gain=0.7)) for _ in range(2)]
    biases = [net.constant(net.draw.normal(0, 0.5, width).astype(np.float32)) for _ in parts]
    one, state = net.constant(np.float32(1)), net.input("h", 1, width)
    for step in range(steps):
        x = net.input(f"x{step}", 1, 8)
        gate, new = (
            net.add("Add", net.add("Add", net.add("MatMul", x, part), net.add("MatMul", state, loop)), bias)
            for (part, loop), bias in zip(parts, biases, strict=True)
        )
        gate, new = net.add("Sigmoid", gate), net.add("Tanh", new)
        state = net.add("Add", net.add("Mul", gate, state), net.add("Mul", net.add("Sub", one, gate), new))
    net.add("Gemm", state, net.weight(width, 6), net.constant(np.full(6, 0.5, np.float32)), out="y")
    net.outputs.append("y")


ARCHITECTURES = {
    "cnn": cnn,
    "residual": lambda net: residual(net, 1, blocks=3, activation=Network.relu),
    "depthwise": depthwise,
    "unet": lambda net: unet(net, 1, depth=2),
    "mlp": lambda net: mixer(net, 1, layers=1),
    "transformer": lambda net: transformer(net, True, layers=1),
    "detector": detector,
    "gated": gated,
}
FAULTS = ("bias scale", "weight scale", "zero point", "swapped scales")
RUNTIME = "runtime's Gemm"
"""The fault of ONNX Runtime itself."""


class UnfitError(Exception):
    """No model with the properties that are wanted comes of this seed."""


@dataclass(frozen=True)
class Spec:
    """What is planted. ``held``: not to be looked at while anything is mended. ``seed``: the first that is tried."""

    network: str
    fault: str
    per_channel: bool
    held: bool
    seed: int

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.network} {self.fault} {'channel' if self.per_channel else 'tensor'}"

    @property
    def half(self) -> str:
        """Whether it may be looked at."""
        return "held" if self.held else "seen"


def _specs() -> Iterator[Spec]:
    networks, halves = [*ARCHITECTURES], [at % 2 == 1 for at in range(30)]
    np.random.default_rng(30).shuffle(halves)
    for at, held in enumerate(halves):
        turn = at // len(networks)
        yield Spec(networks[at % 8], FAULTS[(at + turn) % 4], (at // 2 + turn) % 2 == 1, held, 1000 * (at + 1))
    for at, network in enumerate(networks):
        yield Spec(network, RUNTIME, at % 2 == 1, at // 2 % 2 == 1, 50000 + 1000 * at)


SPECS = tuple(_specs())


@dataclass
class Faulty:
    """A network and its quantized child with a fault.

    ``core``: the names of nodes of which an answer must hold one; ``around``: those that it may hold as well.
    """

    spec: Spec
    seed: int
    parent: ModelProto
    child: ModelProto
    feeds: Values
    rtol: float = 0.0
    healthy: float = 0.0
    error: float = 0.0
    core: set[str] = field(default_factory=set)
    around: set[str] = field(default_factory=set)

    def right(self, culprits: set[str]) -> bool:
        """Whether an answer is the fault, or the fault and one more node."""
        return bool(culprits & self.core) and len(culprits - self.core - self.around) <= 1


class CalibrationSamples(CalibrationDataReader):
    """What a network is calibrated on."""

    def __init__(self, samples: list[Values]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Values | None:  # type: ignore[override]
        """Return the next sample; None: that was the last."""
        return next(self._left, None)


def through_files(model: ModelProto, quantize: Callable[..., object], *given: object, **options: object) -> ModelProto:
    """Return what a quantizer of ONNX Runtime, which reads and writes files, makes of a network."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, before)
        quantize(before, after, *given, **options)
        return onnx.load(after)


def drawn(net: Network, draw: np.random.Generator, count: int) -> list[Values]:
    """Return so many samples of a network's inputs."""
    return [
        {name: draw.uniform(-1, 1, shape).astype(np.float32) for name, shape in net.inputs.items()}
        for _ in range(count)
    ]


def ran(model: ModelProto, samples: Sequence[Values], *, optimized: bool = False) -> list[np.ndarray]:
    """Return the outputs of a model for all samples in ONNX Runtime."""
    loaded = session(model, 99 if optimized else 0)
    return [output for sample in samples for output in loaded.run(None, sample)]


def error(found: Sequence[np.ndarray], good: Sequence[np.ndarray]) -> float:
    """Return the largest error of some outputs, as parts of their largest value, as ``checker.metric=scale`` has it."""
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, good, strict=True))


# ---- planting


class Child:
    """A quantized network in which constants are changed."""

    def __init__(self, model: ModelProto, draw: np.random.Generator) -> None:
        self.model, self.draw = model, draw
        self.held = {one.name: one for one in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        nodes = [node for node in model.graph.node if node.op_type == "DequantizeLinear"]
        self.weights = [node for node in nodes if node.input[0] in self.held and self._array(node.input[0]).ndim > 1]
        self.biases = [node for node in nodes if node.input[0] in self.held and self._array(node.input[0]).ndim < 2]
        self.back = [node for node in nodes if node.input[0] in self.makers]
        self.changed: list[NodeProto] = []

    def _array(self, name: str) -> np.ndarray:
        return numpy_helper.to_array(self.held[name])

    def _set(self, name: str, value: np.ndarray) -> None:
        self.held[name].CopyFrom(numpy_helper.from_array(np.asarray(value, self._array(name).dtype), name))

    def _one_of(self, nodes: list[NodeProto]) -> NodeProto:
        if not nodes:
            raise UnfitError("there is no place for it")
        return nodes[int(self.draw.integers(len(nodes)))]

    def plant(self, fault: str) -> None:
        """Change constants; ``changed``: the nodes that read them."""
        if fault == RUNTIME:
            gemms = {node.input[2] for node in self.model.graph.node if node.op_type == "Gemm"}
            node = self._one_of([node for node in self.biases if node.output[0] in gemms])
            factor = self.draw.choice([8.0, 16.0])
            self._set(node.input[0], np.round(self._array(node.input[0]) / factor))
            self._set(node.input[1], self._array(node.input[1]) * factor)
        elif fault == "bias scale":
            node = self._one_of(self.biases)
            self._set(node.input[1], self._array(node.input[1]) * self.draw.choice([8.0, 64.0, 256.0]))
        elif fault == "weight scale":
            node = self._one_of(self.weights)
            self._set(node.input[1], self._array(node.input[1]) / 60)
        elif fault == "zero point":
            node = self._one_of(self.back)
            zero = self._array(node.input[2])
            other = np.array((int(zero) + int(self.draw.choice([64, 96, 128]))) % 256, zero.dtype)
            if self.draw.random() < 0.5:  # where it is quantized, too: then values are cut off
                self._set(node.input[2], other)
            else:
                name = f"{node.input[2]}_wrong"
                self.held[name] = self.model.graph.initializer.add()
                self.held[name].CopyFrom(numpy_helper.from_array(other, name))
                node.input[2] = name
        else:
            node, other_node = self._swapped()
            first, second = self._array(node.input[1]), self._array(other_node.input[1])
            self._set(node.input[1], second)
            self._set(other_node.input[1], first)
            self.changed.append(other_node)
        self.changed.append(node)

    def _swapped(self) -> tuple[NodeProto, NodeProto]:
        places = self.weights if self.draw.random() < 0.5 else self.back
        node = self._one_of(places)
        scale = self._array(node.input[1])
        alike = [
            other
            for other in places
            if (known := self._array(other.input[1])).shape == scale.shape
            and max(float((known / scale).max()), float((scale / known).max())) >= 2
        ]
        return node, self._one_of(alike)

    def fault(self) -> tuple[set[str], set[str]]:
        """Return the names of the nodes of the fault: those of which one is needed, and those around them."""
        around = set[str]()
        nodes = self.model.graph.node
        wrong = [list(node.input[1:]) for node in self.changed]
        linear = [node for node in nodes if node.op_type.endswith("antizeLinear")]
        core = {node.name for node in linear if list(node.input[1:]) in wrong}
        for node in (node for node in nodes if not node.op_type.endswith("antizeLinear")):
            near = {self.makers[name].name for name in node.input if name in self.makers}
            near |= {other.name for other in nodes if set(node.output) & set(other.input)}
            if near & core:
                around |= {node.name, *(name for name in near if "Linear" in name)}
        constant = {node.name for node in self.changed if node.input[0] in self.held}
        for node in nodes:  # what a constant of the fault goes into is the first that shows it
            if any(name in self.makers and self.makers[name].name in constant for name in node.input):
                core.add(node.name)
        return core, around - core


def made(spec: Spec) -> Faulty:
    """Return the first fit model of a spec. Raises UnfitError."""
    for seed in range(spec.seed, spec.seed + TRIES):
        try:
            return _made(spec, seed)
        except UnfitError:  # noqa: PERF203 - another seed is tried
            continue
    raise UnfitError(f"{spec.name}: none of {TRIES} seeds is fit")


def _made(spec: Spec, seed: int) -> Faulty:
    net, draw = Network(seed), np.random.default_rng([seed, 30])
    ARCHITECTURES[spec.network](net)
    parent = net.model()
    samples = drawn(net, draw, SAMPLES)
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "quant_format": QuantFormat.QDQ}
    calibration = CalibrationSamples(samples)
    child = through_files(parent, quantize_static, calibration, per_channel=spec.per_channel, **kinds)
    feeds, good = samples[0], ran(parent, samples[:1], optimized=True)

    def errors() -> list[float]:
        return [error(ran(child, samples[:1], optimized=on), good) for on in (True, False)]

    healthy = max(errors())
    rtol = max(LEAST_RTOL, round(healthy / HEALTHY + 0.0005, 3))
    if rtol > MOST_RTOL:
        raise UnfitError("quantized, it is not good enough")
    planted = Child(child, draw)
    planted.plant(spec.fault)
    optimized, plain = errors()
    if spec.fault == RUNTIME and plain > HEALTHY * rtol:
        raise UnfitError("it does not mean the same any more")
    fault = optimized if spec.fault == RUNTIME else min(optimized, plain)
    if not LOUD * rtol <= fault < 1e3:
        raise UnfitError("the fault does not matter")
    core, around = planted.fault()
    return Faulty(spec, seed, parent, child, feeds, rtol, healthy / rtol, fault / rtol, core, around)


def rename(model: ModelProto) -> None:
    """Give all tensors other names but those of the model's inputs and outputs."""
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}
    every = [
        *(one.name for one in model.graph.initializer),
        *(name for node in model.graph.node for name in node.output),
    ]
    names = {name: f"t{at}" for at, name in enumerate(every) if name and name not in kept}
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for one in model.graph.initializer:
        one.name = names.get(one.name, one.name)
    del model.graph.value_info[:]


# ---- asking


def ask(faulty: Faulty, at: Path, options: list[str]) -> dict[str, Any]:
    """Run Winnow; return its result."""
    judged = (f"checker.rtol={faulty.rtol}", "checker.atol=1e-6")
    save(at, faulty.parent, faulty.child, [faulty.feeds])
    files = (f"model={at / 'quantized.onnx'}", f"reference.model={at / 'float.onnx'}")
    return asked(at, *files, *judged, *options)


def save(at: Path, parent: ModelProto, child: ModelProto, samples: Sequence[Values]) -> None:
    """Write both models and the samples into a folder, which is emptied first."""
    shutil.rmtree(at, ignore_errors=True)
    (at / "samples").mkdir(parents=True)
    onnx.save(parent, at / "float.onnx")
    onnx.save(child, at / "quantized.onnx")
    for number, sample in enumerate(samples):
        np.savez(at / "samples" / f"{number}.npz", **sample)


def asked(at: Path, *words: str) -> dict[str, Any]:
    """Run Winnow on what lies in a folder, compared by scale; return its result."""
    given = ("inputs=files", f"inputs.path={at / 'samples'}", "checker=compare", "checker.metric=scale")
    done, told = winnow(at / "run", *words, *given)
    (at / "said.txt").write_text(" ".join(done.args) + "\n" + done.stdout + done.stderr)
    return {"exit": done.returncode, "said": (done.stdout + done.stderr).strip().splitlines()[-1:], **told}


@dataclass(frozen=True)
class Row:
    """What Winnow answered."""

    faulty: Faulty
    result: dict[str, Any]

    @property
    def what(self) -> str:
        """Where it counts: whether the nodes that are answered are the fault, and are said to be the cause."""
        culprits = self.result.get("culprits")
        word = "none" if not culprits else "right" if self.faulty.right(set(culprits)) else "wrong"
        return f"{word}, proven" if (self.result.get("cause") or {}).get("status") in ("proven", "joint") else word

    def cells(self) -> tuple[object, ...]:
        """Return a row of the table."""
        f, checks, culprits = self.faulty, self.result.get("checks") or {}, self.result.get("culprits") or []
        status = (self.result.get("cause") or {}).get("status") or f"exit {self.result['exit']}"
        counts = "/".join(str(checks.get(name, 0)) for name in ("search", "refine", "cause", "trust"))
        return (
            *(f.spec.name, f.spec.half, f.seed, len(f.child.graph.node), f"{f.rtol:g}", f"{f.healthy:.2f}"),
            *(f"{f.error:.1f}", self.what, status, counts),
            *(f"{', '.join(culprits[:6])}{' ...' if len(culprits) > 6 else ''}", ", ".join(sorted(f.core))),
        )


COUNTED = ("right, proven", "right", "wrong, proven", "wrong", "none")


def totals(rows: list[Row]) -> None:
    """Print the table by fault and half."""
    print()
    print_head("fault", "half", "models", "right", "proven", *COUNTED)
    for half in ("seen", "held", ""):
        for fault in (*FAULTS, "all", RUNTIME):
            of = [row for row in rows if fault in (row.faulty.spec.fault, "all" * (row.faulty.spec.fault != RUNTIME))]
            counts = Counter(row.what for row in of if half in (row.faulty.spec.half, ""))
            if counts:
                right = counts["right"] + counts["right, proven"]
                figures = (counts[name] for name in COUNTED)
                print_row(fault, half or "both", counts.total(), right, counts["right, proven"], *figures)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=["seen", "held"])
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--out", type=Path, help="leave models and runs here")
    parser.add_argument("--option", action="append", default=[], help="key=value, of Winnow")
    parser.add_argument("--anonymous", action="store_true", help="the child's tensors have names of their own")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    out = (given.out or Path(tempfile.mkdtemp(prefix="quantized-faults-"))).absolute()
    titles = "model, half, seed, nodes, rtol, healthy, fault, answer, cause, checks, culprits, one of these"
    print_head(*titles.split(", "))
    specs = [spec for spec in SPECS if given.only in spec.name and given.half in (None, spec.half)]

    def one(spec: Spec) -> Row:
        faulty = made(spec)
        if given.anonymous:
            rename(faulty.child)
        row = Row(faulty, ask(faulty, out / spec.name.replace(" ", "_"), given.option))
        print_row(*row.cells())
        return row

    with ThreadPoolExecutor(given.workers) as pool:
        totals(list(pool.map(one, specs)))


if __name__ == "__main__":
    main()
