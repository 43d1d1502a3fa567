"""Golden runs of endings: each status and exit code, interruptions, sweeps, files of users, bad input."""

from __future__ import annotations

import sys

from tests.behaviour import models
from tests.behaviour.scene import Scene, golden

_NEG, _QUICK = "sys.exit('neg' in nodes)", ("checker.flaky=never", "strategy.find=one", "strategy.shrink=false")
_ENDS = """
import os, pathlib, signal
import onnx

def check(model, inputs, expected):
    place = pathlib.Path(__file__).parent / "calls"
    with place.open("a") as calls:
        calls.write("x")
    if place.stat().st_size == {at}:
        os.kill(os.getppid(), signal.{signal})
        signal.pause()
    return all(node.op_type != "Neg" for node in onnx.load(model).graph.node)
"""
_PYTHON = ("checker=python", "checker.file=mine.py", *_QUICK)
_BROKEN = """import sys, {imports}
from {module} import {owner}
def fails(*_, **__): raise {error}
{owner}.{name} = fails
from runner.__main__ import main
main()
"""


@golden
def planned_only(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("reduce", "net.onnx", *scene.check(_NEG), "plan=true")


@golden
def nothing_fails(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("reduce", "net.onnx", *scene.check("sys.exit(0)"))


@golden
def a_check_that_fails_everything(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("reduce", "net.onnx", *scene.check("sys.exit(1)"))


@golden
def a_check_of_the_whole_model_only(scene: Scene) -> None:
    """A branch takes its owner's place in it; what a Loop does in one iteration cannot be asked about."""
    scene.model(models.BODIES)
    for name, shows in (("neg", "screen result journal files"), ("turn", "screen")):
        fails = f"sys.exit(b'{name}' in bytes(whole) if inputs == ['x'] and outputs == ['y'] else {{}}['x'])"
        scene.winnow("reduce", "net.onnx", *scene.check(fails), "checker.flaky=never", folder=name, shows=shows)


@golden
def a_budget_that_is_reached(scene: Scene) -> None:
    scene.model(models.NET)
    scene.winnow("reduce", "net.onnx", *scene.check(_NEG), *_QUICK, "budget.checks=2")


@golden
def resumed_after_kill_9(scene: Scene) -> None:
    scene.model(models.NET)
    scene.write("mine.py", _ENDS.format(at=5, signal="SIGKILL"))
    scene.winnow("reduce", "net.onnx", *_PYTHON, shows="screen journal")
    scene.winnow("resume", "run", folder="", shows="screen")
    scene.winnow("run", shows="screen result journal files", folder="")


@golden
def interrupted_by_signals(scene: Scene) -> None:
    scene.model(models.NET)
    for name, signal in (("by_hand", "SIGINT"), ("by_a_scheduler", "SIGTERM")):
        scene.write("mine.py", _ENDS.format(at=5, signal=signal))
        (scene.here / "calls").unlink(missing_ok=True)
        scene.winnow("reduce", "net.onnx", *_PYTHON, folder=name, shows="screen result files")


@golden
def a_mistake_of_our_own_and_a_full_disk(scene: Scene) -> None:
    scene.model(models.NET)
    handing = {"module": "runner.engine.min_good", "owner": "HandOver", "name": "write"}
    scene.write("mistaken.py", _BROKEN.format(imports="os", error="RuntimeError('boom')", **handing))
    full = "OSError(errno.ENOSPC, 'No space left on device', 'reduced.onnx')"
    scene.write("full.py", _BROKEN.format(imports="errno", error=full, **handing))
    for name in ("mistaken", "full"):
        scene.winnow(
            "reduce", "net.onnx", *scene.check(_NEG), *_QUICK, folder=name, script=f"{name}.py", shows="result files"
        )


@golden
def a_sweep_with_a_bad_job(scene: Scene) -> None:
    scene.model(models.NET, "a.onnx")
    scene.model(models.OTHERWISE, "b.onnx")
    scene.write("c.onnx", "no model")
    given = (*scene.check(_NEG), *_QUICK, "hydra.launcher.n_jobs=1")
    for name, files in (("sweep", ("a.onnx", "c.onnx")), ("well", ("b.onnx",))):
        scene.winnow("-m", "reduce", *files, *given, f"hydra.sweep.dir={name}", folder=name, shows="screen files")


@golden
def a_configuration_in_another_folder(scene: Scene) -> None:
    scene.model(models.NET, "theirs/net.onnx")
    check = f"'{sys.executable} -I -S check.py {{model}}'"
    scene.check(_NEG, name="theirs/check.py")
    scene.write(
        "theirs/bug.yaml",
        f"""# winnow theirs/bug.yaml
defaults: [config, override strategy: reduce, override checker: command, _self_]
model: net.onnx
checker: {{command: {check}, flaky: never}}
strategy: {{find: one, shrink: false}}
cwd: .
""",
    )
    scene.winnow("theirs/bug.yaml", folder="run", shows="screen result files")
    scene.winnow("run/replay.yaml", folder="again", shows="screen result")


@golden
def bad_input(scene: Scene) -> None:
    scene.model(models.NET)
    scene.write("text.onnx", "no model")
    scene.write("broken.yaml", "strategy: [\n")
    scene.write("no_function.py", "x = 1\n")
    check = scene.check(_NEG)
    for words in (
        ("reduce", "nowhere.onnx", *check),
        ("reduce", "text.onnx", *check),
        ("reduce", *check),
        ("reduse", "net.onnx"),
        ("check.py",),
        ("nowhere.yaml",),
        ("reduce", "precision", "net.onnx"),
        ("reduce", "net", *check),
        ("net.onnx", "strategy=reduse"),
        ("reduce", "net.onnx", "checker=comand"),
        ("reduce", "net.onnx", "checker=command"),
        ("reduce", "net.onnx", *check, "checker.timout=3"),
        ("reduce", "net.onnx", *check, "checker.timeout=soon"),
        ("reduce", "net.onnx", *check, "workers.count=0"),
        ("reduce", "net.onnx", *check, "inputs=files"),
        ("reduce", "net.onnx", *check, "inputs=files", "inputs.path=nowhere.npz"),
        ("reduce", "net.onnx", *check, "inputs.ranges={z: [0, 1]}"),
        ("reduce", "net.onnx", "checker=command", "checker.command='./nowhere {model}'"),
        ("reduce", "net.onnx", "checker=python", "checker.file=no_function.py"),
        ("reduce", "net.onnx", "checker=interactive"),
        ("broken.yaml",),
        ("net.onnx", "target.python=/nowhere/python"),
        ("resume", "nowhere"),
        ("precision", "net.onnx", "strategy.low=float12"),
    ):
        scene.winnow(*words, folder="refused", shows="screen")
    scene.parts += ["--- files", *sorted(path.name for path in scene.here.iterdir())]


@golden
def help_and_settings(scene: Scene) -> None:
    for words in (("--help",), ("--help", "checker=command"), ("--help", "budget"), ("--version",)):
        scene.winnow(*words, folder="", shows="screen")
    scene.model(models.NET)
    scene.winnow("reduce", "net.onnx", "--cfg", "job", folder="", shows="screen")
