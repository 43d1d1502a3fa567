"""Check scripts as people write them, for `benchmarks.check_scripts`.

Every script stands in a folder with ``expected.npy`` (what the model should give for the input ``img``) and
``parent.onnx`` (a good model with the same names). They fail for a wrong value, a NaN and a crash alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
PYTEST = """\
import os
import numpy as np
import onnxruntime as ort

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
    "by name, assert": _reads(
        "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "    assert np.allclose(out, good[meta.name], atol=1e-3), meta.name\n"
    ),
    "by name, assert_allclose": _reads(
        "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "    np.testing.assert_allclose(out, good[meta.name], atol=1e-3)\n"
    ),
    "by name, sys.exit(message)": _reads(
        "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "    worst = np.abs(out - good[meta.name]).max()\n"
        "    if not worst < 1e-3: sys.exit(f'{meta.name}: max diff {worst}')\n"
    ),
    "by name, swallowed": _reads(
        "try:\n"
        "    for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "        np.testing.assert_allclose(out, good[meta.name], atol=1e-3)\n"
        "except Exception as e:\n    print('FAILED', e); sys.exit(1)\n"
    ),
    "by name, printed only": _reads(
        "try:\n"
        "    for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "        print('ok' if np.allclose(out, good[meta.name], atol=1e-3) else 'MISMATCH', meta.name)\n"
        "except Exception as e:\n    print('CRASHED', e)\n",
        GIVEN,
        "checker.fail_regex=[MISMATCH,CRASHED]",
    ),
    "unittest": Script(UNITTEST, GIVEN, judges=ALL_THREE),
    "pytest, from the environment": Script(
        PYTEST + "def test_model():\n"
        "    sess = ort.InferenceSession(os.environ['WINNOW_MODEL'])\n"
        "    inputs, good = np.load(os.environ['WINNOW_INPUTS']), np.load(os.environ['WINNOW_REFERENCES'])\n"
        "    outs = sess.run(None, {i.name: inputs[i.name] for i in sess.get_inputs()})\n"
        "    for meta, out in zip(sess.get_outputs(), outs):\n"
        "        assert np.allclose(out, good[meta.name], atol=1e-3)\n",
        "{python} -m pytest -q check.py",
        judges=ALL_THREE,
    ),
    "argparse": Script(
        ARGPARSE
        + "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "    assert np.allclose(out, good[meta.name], atol=1e-3)\n",
        "{python} check.py --model {model} --inputs={inputs} --good {references}",
        judges=ALL_THREE,
    ),
    "a child process": Script(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'inner.py', *sys.argv[1:]], check=True)\n",
        GIVEN,
        files={"inner.py": READ + "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
               "    assert np.allclose(out, good[meta.name], atol=1e-3)\n"},
        judges=ALL_THREE,
    ),
    "a shell pipeline": _reads(
        "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "    print('ok' if np.allclose(out, good[meta.name], atol=1e-3) else 'MISMATCH', meta.name)\n",
        "bash -c '{python} check.py {model} {inputs} {references} 2>&1 | tee log.txt | grep -Eq \"MISMATCH|Error\" "
        "&& exit 1 || exit 0'",
    ),
    "a function, bool": Script(
        "import numpy as np, onnxruntime as ort\n"
        "def check(model, inputs, expected):\n"
        "    sess = ort.InferenceSession(model)\n"
        "    outs = sess.run(None, {i.name: inputs[0][i.name] for i in sess.get_inputs()})\n"
        "    names = [o.name for o in sess.get_outputs()]\n"
        "    return all(np.allclose(out, expected[0][n], atol=1e-3) for n, out in zip(names, outs))\n",
        None,
        judges=ALL_THREE,
    ),
    "a function, assert": Script(
        "import numpy as np, onnxruntime as ort\n"
        "def check(model, inputs, expected):\n"
        "    sess = ort.InferenceSession(model)\n"
        "    outs = sess.run(None, {i.name: inputs[0][i.name] for i in sess.get_inputs()})\n"
        "    for o, out in zip(sess.get_outputs(), outs):\n"
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
    "own feed, assert": _owns(RUN + EXPECTED + "assert np.abs(out - want).max() < 1e-3\n"),
    "own feed, assert_allclose": _owns(RUN + EXPECTED + "np.testing.assert_allclose(out, want, atol=1e-3)\n"),
    "own feed, output by name": _owns(RUN_NAMED + EXPECTED + "np.testing.assert_allclose(out, want, atol=1e-3)\n"),
    "own feed, fail_codes": _owns(
        RUN + EXPECTED + "if not np.abs(out - want).max() < 1e-3: sys.exit(1)\n", OWN, "checker.fail_codes=[1]"
    ),
    "own feed, sys.exit(str(e))": _owns(
        "try:\n    " + RUN + "except Exception as e:\n    sys.exit(str(e))\n" + EXPECTED
        + "if not np.abs(out - want).max() < 1e-3: sys.exit('too far off')\n"
    ),
    "own feed, swallowed": _owns(
        "try:\n    " + RUN + "    " + EXPECTED + "    assert np.abs(out - want).max() < 1e-3\n"
        "except Exception as e:\n    print('ERROR:', e)\n    sys.exit(1)\n"
    ),
    "own feed, swallowed silently": _owns(
        "try:\n    " + RUN + "    " + EXPECTED + "    assert np.abs(out - want).max() < 1e-3\n"
        "except Exception:\n    sys.exit(1)\n",
        control=True,
    ),
    "own feed, pytest": Script(
        FEED + EXPECTED + "import os\ndef test_model():\n"
        "    out = ort.InferenceSession(os.environ['WINNOW_MODEL']).run(None, {'img': X})[0]\n"
        "    assert np.abs(out - want).max() < 1e-3\n",
        "{python} -m pytest -q check.py",
        judges=VALUES,
    ),
    "own feed, set -e": Script(
        FEED + RUN + EXPECTED + "assert np.abs(out - want).max() < 1e-3\n",
        "bash check.sh {python} {model}",
        files={"check.sh": "set -e\necho checking $2\n$1 check.py $2 > result.txt\necho fine\n"},
        judges=VALUES,
    ),
    "own feed, grep for OK": _owns(
        RUN + EXPECTED + "print('OK' if np.abs(out - want).max() < 1e-3 else 'BAD')\n",
        "bash -c '{python} check.py {model} 2>/dev/null | grep -q OK'",
        control=True,
    ),
    "own feed, grep for BAD": _owns(
        RUN + EXPECTED + "print('OK' if np.abs(out - want).max() < 1e-3 else 'BAD')\n",
        "bash -c '! {python} check.py {model} 2>&1 | grep -Eq \"BAD|Error\"'",
        control=True,
    ),
    "own feed, fail_regex": _owns(
        RUN + EXPECTED + "print('OK' if np.abs(out - want).max() < 1e-3 else 'MISMATCH')\n",
        OWN,
        "checker.fail_regex=[MISMATCH,ONNXRuntimeError]",
    ),
    "own feed, a function": Script(
        "import numpy as np, onnxruntime as ort\n"
        "def check(model, inputs, expected):\n"
        "    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)\n"
        "    out = ort.InferenceSession(model).run(None, {'img': x})[0]\n"
        "    return bool(np.abs(out - np.load('expected.npy')).max() < 1e-3)\n",
        None,
        judges=VALUES,
    ),
    "random data, own parent": Script(
        "import sys\nimport numpy as np\nimport onnxruntime as ort\n"
        "sess, parent = ort.InferenceSession(sys.argv[1]), ort.InferenceSession('parent.onnx')\n"
        "rng = np.random.default_rng(0)\n"
        "feeds = {i.name: rng.uniform(-1, 1, i.shape).astype(np.float32) for i in sess.get_inputs()}\n"
        "np.testing.assert_allclose(sess.run(None, feeds)[0], parent.run(None, feeds)[0], atol=1e-3)\n",
    ),
    "given inputs, own expected": Script(
        READ + EXPECTED + "np.testing.assert_allclose(sess.run(None, feeds)[0], want, atol=1e-3)\n",
        GIVEN,
        judges=ALL_THREE,
        control=True,
    ),
    "a module that goes missing": Script(
        "import os, helper\n" + READ + "count = len(os.listdir('seen')); open(f'seen/{count}', 'w').close()\n"
        "if count == 3: os.rename('helper.py', 'helper.gone')\n"
        "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "    if not helper.same(out, good[meta.name]): sys.exit(1)\n",
        GIVEN,
        files={"helper.py": HELPER, "seen/.keep": ""},
    ),
    "a script that changes": Script(
        READ + "import os\ncount = len(os.listdir('seen')); open(f'seen/{count}', 'w').close()\n"
        "if count == 3: open('check.py', 'a').write('sys.exit(1)')\n"
        "for meta, out in zip(sess.get_outputs(), sess.run(None, feeds)):\n"
        "    assert np.allclose(out, good[meta.name], atol=1e-3)\n",
        GIVEN,
        files={"seen/.keep": ""},
    ),
}  # fmt: skip
