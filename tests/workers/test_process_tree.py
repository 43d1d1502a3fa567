"""What is seen of a process and its descendants."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

from runner.workers.process_tree import ProcessTree
from tests.workers.test_pool import gone

NESTED = """
import subprocess, sys, time
for new in (False, True):
    print(subprocess.Popen(["sh", "-c", "sleep 60; :"], start_new_session=new).pid, flush=True)
time.sleep(60)
"""


def test_all_descendants_are_found_and_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", NESTED], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    with process:
        shells = [psutil.Process(int(process.stdout.readline())) for _ in range(2)]
        while not all(shell.children() for shell in shells):
            time.sleep(0.01)
        every = [*shells, *(child for shell in shells for child in shell.children())]
        tree = ProcessTree(process.pid, None)
        assert tree.look() == ""
        assert tree.peak_mb > 1
        tree.kill()
    assert all(gone(one.pid) for one in every)
