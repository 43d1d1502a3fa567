"""What is seen of a process and its descendants, and what a look at a short check costs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest

from runner.workers.process_tree import ProcessTree, now
from tests.workers.test_pool import gone

NESTED = """
import subprocess, sys, time
for new in (False, True):
    print(subprocess.Popen(["sh", "-c", "sleep 60; :"], start_new_session=new).pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("young", [True, False])
def test_all_descendants_are_found_and_killed_however_old_the_root_is(young: bool) -> None:
    began = now()
    process = subprocess.Popen([sys.executable, "-c", NESTED], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    with process:
        shells = [psutil.Process(int(process.stdout.readline())) for _ in range(2)]
        while not all(shell.children() for shell in shells):
            time.sleep(0.01)
        every = [*shells, *(child for shell in shells for child in shell.children())]
        # young by what it is told: a busy machine may have taken long until now
        tree = ProcessTree(process.pid, None, now() if young else began - 60)
        called: Counter[str] = Counter()
        sys.setprofile(lambda frame, event, _: called.update([frame.f_code.co_name] if event == "call" else []))
        try:
            assert tree.look() == ""
        finally:
            sys.setprofile(None)
        assert tree.peak_mb > 1
        assert bool(called["ppid_map"]) is not young, "which asks all processes of the machine"
        tree.kill()
    assert all(gone(one.pid) for one in every)
