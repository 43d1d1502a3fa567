"""Golden runs of reductions: each search, each checker, each thing that can be said of an answer."""

from __future__ import annotations

import numpy as np

from tests.behaviour import models
from tests.behaviour.scene import Scene, golden

_NEG, _TWO = "sys.exit('neg' in nodes)", "sys.exit({'exp', 'cos'} <= nodes)"
_PYTHON = """
import onnx

def check(model, inputs, expected):
    graph = onnx.load(model).graph
    return all(node.op_type != "Neg" for node in graph.node)
"""
_COMPARE = ("checker=compare", "checker.rtol=0.01", "target.optimization=none")
_PAIR = ("net.onnx", "reference.model=parent.onnx", "inputs=files", "inputs.path=x")


@golden
def reduce_by_a_command(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("reduce", "net.onnx", *scene.check(_NEG), shows="screen result journal report files")


@golden
def reduce_bisect_leaves_a_window(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("strategy=reduce_bisect", "model=net.onnx", *scene.check(_TWO), "checker.flaky=never")


@golden
def reduce_linear(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("reduce_linear", "net.onnx", *scene.check(_TWO), "checker.flaky=never", "strategy.find=one")


@golden
def reduce_minimal(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("reduce_minimal", "net.onnx", *scene.check(_TWO), "checker.flaky=never")


@golden
def reduce_finds_all(scene: Scene) -> None:
    scene.model(models.NET)
    check = scene.check("sys.exit('neg' in nodes or 'cos' in nodes)")
    scene.winnow("reduce", "net.onnx", *check, "checker.flaky=never", "strategy.find=all")


@golden
def the_inputs_are_kept_so_the_cause_is_untested(scene: Scene) -> None:
    scene.model(models.NET)
    check = scene.check(_NEG)
    scene.winnow("reduce", "net.onnx", *check, "checker.flaky=never", "strategy.reduce_inputs=false")


@golden
def a_python_check_and_what_passes(scene: Scene) -> None:
    scene.model(models.NET)
    scene.model(models.OTHERWISE, "sound.onnx")
    scene.write("mine.py", _PYTHON)
    given = ("checker=python", "checker.file=mine.py", "checker.flaky=never", "strategy.find=one")
    scene.winnow("reduce", "net.onnx", *given, "artifacts=all", "result.path=out/small.onnx")
    scene.winnow("reduce", "sound.onnx", *given, folder="sound")


@golden
def a_weight_that_differs_is_proven(scene: Scene) -> None:
    scene.model(models.scaled(), "parent.onnx")
    scene.model(models.scaled(main=1.2, near=1.013))
    models.samples(scene.here / "x", only=(0.5, 1.5))
    scene.winnow("reduce", *_PAIR, *_COMPARE, shows="screen result journal report")


@golden
def two_weights_that_differ_are_joint(scene: Scene) -> None:
    scene.model(models.scaled(small=0.9), "parent.onnx")
    scene.model(models.scaled(small=0.9, near=1.2, main=1.3))
    models.samples(scene.here / "x", first=(0.5, 1.5), second=(2.0, 3.0))
    scene.winnow("reduce", *_PAIR, *_COMPARE, "checker.flaky=never")


@golden
def noise_alone_is_not_proven(scene: Scene) -> None:
    scene.model(models.scaled(), "parent.onnx")
    scene.model(models.scaled(near=1.03, main=1.009))
    models.samples(scene.here / "x", only=(0.5, 1.5))
    scene.winnow("reduce", *_PAIR, *_COMPARE, "checker.flaky=never")


@golden
def an_overflow_is_proven(scene: Scene) -> None:
    scene.model(models.OVERFLOW)
    given = ("checker=finite", "inputs.ranges={x: [0.5, 3]}", "target.rounding=on")
    scene.winnow("reduce", "net.onnx", *given, shows="screen result journal report files")


@golden
def a_runtime_that_ends_with_an_error(scene: Scene) -> None:
    scene.model("""<ir_version: 8, opset_import: ["": 17]> net (float[2,3] x, int64[1] at) => (float[1,3] y) {
        [relu] a = Relu (x)
        [row] b = Gather (a, at)
        [y] y = Neg (b)
    }""")
    np.savez(scene.here / "x.npz", x=np.ones((2, 3), np.float32), at=np.array([7]))
    scene.winnow("reduce", "net.onnx", "checker=runs", "inputs=files", "inputs.path=x.npz")


@golden
def nested_nodes_are_searched(scene: Scene) -> None:
    scene.model(models.NESTED)
    np.savez(scene.here / "x.npz", x=np.ones((2, 3), np.float32), taken=np.array(True))
    check = scene.check("sys.exit(b'bad' in bytes(whole))")
    scene.winnow("reduce", "net.onnx", *check, "checker.flaky=never", "inputs=files", "inputs.path=x.npz")


@golden
def a_flaky_check_is_measured(scene: Scene) -> None:
    scene.model(models.NET)
    dice = """
import os, pathlib
calls = pathlib.Path('calls')
count = calls.stat().st_size if calls.exists() else 0
with calls.open('a') as file:
    file.write('x')
sys.exit('neg' in nodes and (count * 7919 + 3) % 10 < 7)"""
    scene.winnow("reduce", "net.onnx", *scene.check(dice), "checker.preload=[]", shows="screen result files")


@golden
def a_build_that_fails(scene: Scene) -> None:
    python = scene.rtx()
    scene.model("""<ir_version: 8, opset_import: ["": 17]> net (float[1,5000] x) => (float[1,4000] y)
    <int64[1] k = {4000}> {
        [exp] a = Exp (x)
        [most] values, places = TopK (a, k)
        [y] y = Neg (values)
    }""")
    given = ("checker=builds", "target=tensorrt", f"target.python={python}", "checker.flaky=never")
    scene.winnow("reduce", "net.onnx", *given, "strategy.shrink=false")


@golden
def a_person_judges(scene: Scene) -> None:
    scene.model(models.NET)
    given = ("checker.flaky=never", "strategy.find=one", "strategy.shrink=false")
    scene.winnow("reduce", "net.onnx", "checker=interactive", *given, typed="f f p f f f f p p")


@golden
def expected_outputs_from_files(scene: Scene) -> None:
    """The fault is an approximation that ONNX Runtime is asked for; the files hold exact outputs, then others."""
    scene.model(models.GELU)
    models.expected_outputs(scene.here)
    given = ("net.onnx", "inputs=files", "inputs.path=sets/test_data_set_0", "reference=files")
    tight = ("checker=compare", "checker.rtol=1e-5", "checker.atol=0", "checker.flaky=never")
    scene.winnow("reduce", *given, *tight, models.APPROXIMATE, folder="found", shows="screen journal files")
    scene.winnow("reduce", *given, *tight, "reference.path=others.npz", folder="others", shows="screen result")
    scene.winnow("reduce", *given, *tight, "reference.path=named.npz", folder="named", shows="screen")
