"""Golden runs of all questions but a reduction: precision, layers, passes, releases, tactics, kept results, triage."""

from __future__ import annotations

import shutil
import sys

from tests.behaviour import models
from tests.behaviour.scene import Scene, golden
from tests.fake_tensorrt import install
from tests.harness import PRETENDED_GPUS, without_nvml

_NEG = "sys.exit('neg' in nodes)"
_RANGE = "inputs.ranges={x: [0.5, 3]}"


@golden
def precision(scene: Scene) -> None:
    scene.model(models.LAYERS)
    scene.winnow("precision", "net.onnx", _RANGE, shows="screen result journal report files")


@golden
def precision_bisect(scene: Scene) -> None:
    scene.model(models.LAYERS)
    scene.winnow("precision_bisect", "net.onnx", _RANGE, "strategy.direction=forward", "strategy.held_out=0")


@golden
def precision_linear(scene: Scene) -> None:
    scene.model(models.LAYERS)
    scene.winnow("precision_linear", "net.onnx", _RANGE, "strategy.held_out=0", shows="screen result journal")


@golden
def precision_that_nothing_mends(scene: Scene) -> None:
    scene.model(models.LAYERS)
    scene.winnow(
        "precision", "net.onnx", *scene.check("sys.exit(1)"), "checker.flaky=never", shows="screen result journal"
    )


@golden
def layer_by_layer(scene: Scene) -> None:
    scene.model(models.scaled(), "parent.onnx")
    scene.model(models.scaled(main=1.2, near=1.013))
    models.samples(scene.here / "x", only=(0.5, 1.5))
    given = ("reference.model=parent.onnx", "inputs=files", "inputs.path=x", "checker.rtol=0.01")
    scene.winnow("layerwise", "net.onnx", *given, "target.optimization=none", shows="screen result report files")


@golden
def passes_of_a_command(scene: Scene) -> None:
    scene.model(models.NET)
    check = scene.check("sys.exit({'--fuse', '--fold'} <= set(sys.argv[2:]))", "{switches}")
    switches = "strategy.switches=[--fuse,--fold,--layout,--share]"
    scene.winnow("passes", "net.onnx", *check, switches, "checker.flaky=never")


@golden
def versions_without_another_release(scene: Scene) -> None:
    scene.model(models.NET)
    given = (
        "strategy.offline=true",
        "strategy.cache=releases",
        "strategy.versions=['1.0','2.0']",
        "strategy.package=toylib",
    )
    command = f"checker.command='{sys.executable} -c \"import sys; sys.exit(1)\" {{python}}'"
    scene.winnow("versions", "net.onnx", *given, "checker=command", command, shows="screen result")


@golden
def workarounds(scene: Scene) -> None:
    scene.model(models.NET)
    check = scene.check("sys.exit(0 if any(name.endswith('__kept') for name in made) else 1)")
    given = ("strategy.nodes=[tanh,neg]", "checker.flaky=never", "strategy.latency_runs=0", "strategy.fresh=2")
    scene.winnow("workaround", "net.onnx", *check, *given, shows="screen result report files")


@golden
def repeat_without_a_model(scene: Scene) -> None:
    body = """import pathlib, sys
calls = pathlib.Path('calls')
count = calls.stat().st_size if calls.exists() else 0
calls.write_text('x' * (count + 1))
sys.exit(count % 3 == 2)
"""
    scene.write("count.py", body)
    command = f"checker.command='{sys.executable} -I -S count.py {{iteration}}'"
    scene.winnow("repeat", "checker=command", command, "strategy.until=7")
    scene.winnow("repeat", "checker=command", command, "strategy.until=bad", folder="again", shows="screen")


