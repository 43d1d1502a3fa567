"""What settings take from the environment stays there: nothing that a run writes holds its value."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from runner.cli.compose import register
from tests.chain_models import chain
from tests.harness import LIGHT, Run, winnow

SECRET = "hush-1234 'quoted' \"twice\" <b>"
BODY = "import os\nprint('told', sys.argv[2], os.environ.get('KEY'))\n"
BODY += "sys.exit(1 if 'n3' in names and sys.argv[2].startswith('hush') else 0)\n"


def words(home: Path) -> tuple[str, ...]:
    python = json.dumps(sys.executable)
    command = f"checker.command=[{python},-I,-S,{home / 'check.py'},'{{model}}','${{oc.env:TOKEN}}']"
    judged = ("checker=command", command, "checker.flaky=never", "+checker.env.KEY=${oc.env:WORD}")
    return ("strategy=reduce", f"model={home / 'net.onnx'}", *judged)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("home")
    (home / "check.py").write_text(LIGHT + BODY)
    chain(home / "net.onnx", 6)
    environment = {**os.environ, "TOKEN": SECRET, "WORD": "plainword"}
    return winnow(*words(home), folder=home / "run", environment=environment)


def texts(folder: Path) -> dict[str, str]:
    """What files hold, and what lies in bundles."""
    found = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path in folder.rglob("bundle.zip"):
        with zipfile.ZipFile(path) as bundle:
            found |= {f"{path}/{name}": bundle.read(name) for name in bundle.namelist()}
    return {name: content.decode("utf-8", "replace") for name, content in found.items()}


def test_nothing_that_is_written_holds_it(run: Run) -> None:
    assert run.code == 0, run.output
    holding = [name for name, text in texts(run.folder).items() if "hush-1234" in text]
    assert holding == []
    handed = [(run.folder / name).read_text() for name in ("REPORT.md", "replay.yaml", "repro.py")]
    assert all("TOKEN" in text for text in handed)
    assert not any("plainword" in text for text in handed[1:2])


def test_the_user_runs_it_again_and_reuses_what_was_paid_for(run: Run, tmp_path: Path) -> None:
    environment = {**os.environ, "TOKEN": SECRET, "WORD": "plainword"}
    again = winnow(str(run.folder / "replay.yaml"), f"resume={run.folder}", folder=run.folder, environment=environment)
    assert again.code == 0, again.output
    checks = again.result["checks"]
    assert checks["search"] == 0
    assert checks["reused"]
    with zipfile.ZipFile(run.folder / "bundle.zip") as bundle:
        bundle.extractall(tmp_path)
    for place in (run.folder, tmp_path / "bundle"):
        words = [sys.executable, place / "repro.py"]
        script = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert script.returncode == 1, script.stdout + script.stderr


def test_another_value_is_another_question(run: Run) -> None:
    environment = {**os.environ, "TOKEN": "hush-5678", "WORD": "plainword"}
    home = run.folder.parent
    reuse = f"journal.reuse=[{run.folder}]"
    other = winnow(*words(home), reuse, folder=home / "other", environment=environment)
    assert other.code == 2, other.output
    assert "check.environment changed" in other.output


def test_a_strangers_folder_takes_nothing_from_the_environment(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "theirs")
    environment = {**os.environ, "TOKEN": "mine-98765", "WORD": "plainword"}
    done = winnow("recheck", str(tmp_path / "theirs"), folder=tmp_path / "again", environment=environment)
    assert [name for name, text in texts(tmp_path).items() if "mine-98765" in text] == [], done.output
    assert "mine-98765" not in done.output


def test_values_stay_as_omegaconf_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    monkeypatch.delenv("NONE", raising=False)
    config = OmegaConf.create({"a": "${oc.env:NONE,x}", "b": "${oc.env:NONE,null}"})
    assert (config.a, config.b) == ("x", None)
