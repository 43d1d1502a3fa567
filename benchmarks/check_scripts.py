"""Check scripts as people write them, on three failing models: the right answer, or exit 3 with the right advice.

    python -m benchmarks.check_scripts [SCRIPT ...] [--models crash] [--keep FOLDER]

A row is right where the culprit is the planted one, also with the nodes in front of it or behind it where the run says
that it kept the model's own inputs or outputs, and where the run ends with exit 3 and says what to change. An answer
that holds an innocent node otherwise, with exit 0, is wrong, whatever else is said.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.harness import winnow

# a person's own input, never read from anywhere
FEED = """\
import sys
import numpy as np
import onnxruntime as ort
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
"""
# values of Winnow's
READ = """\
import sys
import numpy as np
import onnxruntime as ort
sess = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
inputs, good = np.load(sys.argv[2]), np.load(sys.argv[3])
feeds = {i.name: inputs[i.name] for i in sess.get_inputs()}
"""
RUN = 'out = ort.InferenceSession(sys.argv[1]).run(None, {"img": X})[0]\n'
RUN_NAMED = 'out = ort.InferenceSession(sys.argv[1]).run(["logits"], {"img": X})[0]\n'
EXPECTED = 'want = np.load("expected.npy")\n'
WITHIN = "np.abs(out - want).max() < 1e-3"
ASSERT_OWN = f"assert {WITHIN}\n"
ASSERT_ALLCLOSE = "np.testing.assert_allclose(out, want, atol=1e-3)\n"
# all outputs by name
EACH = "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
ALLCLOSE = "np.allclose(out, good[meta.name], atol=1e-3)"
TOLD = f"print('ok' if {ALLCLOSE} else 'MISMATCH', meta.name)\n"
COUNT = "count = len(os.listdir('seen')); open(f'seen/{count}', 'w').close()\n"
FUNCTION = """\
import numpy as np, onnxruntime as ort
def check(model, inputs, expected):
"""
OUTS = """\
    sess = ort.InferenceSession(model)
    outs = sess.run(None, {i.name: inputs[0][i.name] for i in sess.get_inputs()})
"""
PYTEST = """\
import os
import numpy as np
import onnxruntime as ort

def test_model():
    sess = ort.InferenceSession(os.environ['WINNOW_MODEL'])
    inputs, good = np.load(os.environ['WINNOW_INPUTS']), np.load(os.environ['WINNOW_REFERENCES'])
    outs = sess.run(None, {i.name: inputs[i.name] for i in sess.get_inputs()})
    for meta, out in zip(sess.get_outputs(), outs):
        assert np.allclose(out, good[meta.name], atol=1e-3)
"""
ARGPARSE = """\
import argparse
import numpy as np
import onnxruntime as ort
parser = argparse.ArgumentParser()
for name in ("model", "inputs", "good"):
    parser.add_argument("--" + name, required=True)
args = parser.parse_args()
sess = ort.InferenceSession(args.model)
inputs, good = np.load(args.inputs), np.load(args.good)
feeds = {i.name: inputs[i.name] for i in sess.get_inputs()}
"""
HELPER = "import numpy as np\ndef same(a, b):\n    return np.allclose(a, b, atol=1e-3)\n"
UNITTEST = """\
import sys, unittest
import numpy as np
import onnxruntime as ort
MODEL, INPUTS, GOOD = sys.argv[1:4]
class TestModel(unittest.TestCase):
    def test_outputs(self):
        sess = ort.InferenceSession(MODEL)
        inputs, good = np.load(INPUTS), np.load(GOOD)
        outs = sess.run(None, {i.name: inputs[i.name] for i in sess.get_inputs()})
        for meta, out in zip(sess.get_outputs(), outs):
            self.assertTrue(np.allclose(out, good[meta.name], atol=1e-3), meta.name)
