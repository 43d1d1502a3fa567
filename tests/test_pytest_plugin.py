"""The plugin for pytest, in suites of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from runner import pytest_plugin
from tests.harness import ROOT

pytest_plugins = "pytester"

SUITE = """
import onnx
import pytest
from tests.api.programs import QUICK, chain

def no_neg(model, inputs, expected):
    kinds = [node.op_type for node in onnx.load(model).graph.node]
    assert "Neg" not in kinds, "there is one"

def test_good(onnx_model_check):
    onnx_model_check(chain("Abs"), no_neg)

def test_bad(onnx_model_check):
    onnx_model_check(chain(), no_neg, **QUICK)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # where Winnow is installed, the plugin is there twice
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(SUITE)
    return pytester


def test_a_model_that_fails_fails_the_test(suite: pytest.Pytester) -> None:
    done = suite.runpytest_subprocess("-p", "runner.pytest_plugin")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["the model fails its check (fail: AssertionError at *: there is one). With --winnow *"])
    assert not (suite.path / "winnow-results").exists()
    assert not (suite.path / "outputs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-p", "xdist", "-n", "2")])
def test_it_is_reduced_and_attached(more: tuple[str, ...], suite: pytest.Pytester) -> None:
    for number in ("",) if more else ("", "-2"):
        done = suite.runpytest_subprocess("-p", "runner.pytest_plugin", "--winnow", "--winnow-dir=kept", *more)
        done.assert_outcomes(passed=1, failed=1)
        (folder,) = [path for path in (suite.path / "kept").iterdir() if path.name.endswith(f"test_bad{number}")]
        done.stdout.fnmatch_lines(["reduce: found: n3 (1 of 7 nodes)*", "*winnow: models that fail*"])
        done.stdout.fnmatch_lines([f"*::test_bad: {folder}*"])
        assert (folder / "reduced.onnx").is_file()


def test_a_suite_that_does_not_use_it_loads_nothing_of_winnow(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        "import sys\ndef test_it():\n"
        "    ours = {name for name in sys.modules if name.split('.')[0] in ('runner', 'strategies', 'onnx')}\n"
        "    assert ours == {'runner', 'runner.pytest_plugin'}\n"
    )
    suite.runpytest_subprocess("-p", "runner.pytest_plugin").assert_outcomes(passed=1)


@pytest.mark.slow
def test_what_cannot_be_asked_fails_in_one_line(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        "from tests.api.programs import chain\n"
        "def test_folder(onnx_model_check):\n    onnx_model_check(chain(), folder='here')\n"
        "def test_key(onnx_model_check):\n    onnx_model_check(chain(), lambda *_: True, chekcer='finite')\n"
    )
    done = suite.runpytest_subprocess("-p", "runner.pytest_plugin")
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        [
            "onnx_model_check: folder= is the plugin's own: see --winnow-dir",
            "onnx_model_check: chekcer: winnow.* takes no such argument (did you mean checker?)*",
        ]
    )
    assert "Traceback" not in done.stdout.str()


def test_processes_that_ask_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    asked = SimpleNamespace(
        node=SimpleNamespace(nodeid="test_it.py::test_it"),
        config=SimpleNamespace(rootpath=tmp_path, getoption=lambda _: "kept"),
    )
    with ThreadPoolExecutor(8) as many:
        found = [*many.map(lambda _: pytest_plugin._folder(cast("pytest.FixtureRequest", asked)), range(24))]
    assert len(set(found)) == 24
