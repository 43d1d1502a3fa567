"""The first check of a reduction: of the user's file as it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.chain_models import chain
from tests.harness import by_command, check_script, winnow

FAILS = "import sys\nsys.exit(1)\n"


@pytest.mark.slow
def test_of_a_file_that_is_no_model_nothing_is_asked(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_text("no model")
    check = check_script(tmp_path, f"open({str(tmp_path / 'asked')!r}, 'w')\n{FAILS}")
    run = winnow(f"model={tmp_path / 'broken.onnx'}", *by_command(check), folder=tmp_path / "run")
    assert run.code == 2 and not (tmp_path / "asked").exists()
    assert not (run.folder / "checks").exists() and not list(run.folder.glob("journal*"))


@pytest.mark.variants
@pytest.mark.parametrize("change", ["open(sys.argv[1], 'ab').write(b'x')", "os.remove(sys.argv[1])"])
def test_a_check_that_changes_its_model_is_found_out(tmp_path: Path, change: str) -> None:
    check = check_script(tmp_path, f"import os, sys\n{change}\nsys.exit(1)\n")
    run = tmp_path / "run"
    answer = winnow(f"model={chain(tmp_path / 'model.onnx', 3)}", *by_command(check), folder=run)
    assert "the check changes the files that it is given" in answer.output
    assert not any('"verdict"' in path.read_text() for path in run.glob("journal*.jsonl"))


@pytest.mark.variants
@pytest.mark.parametrize("what", ["engine", "switches", "python"])
def test_what_a_reduction_does_not_make_is_refused_as_ever(tmp_path: Path, what: str) -> None:
    check, run = check_script(tmp_path, FAILS), tmp_path / "run"
    command = f"checker.command={json.dumps([sys.executable, str(check), '{model}', f'{{{what}}}'])}"
    answer = winnow(f"model={chain(tmp_path / 'model.onnx', 3)}", "checker=command", command, folder=run)
    assert answer.result["status"] == "could_not_judge"
    assert f"the command asks for {{{what}}}, which this strategy does not make" in answer.output
