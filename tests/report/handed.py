# ruff: noqa: E501 - a table
"""What repro.py has to say: for each checker, target and kind of failure, where it shows, and where not, or none can tell.

Each case is a small bundle, written as a run writes it from its configuration, and run by an interpreter that holds
only what the first lines of repro.py name.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from runner.backends.rounding import write as write_rounded
from runner.files import write_text
from runner.model.files.onnx_text import text_of
from runner.model.values.recorded import TensorFile
from runner.report.repro.fill_templates import ROUNDED, rounds
from runner.report.repro.write import REPRO_NAME, Printed, repro
from runner.report.result_parts import KnownFailure
from runner.report.summary import Summary
from runner.schema import checker as checkers
from runner.schema.backend import (
    BackendSettings,
    Flavor,
    OnnxReferenceBackend,
    OnnxRuntimeBackend,
    Optimization,
    Rounding,
    TensorRtBackend,
)
from runner.schema.root import Settings
from runner.verdict import Sample
from tests import fake_tensorrt
from tests.report.fresh import Shown, environment, show

SHOWS, GONE, CANNOT_TELL = 1, 0, 2
ORT = ("numpy", "onnx", "onnxruntime")
EVALUATOR = ("numpy", "onnx")
NOTHING: tuple[str, ...] = ()
NO_VALUES = Sample({})
REFERENCE = OnnxReferenceBackend()
UNOPTIMIZED = OnnxRuntimeBackend(optimization=Optimization.none)

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One bundle, and what its repro.py has to say.

    ``check``: the text of a check beside it. ``spoil``: done to the folder once all is written.
    """

    name: str
    code: int
    checker: checkers.CheckerSettings
    found: tuple[str, ...]
    packages: Sequence[str] = ORT
    target: BackendSettings = field(default_factory=OnnxRuntimeBackend)
    reference: BackendSettings = REFERENCE
    nodes: Sequence[NodeProto] = ()
    inputs: Values = field(default_factory=lambda: {"x": np.array([-1.0, 4.0], np.float32)})
    shapes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    expected: Values = field(default_factory=dict)
    evidence: Values = field(default_factory=dict)
    check: str = ""
    spoil: Callable[[Path], None] | None = None

    def write(self, folder: Path, *, alone: bool = False) -> Path:
        """Write the bundle; return its repro.py. ``alone``: this holds all that it can."""
        nodes = list(self.nodes) or [helper.make_node("Log", ["x"], ["y"], name="n")]
        lay(folder, nodes, self.inputs, self.expected, self.shapes)
        if self.check:
            (folder / "check.py").write_text(self.check)
        settings = Settings(target=self.target, reference=self.reference, checker=self.checker)  # type: ignore[arg-type]
        finite = all(
            np.isfinite(value).all() for value in self.expected.values() if np.asarray(value).dtype.kind == "f"
        )
        if rounds(self.target):
            given = {"model": str(folder / "reduced.onnx"), "out": str(folder / ROUNDED)}
            write_rounded({**given, "strict": getattr(self.target, "rounding", None) is Rounding.strict})
        signature = KnownFailure(*self.found)
        told = Summary("found", 0, "reduce", culprits=("n",), signature=signature, evidence=self.evidence)
        good = TensorFile("y", folder, TensorProto.FLOAT, (1,), finite)
        write_repro(folder, told, settings, folder, Sample({}, {"y": good}), text_of if alone else None)
        if self.spoil:
            self.spoil(folder)
        return folder / REPRO_NAME


def write_repro(
    folder: Path,
    told: Summary,
    settings: Settings,
    cwd: Path,
    sample: Sample = NO_VALUES,
    printed: Printed | None = None,
) -> None:
    """Write repro.py for what lies in a folder, as a bundle has it."""
    write_text(folder / REPRO_NAME, repro(folder, told, settings, cwd, [sample], printed).source)