@golden
def tactics_recorded_and_isolated(scene: Scene) -> None:
    made = install(scene.here, "10")
    made.plant("bad_tactic:add2")
    chain = "".join(f"[add{n}] {'y' if n == 3 else f'a{n}'} = Add ({f'a{n - 1}' if n else 'x'}, w)\n" for n in range(4))
    scene.model(
        f'<ir_version: 9, opset_import: ["": 17]> g (float[4,8] x) => (float[4,8] y) <float w = {{0.25}}> {{ {chain} }}'
    )
    gpus = (f"workers.gpus=[{PRETENDED_GPUS[0]}]", "workers.lease_folder=locks")
    given = (
        "net.onnx",
        "target=tensorrt",
        f"target.python={made.python}",
        "checker=compare",
        "checker.flaky=never",
        *gpus,
    )
    alone = without_nvml()
    scene.winnow("tactic_repeat", *given, "strategy.until=6", environment=alone, shows="screen result journal")
    pair = ("strategy.good=run/artifacts/good", "strategy.bad=run/artifacts/bad")
    scene.winnow("tactic_isolate", *given, *pair, folder="isolated", environment=alone)
    scene.winnow("tactic_compare", *pair, folder="compared", shows="screen result files")


@golden
def tactics_that_nobody_times(scene: Scene) -> None:
    scene.model(models.NET)
    given = ("target=tensorrt", f"target.python={scene.rtx()}", "checker=builds")
    scene.winnow("tactic_repeat", "net.onnx", *given)


@golden
def extract(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("extract", "net.onnx", "strategy.inputs=[b]", "strategy.outputs=[f]", shows="screen result files")


@golden
def inspect(scene: Scene) -> None:
    scene.model(models.OVERFLOW)
    scene.winnow("inspect", "net.onnx", shows="screen result report files")


@golden
def kept_results(scene: Scene) -> None:
    scene.model(models.NET)
    given = ("checker.flaky=never", "strategy.find=one")
    scene.winnow("reduce", "net.onnx", *scene.check(_NEG), *given, folder="kept", shows="")
    scene.winnow("recheck", "strategy.results=[kept]", shows="screen result journal")
    scene.winnow("bugs", "strategy.results=[kept]", folder="bugs", shows="screen result files")
    scene.check("sys.exit(0)")
    scene.winnow("recheck", "strategy.results=[kept]", folder="mended", shows="screen result")


@golden
def triage(scene: Scene) -> None:
    scene.model(models.OVERFLOW)
    steps = "strategy.steps=[repeat,reduce,precision,workaround]"
    given = ("checker=finite", "target.rounding=on", "checker.flaky=never", steps)
    scene.winnow("net.onnx", _RANGE, *given, shows="screen result report files")


@golden
def triage_of_a_sound_model(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("net.onnx", shows="screen result journal")


@golden
def from_python(scene: Scene) -> None:
    scene.model(models.NET)
    scene.model(models.LAYERS, "layers.onnx")
    scene.python("""
import numpy as np
import onnx
from runner import api as winnow

def check(model, inputs, expected):
    return all(node.op_type != "Neg" for node in onnx.load(model).graph.node)

quick = {"strategy": {"find": "one", "shrink": False}, "checker": {"flaky": "never"}}
tell = lambda event: print(event.phase, event.outcome)
found = winnow.reduce("net.onnx", check, folder="run", progress=tell, **quick)
print(found)
print(found.status, found.exit_code, found.culprits, found.minimality, found.cause, found.checks)
print([node.name for node in found.model.graph.node], [*found.inputs[0]], [*found.expected[0]])
fed = np.linspace(0.5, 3, 6, dtype=np.float32).reshape(2, 3)
mixed = winnow.precision("layers.onnx", inputs={"x": fed}, folder="mixed")
print(mixed.status, mixed.culprits)
try:
    winnow.reduce("nowhere.onnx", check, folder="none")
except winnow.UsageError as error:
    print("refused:", error)
""")


@golden
def runs_are_listed_and_shown_again(scene: Scene) -> None:
    scene.model(models.NET)
    given = ("checker.flaky=never", "strategy.find=one")
    scene.winnow("reduce", "net.onnx", *scene.check(_NEG), *given, folder="outputs/first", shows="")
    shutil.rmtree(scene.here / "outputs" / "first" / "artifacts")
    scene.winnow("outputs/first", folder="", shows="screen")
    scene.winnow("ls", folder="", shows="screen")
