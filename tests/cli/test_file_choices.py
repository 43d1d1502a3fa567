"""A glob of files in a sweep is the files that are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra._internal.utils import create_automatic_config_search_path
from hydra.types import RunMode

from runner.cli.config.argv import rewrite
from runner.cli.config.file_paths import parameters_from_file
from runner.cli.config.loader import CONF, Loader
from runner.errors import UsageError
from runner.schema.register import register
from tests.cli.test_argv import seen
from tests.harness import winnow


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
    assert seen(rewrite(["-m", f"model=glob({pattern})"]).argv[1]) == wanted
    assert seen(f"model={parameters_from_file({'model': f'glob({pattern})'}, Path('my.yaml'))['model']}") == wanted


def test_only_of_keys_that_hold_paths() -> None:
    assert rewrite(["-m", "strategy=glob(reduce*)"]).argv[1] == "strategy=glob(reduce*)"
    given = {"strategy": "glob(*)", "model": "a.onnx"}
    assert parameters_from_file(given, Path("my.yaml")) == given


def test_no_match_is_one_error() -> None:
    with pytest.raises(UsageError, match="nothing is there that matches"):
        rewrite(["-m", "model=glob(nowhere/*.onnx)"])


@pytest.mark.parametrize("typed", ["glob(failures/*),b.onnx", "b.onnx,glob(failures/*)", "glob(a*),glob(b*)"])
def test_a_pattern_stands_alone(typed: str) -> None:
    with pytest.raises(UsageError, match="a glob stands alone"):
        rewrite(["-m", f"model={typed}"])


def test_a_pattern_where_one_file_belongs(tmp_path: Path) -> None:
    Path("mine.yaml").write_text("strategy: inspect\nmodel: glob(failures/*.onnx)\n")
    run = winnow("mine.yaml", folder=tmp_path / "run", cwd=tmp_path)
    assert run.code == 2 and "-m 'model=glob(failures/*.onnx)'" in run.output, run.output
    run = winnow("inspect", "model=glob(failures/*.onnx)", folder=tmp_path / "run", cwd=tmp_path)
    assert run.code == 2 and "model: several choices. Give one, or -m for a run of each" in run.output, run.output


def test_a_pattern_among_the_parameters_of_a_file(tmp_path: Path) -> None:
    register()
    (tmp_path / "mine.yaml").write_text(
        "defaults: [config, _self_]\nhydra: {mode: MULTIRUN, sweeper: {params: {model: 'glob(failures/*.onnx)'}}}\n"
    )
    path = create_automatic_config_search_path(None, None, str(CONF))
    path.prepend("command-line", f"file://{tmp_path}")
    config = Loader(path, lambda _mode, _config: None).load_configuration("mine", [], RunMode.MULTIRUN)
    wanted = [f"failures/{name}.onnx" for name in ("a,1", "b", "c[2]")]
    assert seen(f"model={config.hydra.sweeper.params.model}") == wanted