def lay(
    folder: Path,
    nodes: Sequence[NodeProto],
    inputs: Values,
    expected: Values = MappingProxyType({}),
    shapes: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> None:
    """Write a model whose outputs are what no node reads, and its data set.

    ``shapes``: of inputs; one that is not there has that of its value.
    """
    fed, good = (
        [one if isinstance(one, TensorProto) else numpy_helper.from_array(np.asarray(one), name) for name, one in held]
        for held in (inputs.items(), expected.items())
    )
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    for stem, tensors in (("input", fed), ("output", good)):
        for number, tensor in enumerate(tensors):
            (data / f"{stem}_{number}.pb").write_bytes(tensor.SerializeToString())
    read = {name for node in nodes for name in node.input}
    made = [name for node in nodes for name in node.output if name not in read]
    kinds = {tensor.name: tensor.data_type for tensor in fed}
    first = next(iter(kinds.values()), TensorProto.FLOAT)
    dims = {tensor.name: list(tensor.dims) for tensor in fed} | dict(shapes)
    declared = [helper.make_tensor_value_info(name, kinds.get(name, first), dims[name]) for name in dims]
    outputs = [helper.make_tensor_value_info(name, first, None) for name in made]
    graph = helper.make_graph(list(nodes), "g", declared, outputs)
    imports = [helper.make_opsetid("", 19), helper.make_opsetid("odd", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), str(folder / "reduced.onnx"))


LIBRARY = """
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
void *RegisterCustomOps(void *options, const void *api) { BODY; return 0; }
"""


def library(folder: Path, body: str) -> str:
    """Compile a library of custom operators that does something when it is loaded."""
    path = folder / f"lib{abs(hash(body)) % 10**8}.so"
    if not path.exists():
        source = path.with_suffix(".c")
        source.write_text(LIBRARY.replace("BODY", body))
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(path), str(source)], check=True)
    return str(path)


