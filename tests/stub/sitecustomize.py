"""Puts a stand-in in the place of runner.jobs.run, in this process and its children: what is around a job is tested."""

import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import ModuleType


def run(settings, run_folder, command):
    from runner.exit_codes import CannotJudge  # noqa: PLC0415 - not before the path is set up
    from runner.report.summary import Summary, write_result  # noqa: PLC0415

    kind = Path(settings.model).stem if settings.model else "none"
    (run_folder / "seen.json").write_text(json.dumps([asdict(settings), list(command), sys.path], default=str))
    if kind == "raises":
        raise RuntimeError("boom")
    if kind == "cannot":
        raise CannotJudge("the check passes an empty model: checker.command=true")
    if kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "interrupted":
        raise KeyboardInterrupt
    if kind == "slow":
        time.sleep(30)
    code = 4 if kind == "fine" else 0
    summary = Summary(
        status="nothing_to_find" if code else "found",
        exit_code=code,
        strategy=settings.strategy.name,
        nodes_before=9,
        nodes_after=None if code else 1,
        culprits=() if code else ("a|b",),
    )
    write_result(summary, run_folder)
    return summary


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "runner.jobs.run" else None

    def create_module(self, spec):
        return ModuleType(spec.name)

    def exec_module(self, module):
        module.run = run


sys.meta_path.insert(0, _Finder())
