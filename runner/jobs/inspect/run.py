"""Runs `strategy=inspect`: says what a model or an engine is made of; nothing is checked, and nothing is run."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.artifacts import stale_results
from runner.errors import UsageError
from runner.jobs.context import versions
from runner.jobs.inspect.runtime_limits import limits_of_runtime
from runner.jobs.processes import processes
from runner.judgment import Status
from runner.report.bundle import write_bundle
from runner.report.sections.inspection_section import screen
from runner.report.summary import Seconds, Summary
from runner.schema.backend import TensorRtBackend
from runner.schema.root import Settings
from runner.text import counted
from runner.workers.leases.lease import NoGpuError
from runner.workers.leases.required_lease import lease_of
from runner.workers.own_operations import operate
from runner.workers.pool import Pool

log = logging.getLogger(__name__)

ENGINES = (".engine", ".plan", ".trt")
"""What the names of TensorRT's engines end in."""


def run(settings: Settings, folder: Path, command: Sequence[str]) -> Summary:
    """Look into the file and leave the result folder behind. Raises UsageError for one that cannot be read."""
    started = time.monotonic()
    path = Path(settings.model or "").expanduser().absolute()
    with processes(settings, folder) as running:
        stale_results.drop(folder, [path])
        look = _engine if path.suffix in ENGINES else _model
        inspection, warnings = look(settings, path, running.pool)
        log.info("%s\n%s", settings.model, screen(inspection))
        for warning in warnings:
            log.warning("%s", warning)
        concerns = inspection["concerns"]
        size = counted(inspection["nodes"], "layer" if inspection["kind"] == "engine" else "node")
        told = ", ".join(one["kind"] for one in concerns)
        summary = Summary(
            status=Status.found,
            exit_code=Status.found.exit_code,
            strategy=settings.strategy.name,
            message=f"{size}, {counted(len(concerns), 'concern')}" + (f": {told}" if told else ""),
            nodes_before=inspection["nodes"],
            inspection=inspection,
            input_model=settings.model,
            versions=versions(settings, running.pool),
            warnings=tuple(warnings),
            seconds=Seconds(time.monotonic() - started),
            peak_rss_mb={"workers": running.pool.peak_rss_mb},
        )
        write_bundle(settings, folder, summary, Path.cwd(), command, None)
    return summary


def _model(settings: Settings, path: Path, pool: Pool) -> tuple[dict[str, Any], list[str]]:
    told = _value(settings, pool, "describe_model", {"model": str(path)}, path)
    unknown = [(str(domain), str(name)) for domain, name in told.pop("unknown")]
    concerns, warnings = limits_of_runtime(settings, pool, told, unknown)
    return {**told, "concerns": [*told["concerns"], *(one.to_json() for one in concerns)]}, warnings


def _engine(settings: Settings, path: Path, pool: Pool) -> tuple[dict[str, Any], list[str]]:
    target = settings.target if isinstance(settings.target, TensorRtBackend) else TensorRtBackend()
    target = replace(target, python=settings.target.python)
    lease = lease_of(target.to_json(), pool, target.python)
    args = {"engine": str(path), "flavor": target.flavor.value}
    told = _value(settings, pool, "engine_layers", args, path, python=target.python, lease=lease)
    tensors = [*told["inputs"], *told["outputs"]]
    dynamic = {one["name"]: dims for one in told["inputs"] if (dims := [dim for dim in one["shape"] if dim == "?"])}
    made = {
        "kind": "engine",
        "bytes": path.stat().st_size,
        "opsets": {},
        "nodes": len(told["layers"]),
        "operators": dict(Counter(one["type"] for one in told["layers"] if one["type"]).most_common()),
        "dtypes": dict(Counter(one["dtype"] for one in tensors).most_common()),
        "dynamic": dynamic,
        "weights": {},
        "concerns": [],
    }
    return {**made, **told}, []


def _value(settings: Settings, pool: Pool, op: str, args: Mapping[str, Any], path: Path, **how: Any) -> dict[str, Any]:
    """Return what the operation finds out. Raises UsageError where the file, or this machine, does not let it."""
    try:
        reply = operate(pool, settings, op, args, f"model={path}: reading it", **how)
    except NoGpuError as error:
        raise UsageError(f"model={settings.model}: TensorRT reads an engine on a GPU only. {error}") from None
    if reply.value is None:
        said = reply.failure.message if reply.failure else "no answer"
        raise UsageError(f"model={settings.model}: {said}")
    return dict(reply.value)