def without(*names: str) -> Callable[[Path], None]:
    """Take files of the bundle away."""

    def spoil(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return spoil


def command(body: str, **rules: Any) -> checkers.CommandChecker:
    """A check that is a script of Python."""
    words = [sys.executable, "-I", "-S", "-c", f"import os, sys, signal, time\n{body}", "{model}"]
    return checkers.CommandChecker(command=words, **rules)


def now(body: str) -> Callable[[Path], None]:
    """Have the check do something else than it did."""

    def spoil(folder: Path) -> None:
        (folder / "check.py").write_text(body)

    return spoil


def script(**rules: Any) -> checkers.CommandChecker:
    """A check that is a file beside the bundle."""
    return checkers.CommandChecker(command=[sys.executable, "-I", "-S", "check.py", "{model}"], **rules)


def values_cases() -> list[Case]:
    """NaN, Inf, and outputs that differ."""
    compare, auto = checkers.CompareChecker, checkers.AutoChecker()
    nan, good = ("infer", "nan"), {"x": np.array([1.0, 4.0], np.float32)}
    right = {"y": np.log(np.array([1.0, 4.0], np.float32))}
    wrong = {"y": right["y"] + 1}
    erf = {"nodes": [helper.make_node("Erf", ["x"], ["y"])], "inputs": {"x": np.linspace(-3, 3, 999, dtype=np.float32)}}
    mismatch = ("compare", "mismatch")
    ahead = {"golden": checkers.Golden.ahead}
    half = {"x": np.array([300.0], np.float16)}
    overflow = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Sub", ["a", "a"], ["y"]),
    ]
    rounds = [OnnxRuntimeBackend(rounding=one) for one in (Rounding.on, Rounding.strict, Rounding.off)]
    found = [
        Case("auto, NaN", SHOWS, auto, nan),
        Case("auto, NaN, no longer", GONE, auto, nan, inputs=good),
        Case("auto, Inf where NaN was", SHOWS, auto, nan, inputs={"x": np.zeros(2, np.float32)}),
        Case("finite, Inf", SHOWS, checkers.FiniteChecker(), ("infer", "inf"), inputs={"x": np.zeros(2, np.float32)}),
        Case("finite, NaN is let pass", GONE, checkers.FiniteChecker(nan=checkers.NonFiniteOutput.ignore), ("infer", "inf")),
        Case("finite, evaluator", SHOWS, checkers.FiniteChecker(), nan, EVALUATOR, REFERENCE),
        Case("finite, meant elsewhere", GONE, auto, nan, expected={"y": [np.nan, 1]}, evidence={"output": "z"}),
        Case("finite, no such provider", CANNOT_TELL, auto, nan, target=OnnxRuntimeBackend(providers=["CUDAExecutionProvider"])),
        Case("finite, nothing installed", CANNOT_TELL, auto, nan, NOTHING),
        Case("finite, no runtime installed", CANNOT_TELL, auto, nan, EVALUATOR),
        Case("finite, no inputs", CANNOT_TELL, auto, nan, spoil=without("test_data_set_0")),
        Case("finite, no model", CANNOT_TELL, auto, nan, spoil=without("reduced.onnx")),
        Case("rounding", SHOWS, auto, nan, target=rounds[0], nodes=overflow, inputs=half),
        Case("rounding strictly", SHOWS, auto, nan, target=rounds[1], nodes=overflow, inputs=half),
        Case("no rounding", GONE, auto, nan, target=rounds[2], nodes=overflow, inputs=half),
        Case("compare, evaluator is right", SHOWS, compare(rtol=0.0, atol=0.0), mismatch, **erf),  # type: ignore[arg-type]
        Case("compare, alike", GONE, compare(), mismatch, **erf),  # type: ignore[arg-type]
        Case("compare, recorded outputs", SHOWS, compare(**ahead), mismatch, inputs=good, expected=wrong),
        Case("compare, recorded, alike", GONE, compare(**ahead), mismatch, inputs=good, expected=right),
        Case("compare, nothing recorded", CANNOT_TELL, compare(**ahead), mismatch, inputs=good),
        Case("compare, NaN", SHOWS, compare(**ahead), ("compare", "nan"), expected=right),
        Case("compare, NaN in both", GONE, compare(**ahead), ("compare", "nan"), expected={"y": [np.nan, np.float32(np.log(4))]}),
        Case("compare, NaN where a mismatch was", CANNOT_TELL, compare(**ahead), mismatch, expected=right),
        Case("compare, a shape", SHOWS, compare(**ahead), ("compare", "shape"), inputs=good, expected={"y": np.zeros(3, np.float32)}),
        Case("compare, measured limit", GONE, compare(tolerance=checkers.Tolerance.auto, **ahead), mismatch, inputs=good,
             expected=wrong, evidence={"limit": 5.0, "output": "y"}),
        Case("compare, beyond the measured limit", SHOWS, compare(tolerance=checkers.Tolerance.auto, rtol=9.0, **ahead),
             mismatch, inputs=good, expected=wrong, evidence={"limit": 0.1, "output": "y"}),
        Case("compare, no limit was measured", SHOWS, compare(tolerance=checkers.Tolerance.auto, **ahead), mismatch,
             inputs=good, expected=wrong, evidence={"limit": None, "output": "y"}),
        Case("compare, outputs of another model", SHOWS, compare(), mismatch,
             reference=OnnxReferenceBackend(model="fp32.onnx"), inputs=good, expected=wrong),
        Case("compare, by two metrics", SHOWS, compare(metric=["scale", "cosine"], rtol=9.0, **ahead), mismatch,
             inputs=good, expected={"y": np.array([3.0, 0.1], np.float32)}),
    ]  # fmt: skip
    found += [
        Case(f"compare, {metric}", SHOWS, compare(metric=metric, **ahead), mismatch, inputs=good, expected=wrong)
        for metric in ("elementwise", "fraction", "cosine")
    ]
    for statistic in checkers.Statistic:
        rule = compare(statistic=statistic, **ahead)
        found.append(Case(f"compare, {statistic.value}", SHOWS, rule, mismatch, inputs=good, expected=wrong))
    return [
        dataclasses.replace(one, expected={name: np.asarray(value, np.float32) for name, value in one.expected.items()})
        for one in found
    ]


