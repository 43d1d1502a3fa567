"""What a user types reaches the settings to the letter, through both of Hydra's grammars."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from runner.cli.paths_in_configs import means_itself, parse, quote
from runner.exit_codes import UsageError
from tests.cli.in_process import rewrite

TEXTS = st.one_of(st.text(alphabet="ab1\\${}'\"()[],=:~. \n%", max_size=12), st.text(max_size=10))
NAMES = TEXTS.filter(lambda name: name.strip(". ") and "/" not in name and "\0" not in name).map(
    lambda name: name + ".onnx"
)


def seen(argument: str) -> list[object]:
    """Return what the settings will hold for ``key=value``: a value for each job."""
    override = OverridesParser.create().parse_override(argument)
    values = list(override.sweep_iterator()) if override.is_sweep_override() else [override.value()]
    if override.is_sweep_override():  # Hydra writes each choice out and parses it again
        parsed = [OverridesParser.create().parse_override(f"k={text}") for text in override.sweep_string_iterator()]
        values = [part.value() for part in parsed]
    return [OmegaConf.create({"value": value}).value for value in values]


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@given(TEXTS)
@example("name[1](a)=b$.onnx")
@example("${model}")
@example("\\${")
@example("a\\\\")
@example("1e3")
@example("null")
def test_quoted_text_reads_back_as_itself(text: str) -> None:
    assert seen(f"model={quote(text)}") == [text]


@given(TEXTS)
def test_text_that_means_itself_does(text: str) -> None:
    if means_itself("model", text):
        assert seen(f"model={text}") == [text]


@settings(deadline=None)
@given(name=NAMES)
def test_an_existing_file_is_meant_to_the_letter(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    before, folder = Path.cwd(), tmp_path_factory.mktemp("names")
    os.chdir(folder)
    try:
        try:
            (folder / name).touch()
        except (OSError, UnicodeEncodeError):
            return
        for key in ("model", "reference.model", "inputs.path", "resume"):
            assert seen(rewrite([f"{key}={name}"]).overrides[0]) == [name]
        (folder / "other.onnx").touch()
        if "," in name:
            return
        (argument,) = rewrite(["-m", f"model={name},other.onnx"]).overrides
        assert seen(argument) == [name, "other.onnx"]
    finally:
        os.chdir(before)


@given(name=NAMES.filter(lambda name: "," not in name and "${" not in name and not name.startswith("[")))
def test_a_missing_file_is_not_a_grammar_error(name: str) -> None:
    (argument,) = rewrite([f"model={name}"]).overrides
    assert all(isinstance(value, (str, int, float, list, dict)) for value in seen(argument))


@pytest.mark.usefixtures("_here")
def test_choices_stay_choices() -> None:
    for name in ("a.onnx", "b.onnx", "x,y.onnx", "c[1].onnx"):
        Path(name).touch()
    assert seen(rewrite(["-m", "model=a.onnx,b.onnx"]).overrides[0]) == ["a.onnx", "b.onnx"]
    assert seen(rewrite(["-m", "model='x,y.onnx',a.onnx"]).overrides[0]) == ["x,y.onnx", "a.onnx"]
    assert seen(rewrite(["inputs.path=['x,y.onnx',a.onnx]"]).overrides[0]) == [["x,y.onnx", "a.onnx"]]
    assert seen(rewrite(["-m", "model=c[1].onnx,missing.onnx"]).overrides[0]) == ["c[1].onnx", "missing.onnx"]
    assert seen(rewrite(["model=x,y.onnx"]).overrides[0]) == ["x,y.onnx"]
    assert seen(rewrite(["inputs.path=[x,y.onnx]"]).overrides[0]) == [["x,y.onnx"]]
    assert seen(rewrite(["inputs.path=[a.onnx,c[1].onnx]"]).overrides[0]) == [["a.onnx", "c[1].onnx"]]
    assert rewrite(["model=a.onnx,b.onnx"]).overrides == ("model=a.onnx,b.onnx",)


@pytest.mark.usefixtures("_here")
def test_plain_values_are_left_alone() -> None:
    Path("net.onnx").touch()
    typed = ["model=net.onnx", "strategy=reduce", "+experiment=sweep", "~budget", "checker.fail_codes=[1]"]
    assert rewrite([*typed, "--cfg", "job"]).overrides == tuple(typed)


def test_interpolations_hydra_quotes_and_home_in_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for typed, meant in (("out/${now:%Y}", "out/${now:%Y}"), ("'a b'", "'a b'"), ("~/runs", "/home/somebody/runs")):
        assert rewrite([f"hydra.run.dir={typed}"]).overrides == (f"hydra.run.dir={meant}",)
    assert seen(rewrite(["model='a b.onnx'"]).overrides[0]) == ["a b.onnx"]


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("python check.py {model} --a=1", "python check.py {model} --a=1"),
        ("'python check.py {model}'", "python check.py {model}"),
        ("[python, check.py, '{model}']", ["python", "check.py", "{model}"]),
        ("true", "true"),
        ("./check.sh a,b", "./check.sh a,b"),
    ],
)
def test_commands(typed: str, value: object) -> None:
    assert seen(rewrite([f"checker.command={typed}"]).overrides[0]) == [value]


@pytest.mark.usefixtures("_here")
def test_a_bare_yaml_is_the_configuration() -> None:
    Path("d=1").mkdir()
    Path("d=1/my bug.yaml").touch()
    arguments = rewrite(["d=1/my bug.yaml", "model=net.onnx"])
    assert arguments.file == Path("d=1/my bug.yaml")
    assert arguments.overrides == ("model=net.onnx",)
    assert rewrite(["--config-dir", "d=1", "--config-name", "my bug"]).file is None


def test_parameters_of_a_sweep_stand_in_files() -> None:
    params = "hydra.sweeper.params"
    for typed in (f"++{params}.model=a,b", f"{params}={{model: 'a,b'}}", f"+{params}={{}}"):
        with pytest.raises(UsageError, match=r"files only\. .*: -m KEY=CHOICE,CHOICE$"):
            rewrite(["-m", typed])
    assert rewrite(["-m", "hydra.sweeper.params=null"]).overrides == ("hydra.sweeper.params=null",)


def test_one_folder_of_results_stands_for_a_list(tmp_path: Path) -> None:
    strange = tmp_path / "a, b [x]"
    strange.mkdir()
    for typed, meant in ((str(strange), [str(strange)]), ("a,b", ["a", "b"]), ("[a]", ["a"]), ("a*", ["a*"])):
        parsed = parse(rewrite([f"strategy.results={typed}"]).overrides[0])
        assert parsed is not None and parsed.value() == meant
