"""Isolation: whatever may crash, hang or eat memory runs in a process of its own, and its end is an answer."""

from __future__ import annotations

from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from runner.workers.reply import Failure, Reply, WorkerStartError
from runner.workers.run_command import CommandEnd, run_command

__all__ = ["CommandEnd", "Failure", "Guardian", "Pool", "Reply", "WorkerStartError", "run_command"]