def error_cases() -> list[Case]:
    """A runtime that refuses a model, or fails on it."""
    runs = checkers.RunsChecker()
    gather = [helper.make_node("Gather", ["x", "i"], ["y"], name="n")]
    beyond = {"x": np.ones(3, np.float32), "i": np.array([7])}
    said = "Non-zero status code returned while running Gather node. Name:_ Status Message: indices element out of data bounds, idx=#"
    odd = [helper.make_node("Nope", ["x"], ["y"], domain="odd")]
    found = ("infer", "error INVALID_ARGUMENT", said)
    fails = {"nodes": gather, "inputs": beyond}
    fine = {"nodes": gather, "inputs": {**beyond, "i": np.array([1])}}
    return [
        Case("runs, infer error", SHOWS, runs, found, target=UNOPTIMIZED, **fails),  # type: ignore[arg-type]
        Case("runs, no longer", GONE, runs, found, target=UNOPTIMIZED, **fine),  # type: ignore[arg-type]
        Case("runs, another status", CANNOT_TELL, runs, ("infer", "error FAIL", said), target=UNOPTIMIZED, **fails),  # type: ignore[arg-type]
        Case("runs, another stage", CANNOT_TELL, runs, ("load", *found[1:]), target=UNOPTIMIZED, **fails),  # type: ignore[arg-type]
        Case("runs, another message", CANNOT_TELL, runs, (*found[:2], "no kernel was ever written for that"),
             target=UNOPTIMIZED, **fails),  # type: ignore[arg-type]
        Case("runs, evaluator", SHOWS, runs, ("infer", "error IndexError", ""), EVALUATOR, REFERENCE, **fails),  # type: ignore[arg-type]
        Case("runs, load error", SHOWS, runs, ("load", "error FAIL", "_ is not a registered function/op"), nodes=odd),
        Case("runs, an error where NaN was", CANNOT_TELL, checkers.AutoChecker(), ("infer", "nan"), target=UNOPTIMIZED, **fails),  # type: ignore[arg-type]
        Case("compare, the reference does not run", CANNOT_TELL, checkers.CompareChecker(), ("compare", "mismatch"), **fails),  # type: ignore[arg-type]
    ]  # fmt: skip


def end_cases(tools: Path) -> list[Case]:
    """What ends the process: a death, a time-out, too much memory, an exit."""
    if shutil.which("cc") is None:
        return []
    runs, ok = checkers.RunsChecker(timeout=30.0), {"inputs": {"x": np.ones(2, np.float32)}}

    def ends(body: str) -> OnnxRuntimeBackend:
        return OnnxRuntimeBackend(custom_ops=[library(tools, body)])

    short, small = checkers.RunsChecker(timeout=0.5), checkers.RunsChecker(timeout=30.0, memory_mb=400)
    hoard = "char *p = malloc(500000000); memset(p, 1, 500000000); sleep(60)"
    gone = OnnxRuntimeBackend(custom_ops=[str(tools / "gone.so")])
    told = [
        ("death by SEGV", SHOWS, runs, "death MEMORY", ends("raise(SIGSEGV)")),
        ("death by ABRT is one with it", SHOWS, runs, "death MEMORY", ends("abort()")),
        ("death by FPE", SHOWS, runs, "death FPE", ends("raise(SIGFPE)")),
        ("another death", CANNOT_TELL, runs, "death FPE", ends("abort()")),
        ("no death", GONE, runs, "death MEMORY", ends("")),
        ("no library", CANNOT_TELL, runs, "death MEMORY", gone),
        ("time-out", SHOWS, short, "timeout", ends("sleep(60)")),
        ("no time-out", GONE, short, "timeout", ends("")),
        ("a death where a time-out was", CANNOT_TELL, short, "timeout", ends("abort()")),
        ("a time-out where a death was", CANNOT_TELL, short, "death MEMORY", ends("sleep(60)")),
        ("memory", SHOWS, small, "memory", ends(hoard)),
        ("an exit", SHOWS, runs, "exit 9", ends("_exit(9)")),
        ("exit 1 is no answer", CANNOT_TELL, runs, "exit 9", ends("_exit(1)")),
    ]
    return [
        Case(f"runs, {name}", code, checker, ("infer", kind), target=target, **ok)  # type: ignore[arg-type]
        for name, code, checker, kind, target in told
    ]