unittest.main(argv=[sys.argv[0]])
"""
PARENT = """\
import sys
import numpy as np
import onnxruntime as ort
sess, parent = ort.InferenceSession(sys.argv[1]), ort.InferenceSession('parent.onnx')
rng = np.random.default_rng(0)
feeds = {i.name: rng.uniform(-1, 1, i.shape).astype(np.float32) for i in sess.get_inputs()}
np.testing.assert_allclose(sess.run(None, feeds)[0], parent.run(None, feeds)[0], atol=1e-3)
"""
ALL_THREE = ("mismatch", "nan", "crash")
VALUES = ("mismatch", "nan")
"""The models whose good values are known: a check that fits the whole model only judges these with them inside."""
GIVEN = "{python} check.py {model} {inputs} {references}"
OWN = "{python} check.py {model}"


@dataclass(frozen=True)
class Script:
    """A script and how it is called.

    ``body``: the text of check.py. ``command``: what is called, with {python} for the interpreter; None: it is a
    function (checker=python). ``options``: more of the command line. ``files``: other files beside it. ``judges``:
    the failing models that it can judge, cut or with good values inside; of the others exit 3 is right. ``control``:
    that it cannot judge cuts shows only where the check is tried on models that pass.
    """

    body: str
    command: str | None = OWN
    options: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    judges: tuple[str, ...] = ()
    control: bool = False


def _reads(body: str, command: str | None = GIVEN, *options: str, **files: str) -> Script:
    return Script(READ + body, command, options, {f"{name}.py": text for name, text in files.items()}, ALL_THREE)


def _owns(body: str, command: str | None = OWN, *options: str, control: bool = False) -> Script:
    return Script(FEED + body, command, options, judges=VALUES, control=control)


SCRIPTS: Mapping[str, Script] = {
    # what the documentation asks for
    "by name, assert": _reads(f"{EACH}    assert {ALLCLOSE}, meta.name\n"),
    "by name, assert_allclose": _reads(f"{EACH}    np.testing.assert_allclose(out, good[meta.name], atol=1e-3)\n"),
    "by name, sys.exit(message)": _reads(
        f"{EACH}    worst = np.abs(out - good[meta.name]).max()\n"
        "    if not worst < 1e-3: sys.exit(f'{meta.name}: max diff {worst}')\n"
    ),
    "by name, swallowed": _reads(
        f"try:\n    {EACH}        np.testing.assert_allclose(out, good[meta.name], atol=1e-3)\n"
        "except Exception as e:\n    print('FAILED', e); sys.exit(1)\n"
    ),
    "by name, printed only": _reads(
        f"try:\n    {EACH}        {TOLD}except Exception as e:\n    print('CRASHED', e)\n",
        GIVEN,
        "checker.fail_regex=[MISMATCH,CRASHED]",
    ),
    "unittest": Script(UNITTEST, GIVEN, judges=ALL_THREE),
    "pytest, from the environment": Script(PYTEST, "{python} -m pytest -q check.py", judges=ALL_THREE),
    "argparse": Script(
        f"{ARGPARSE}{EACH}    assert {ALLCLOSE}\n",
        "{python} check.py --model {model} --inputs={inputs} --good {references}",
        judges=ALL_THREE,
    ),
    "a child process": Script(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'inner.py', *sys.argv[1:]], check=True)\n",
        GIVEN,
        files={"inner.py": f"{READ}{EACH}    assert {ALLCLOSE}\n"},
        judges=ALL_THREE,
    ),
    "a shell pipeline": _reads(
        f"{EACH}    {TOLD}",
        'bash -c \'{python} check.py {model} {inputs} {references} 2>&1 | tee log.txt | grep -Eq "MISMATCH|Error" '
        "&& exit 1 || exit 0'",
    ),
    "a function, bool": Script(
        f"{FUNCTION}{OUTS}    names = [o.name for o in sess.get_outputs()]\n"
        "    return all(np.allclose(out, expected[0][n], atol=1e-3) for n, out in zip(names, outs))\n",
        None,
        judges=ALL_THREE,
    ),
    "a function, assert": Script(
        f"{FUNCTION}{OUTS}    for o, out in zip(sess.get_outputs(), outs):\n"
        "        np.testing.assert_allclose(out, expected[0][o.name], atol=1e-3)\n",
        None,
        judges=ALL_THREE,
    ),
    # the key of the whole model's output, looked for in what belongs to a cut one
    "references by key": Script(
        READ + "assert np.allclose(sess.run(None, feeds)[0], good['logits'], atol=1e-3)\n",
        GIVEN,
        judges=VALUES,
        control=True,
    ),
    "own feed, assert": _owns(RUN + EXPECTED + ASSERT_OWN),
    "own feed, assert_allclose": _owns(RUN + EXPECTED + ASSERT_ALLCLOSE),
    "own feed, output by name": _owns(RUN_NAMED + EXPECTED + ASSERT_ALLCLOSE),
    "own feed, fail_codes": _owns(f"{RUN}{EXPECTED}if not {WITHIN}: sys.exit(1)\n", OWN, "checker.fail_codes=[1]"),
    "own feed, sys.exit(str(e))": _owns(
        f"try:\n    {RUN}except Exception as e:\n    sys.exit(str(e))\n"
        f"{EXPECTED}if not {WITHIN}: sys.exit('too far off')\n"
    ),
    "own feed, swallowed": _owns(
        f"try:\n    {RUN}    {EXPECTED}    {ASSERT_OWN}"
        "except Exception as e:\n    print('ERROR:', e)\n    sys.exit(1)\n"
    ),
    "own feed, swallowed silently": _owns(
        f"try:\n    {RUN}    {EXPECTED}    {ASSERT_OWN}except Exception:\n    sys.exit(1)\n", control=True
    ),
    "own feed, pytest": Script(
        f"{FEED}{EXPECTED}import os\ndef test_model():\n"
        "    out = ort.InferenceSession(os.environ['WINNOW_MODEL']).run(None, {'img': X})[0]\n"
        f"    {ASSERT_OWN}",
        "{python} -m pytest -q check.py",
        judges=VALUES,
    ),
    "own feed, set -e": Script(
        FEED + RUN + EXPECTED + ASSERT_OWN,
        "bash check.sh {python} {model}",
        files={"check.sh": "set -e\necho checking $2\n$1 check.py $2 > result.txt\necho fine\n"},
        judges=VALUES,
    ),
    "own feed, grep for OK": _owns(
        f"{RUN}{EXPECTED}print('OK' if {WITHIN} else 'BAD')\n",
        "bash -c '{python} check.py {model} 2>/dev/null | grep -q OK'",
        control=True,
    ),
    "own feed, grep for BAD": _owns(
        f"{RUN}{EXPECTED}print('OK' if {WITHIN} else 'BAD')\n",
        "bash -c '! {python} check.py {model} 2>&1 | grep -Eq \"BAD|Error\"'",
        control=True,
    ),
    "own feed, fail_regex": _owns(
        f"{RUN}{EXPECTED}print('OK' if {WITHIN} else 'MISMATCH')\n",
        OWN,
        "checker.fail_regex=[MISMATCH,ONNXRuntimeError]",
    ),
    "own feed, a function": Script(
        f"{FUNCTION}    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)\n"
        "    out = ort.InferenceSession(model).run(None, {'img': x})[0]\n"
        "    return bool(np.abs(out - np.load('expected.npy')).max() < 1e-3)\n",
        None,
        judges=VALUES,
    ),
    "random data, own parent": Script(PARENT),
    "given inputs, own expected": Script(
        READ + EXPECTED + "np.testing.assert_allclose(sess.run(None, feeds)[0], want, atol=1e-3)\n",
        GIVEN,
        judges=ALL_THREE,
        control=True,
    ),
    "a module that goes missing": Script(
        f"import os, helper\n{READ}{COUNT}if count == 3: os.rename('helper.py', 'helper.gone')\n"
        f"{EACH}    if not helper.same(out, good[meta.name]): sys.exit(1)\n",
        GIVEN,
        files={"helper.py": HELPER, "seen/.keep": ""},
    ),
    "a script that changes": Script(
        f"{READ}import os\n{COUNT}if count == 3: open('check.py', 'a').write('sys.exit(1)')\n"
        f"{EACH}    assert {ALLCLOSE}\n",
        GIVEN,
        files={"seen/.keep": ""},
    ),
}


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
FAULT = "fault"
ADVICE = (
    *("{inputs}", "{references}", "strategy.reduce_inputs=false", "strategy.reduce_outputs=false"),
    *("resume=", "could not import", "--original"),
)
KEPT = {"strategy.reduce_inputs=false": "inputs", "strategy.reduce_outputs=false": "outputs"}


@dataclass(frozen=True)
class Row:
    """How a run ended. ``right``: as the module says."""

    script: str
    model: str
    answer: str
    code: int
    advice: str
    right: bool
    seconds: float
    message: str


def network(fault: list[NodeProto], weights: dict[str, np.ndarray]) -> ModelProto:
    """``fault`` (from ``a`` to ``b``) with four nodes in front of it and three behind."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["img", "w"], ["h0"], name="project"),
        node("Add", ["h0", "bias"], ["h1"], name="shift"),
        node("Tanh", ["h1"], ["h2"], name="squash"),
        node("Mul", ["h2", "two"], ["a"], name="scale"),
        *fault,
        node("Sub", ["b", "half"], ["h3"], name="center"),
        node("Sigmoid", ["h3"], ["h4"], name="gate"),
        node("Neg", ["h4"], ["logits"], name="flip"),
    ]
    held = {
        "w": np.array([[0.5, -0.25, 0.125], [0.25, 0.5, -0.5], [-0.75, 0.25, 0.5]], np.float32),
        "bias": np.array([0.1, -0.2, 0.3], np.float32),
        "two": np.float32(2),
        "half": np.float32(0.5),
    }
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in {**held, **weights}.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("img", "logits")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def models() -> dict[str, tuple[ModelProto, ModelProto]]:
    """The failing models, each with its good parent."""
    node = helper.make_node
    root = node("Sqrt", ["a"], ["b"], name=FAULT)
    weighted = node("Mul", ["a", "k"], ["b"], name=FAULT)
    taken = node("Gather", ["a", "i"], ["b"], name=FAULT)
    good = network([weighted], {"k": np.float32(1)})
    return {
        "mismatch": (network([weighted], {"k": np.float32(1.5)}), good),
        "nan": (network([root], {}), network([node("Abs", ["a"], ["b"], name=FAULT)], {})),
        "crash": (network([taken], {"i": np.array([0, 9])}), network([taken], {"i": np.array([0, 1])})),
    }


