"""What a run leaves in its folder, and what it is to go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import run_folder
from runner.run_folder import Marker
from tests.chain_models import chain
from tests.cli.in_process import said
from tests.harness import by_command, check_script, winnow

BODY = """
import os
with open(os.path.join(os.environ['WINNOW_DIR'], 'huge'), 'wb') as file:
    file.write(b'x' * 100)
os.makedirs(os.path.join(os.environ['WINNOW_DIR'], 'dump', 'deep'))
with open(os.path.join(os.environ['WINNOW_DIR'], 'wanted'), 'w') as file:
    file.write('kept')
print('said')
sys.exit(1 if 'n3' in names else 0)
"""
PARTS = ("store/weights.bin.part", "values/a.pb.12.34.part", f".result.json.{'0' * 32}.part", ".x.onnx.1.2.part")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    check = by_command(check_script(home, BODY))
    paths = "artifacts.paths=['{dir}/wanted']"
    run = winnow("strategy=reduce", f"model={chain(home / 'net.onnx', 6)}", *check, paths, folder=home / "run")
    assert run.code == 0, run.output
    return run.folder


def test_what_checks_left_in_their_own_folder_goes(done: Path) -> None:
    left = {path.name for path in done.joinpath("checks").rglob("*") if path.is_file()}
    assert left == {"check.log"}
    assert {path.read_text() for path in done.joinpath("artifacts").rglob("*__wanted")} == {"kept"}


def test_what_a_killed_run_was_about_to_write_goes_with_the_next(done: Path) -> None:
    for name in (*PARTS, "checks/mine.part"):
        (done / name).parent.mkdir(exist_ok=True)
        (done / name).write_text("half")
    (done / "result.json").unlink()
    run_folder.write(done, Marker(running=True))
    words = ("strategy=reduce", f"model={done.parent / 'net.onnx'}", *by_command(done.parent / "check.py"))
    run = winnow(*words, f"resume={done}", folder=done)
    assert run.code == 0, run.output
    assert [name for name in PARTS if (done / name).exists()] == []
    assert (done / "checks" / "mine.part").exists()


def test_a_run_goes_on_in_the_folder_that_it_has(done: Path, tmp_path: Path) -> None:
    before = sorted(done.iterdir())
    words = ("strategy=reduce", f"model={done.parent / 'net.onnx'}", *by_command(done.parent / "check.py"))
    for more, told in (
        ([f"resume={done}", "hydra.run.dir=other"], "these are two. Leave out hydra.run.dir"),
        (["resume=", "hydra.run.dir=other"], "resume=: this is no folder of a run"),
        (["--multirun", f"resume={done}", "hydra.sweep.dir=other"], ""),
    ):
        code, _, err = said(tmp_path, *words, *more)
        assert code == 2 and told in err, err
    assert sorted(done.iterdir()) == before and not [*tmp_path.iterdir()]