RTX = ("numpy", "onnx", "onnxruntime-ep-nv-tensorrt-rtx-cu13", "tensorrt-rtx-cu13-bindings")


def build_cases() -> list[Case]:
    """TensorRT for RTX builds, which needs no GPU."""
    builds = checkers.BuildsChecker(timeout=60.0)

    def backend(**given: Any) -> TensorRtBackend:
        return TensorRtBackend(flavor=Flavor.tensorrt_rtx, compute_capabilities=["SM86"], **given)

    def top(k: int) -> dict[str, Any]:
        nodes = [constant("k", np.array([k])), helper.make_node("TopK", ["x", "k"], ["y", "i"], name="n")]
        return {"nodes": nodes, "inputs": {"x": np.zeros((1, 10000), np.float32)}}

    def constant(name: str, value: Any) -> NodeProto:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))

    said = "error 4: K exceeds the maximum value allowed"
    reshape = [constant("w", np.ones(4, np.float32)), helper.make_node("MatMul", ["w", "x"], ["y"], name="n")]
    parse = {"nodes": reshape, "inputs": {"x": np.zeros((2, 4, 8), np.float32)}}
    volume = ("load", "error INVALID_NODE MatMul: reshape changes volume", "reshape changes volume")
    pool = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1, name="n")]
    image = {"nodes": pool, "inputs": {"x": np.zeros((1, 1, 56, 56), np.float32)}}
    relu = {"nodes": [helper.make_node("Relu", ["x"], ["y"], name="n")], "inputs": {}, "shapes": {"x": ["n", 3]}}
    ranges = {"x": {"min": [1, 3], "opt": [2, 3], "max": [4, 3]}}
    build, shape = ("build", said, ""), ("compare", "shape")
    good, odd = np.zeros((1, 1, 28, 28), np.float32), np.zeros((1, 1, 29, 29), np.float32)
    none = without("test_data_set_0/output_0.pb")
    rows: list[tuple[str, int, tuple[str, ...], dict[str, Any]]] = [
        ("a build fails", SHOWS, build, top(5000)),
        ("a build that no longer fails", GONE, build, top(5)),
        ("another build failure", CANNOT_TELL, ("build", "error 10: no runners for a node", ""), top(5000)),
        ("a parser fails", SHOWS, volume, parse),
        ("a parser that no longer fails", GONE, volume, top(5)),
        ("a parser fails in place of a build", CANNOT_TELL, build, parse),
        ("a wrong shape", SHOWS, shape, {**image, "expected": {"y": good}}),
        ("the right shape", GONE, shape, {**image, "expected": {"y": odd}}),
        ("no good shape is known", CANNOT_TELL, shape, {**image, "expected": {"y": odd}, "spoil": none}),
        ("ranges that were given", GONE, build, {**relu, "target": backend(profiles=ranges)}),
        ("ranges that nobody gave", CANNOT_TELL, build, relu),
        ("a plugin that is not here", CANNOT_TELL, build, {**top(5), "target": backend(plugins=["none.so"])}),
        ("a flag that it does not have", CANNOT_TELL, build, {**top(5), "target": backend(flags=["FP17"])}),
        ("TensorRT is not here", CANNOT_TELL, build, {**top(5000), "packages": EVALUATOR}),
        ("a run needs a GPU", CANNOT_TELL, ("infer", "nan"), {**top(5), "checker": checkers.FiniteChecker()}),
    ]
    plain = {"packages": RTX, "target": backend(), "checker": builds}
    return [
        Case(name=f"builds, {name}", code=code, found=found, **{**plain, **given}) for name, code, found, given in rows
    ]


