"""A glob of files in a sweep is the files that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli.config.argv import rewrite
from runner.cli.config.file_choices import in_parameters
from runner.errors import UsageError
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
    assert seen(f"model={in_parameters({'model': f'glob({pattern})'})['model']}") == wanted


def test_only_of_keys_that_hold_paths() -> None:
    assert rewrite(["-m", "strategy=glob(reduce*)"]).argv[1] == "strategy=glob(reduce*)"
    assert in_parameters({"strategy": "glob(*)", "model": "a.onnx"}) == {"strategy": "glob(*)", "model": "a.onnx"}


def test_no_match_is_one_error() -> None:
    with pytest.raises(UsageError, match="nothing is there that matches"):
        rewrite(["-m", "model=glob(nowhere/*.onnx)"])


def test_a_sweep_over_the_files(tmp_path: Path) -> None:
    Path("sweep.yaml").write_text(
        "defaults: [config, {override strategy: extract}, _self_]\n"
        f"hydra: {{mode: MULTIRUN, sweep: {{dir: {tmp_path / 'sweep'}}}, "
        "sweeper: {params: {model: 'glob(failures/*.onnx)'}}}\n"
    )
    done = winnow("sweep.yaml", folder=tmp_path / "run")
    assert "0 of 3 jobs" in done.output, done.output
