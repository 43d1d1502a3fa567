"""What the job's process has loaded by the time of the first check: what nothing has asked for yet costs a start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.chain_models import chain

EVERY_RUN = "import hydra, onnx, onnx.inliner, numpy"
OWN = {"runner", "strategies", "conf"}
BESIDES = {"psutil", "rich", "hydra_plugins"}
"""Packages that a start may load besides what those load themselves."""
HEAVY = {"onnx.reference", "onnx.hub", "onnx.backend", "rich.progress", "rich.logging", "rich.table"}
LATER = {"runner.report.bundle", "runner.sweeps.table", "runner.cli.help"}
"""What few runs need. What all reductions need is loaded at once: that takes no longer."""


def test_nothing_heavy_is_loaded_before_the_first_check(tmp_path: Path) -> None:
    model = chain(tmp_path / "small.onnx", 3)
    settings = ["strategy=reduce", f"model={model}", "checker=command", 'checker.command=["true","{model}"]']
    said = _imports("-m", "runner", *settings, f"hydra.run.dir={tmp_path / 'run'}", "verbosity=debug", until="[1] ")
    besides = said - _imports("-c", EVERY_RUN)
    assert besides >= {"runner.engine.session"}, "it began no check"
    packages = {name.partition(".")[0] for name in besides}
    assert packages - OWN - BESIDES <= set(sys.stdlib_module_names) | {"hydra", "omegaconf", "antlr4", "yaml", "numpy"}
    assert not besides & (HEAVY | LATER)


def _imports(*arguments: str, until: str = "") -> set[str]:
    """Return the modules that Python loads before it prints ``until``."""
    command = [sys.executable, "-u", "-X", "importtime", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    before, found, _ = done.stdout.partition(until) if until else (done.stdout, True, "")
    assert found, done.stdout[-2000:]
    return set(re.findall(r"^import time:[^|]*\|[^|]*\|\s*(\S+)", before, re.MULTILINE)) - {"package"}