def engine_cases() -> list[tuple[str, Case]]:
    """An engine that runs, on a stand-in for TensorRT and CUDA: no GPU has run this. With what it is told to do."""
    good = {"x": np.array([1.0, 4.0], np.float32)}
    right = {"y": np.log(good["x"])}
    engine = TensorRtBackend(flavor=Flavor.tensorrt, flags=["TF32"], runs=3)
    nan, mismatch, runs = ("infer", "nan"), ("compare", "mismatch"), checkers.RunsChecker()
    ahead, finite, auto = (
        checkers.CompareChecker(golden=checkers.Golden.ahead),
        checkers.FiniteChecker(),
        checkers.AutoChecker(),
    )
    unstable, failed = ("infer", "error UnstableExecution"), "invalid configuration argument"
    lost = "Could not find any implementation"
    sticky = ("infer", "error cudaErrorIllegalAddress")
    by_data = [helper.make_node("Log", ["x"], ["a"]), helper.make_node("NonZero", ["a"], ["y"])]
    rows: list[tuple[str, str, int, checkers.CheckerSettings, tuple[str, ...], dict[str, Any]]] = [
        ("NaN", "", SHOWS, finite, nan, {}),
        ("NaN, auto", "", SHOWS, auto, nan, {}),
        ("NaN, no longer", "", GONE, finite, nan, {"inputs": good}),
        ("a mismatch", "", SHOWS, ahead, mismatch, {"inputs": good, "expected": {"y": right["y"] + 1}}),
        ("a mismatch with the evaluator", "", GONE, checkers.CompareChecker(), mismatch, {"inputs": good}),
        ("alike", "", GONE, ahead, mismatch, {"inputs": good, "expected": right}),
        ("executions that differ", "unstable", SHOWS, runs, unstable, {}),
        ("executions that are alike", "", GONE, runs, unstable, {}),
        ("an execution fails", "execute", SHOWS, runs, ("infer", f"error 1: {failed}", failed), {}),
        ("a sticky error", "cudaErrorIllegalAddress", SHOWS, runs, sticky, {}),
        ("another error", "no_memory", CANNOT_TELL, runs, sticky, {"inputs": {"x": np.ones(999, np.float32)}}),
        ("a build fails", "build", SHOWS, runs, ("build", f"error 10: {lost} for node _", lost), {}),
        ("a build fails in place of a run", "build", CANNOT_TELL, finite, nan, {}),
        ("no GPU", "no_device", CANNOT_TELL, finite, nan, {}),
        ("a shape is refused", "set_input_shape", CANNOT_TELL, finite, nan, {}),
        ("a shape depends on data", "", CANNOT_TELL, finite, nan, {"nodes": by_data}),
        ("an output on the host", "host:y", CANNOT_TELL, finite, nan, {}),
        ("a flag that it does not have", "", CANNOT_TELL, finite, nan,
         {"target": TensorRtBackend(flavor=Flavor.tensorrt, flags=["FP17"])}),
    ]  # fmt: skip
    plain = {"packages": EVALUATOR, "target": engine}
    return [
        (told, Case(name=f"engine, {name}", code=code, checker=checker, found=found, **{**plain, **given}))
        for name, told, code, checker, found, given in rows
    ]


