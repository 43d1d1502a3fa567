"""Sweeps on a SLURM cluster of one node with pretended GPUs."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.one_node import OneNode
from tests.harness import ROOT
from tests.sweeps.test_launcher import ASKED, chain, prepared, states, until

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

#: writes down on which device it runs, what SLURM says of that, and when
CHECK = """
import json, os, pathlib, subprocess, sys, time
import onnx

job = os.environ["SLURM_JOB_ID"]
start = time.time()
shown = subprocess.run(["scontrol", "show", "job", "-d", job], capture_output=True, text=True).stdout
nodes = [node.name for node in onnx.load(sys.argv[1]).graph.node]
time.sleep(0.1)
device = os.environ.get("CUDA_VISIBLE_DEVICES")
entry = {"job": job, "device": device, "shown": shown, "start": start, "end": time.time()}
with open(pathlib.Path(__file__).parent / "devices.jsonl", "a") as file:
    file.write(json.dumps(entry) + "\\n")
sys.exit("n5" in nodes)
"""
SLURM = (
    *("hydra/launcher=submitit_slurm", "hydra.launcher.partition=debug", "hydra.launcher.gpus_per_node=1"),
    *("hydra.launcher.cpus_per_task=1", "hydra.launcher.timeout_min=5"),
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "runner", "-m", *arguments, *SLURM]


def environment(cluster: OneNode) -> dict[str, str]:
    return {**cluster.env, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def sweep(cluster: OneNode, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(cluster), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=200, check=False,
    )  # fmt: skip


def table(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "sweep.json").read_text())


def test_each_job_is_on_the_device_that_slurm_gave_it(cluster: OneNode, tmp_path: Path) -> None:
    (tmp_path / "devices.py").write_text(CHECK)
    choices = prepared(tmp_path, ["a", "b", "c", "d"])
    check = json.dumps([sys.executable, "devices.py", "{model}"])
    done = sweep(
        cluster, tmp_path, choices, "strategy=reduce_bisect", "checker=command", f"checker.command={check}",
        "checker.flaky=never", "hydra.sweep.dir=out", "workers.lease=gpu",
        f"workers.lease_folder={tmp_path / 'leases'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(row["exit_code"], row["culprits"]) for row in table(tmp_path / "out")] == [(0, ["n5"])] * 4
    assert "4 of 4 jobs ended well" in done.stdout
    entries = [json.loads(line) for line in (tmp_path / "devices.jsonl").read_text().splitlines()]
    given = {entry["job"]: re.search(r"GRES=gpu[^ ]*\(IDX:(\d+)\)", entry["shown"]) for entry in entries}
    assert len(given) == 4
    for entry in entries:
        told = given[entry["job"]]
        assert told is not None, entry["shown"]
        assert entry["device"] == told[1]
    assert {entry["device"] for entry in entries} == {"0", "1"}
    assert list((tmp_path / "leases").iterdir()), "each check held a lease on that device"
    spans: dict[str, tuple[str, float, float]] = {}
    for entry in entries:
        device, start, end = spans.get(entry["job"], (entry["device"], entry["start"], entry["end"]))
        spans[entry["job"]] = (device, min(start, entry["start"]), max(end, entry["end"]))
    by_device = sorted(spans.values())
    for (one, _, end), (other, start, _) in itertools.pairwise(by_device):
        assert one != other or end <= start, "two jobs at once on one device"


def test_a_job_that_is_killed_costs_itself_only(cluster: OneNode, tmp_path: Path) -> None:
    choices = prepared(tmp_path, ["kills", "a"])
    done = sweep(cluster, tmp_path, choices, *ASKED, "hydra.sweep.dir=out")
    assert done.returncode == 7, done.stdout + done.stderr
    rows = table(tmp_path / "out")
    assert [row["status"] for row in rows] == ["died", "found"] and "without a result" in rows[0]["message"]
    paid = (tmp_path / "a.checks").stat().st_size
    again = sweep(cluster, tmp_path, choices, *ASKED, "resume=out")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [row["status"] for row in table(tmp_path / "out")] == ["found", "found"]
    assert (tmp_path / "a.checks").stat().st_size == paid
    assert states(tmp_path / "out")[0] == ["queued", "lost", "queued"]


def test_an_interrupted_sweep_cancels_its_jobs(cluster: OneNode, tmp_path: Path) -> None:
    choices = prepared(tmp_path, ["waits", "a"])
    with subprocess.Popen(
        command(choices, *ASKED, "hydra.sweep.dir=out"), cwd=tmp_path, env=environment(cluster),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        until(lambda: (tmp_path / "waiting").exists() or process.poll() is not None)
        until(lambda: (tmp_path / "out" / "1" / "result.json").exists() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert [row["status"] for row in table(tmp_path / "out")] == ["interrupted", "found"]
    assert "To go on: " in output and " resume " in output
    until(lambda: not cluster.squeue().strip())
    chain(tmp_path / "waits.onnx", "patient")
    time.sleep(1)
    again = sweep(cluster, tmp_path, choices, *ASKED, "resume=out")
    assert again.returncode == 0, again.stdout + again.stderr
