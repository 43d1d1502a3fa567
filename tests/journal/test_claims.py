"""Two processes that want the same verdict: one pays, the other waits for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CLAIMANT = """
import sys, time
from pathlib import Path
from runner.journal.journal import Journal
from runner.verdict import Verdict
from strategies.search import Outcome
from strategies.search import Trial
folder = Path(sys.argv[1])
journal = Journal(folder / "journal.jsonl", {"model": "a"}, writer=sys.argv[2], shared=True)
for number in range(8):
    trial = Trial.of([number])
    with journal.claimed(trial):
        journal.refresh()
        if journal.get(trial) is None:
            with (folder / "paid").open("a") as file:
                file.write(f"{number}\\n")
            time.sleep(0.02)
            journal.put(trial, 0, Verdict(Outcome.PASS), "search", "", number)
"""


def test_what_another_process_is_checking_is_waited_for(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _CLAIMANT, str(tmp_path)]
    jobs = [subprocess.Popen([*argv, str(number)]) for number in range(4)]
    assert [job.wait(60) for job in jobs] == [0] * 4
    assert sorted(map(int, (tmp_path / "paid").read_text().split())) == list(range(8))
