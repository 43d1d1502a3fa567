"""The folder of a run: for one run at a time, and never over a user's files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner.cli.folder import FolderTakenError, holding, standing_in
from tests.harness import ROOT

HOLD = """
import sys
from pathlib import Path
from runner.cli.folder import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


@pytest.mark.parametrize("name", ["inputs/a.npz", "values/v", "target/t", "test_data_set_0/input_0.pb", "reduced.onnx"])
def test_files_of_a_users_are_not_a_runs(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("precious")
    with pytest.raises(FolderTakenError, match=rf"{name.split('/', maxsplit=1)[0]}.*hydra.run.dir"), holding(tmp_path):
        pass


def test_what_a_killed_run_left_is_its_own(tmp_path: Path) -> None:
    for name in ("inputs", "values", "workers", "store"):
        (tmp_path / name).mkdir()
    with holding(tmp_path):
        pass


def test_a_folder_of_an_earlier_run_is_taken_again_but_not_what_somebody_put_there(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"exit_code": 0}))
    (tmp_path / "reduced.onnx").touch()
    with holding(tmp_path):
        pass
    (tmp_path / "inputs").mkdir()
    with pytest.raises(FolderTakenError, match="inputs"), holding(tmp_path):
        pass


def test_two_runs_do_not_share_a_folder_and_a_killed_one_frees_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(FolderTakenError, match="another run"), holding(tmp_path):
            pass
        other.kill()
        other.wait()
    with holding(tmp_path):
        pass


def test_standing_in_a_folder_ends(tmp_path: Path) -> None:
    before = Path.cwd()
    with standing_in(str(tmp_path)):
        assert Path.cwd() == tmp_path
    assert Path.cwd() == before
