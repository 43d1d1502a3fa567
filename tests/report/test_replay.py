"""replay.yaml, read back by the libraries that will read it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from runner.journal.replay_yaml import drift, escaped, write_replay
from runner.schema.root import Keep

RECORDED = {"model": "ab" * 32, "check": {"check.py": "cd" * 32}, "versions": {"onnxruntime": "1.30", "onnx": "1.20"}}


def test_the_file_holds_choices_values_and_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "replay.yaml"
    config = {
        "model": "net.onnx",
        "strategy": {"name": "reduce"},
        "artifacts": {"keep": Keep.bad},
        "resume": None,
        "recorded": {},
    }
    write_replay(path, config, {"strategy": "reduce", "checker": "finite"}, RECORDED)
    lines = path.read_text().splitlines()
    assert lines[0] == f"# winnow {path}"
    content = yaml.safe_load(path.read_text())
    assert content["strategy"] == {"defaults": ["reduce", "_self_"], "name": "reduce"}
    assert content["checker"] == {"defaults": ["finite", "_self_"]}
    assert content["model"] == "net.onnx"
    assert content["artifacts"] == {"keep": "bad"}
    assert content["resume"] is None
    assert content["recorded"] == RECORDED
    assert list(content) == ["model", "strategy", "artifacts", "resume", "recorded", "checker"]


@pytest.mark.parametrize(
    "text", ["off", "no", "1e-3", "null", "0x10", "2026-01-01", "a: b", "'\"", "é\u2028\n x", "~", "<<", ""]
)
def test_texts_stay_texts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "replay.yaml"
    write_replay(path, {"value": text, "deep": [{"k": (text, 1, 2.5, True, Path("p"))}]}, {}, {})
    read = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    assert isinstance(read, dict)
    assert read["value"] == text
    assert read["deep"] == [{"k": [text, 1, 2.5, True, "p"]}]


def test_interpolations_survive_as_text() -> None:
    for count in range(1, 5):
        for parts in product(["${", "\\", "a", "}", "'", " "], repeat=count):
            text = "".join(parts)
            assert OmegaConf.create({"a": escaped(text)}).a == text


def test_a_line_end_in_the_path_does_not_end_the_comment(tmp_path: Path) -> None:
    folder = tmp_path / "a\nmodel: b"
    folder.mkdir()
    write_replay(folder / "replay.yaml", {"model": "c"}, {}, {})
    assert yaml.safe_load((folder / "replay.yaml").read_text())["model"] == "c"


def test_drift_names_each_change() -> None:
    assert drift(RECORDED, RECORDED) == ()
    assert drift({}, RECORDED) == ()
    now = {
        "model": "ef" * 32,
        "check": {"check.py": "01" * 32, "new.py": "23" * 32},
        "versions": {"onnxruntime": "1.31", "tensorrt": "11.0"},
    }
    assert drift(RECORDED, now) == (
        "model changed: abababab.. -> efefefef..",
        "check check.py changed: cdcdcdcd.. -> 01010101..",
        "check new.py changed: (none) -> 23232323..",
        "onnxruntime 1.30 -> 1.31",
        "onnx 1.20 -> (none)",
        "tensorrt (none) -> 11.0",
    )
    old, new = (f'{{"name": "x", "versions": {{"onnxruntime": "{version}"}}}}' for version in ("1.30", "1.31"))
    assert drift({"target": old}, {"target": new, "more": "1"}) == (
        "target versions onnxruntime changed: 1.30 -> 1.31",
        "more changed: (none) -> 1",
    )
    assert drift({"target": old}, {"target": "{"}) == (f"target changed: {old} -> {{",)
    assert drift({"model": "ab" * 32}, {}) == ("model changed: abababab.. -> (none)",)
