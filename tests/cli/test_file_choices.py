"""A glob of files in a sweep is the files that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli.paths_in_configs import parameters_from_file
from runner.exit_codes import UsageError
from tests.cli.in_process import rewrite, said
from tests.cli.test_argv import seen
from tests.cli.test_loader import composed


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("failures/deep").mkdir(parents=True)
    Path("failures/folder.onnx").mkdir()
    for name in ("b", "a,1", "c[2]", "deep/d"):
        Path(f"failures/{name}.onnx").touch()


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("failures/*.onnx", ["a,1", "b", "c[2]"]),
        ("failures/**/*.onnx", ["a,1", "b", "c[2]", "deep/d"]),
        ("[failures/b*,failures/deep/*]", ["b", "deep/d"]),
        ("failures/*.onnx,exclude=*1*", ["b", "c[2]"]),
        ("failures/[bc]*.onnx", ["b", "c[2]"]),
        ("'failures/[bc]*.onnx'", ["b", "c[2]"]),
    ],
)
def test_the_files_are_the_choices(pattern: str, names: list[str]) -> None:
    wanted = [f"failures/{name}.onnx" for name in names]
    assert seen(rewrite(["-m", f"model=glob({pattern})"]).overrides[0]) == wanted
    assert seen(f"model={parameters_from_file({'model': f'glob({pattern})'}, Path('my.yaml'))['model']}") == wanted


def test_only_of_keys_that_hold_paths() -> None:
    assert rewrite(["-m", "strategy=glob(reduce*)"]).overrides[0] == "strategy=glob(reduce*)"
    given = {"strategy": "glob(*)", "model": "a.onnx"}
    assert parameters_from_file(given, Path("my.yaml")) == given


def test_a_pattern_stands_alone_and_finds_something() -> None:
    alone = "a glob stands alone"
    for typed, told in (
        *(("glob(failures/*),b.onnx", alone), ("b.onnx,glob(failures/*)", alone), ("glob(a*),glob(b*)", alone)),
        ("glob(nowhere/*.onnx)", "nothing is there that matches"),
    ):
        with pytest.raises(UsageError, match=told):
            rewrite(["-m", f"model={typed}"])


def test_a_pattern_where_one_file_belongs(tmp_path: Path) -> None:
    Path("mine.yaml").write_text("strategy: inspect\nmodel: glob(failures/*.onnx)\n")
    for words, told in (
        (["mine.yaml"], "-m 'model=glob(failures/*.onnx)'"),
        (["inspect", "model=glob(failures/*.onnx)"], "model: several choices. Give one, or -m for a run of each"),
    ):
        code, _, err = said(tmp_path, *words)
        assert code == 2 and told in err, err


def test_a_pattern_among_the_parameters_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "defaults: [config, _self_]\nhydra: {sweeper: {params: {model: 'glob(failures/*.onnx)'}}}\n"
    )
    config = composed("mine", [], tmp_path)
    wanted = [f"failures/{name}.onnx" for name in ("a,1", "b", "c[2]")]
    assert seen(f"model={config.hydra.sweeper.params.model}") == wanted