def lay_out(folder: Path, model: ModelProto, parent: ModelProto, script: Script) -> None:
    """Write what a person has: the model, a good one, inputs, what is expected, the check."""
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    onnx.save(parent, folder / "parent.onnx")
    np.savez(folder / "inputs.npz", img=X)
    np.save(folder / "expected.npy", ReferenceEvaluator(parent).run(None, {"img": X})[0])
    for name, text in {"check.py": script.body, **script.files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def options(name: str, script: Script) -> Iterator[str]:
    """The command line that a person types for it."""
    yield from ("strategy=reduce", "model=model.onnx", "inputs=files", "inputs.path=inputs.npz", "checker.flaky=never")
    if name != "crash":  # what crashes has no good values after that, and the person no parent to take them from
        yield "reference.model=parent.onnx"
    if script.command is None:
        yield from ("checker=python", "checker.file=check.py")
    else:
        command = json.dumps(script.command.replace("{python}", sys.executable))
        yield from ("checker=command", f"checker.command={command}")
    yield from script.options


def judge(name: str, title: str, folder: Path) -> Row:
    """Run one script on one model."""
    script = SCRIPTS[title]
    lay_out(folder, *models()[name], script)
    started = time.monotonic()
    run = winnow(*options(name, script), folder=folder / "run", cwd=folder)
    result = run.result
    message = " ".join(str(result["message"]).split())
    told = str(result["message"]).replace(str(result["check"]), "")
    advice = next((what for what in ADVICE if what in told), "")
    # advice names the same options; only what the run says that it did counts
    did = "\n".join(line.partition("verdicts are not known")[0] for line in run.output.splitlines())
    kept = {what for option, what in KEPT.items() if option in did}
    order = [node.name for node in models()[name][0].graph.node]
    place = order.index(FAULT)
    allowed = {FAULT, *(order[:place] if "inputs" in kept else ()), *(order[place:] if "outputs" in kept else ())}
    found = FAULT in result["culprits"] and allowed.issuperset(result["culprits"])
    right = found if run.code == 0 else run.code == 3 and bool(advice) and name not in script.judges
    answer = ", ".join(result["culprits"]) or "-"
    return Row(title, name, answer, run.code, advice, right, time.monotonic() - started, message)


def line(row: Row) -> str:
    """A row as text."""
    right = "yes" if row.right else f"NO: {row.message[:200]}"
    return f"{row.script:30} {row.model:9} {row.answer[:30]:30} {row.code:4} {row.advice:29} {right}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=f"all if none is given: {', '.join(SCRIPTS)}")
    parser.add_argument("--models", default=",".join(ALL_THREE))
    parser.add_argument("--keep", type=Path, help="leave the run folders here")
    given = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        base = (given.keep or Path(temporary)).absolute()
        for title in given.scripts or SCRIPTS:
            for name in given.models.split(","):
                rows.append(judge(name, title, base / title.replace(" ", "_").replace("/", "_") / name))
                print(line(rows[-1]), f"{rows[-1].seconds:.1f} s", flush=True)
    wrong = [row for row in rows if not row.right]
    innocent = [row for row in wrong if row.code == 0]
    print(f"{len(rows) - len(wrong)} of {len(rows)} right; a wrong answer with exit 0: {len(innocent)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