def command_cases() -> list[Case]:
    """A command judges."""
    one, raising = ("check", "exit 1"), ("check", "exit 1", "", "ValueError at check.py:1")
    traced = "print('Traceback (most recent call last):\\n  File \"check.py\", line 1\\n{}: no')\nsys.exit(1)"
    told: list[tuple[str, int, checkers.CommandChecker, tuple[str, ...]]] = [
        ("exit 1", SHOWS, command("sys.exit(1)"), one),
        ("passes", GONE, command("pass"), one),
        ("another exit", CANNOT_TELL, command("sys.exit(3)"), one),
        ("listed exit", SHOWS, command("sys.exit(3)", fail_codes=[3]), ("check", "listed exit")),
        ("exit that is not listed", GONE, command("sys.exit(1)", fail_codes=[3]), ("check", "listed exit")),
        ("listed exit, no words", GONE, command("sys.exit(3)", fail_codes=[3], fail_regex=["^boo"]), ("check", "listed exit")),
        ("listed exit and words", SHOWS, command("print('boo')\nsys.exit(3)", fail_codes=[3], fail_regex=["^boo"]), ("check", "listed exit")),
        ("words", SHOWS, command("print('hey')\nprint('boo')", fail_regex=["^boo"]), ("check", "regex")),
        ("other words", GONE, command("print('hey')", fail_regex=["^boo"]), ("check", "regex")),
        ("exit that passes", GONE, command("sys.exit(5)", pass_codes=[5]), one),
        ("exit that is another failure", CANNOT_TELL, command("sys.exit(4)", different_codes=[4]), one),
        ("exit that says nothing", CANNOT_TELL, command("sys.exit(2)", invalid_codes=[2]), one),
        ("exit 127", CANNOT_TELL, command("sys.exit(127)"), one),
        ("death", SHOWS, command("os.abort()"), ("check", "death MEMORY")),
        ("death in a shell", SHOWS, command("sys.exit(139)"), ("check", "death MEMORY")),
        ("a death where exit 1 was", CANNOT_TELL, command("os.abort()"), one),
        ("exit 1 where a death was", CANNOT_TELL, command("sys.exit(1)"), ("check", "death MEMORY")),
        ("time-out", SHOWS, command("time.sleep(60)", timeout=0.5), ("check", "timeout")),
        ("a time-out where exit 1 was", CANNOT_TELL, command("time.sleep(60)", timeout=0.5), one),
        ("a death where a time-out was", CANNOT_TELL, command("os.abort()", timeout=5.0), ("check", "timeout")),
        ("memory", SHOWS, command("x = b'1' * 300_000_000\ntime.sleep(60)", memory_mb=200), ("check", "memory")),
        ("its exception", SHOWS, command(traced.format("ValueError")), raising),
        ("another exception", CANNOT_TELL, command(traced.format("KeyError")), raising),
        ("an exception where exit 1 was", CANNOT_TELL, command("raise KeyError('x')"), one),
        ("a missing module", CANNOT_TELL, command("import nowhere"), one),
        ("no such program", CANNOT_TELL, checkers.CommandChecker(command=["/no/such/program", "{model}"]), one),
        ("placed, another file is there", CANNOT_TELL, command("sys.exit(1)", place="reduced.onnx.txt"), one),
    ]  # fmt: skip
    found = [Case(f"command, {name}", code, checker, kind, NOTHING) for name, code, checker, kind in told]
    found[-1] = dataclasses.replace(
        found[-1], spoil=lambda folder: (folder / "reduced.onnx.txt").write_text("the user's") and None
    )
    feeds = "import numpy, onnx\nassert numpy.load(sys.argv[2])['x'].tolist() == [-1, 4]\nsys.exit(1)"
    two, module = ("check", "exit 2"), checkers.CommandChecker(command=[sys.executable, "-m", "nowhere", "{model}"])
    asks = checkers.CommandChecker(command=[sys.executable, "-c", f"import sys\n{feeds}", "{model}", "{inputs}"])
    return [
        *found,
        Case("command, asks for values", SHOWS, asks, one, EVALUATOR),
        Case("command, values without numpy", CANNOT_TELL, asks, one, NOTHING),
        Case("command, exit 2 of a script", SHOWS, script(), two, NOTHING, check="import sys\nsys.exit(2)"),
        Case("command, the script is missing", CANNOT_TELL, script(), two, NOTHING, check="#", spoil=without("check.py")),
        Case("command, the script has changed", SHOWS, script(), one, NOTHING, check="#", spoil=now("raise SystemExit(1)")),
        Case("command, a module that is missing", CANNOT_TELL, module, one, NOTHING),
        Case("command, the script is no Python any more", CANNOT_TELL, script(), one, NOTHING, check="#", spoil=now("x = (")),
        Case("command, no tests ran", CANNOT_TELL, command("print('no tests ran')\nsys.exit(5)"), ("check", "exit 5"), NOTHING),
    ]  # fmt: skip


