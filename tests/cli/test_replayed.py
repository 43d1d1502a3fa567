"""The settings of a replay, beside those of the run that goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from runner.cli.compose import FILES, NAME, register, store_user_file
from runner.cli.run_again import from_here, replayed
from runner.cli.signals import held
from runner.exit_codes import UsageError
from runner.schema.installed_choices import CONF


@pytest.fixture(autouse=True)
def _hydra() -> Iterator[None]:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_replay_with_what_is_changed_in_it_leaves_the_run_s_own_file_alone(tmp_path: Path) -> None:
    own = written(tmp_path / "own.yaml", "model: own.onnx\nchecker: {name: compare, rtol: 0.5}\n")
    store_user_file(own)
    stored = FILES[NAME]
    replay = written(tmp_path / "replay.yaml", "model: net.onnx\nchecker: {name: finite}\n")
    settings = replayed(replay, ["target.python=new/bin/python"])
    assert settings.model == str(tmp_path / "net.onnx") and settings.checker.name == "finite"
    assert settings.target.python == str(tmp_path / "new/bin/python")
    assert FILES[NAME] is stored and FILES[f"checker/{NAME}"][1] == str(own)


def test_paths_that_are_typed_start_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["target.python=new/bin/python", "target.python=python3", "target.python=~/python", "target.threads=2"]
    assert [from_here(word) for word in words] == [f"target.python='{tmp_path}/new/bin/python'", *words[1:]]


def test_an_interruption_comes_when_all_is_composed(tmp_path: Path) -> None:
    """OmegaConf turns one in the midst of its own work into an error, and the run would go on."""
    composed = []

    def interrupted() -> str:
        signal.raise_signal(signal.SIGINT)
        composed.append(True)
        return "net.onnx"

    OmegaConf.register_new_resolver("interrupted", interrupted, replace=True)
    try:
        with pytest.raises(KeyboardInterrupt):
            replayed(written(tmp_path / "replay.yaml", "model: ${interrupted:}\n"), [])
    finally:
        OmegaConf.clear_resolver("interrupted")
    assert composed


def test_an_interruption_counts_more_than_the_error_that_it_led_to() -> None:
    with pytest.raises(KeyboardInterrupt), held():
        signal.raise_signal(signal.SIGINT) or Path("/gone").unlink()


@pytest.mark.parametrize(("text", "said"), [("checker: {name: gone}", "gone"), ("modle: a", "modle"), ("[", "YAML")])
def test_what_is_wrong_in_a_replay_is_one_clear_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        replayed(written(tmp_path / "replay.yaml", text), [])
