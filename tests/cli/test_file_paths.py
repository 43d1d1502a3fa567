"""Paths in a file start at the file's folder; typed ones where the user stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.cli.compose import read_user_file
from runner.cli.paths import PATH_KEYS, rooted
from runner.cli.paths_in_configs import from_file, parameters_from_file
from runner.exit_codes import UsageError
from runner.schema.checker import CommandChecker
from runner.schema.root import Settings
from runner.schema.settings import PathUse
from tests.cli.in_process import said

OF_COMMANDS = {"checker.place", "checker.iteration_info", "artifacts.paths"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration in it, seen from another one."""
    (tmp_path / "desk").mkdir()
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "desk")
    return tmp_path / "repository"


def composed(*typed: str, cwd: Path) -> tuple[dict[str, Any], str]:
    code, out, err = said(cwd, *typed, "--cfg", "job")
    assert code == 0, err
    return yaml.safe_load(out), err


@pytest.mark.parametrize("key", PATH_KEYS)
def test_each_key_that_holds_a_path(key: str, repository: Path) -> None:
    text = "part/name.so"
    expected = text if key in OF_COMMANDS else str(repository / text)
    assert from_file(text, key, repository / "my.yaml") == expected
    assert from_file([text], key, repository / "my.yaml") == [expected]
    assert from_file(text, key, Path("my.yaml")) == text, "nothing changes where the user stands beside it"
    for fixed in ("/a/b", "~/a", "${model}/a", "", *(["glob(*.onnx)"] if key not in OF_COMMANDS else [])):
        assert from_file(fixed, key, repository / "my.yaml") == fixed
    assert (key in OF_COMMANDS) == bool(PATH_KEYS[key] & (PathUse.PATTERN | PathUse.FOR_CHECK))


def test_what_is_looked_up_by_its_name_and_what_is_no_path(repository: Path) -> None:
    file = repository / "my.yaml"
    assert from_file({"python": "python3.10"}, "target", file) == {"python": "python3.10"}
    assert from_file({"python": "env/bin/python"}, "target", file) == {"python": str(repository / "env/bin/python")}
    libraries = {"provider_libraries": {"Ours": "ours_package", "Other": "lib/other.so", "Mac": "other.dylib"}}
    rooted = {"Ours": "ours_package", "Other": str(repository / "lib/other.so")}
    rooted["Mac"] = str(repository / "other.dylib")
    assert from_file(libraries, "target", file) == {"provider_libraries": rooted}
    for plain in ({"command": "python check.py {model}"}, {"outputs": ["a/b"]}, {"timeout": 3}):
        assert from_file(plain, "checker", file) == plain


def test_what_is_only_where_the_user_stands_is_not_meant(repository: Path) -> None:
    Path("net.onnx").touch()
    assert from_file("net.onnx", "model", repository / "my.yaml") == str(repository / "net.onnx")


def test_a_script_beside_the_file_of_a_command_that_runs_elsewhere(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "check.py").touch()
    file = repository / "my.yaml"
    for command in ("'python check.py {model}'", "[python, check.py]"):
        file.write_text(f"checker: {{name: command, command: {command}}}\n")
        read_user_file(file)
        assert "checker.command: check.py lies beside the file" in capsys.readouterr().err
        file.write_text(f"cwd: .\n{file.read_text()}")
        read_user_file(file)
        assert capsys.readouterr().err == ""


def test_what_a_check_gets_is_written_where_it_runs(tmp_path: Path) -> None:
    settings = Settings(cwd="work", checker=CommandChecker(place="cut.onnx"), model="net.onnx")
    made = rooted(settings, tmp_path)
    assert isinstance(made.checker, CommandChecker) and made.checker.place == str(tmp_path / "work" / "cut.onnx")
    assert (made.model, made.cwd) == (str(tmp_path / "net.onnx"), str(tmp_path / "work"))
    made = rooted(Settings(checker=CommandChecker(iteration_info="now.json")), tmp_path)
    assert isinstance(made.checker, CommandChecker) and made.checker.iteration_info == str(tmp_path / "now.json")


def test_odd_names(repository: Path) -> None:
    odd = repository.with_name("${x} [a], 'b'")
    odd.mkdir()
    (odd / "${y}.onnx").touch()
    held = yaml.safe_load(yaml.safe_dump(from_file("${y}.onnx", "model", odd / "my.yaml")))
    assert held == str(odd / "${y}.onnx").replace("${", "\\${")
    assert from_file("${seed}/a", "model", odd / "my.yaml") == "${seed}/a", "where that starts is not known yet"


def test_choices_of_a_sweep(repository: Path) -> None:
    for name in ("a.onnx", "b, c.onnx"):
        (repository / name).touch()
    file = repository / "my.yaml"
    given = {
        "model": "a.onnx,'b, c.onnx'",
        "checker.rtol": "1,2",
        "inputs.path": "gone.npz",
        "target.model": "glob(*.onnx)",
    }
    made = parameters_from_file(given, file)
    found = f"'{repository / 'a.onnx'}','{repository / 'b, c.onnx'}'"
    expected = {**given, "model": found.replace("'", "", 2), "target.model": found}
    expected["inputs.path"] = str(repository / "gone.npz")
    assert made == expected
    (repository.parent / "models").mkdir()
    above = repository.parent / "models" / "m.onnx"
    above.touch()
    made = parameters_from_file({"model": "../models/m.onnx", "target.model": "glob(../models/*.onnx)"}, file)
    assert made == {"model": str(above), "target.model": f"'{above}'"}, "no .. in what a sweep's table shows"
    with pytest.raises(UsageError, match=f"looked from {repository}"):
        parameters_from_file({"model": "glob(gone*.onnx)"}, file)
    del given["target.model"]
    assert parameters_from_file(given, Path("my.yaml")) == given


def test_a_file_its_groups_and_what_is_typed(repository: Path) -> None:
    (repository / "checker").mkdir()
    (repository / "checker" / "ours.yaml").write_text("defaults: [python, _self_]\nfile: judge.py\n")
    (repository / "my.yaml").write_text(
        "model: net.onnx\nchecker: ours\ninputs: {name: files, path: [a.npz]}\ncwd: .\n"
    )
    config, told = composed("../repository/my.yaml", "result.path=out.onnx", cwd=repository.with_name("desk"))
    assert (config["model"], config["result"]["path"], told) == (str(repository / "net.onnx"), "out.onnx", "")
    assert config["checker"]["file"] == str(repository / "checker" / "judge.py")
    assert config["inputs"]["path"] == [str(repository / "a.npz")] and config["cwd"] == str(repository)
    config, _ = composed("../repository/my.yaml", "model=other.onnx", "checker=auto", cwd=repository.with_name("desk"))
    assert config["model"] == "other.onnx", "what is typed starts where the user stands"