def python_cases() -> list[Case]:
    """A Python function judges, and a person."""
    fails, raised = ("check", "returned fail"), ("check", "raised", "", "ValueError at check.py:2")

    def judge(name: str, code: int, body: str, found: tuple[str, ...] = fails, **given: Any) -> Case:
        settings = checkers.PythonChecker(file="check.py", timeout=30.0, **given)
        text = f"def check(model, inputs, expected):\n    {body}\n"
        return Case(f"python, {name}", code, settings, found, EVALUATOR, check=text)

    return [
        judge("False", SHOWS, "assert inputs[0]['x'].tolist() == [-1, 4]\n    return False"),
        judge("what drives a terminal", SHOWS, "print('\\x1b[2J')\n    return False"),
        judge("True", GONE, "return True"),
        judge("nothing", GONE, "pass"),
        judge("a dict", SHOWS, "return {'outcome': 'fail', 'worst': 1}"),
        judge("different", CANNOT_TELL, "return 'different'"),
        judge("an exception of its own", CANNOT_TELL, "raise ValueError('boo')"),
        judge("its exception", SHOWS, "raise ValueError('boo')", raised),
        judge("another exception", CANNOT_TELL, "raise KeyError('boo')", raised),
        judge("a missing module", CANNOT_TELL, "import nowhere"),
        judge("a death", SHOWS, "import os; os.abort()", ("check", "death MEMORY")),
        judge("a number that fell", SHOWS, "return 0.5", max_drop=0.1, baseline=0.8),
        judge("a number that held", GONE, "return 0.75", max_drop=0.1, baseline=0.8),
        judge("a number that rose by a share", SHOWS, "return {'value': 9.0}", max_rise="10%", baseline=8.0),
        dataclasses.replace(judge("no file", CANNOT_TELL, "return False"), spoil=without("check.py")),
        Case("interactive", CANNOT_TELL, checkers.InteractiveChecker(), ("check", "said"), NOTHING),
    ]


def table(rows: Sequence[tuple[Case, int]]) -> str:
    """Return a line for each case: what it has to say, and what it says."""
    words = {SHOWS: "shows", GONE: "does not show", CANNOT_TELL: "cannot tell"}
    lines = [f"| {'case':<44} | has to say    | says          |", f"|{'-' * 46}|{'-' * 15}|{'-' * 15}|"]
    for case, code in rows:
        said = words.get(code, json.dumps(code))
        lines.append(
            f"| {case.name:<44} | {words[case.code]:<13} | {said:<13} |{'' if code == case.code else ' wrong'}"
        )
    return "\n".join(lines)


class Fresh:
    """Interpreters that hold only the packages that are asked for, made once each."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, dict[tuple[str, ...], Path]()

    def python(self, packages: Sequence[str]) -> Path:
        """Return the interpreter that holds these packages."""
        wanted = tuple(packages)
        if wanted not in self._made:
            self._made[wanted] = environment(self._folder / f"python_{len(self._made)}", wanted)
        return self._made[wanted]

    def said(self, case: Case, folder: Path, stub: str | None = None) -> Shown:
        """Write a case's bundle and run its repro.py with no more than it says that it needs.

        ``stub``: what is planted in the stand-in for TensorRT; None: there is none.
        """
        folder.mkdir(parents=True)
        if stub is None:
            return show(self.python(case.packages), case.write(folder))
        wanted = (*case.packages, "a stand-in for TensorRT")
        known = wanted in self._made
        python = self.python(wanted)
        if not known:
            (site,) = python.parents[1].glob("lib/python*/site-packages")
            fake_tensorrt.install(python.parents[1], "10")
            for place in (*(python.parents[1] / "site").iterdir(), fake_tensorrt.SITE / "stand_in"):
                (site / place.name).symlink_to(place)
        (python.parents[1] / "faults").write_text(stub)
        return show(python, case.write(folder), {"STAND_IN_FAULTS": str(python.parents[1] / "faults")})
