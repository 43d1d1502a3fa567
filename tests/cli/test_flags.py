"""Flags, in front of the keys: what each stands for, and what a key written as one is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runner import api
from runner.cli.arguments import options
from runner.exit_codes import UsageError
from runner.schema.inputs import FilesInputs
from runner.schema.installed_choices import compose, implied_choice
from tests.chain_models import chain
from tests.cli.in_process import rewrite, said
from tests.harness import ROOT, winnow


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (["--check", "python c.py {model}"], ["checker=command", "checker.command=python c.py {model}"]),
        (["--check=acc.py"], ["checker=python", "checker.file=acc.py"]),
        (["--inputs", "x.npz"], ["inputs=files", "inputs.path=x.npz"]),
        (["--inputs", "data.py"], ["inputs=python", "inputs.file=data.py"]),
        (["--expected", "y.npz"], ["reference=files", "reference.path=y.npz"]),
        (["--original", "a.onnx"], ["reference.model=a.onnx"]),
        (["--timeout", "60"], ["checker.timeout=60"]),
        (["--out", "here"], ["hydra.run.dir=here"]),
        (["-m", "--out", "here"], ["hydra.sweep.dir=here"]),
        (["-v"], ["verbosity=[info,runner.report.progress:debug]"]),
        (["reduce", "--cfg", "job", "a=b"], ["reduce", "a=b"]),
    ],
)
def test_a_flag_is_short_for_keys(typed: list[str], keys: list[str]) -> None:
    assert options(typed).overrides == keys


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--check"], "--check: expected one argument"),
        (["--inputs", "--json"], "--inputs: expected one argument"),
        (["--timeout", "6", "checker.timeout=7"], "--timeout and checker.timeout=: both say the same"),
        (["--check", "a.py", "checker=compare"], "--check and checker=: both say the same"),
        (["--chek", "check.py", "a=b"], "--chek (did you mean --check?)"),
        (["--che", "check.py"], "--che (did you mean --check?)"),
        (["--checker.timeout", "60"], "--checker.timeout: a key has no dashes. Write it so: checker.timeout=60"),
        (["reduce", "--resume", "o1", "budget.checks=3"], "--resume: a key has no dashes. Write it so: resume=o1"),
        (["--check", "a.py", "--check", "b.py"], "--check: it is there twice"),
        (["--budget.checks=3"], "Write it so: budget.checks=3"),
        (["--model=a b.onnx"], "Write it so: model='a b.onnx'"),
    ],
)
def test_what_is_no_flag_is_told_how_it_is_written(typed: list[str], said: str) -> None:
    with pytest.raises(UsageError) as error:
        options(typed)
    assert said in str(error.value)


def test_a_script_is_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("check.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(UsageError, match="no function called check"):
        options(["--check", "check.py"])
    Path("check.py").write_text("from mine import check\n")
    assert options(["--check", "check.py"]).overrides[0] == "checker=python"


def test_a_function_of_another_name_stands_behind_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("acc.py").write_text("def judge(model): ...\n")
    keys = ["checker=python", "checker.function=judge", "checker.file=acc.py"]
    assert options(["--check", "acc.py:judge"]).overrides == options(["--check", "acc.py::judge"]).overrides == keys
    assert options(["--check", "acc.py", "checker.function=judge"]).overrides[:2] == ["checker=python", keys[2]]
    with pytest.raises(UsageError, match="it has no function called juge"):
        options(["--check", "acc.py:juge"])
    made = options(["--inputs", "data.py:rows"]).overrides
    assert made == ["inputs=python", "inputs.function=rows", "inputs.file=data.py"]


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        ("inputs.path=x.npz", "inputs=files"),
        ("inputs.file=x.py", "inputs=python"),
        ("checker.file=acc.py", "checker=python"),
        ("checker.command=./check", "checker=command"),
        ("checker.metric=cosine", "checker=compare"),
        ("reference.path=y.npz", "reference=files"),
        ("target.rounding=off", ""),  # the usual one has it
        ("checker.nan=fail", ""),  # two have it
        ("checker.nothing=1", ""),
        ("strategy.until=3", ""),
    ],
)
def test_a_key_that_one_option_alone_has_chooses_it(typed: str, choice: str) -> None:
    assert list(rewrite([typed]).overrides[1:]) == [choice] * bool(choice)
    group = typed.partition(".")[0]
    assert rewrite([typed, f"{group}=auto"]).overrides[1:] == (f"{group}=auto",)
    assert rewrite([typed, "--config-name", "mine"]).overrides == (typed,)


def test_a_program_s_keys_choose_as_well() -> None:
    assert compose({"checker": {"file": "acc.py"}, "inputs": {"path": "x.npz"}}).checker.name == "python"
    assert implied_choice("checker", ["nan", "metric"]) == "compare"


def negated(folder: Path) -> None:
    """A model of a batch of one, and an npz with nine rows."""
    chain(folder / "net.onnx", 2)
    values = np.arange(36, dtype=np.float32).reshape(9, 4)
    np.savez(folder / "x.npz", t0=values)
    np.savez(folder / "y.npz", t2=-values)


def test_rows_of_one_file_are_offered_as_samples(tmp_path: Path) -> None:
    negated(tmp_path)
    given = [f"model={tmp_path / 'net.onnx'}", f"inputs.path={tmp_path / 'x.npz'}", "strategy=repeat"]
    for split, told in ((None, "To take them as samples: inputs.split=9"), (10, "'t0' holds 9 samples. Take no more")):
        inputs = FilesInputs(path=str(tmp_path / "x.npz"), split=split)
        with pytest.raises(UsageError, match=told):
            api.repeat(tmp_path / "net.onnx", inputs=inputs, strategy={"until": 1}, folder=tmp_path / "refused")
    known = [f"reference.path={tmp_path / 'y.npz'}", "inputs.split=9", "strategy.until=1", "checker=compare"]
    right = winnow(*given, *known, folder=tmp_path / "right")
    assert right.result["statistics"]["passed"] == 1, right.output
    np.savez(tmp_path / "y.npz", t2=np.zeros((9, 4), np.float32))
    assert winnow(*given, *known, folder=tmp_path / "wrong").result["statistics"]["passed"] == 0


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    negated(tmp_path)

    def started(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(ROOT / "winnow_onnx.py"), *words]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    run = started("reduce", "net.onnx", "--check", "false", "--out", "run", "--json")
    assert (run.returncode, run.stderr) == (3, "")
    assert json.loads(run.stdout) == json.loads((tmp_path / "run" / "result.json").read_text())
    assert said(tmp_path, "run", "--json") == (3, run.stdout.rstrip("\n") + "\n", "")
    code, _, err = said(tmp_path, "-m", "reduce", "net.onnx,net.onnx", "--json")
    assert code == 2 and "--json: it is for one run" in err
    wrong = winnow("reduce", "no.onnx", "--json", folder=tmp_path / "wrong")
    assert wrong.code == 2 and "no such file" in wrong.output
