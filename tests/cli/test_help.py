"""`--help`: a page that fits on a screen, and groups, options and keys by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner.cli.help import GROUPS, WIDTH, help_text, keys, options, overview, topics
from runner.exit_codes import UsageError
from tests.harness import ROOT


@pytest.mark.parametrize("program", ["/usr/bin/winnow", str(ROOT / "runner" / "__main__.py")])
def test_the_page_fits_on_a_screen_and_names_all_options(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    page = overview()
    lines = page.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= WIDTH
    words = page.replace(",", " ").replace("[", " ").replace("]", " ").split()
    assert {one.name for one in options()} <= {*words}
    assert ("  winnow net.onnx" in lines) == program.endswith("winnow")
    assert ("  python -m runner net.onnx" in lines) == program.endswith("py")


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        (["checker"], ["checker: how a model is judged", "checker=finite", "checker.rtol", "checker=auto"]),
        (["checker.timeout"], ["checker.timeout=600.0", "default null with interactive"]),
        (["timeout"], ["workers.timeout", "inputs.timeout"]),
        (["reduce", "net.onnx", "-m"], ["strategy=reduce\n", "strategy.find=cause"]),
        (["+experiment=quantized"], ["experiment=quantized", "reference.model=original.onnx"]),
        (["model=net"], ["model=null\n", "(a path or null (model, read))"]),
        (["budget", "model"], ["budget.seconds", "the ONNX model (strategy=repeat"]),
        (["ls"], ["ls: lists the runs so far"]),
        (["resume"], ["resume RUN: continues", "resume=null\n"]),
        (["hydra"], ["hydra.run.dir=", "folder for the results"]),
    ],
)
def test_what_is_said_of_a_word(typed: list[str], parts: list[str]) -> None:
    text = help_text(typed)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("checker=comand", ["no option comand", "did you mean command", "auto, builds"]),
        ("checker=", ["no option is named behind the =", "Options: auto, builds"]),
        ("=", ["--help =: there is no group, option or key of this name", "Groups: "]),
        ("chekcer", ["(did you mean checker?)", "budget"]),
        ("chekcer=command", ["(did you mean checker?)"]),
        ("budgte=3", ["(did you mean budget?)"]),
        ("checker.timout", ["(did you mean checker.timeout?)", "--help"]),
        *((word, []) for word in ("", "+", "a b", "\x1b[31m", "checker.", "x" * 5000)),
    ],
)
def test_a_word_that_nothing_is_called_by(word: str, parts: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        help_text(["--help", word])
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_a_file_is_no_topic_and_a_topic_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("inputs", "engine.plan"):
        Path(name).touch()
    assert help_text(["inputs"]).startswith("inputs: ") and help_text(["engine.plan"]) == overview()


def test_everything_that_can_be_asked_about_has_an_answer() -> None:
    known = topics()
    assert len(known) == len({*known}) > 200 and {key.name for key in keys()} <= {*known}
    assert all(help_text([word]).strip() for word in known if "." not in word)


@pytest.mark.parametrize("group", GROUPS)
def test_no_two_options_of_a_group_are_said_to_be_the_same(group: str) -> None:
    rows = help_text([group]).split("\n\n")[1].split(f"\n  {group}=")
    said = [" ".join(row.split()[1:]) for row in rows]
    assert len(said) == len({*said}) > 1
