"""The small parts around a job: levels of the log, a user's file, paths."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from runner.cli import logs
from runner.cli.check_given import check_given
from runner.cli.compose import read_user_file
from runner.cli.paths import expand_home
from runner.exit_codes import UsageError
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker, CommandChecker, PythonChecker
from runner.schema.inputs import FilesInputs
from runner.schema.root import LogSettings, Settings
from runner.schema.strategy import ReduceSettings, RepeatSettings


def settings(**changes: object) -> Settings:
    sections = {
        "strategy": ReduceSettings(),
        "checker": AutoChecker(),
        "target": OnnxRuntimeBackend(),
        "reference": OnnxRuntimeBackend(),
        "inputs": FilesInputs(),
    }
    return Settings(**{**sections, **changes})  # type: ignore[arg-type]


def test_verbosity() -> None:
    plain = logs.levels("warning")
    assert plain.of("runner.model") == logging.WARNING and not plain.silent
    several = logs.levels(["error", "runner.model:debug", "runner.model.graph.cut=info", {"strategies": "silent"}])
    assert several.of("runner.engine.session") == logging.ERROR
    assert several.of("runner.model.graph.graph_index") == logging.DEBUG
    assert several.of("runner.model.graph.cut") == logging.INFO
    assert several.of("runner.models") == logging.ERROR
    assert several.of("strategies.bisect") > logging.CRITICAL
    assert logs.levels("silent").silent
    with pytest.raises(UsageError, match=r"verbosity=loud.*silent"):
        logs.levels("loud")


def test_log_file_and_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        logs.configure(
            LogSettings(format=["line_info"], file=str(tmp_path / "new" / "log")), logs.levels("warning"), job=3
        )
        logging.getLogger("runner.x").info("quiet")
        logging.getLogger("runner.x").warning("loud")
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers, root.level = before, level
    lines = (tmp_path / "new" / "log").read_text().splitlines()
    assert len(lines) == 2, "a file has everything from info on"
    shown = capsys.readouterr().out
    assert "#3 loud" in shown and "runner.x:" in shown and "quiet" not in shown
    with pytest.raises(UsageError, match=r"log.format=\[color\]"):
        logs.configure(LogSettings(format=["color"]), logs.levels("info"))


def test_a_log_waits_for_no_reader_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(UsageError, match=r"log\.file=.*cannot be written"):
        logs.configure(LogSettings(file=str(tmp_path / "log")), logs.levels("info"))


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "a: 1\na: 2\n", "1: 2\n", "\t"])
def test_files_that_are_no_configuration(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bug.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"bug\.yaml"):
        read_user_file(path)


def test_home_is_expanded_in_paths_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    expanded = expand_home(settings(model="~/net.onnx", inputs=FilesInputs(path=["~/a.npz", "b.npz"]), verbosity="~"))
    assert expanded.model == "/home/somebody/net.onnx" and expanded.verbosity == "~"
    assert isinstance(expanded.inputs, FilesInputs) and expanded.inputs.path == ["/home/somebody/a.npz", "b.npz"]


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    for name in ("net.onnx", "x,y.onnx", *(f"more/{number}.onnx" for number in range(7))):
        (tmp_path / name).touch()
    here = str(tmp_path / "net.onnx")
    check_given(settings(model=here))
    check_given(settings(strategy=RepeatSettings(), checker=CommandChecker()))
    for given, said in (
        ({}, "no model given"),
        ({"model": str(tmp_path / "nett.onnx")}, r"model=.*nett\.onnx.*There is: .*net\.onnx"),
        ({"model": str(tmp_path / "y.onnx")}, r"y\.onnx: no such file.*There is: .*x,y\.onnx"),  # half of a name
        ({"model": str(tmp_path / "more" / "different")}, r"There is: .*0\.onnx, .*4\.onnx and 2 more\."),
        ({"model": str(tmp_path)}, "a folder"),
        ({"model": here, "target": OnnxRuntimeBackend(model="gone.onnx")}, r"target\.model="),
        ({"model": here, "checker": PythonChecker()}, r"checker\.file="),
    ):
        with pytest.raises(UsageError, match=said):
            check_given(settings(**given))
