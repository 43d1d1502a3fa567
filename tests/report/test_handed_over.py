"""repro.py tells the truth: it shows the failure that was found, or says that there is none, or that it cannot tell."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import CI
from tests.report import handed
from tests.report.handed import Case, Fresh


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    return Fresh(tmp_path_factory.mktemp("fresh"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "group",
    [
        lambda _: handed.values_cases(),
        lambda _: handed.error_cases(),
        handed.end_cases,
        lambda _: handed.command_cases(),
        lambda _: handed.python_cases(),
        lambda _: handed.build_cases(),
    ],
    ids=["values", "errors", "ends", "commands", "functions", "builds"],
)
def test_each_case_is_told_right(
    group: Callable[[Path], list[Case]], fresh: Fresh, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.id == "builds" and importlib.util.find_spec("tensorrt_rtx_bindings") is None:
        missing = "TensorRT for RTX is not installed here: pip install '.[tensorrt-rtx]'"
        (pytest.fail if os.environ.get(CI) else pytest.skip)(missing)
    rows = [(case, fresh.said(case, tmp_path / str(number))) for number, case in enumerate(group(tmp_path))]
    wrong = [(case, said) for case, said in rows if said.code != case.code]
    assert not wrong, handed.table([(case, said.code) for case, said in rows]) + "".join(said.text for _, said in wrong)
    # ONNX Runtime colors lines of its own, which it writes past Python; all else is plain
    plain = [re.sub(r"\x1b\[[\d;]*m(\d{4}-.*:onnxruntime:.*)\x1b\[m", r"\1", said.text) for _, said in rows]
    assert not [text for text in plain if "\x1b" in text]
    for _, said in rows:
        if said.code == handed.CANNOT_TELL:
            assert "cannot tell: " in said.text


@pytest.mark.slow
def test_an_engine_that_runs_is_told_right(fresh: Fresh, tmp_path: Path) -> None:
    """On a stand-in: no GPU has run this."""
    cases = enumerate(handed.engine_cases())
    rows = [(case, fresh.said(case, tmp_path / str(number), stub)) for number, (stub, case) in cases]
    wrong = [said.text for case, said in rows if said.code != case.code]
    assert not wrong, handed.table([(case, said.code) for case, said in rows]) + "".join(wrong)


def test_a_script_holds_what_its_failure_needs_and_no_more(tmp_path: Path) -> None:
    """Also nothing that is not there: a name that nobody defines would show only where its line is reached."""
    of_tensorrt = [*handed.build_cases(), *(case for _, case in handed.engine_cases())]
    others = [*handed.values_cases(), *handed.command_cases(), *handed.python_cases()]
    for number, case in enumerate([*others, *of_tensorrt]):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = case.write(folder).read_text()
        assert len(text.splitlines()) < (260 if number < len(others) else 450), case.name
        assert "#?" not in text
        if "onnxruntime\n" in text:  # the runtime keeps no notes of the model
            assert text.index('"ORT_DISABLE_TELEMETRY", "1"') < text.index("onnxruntime\n")
        if case.name.startswith("command") and case.packages is handed.NOTHING and "values" not in case.name:
            assert "numpy" not in text and "onnxruntime" not in text, case.name
    for number, case in enumerate(others):
        folder = tmp_path / f"alone_{number}"
        folder.mkdir()
        text = case.write(folder, alone=True).read_text()
        assert len(text.splitlines()) <= 130 or "the files beside it" in text, case.name
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--target-version=py38",
        "--select=F,E9",
        "--no-cache",
        *map(str, tmp_path.glob("*/repro.py")),
    ]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
