"""Plant faults in a pretended TensorRT and CUDA: does each end as it should, and is the next model judged rightly?

No GPU is used: the libraries are stand-ins (tests/fake_tensorrt), which mirror what their author read. Everything else
is real: a worker process runs an engine of a small model through the very code that would use a GPU, and the answer is
read as a check reads it. `right`: the values are; `fails`: the failure of what is under test, with its signature;
`untried`: no verdict (UNRESOLVED) with a reason; `refused`: the run ends with a usage error that says what to set.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from runner.checkers.candidate_runs import BackendRunner
from runner.checkers.checker import Tools
from runner.exit_codes import UsageError
from runner.model.values.recorded import read, write
from runner.schema.backend import TensorRtBackend
from runner.schema.root import LeaseMode
from runner.workers.gpu_leases import Leases
from runner.workers.gpus import Gpus
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from tests.fake_tensorrt import RELEASES, Installed, install
from tests.jobs.models import saved

PRETENDED = Gpus(("GPU-pretended",))
X = np.random.default_rng(0).standard_normal((8, 64), np.float32)


@dataclass(frozen=True)
class Model:
    """``text``: of a graph. ``expected``: what its outputs must be; of ``inputs``, where they are others."""

    text: str
    expected: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=lambda: {"x": X})

    def save(self, path: Path) -> Path:
        """Write the model."""
        return saved(path, f"g {self.text}", ir=9)


RELU = np.maximum(X, 0)
PLAIN = Model("(float[8,64] x) => (float[8,64] y) { y = Relu(x) }", {"y": RELU})
MODELS = {
    "plain": PLAIN,
    "dynamic": Model("(float[n,64] x) => (float[n,64] y) { y = Relu(x) }", {"y": RELU}),
    "by data": Model(
        "(float[8,64] x) => (int64[2,n] i, float[8,64] y) { y = Relu(x) i = NonZero(y) }",
        {"i": np.stack(np.nonzero(RELU)), "y": RELU},
    ),
    "nothing by data": Model(
        "(float[8,64] x) => (int64[2,n] i) { z = Sub(x, x) i = NonZero(z) }", {"i": np.zeros((2, 0), np.int64)}
    ),
    "shape output": Model(
        "(float[8,64] x) => (int64[2] s, float[8,64] y) { s = Shape(x) y = Relu(x) }",
        {"s": np.array([8, 64]), "y": RELU},
    ),
    "shape input": Model(
        "(float[8,64] x, int64[2] to) => (float[a,b] y) { y = Reshape(x, to) }",
        {"y": X.reshape(4, 128)},
        {"x": X, "to": np.array([4, 128])},
    ),
    "double": Model("(double[8,64] x) => (double[8,64] y) { y = Relu(x) }", {"y": RELU}, {"x": X.astype(np.float64)}),
    "unknown": Model("(float[8,64] x) => (float[8,64] y) { y = Nope(x) }", {}),
}


@dataclass(frozen=True)
class Fault:
    """``planted``: words for the stand-in.

    ``ends``: a pattern, by release where they differ. ``damages``: the GPU stays damaged in that process.
    """

    what: str
    planted: tuple[str, ...] = ()
    ends: str | Mapping[str, str] = "right"
    model: str = "plain"
    settings: Mapping[str, Any] = field(default_factory=dict)
    damages: bool = False

    def expected(self, release: str) -> str:
        """Return the pattern of a release."""
        return self.ends if isinstance(self.ends, str) else self.ends[release]


STRONG = r"refused: .*flags=FP16: networks are strongly typed.*strategy=precision.*strongly_typed=false"
NOT_THERE = r"refused: .*flags=FP16 is not in tensorrt.*strategy=precision$"
OOM = "fails: infer error cudaErrorMemoryAllocation"
FAULTS = (
    Fault("nothing"),
    Fault("an input of any length", model="dynamic"),
    Fault("an output whose shape depends on data", model="by data"),
    Fault("such an output, empty", model="nothing by data"),
    Fault("such an output, aligned to 4096", ("alignment:4096",), model="by data"),
    Fault("a shape as an output (host)", model="shape output"),
    Fault("a shape as an input (host)", model="shape input"),
    Fault("double, which TensorRT makes float", model="double"),
    Fault("executed three times", settings={"runs": 3}),
    Fault("set_input_shape false", ("set_input_shape",), r"untried: .*refuses the shape \[8, 64\] of 'x': .*profiles"),
    Fault("the allocator has no memory", ("no_memory_later",), OOM, "by data"),
    Fault("the allocator hears no shape", ("tells_no_shape",), r"untried: .*did not tell it", "by data"),
    Fault("less asked for than the shape needs", ("asks_for_little",), r"untried: .*asked for 1 bytes", "by data"),
    Fault("the engine takes another type", ("input_type",), r"untried: the input 'x' takes float16, .* given float$"),
    Fault("a type that is not known", ("unknown_type",), r"untried: 'x' has the type FP2"),
    Fault("an output without a shape", ("output_shape",), r"untried: .*tells no shape of the output 'y'"),
    Fault("infer_shapes raises", ("infer_shapes",), r"fails: infer error 4: reshape: changes volume", "dynamic"),
    Fault("execute_async_v3 false", ("execute",), "fails: infer error 1: invalid configuration argument"),
    Fault("executions differ", ("unstable",), "fails: infer error UnstableExecution", settings={"runs": 2}),
    Fault("wrong values", ("wrong:Relu",), "wrong"),
    Fault("out of memory", ("no_memory",), OOM),
    Fault("a copy to the GPU fails", ("copy_in",), "untried: CUDA: cudaErrorInvalidValue"),
    Fault("the engine cannot be read", ("deserialize",), "fails: infer error 1: Serialization assertion"),
    Fault("a GPU that the library does not know", ("another_gpu",), (
        r"refused: .*cannot run here: The engine cannot run on this GPU, which has .*workers\.gpus"
    )),
    Fault("no context", ("context",), "fails: infer error 2: Requested size was"),
    Fault("the build fails", ("build",), "fails: build error 10: Could not find any implementation"),
    Fault("the profile's shapes are refused", ("profile_shape",), r"untried: profiles\.x=.*inconsistent", "dynamic"),
    Fault("the profile is refused", ("profile",), r"untried: the profile of the inputs x is refused", "dynamic"),
    Fault("the user's profile is refused", ("profile",), r"refused: .*the profile of the inputs x is", "dynamic", {
        "profiles": {"x": [8, 64]}
    }),
    Fault("a sample outside of the user's profile", (), r"untried: .*any optimization profiles", "dynamic", {
        "profiles": {"x": [4, 64]}
    }),
    Fault("no builder", ("no_builder",), r"refused: .*gives no builder: .*CUDA initialization failure"),
    Fault("no GPU", ("no_device",), r"refused: .*needs a GPU.*cudaErrorNoDevice.*checker=builds"),
    Fault("the run's timings are another GPU's", ("cache_of_another_gpu",)),
    Fault("the run's timings cannot be read", ("cache_unreadable",)),
    Fault("the user's timings are refused", ("cache_of_another_gpu",), {
        **dict.fromkeys(("10", "11"), r"refused: .*timing_cache=.*refuses it"), "rtx": "refused: .*times no tactics"
    }, settings={"timing_cache": "timings"}),
    Fault("no timings at all are taken", ("cache",), {
        **dict.fromkeys(("10", "11"), "refused: .*an empty timing cache"), "rtx": "right"
    }),
    Fault("FP16 where types are strong", (), {"10": STRONG, "11": NOT_THERE, "rtx": NOT_THERE}, settings={
        "flags": ["FP16"]
    }),
    Fault("FP16 where types are weak", (), {
        "10": "right", **dict.fromkeys(("11", "rtx"), "refused: .*(always strongly typed|strategy=precision)")
    }, settings={"flags": ["FP16"], "strongly_typed": False}),
    Fault("an operator that is not known", (), "fails: load error UNSUPPORTED_NODE", "unknown"),
    # a GPU that stays damaged comes last
    Fault("illegal access, seen at the end", ("cudaErrorIllegalAddress",), "fails: .*IllegalAddress", damages=True),
)  # fmt: skip


class Bench:
    """One installation and one GPU, whose lease a worker holds that stays warm.

    ``installed``: a pretended one; None: what is installed under this interpreter, and ``gpus`` are real.
    """

    def __init__(
        self, folder: Path, stack: ExitStack, installed: Installed | None, gpus: Gpus = PRETENDED, flavor: str = "auto"
    ) -> None:
        self._folder, self._stack, self._installed, self._gpus = folder, stack, installed, gpus
        self._flavor = installed.flavor if installed else flavor
        (folder / "run").mkdir()
        self._begin()
        (folder / "timings").write_bytes(b"timings")
        for name, model in MODELS.items():
            model.save(folder / f"{name}.onnx")
        self._samples = {
            name: {one: write(value, one, folder / f"{name}-{one}.pb") for one, value in model.inputs.items()}
            for name, model in MODELS.items()
        }

    def _begin(self) -> None:
        folder, guardian = self._folder, self._stack.enter_context(Guardian())
        leases = Leases(lambda: self._gpus, 1, folder / "locks", LeaseMode.auto, folder / "run")
        pool = self._stack.enter_context(Pool(folder / "workers", guardian, leases))
        self._tools = Tools(pool, guardian, folder / "run", folder)

    def ends(self, fault: Fault) -> str:
        """Return how a model ends with the fault."""
        assert self._installed
        self._installed.plant(*fault.planted)
        if "timings" in fault.what:
            (self._folder / "run" / "target.timing_cache").write_bytes(b"timings")
        told = self.run(fault.model, fault.settings)
        self._installed.plant()
        return told

    def afterwards(self, *, damaged: bool = False) -> str:
        """Return how a plain model ends that comes next.

        Where the GPU was damaged for a process, that one may say so; the one after it must be right.
        """
        told = self.run("plain", {})
        if damaged and re.match("untried: the GPU cannot be used: cudaError", told):
            self._tools.pool.close()
            self._begin()
            told = self.run("plain", {})
        return told

    def run(self, name: str, settings: Mapping[str, Any]) -> str:
        """Return how a model ends."""
        python = str(self._installed.python) if self._installed else None
        backend = TensorRtBackend(python=python, flavor=self._flavor, **settings)
        side = BackendRunner("target", backend, self._tools, 60, None)
        with tempfile.TemporaryDirectory(dir=self._folder) as out:
            try:
                ran = side.run(self._folder / f"{name}.onnx", [self._samples[name]], Path(out))
            except UsageError as error:
                return f"refused: {error}"
            if ran.invalid:
                return f"untried: {ran.invalid}"
            if ran.signature:
                return f"fails: {ran.signature.stage} {ran.signature.kind}"
            found = {one: read(file) for one, file in ran.outputs[0].items()}
        expected = MODELS[name].expected
        same = found.keys() == expected.keys() and all(
            found[one].shape == value.shape and np.array_equal(found[one], value.astype(found[one].dtype))
            for one, value in expected.items()
        )
        return "right" if same else "wrong"


def benches(folder: Path, stack: ExitStack) -> Iterator[tuple[str, Bench]]:
    """Yield each release with its bench."""
    for release in RELEASES:
        place = folder / release
        place.mkdir()
        yield release, Bench(place, stack, install(place, release))


def judged(fault: Fault, release: str, bench: Bench) -> str:
    """Return `ok`, or what was found instead."""
    told = bench.ends(fault)
    if not re.match(fault.expected(release), told):
        return f"WRONG: {told}"
    after = bench.afterwards(damaged=fault.damages)
    return "ok" if after == "right" else f"WRONG afterwards: {after}"
