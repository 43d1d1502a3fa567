"""Isolation: whatever may crash, hang or eat memory runs in a process of its own, and its end is an answer."""

from __future__ import annotations

from runner.workers.commands import CommandEnd, run_command
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from runner.workers.reply import Failure, Reply, WorkerStartError

__all__ = ["CommandEnd", "Failure", "Guardian", "Pool", "Reply", "WorkerStartError", "run_command"]
