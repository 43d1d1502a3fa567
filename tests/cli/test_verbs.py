"""Words of a command line: `winnow reduce net.onnx` is `strategy=reduce model=net.onnx`."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli.arguments import completed, meant_words, options, strategies
from runner.exit_codes import UsageError
from runner.schema.settings import setting, settings
from runner.schema.strategy import StrategySettings
from tests.cli.in_process import rewrite
from tests.cli.test_argv import seen
from tests.harness import ROOT


@settings
class _Kept(StrategySettings):
    """A strategy that reads results of earlier runs."""

    results: list[str] = setting([])


NOTHING = options([])
KNOWN = {"reduce": StrategySettings, "inspect": StrategySettings, "recheck": _Kept}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_verbs_are_the_strategies_that_there_are() -> None:
    assert set(strategies()) == {path.stem for path in (ROOT / "conf" / "strategy").glob("*.yaml")}


@pytest.mark.parametrize(
    ("typed", "argv"),
    [
        (["inspect", "net.onnx"], ["strategy=inspect", "model=net.onnx"]),
        (["reduce_bisect", "net.onnx", "checker=runs"], ["checker=runs", "strategy=reduce_bisect", "model=net.onnx"]),
        (["-m", "reduce", "model=glob(*.onnx)"], ["model='a.onnx','b.onnx'", "strategy=reduce"]),
        (["-m", "reduce", "a.onnx", "b.onnx"], ["strategy=reduce", "model=a.onnx,b.onnx"]),
        (["-m", "reduce", "glob(*.onnx)"], ["strategy=reduce", "model='a.onnx','b.onnx'"]),
        (["-m", "glob(*.onnx)"], ["strategy=triage", "model='a.onnx','b.onnx'"]),
        (["inspect", "~/net.onnx"], ["strategy=inspect", "model='~/net.onnx'"]),
        (["workaround", "a.onnx"], ["strategy=workaround", "model=a.onnx"]),
        (["inspect", "~budget", "a.onnx"], ["~budget", "strategy=inspect", "model=a.onnx"]),
        (["-m", "reduce", "a.onnx,b.onnx"], ["strategy=reduce", "model=a.onnx,b.onnx"]),
        (["net.onnx"], ["strategy=triage", "model=net.onnx"]),
        (["net.onnx", "checker=runs"], ["checker=runs", "strategy=triage", "model=net.onnx"]),
        (["net.onnx", "strategy=precision"], ["strategy=precision", "model=net.onnx"]),
        (["net.onnx", "+experiment=sweep"], ["+experiment=sweep", "model=net.onnx"]),
        (["my.yaml", "net.onnx"], ["model=net.onnx"]),
        (["model=net.onnx"], ["model=net.onnx"]),
        (["reduce", "my.yaml"], ["strategy=reduce"]),
        (["inspect", "./reduce"], ["strategy=inspect", "model=./reduce"]),
        (["inspect", "net.engine", "--cfg", "job"], ["strategy=inspect", "model=net.engine"]),
    ],
)
def test_words(typed: list[str], argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "runner.cli.arguments.strategies", lambda: {**KNOWN, "reduce_bisect": StrategySettings, "workaround": _Kept}
    )
    for name in ("my.yaml", "reduce", "net.engine", "a.onnx", "b.onnx"):
        Path(name).touch()
    assert list(rewrite(typed).overrides) == argv
    assert rewrite(typed).file == (Path("my.yaml") if "my.yaml" in typed else None)


@pytest.mark.parametrize(
    "name", ["a,b.onnx", "a b.onnx", "a=b.onnx", "x[1].onnx", "${x}.onnx", "'q'.onnx", "n(1).onnx"]
)
def test_a_name_is_meant_to_the_letter(name: str) -> None:
    Path(name).touch()
    Path("plain.onnx").touch()
    assert seen(rewrite(["extract", name]).overrides[1]) == [name]
    assert seen(rewrite(["-m", "extract", name, "plain.onnx"]).overrides[1]) == [name, "plain.onnx"]


def test_results_are_a_list_to_the_letter() -> None:
    names = ["bugs/a,1/replay.yaml", "bugs/*/replay.yaml", "runs/b c", "x]y", "reduce"]
    Path("bugs/a,1").mkdir(parents=True)
    Path(names[0]).touch()
    argv = meant_words(["recheck", *names], [], KNOWN, NOTHING).overrides
    assert argv[0] == "strategy=recheck"
    assert seen(argv[1]) == [names]
    assert meant_words(["recheck"], [], KNOWN, NOTHING).overrides == ("strategy=recheck",)
    for words in (["recheck", "net.onnx", "run"], ["recheck", "run", "net.onnx"]):
        told = meant_words(words, [], KNOWN, NOTHING)
        assert told.overrides == ("strategy=recheck", "strategy.results=['run']", "model=net.onnx")


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (["reduce", "net.onnx"], ["strategy"], "reduce and strategy=: both say the same"),
        (["reduce", "net.onnx"], ["model"], "net.onnx and model=: both say the same"),
        (["reduce", "a.onnx", "b.onnx"], [], "-m for a run of each"),
        (["net.onnx", "reduce"], [], "winnow reduce net.onnx"),
        (["reduce,inspect", "net.onnx"], [], "-m strategy=reduce,inspect"),
        (["recheck", "a"], ["strategy.results"], "a and strategy.results=: both say the same"),
        (["reduce", "a.yaml", "b.yaml"], [], "two configuration files"),
    ],
)
def test_what_words_do_not_mean(words: list[str], given: list[str], said: str) -> None:
    for name in ("a.yaml", "b.yaml"):
        Path(name).touch()
    with pytest.raises(UsageError, match=said):
        meant_words(words, given, KNOWN, NOTHING)


@pytest.mark.parametrize(
    ("line", "for_hydra", "names"),
    [
        ("winnow re", "winnow re", ["reduce", "recheck"]),
        ("winnow -m ", "winnow -m ", ["reduce", "inspect", "recheck"]),
        ("winnow reduce net.onnx checker=r", "winnow strategy=reduce checker=r", []),
        ("winnow reduce ne", "winnow strategy=reduce ne", []),
        ("winnow strategy=re", "winnow strategy=re", []),
        ("winnow", "winnow ", ["reduce", "inspect", "recheck"]),
    ],
)
def test_completion(line: str, for_hydra: str, names: list[str]) -> None:
    assert completed(line, KNOWN) == (for_hydra, names)
