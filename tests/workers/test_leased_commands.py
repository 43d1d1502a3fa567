"""Commands and jobs that hold leases, killed ones too."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from runner.schema.root import LeaseMode
from runner.workers.commands import run_command
from tests.workers.house import ONE, House, Make, free


def run(here: House, script: str, folder: Path, **more: Any) -> Any:
    with here.pool.user_lease() as lease:
        limits = {"timeout": 60.0, "memory_mb": None, "env": dict(os.environ), "cwd": folder, **more}
        argv = [sys.executable, "-c", script]
        return run_command(argv, log=folder / "log", guardian=here.guardian, lease=lease, **limits)


def test_commands_get_a_gpu_if_that_is_asked_for(house: Make, tmp_path: Path) -> None:
    show = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
    before = str(os.environ.get("CUDA_VISIBLE_DEVICES"))
    for mode, seen in ((LeaseMode.auto, before), (LeaseMode.none, before), (LeaseMode.gpu, ONE)):
        assert run(house(ONE, mode=mode), show, tmp_path).returncode == 0
        assert (tmp_path / "log").read_text().strip() == seen
        assert free(tmp_path, ONE)


def test_a_command_that_cannot_start_frees_it(house: Make, tmp_path: Path) -> None:
    here = house(ONE, mode=LeaseMode.gpu)
    assert run(here, "", tmp_path, cwd=tmp_path / "nowhere").cannot_start
    assert free(tmp_path, ONE)


_INNER = """
import os, sys
from pathlib import Path
from runner.schema.root import LeaseMode
from runner.workers.pool import Pool
from runner.workers.gpus import Gpus
from runner.workers.gpu_leases import Leases
folder = Path(sys.argv[1])
made = Leases(lambda: Gpus((sys.argv[2],)), 1, folder / "locks", LeaseMode.auto, folder)
with Pool(folder / "inner", None, made) as pool:
    arguments = {"file": sys.argv[3], "function": sys.argv[4], "model": sys.argv[5], "samples": []}
    reply = pool.call("user_check", arguments, lease="gpu", timeout=60)
    print("death", reply.death, "detail", (reply.value or {}).get("result"), flush=True)
    second = made.take("gpu")
    sys.exit(second is not None)
"""


def test_a_run_inside_a_command_uses_the_commands_gpu(house: Make, tmp_path: Path) -> None:
    here = house(ONE, mode=LeaseMode.gpu)
    with here.pool.user_lease() as lease:
        argv = [sys.executable, "-c", _INNER, str(tmp_path), ONE, str(here.checks), "environment", ""]
        end = run_command(
            argv, log=tmp_path / "log", guardian=here.guardian, lease=lease, timeout=60, memory_mb=None,
            env=dict(os.environ), cwd=tmp_path
        )  # fmt: skip
    assert end.returncode == 0, (tmp_path / "log").read_text()  # and inside, too, there is one holder at a time
    assert f"'detail': '{ONE}'" in (tmp_path / "log").read_text()
    assert free(tmp_path, ONE)


# ---- jobs that are killed
