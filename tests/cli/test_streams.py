"""A pipe that nobody reads, a full device, closed descriptors: no traceback, and the exit code of the run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chain_models import chain
from tests.cli.test_main import environment, models, result
from tests.harness import ROOT, command

RUN = "model=fine.onnx hydra.run.dir=out"
ENDS = (">&- 2>&- <&-", ">/dev/full 2>/dev/full", "| head -c1 >/dev/null")


def shell(folder: Path, arguments: str, ends: str) -> tuple[int, str]:
    """Return the exit code of a command in a shell, and what it said on stderr as far as that is open."""
    line = f"set -o pipefail; {sys.executable} -m runner {arguments} {ends}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.variants
@pytest.mark.parametrize(
    ("arguments", "ends", "code", "said"),
    [
        *((RUN, ends, 4, "") for ends in ENDS),
        ("model=missing.onnx", ">/dev/full", 2, None),
        ("-m model=fine.onnx hydra.sweep.dir=out", ">&- 2>&- <&-", 0, None),
        ("--cfg job", "| head -c1 >/dev/null", 0, ""),
        ("--cfg job", ">/dev/full", 1, "winnow: standard output: No space left on device\n"),
        pytest.param("--info", "| head -c1 >/dev/null", 0, "", marks=pytest.mark.slow),
    ],
)
def test_what_is_asked_for_ends_as_it_does_whoever_listens(
    tmp_path: Path, arguments: str, ends: str, code: int, said: str | None
) -> None:
    models(tmp_path, ["fine"])
    ended, told = shell(tmp_path, arguments, ends)
    assert ended == code and (said is None or told == said)
    assert "Traceback" not in told and "ignored" not in told
    if arguments == RUN:
        assert result(tmp_path / "out")["exit_code"] == code
    # a file of the run that got the number of a closed descriptor would hold what was said
    assert not [path for path in (tmp_path / "out").rglob("*.json*") if "nothing_to_find:" in path.read_text()]


def test_too_few_files_is_no_bug(tmp_path: Path) -> None:
    line = shlex.join(command(f"model={chain(tmp_path / 'net.onnx', 3)}", folder=tmp_path / "few"))
    done = subprocess.run(
        ["bash", "-c", f"ulimit -n 10; exec {line}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    message = result(tmp_path / "few")["message"]
    assert done.returncode == 1
    assert message.startswith("Too many open files: this process is allowed no more") and "a bug" not in message
