"""The small parts around a job: levels of the log, a user's file, rows of a sweep, paths."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from runner.cli import logs
from runner.cli.check_given import check_given
from runner.cli.compose import read_user_file
from runner.cli.paths import expand_home
from runner.judgment import UsageError
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker, CommandChecker, PythonChecker
from runner.schema.inputs import FilesInputs
from runner.schema.root import LogSettings, Settings
from runner.schema.strategy import ReduceSettings, RepeatSettings
from runner.sweeps.table import Row, markdown, rows, screen


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


def test_rows_of_a_sweep(tmp_path: Path) -> None:
    for number, content in ((0, {"exit_code": 0, "status": "found", "culprits": ["a"]}), (1, None), (3, "not json")):
        hydra = tmp_path / f"job={number}" / ".hydra"
        hydra.mkdir(parents=True)
        (hydra / "hydra.yaml").write_text(f"hydra: {{job: {{num: {number}}}}}\n")
        (hydra / "overrides.yaml").write_text(f"- model={number}.onnx\n")
        if content:
            (hydra.parent / "result.json").write_text(content if isinstance(content, str) else json.dumps(content))
    (tmp_path / "job=0" / "ended.json").write_text('{"overrides": ["a|b", "hydra.verbose=true", "x=1"]}')
    table = rows(tmp_path, [("a|b", "x=1"), ("c", "x=1"), ("d", "x=1"), ("e", "x=1")])
    assert [(row.job, row.status) for row in table] == [("0", "found"), ("1", "died"), ("2", "not run"), ("3", "died")]
    text = markdown(table)
    assert "| a&#124;b |" in text and "job 2: " in text and "All jobs: `x=1`" in text
    assert [row.overrides for row in rows(tmp_path, [])] == [("model=0.onnx",), ("model=1.onnx",), ("model=3.onnx",)]


def test_a_result_of_an_earlier_sweep_is_none_of_this_one(tmp_path: Path) -> None:
    hydra = tmp_path / "0" / ".hydra" / "hydra.yaml"
    hydra.parent.mkdir(parents=True)
    hydra.write_text("hydra: {job: {num: 0}}\n")
    result = tmp_path / "0" / "result.json"
    result.write_text('{"exit_code": 0, "status": "found"}')
    ended = tmp_path / "0" / "ended.json"
    ended.write_text('{"overrides": ["a"]}')
    before = {path: path.stat().st_mtime_ns for path in (hydra, result, ended)}
    assert rows(tmp_path, [("a",)], before)[0].status == "not run"
    os.utime(hydra, (1.0, 1.0))
    assert rows(tmp_path, [("a",)], before)[0].status == "died"
    os.utime(result, (1.0, 1.0))
    assert rows(tmp_path, [("a",)], before)[0].status == "died"
    os.utime(ended, (1.0, 1.0))
    assert rows(tmp_path, [("a",)], before)[0].status == "found"
    assert rows(tmp_path, [("b",)], before)[0].status == "died", "this is another job's result"


def test_a_message_of_several_lines_stays_one_item_of_the_list() -> None:
    table = markdown([Row("0", (), "could_not_judge", 3, message="it cannot judge.\ncheck: python check.py")])
    assert table.splitlines()[-1] == "- job 0: it cannot judge. check: python check.py"


def test_what_a_person_may_type_again_is_shown_as_typed() -> None:
    words = ("checker.command='python c.py {model}'", "inputs.shapes={x: [1]}")
    table = [Row(str(number), words, "died", message="[Errno 2] resume=~/a_b_[1]") for number in range(2)]
    shown = "\n".join(screen(table, None))
    assert f"All jobs: {' '.join(words)}\n" in shown and "- job 1: [Errno 2] resume=~/a_b_[1]\n" in shown
    assert "&#" not in shown and "{model}" in markdown(table)
