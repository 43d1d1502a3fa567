"""Tactics recorded, compared and pinned in whole runs, on a pretended TensorRT whose builds choose by chance.

The stand-in mirrors what its author read: no GPU has run this.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fake_tensorrt import Installed, install
from tests.harness import PRETENDED_GPUS, ROOT, Run, winnow, without_nvml
from tests.jobs.models import saved
from tests.report.page.pages import page_in


def run(folder: Path, made: Installed, *options: str) -> Run:
    text = """g (float[4,64] x) => (float[4,64] a3) <float w = {0.25}> {
        [add0] a0 = Add(x, w) [add1] a1 = Add(a0, w) [add2] a2 = Add(a1, w) [add3] a3 = Add(a2, w) }"""
    saved(folder / "net.onnx", text)
    target = ("target=tensorrt", f"target.python={made.python}", "checker=compare", "checker.flaky=never")
    gpus = (f"workers.gpus=[{PRETENDED_GPUS[0]}]", f"workers.lease_folder={folder / 'locks'}")
    return winnow(
        f"model={folder / 'net.onnx'}", *target, *gpus, *options, folder=folder / "run", environment=without_nvml()
    )


@dataclass(frozen=True)
class Recorded:
    made: Installed
    folder: Path
    run: Run

    @property
    def pair(self) -> tuple[str, ...]:
        return tuple(f"strategy.{kind}={self.run.folder / 'artifacts' / kind}" for kind in ("good", "bad"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    made = install(folder, "10")
    made.plant("bad_tactic:add2")
    return Recorded(made, folder, run(folder, made, "strategy=tactic_repeat", "strategy.until=8"))


@pytest.mark.slow
@pytest.mark.variants
@pytest.mark.parametrize("fault", ["pin_ignored", "cache_miss"])
def test_pins_that_do_not_hold_answer_nothing(recorded: Recorded, tmp_path: Path, fault: str) -> None:
    recorded.made.plant("bad_tactic:add2", fault)
    done = run(tmp_path, recorded.made, "strategy=tactic_isolate", *recorded.pair)
    assert done.code == 3, done.output
    assert "simulated builder" in page_in(recorded.run.folder).labels, "what no GPU has run must not look like it"
    assert not done.result.get("culprits")


MODEL = f"model={ROOT / 'examples' / 'overflow.onnx'}"


@pytest.mark.parametrize("strategy", ["tactic_repeat", "tactic_isolate"])
def test_rtx_times_no_tactics(strategy: str, rtx_python: str, tmp_path: Path) -> None:
    run = winnow(
        *(f"strategy={strategy}", MODEL, "target=tensorrt", f"target.python={rtx_python}", "checker=builds"),
        folder=tmp_path / "run",
    )
    assert (run.code, run.result["status"]) == (6, "not_applicable"), run.output
    assert "times no tactics" in run.output
    assert "strategy=repeat checker=builds target=tensorrt" in run.output
    assert not (run.folder / "store").exists() and not (run.folder / "journal.jsonl").exists(), "before any work"


@pytest.mark.variants
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("target=onnxruntime", "checker=runs"), "no engine is built there. Set target=tensorrt"),
        (("target=tensorrt", "checker=python", "checker.file=x.py"), "it is handed no engine"),
        (("target=tensorrt", "checker=builds", "sanitize.fold=true"), "Sanitize the file before"),
        (("target=tensorrt", "checker=builds", "target.timing_cache=x"), "all builds choose alike"),
    ],
)
def test_what_makes_no_sense_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def check(model, inputs, expected):\n    return True\n")
    run = winnow("strategy=tactic_repeat", MODEL, *words, folder=tmp_path / "run")
    assert run.code == 2 and said in run.output, run.output


def test_without_tensorrt_one_line_says_what_to_install(tmp_path: Path) -> None:
    for name in ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings"):
        if importlib.util.find_spec(name):
            pytest.skip(f"{name} is installed under this interpreter")
    run = winnow("strategy=tactic_repeat", MODEL, "target=tensorrt", "checker=builds", folder=tmp_path / "run")
    assert run.code == 2 and "pip install tensorrt" in run.output.splitlines()[-1]
