"""The result folder: everything that a bug report needs, in one place."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from onnx import ModelProto

from runner.candidate import Sample
from runner.model.files.onnx_text import ModelText
from runner.model.values.recorded import write_test_data_set
from runner.report.markdown import REPORT_NAME, write_report
from runner.report.page.collect.run_material import Material
from runner.report.replay import REPLAY_NAME, write_replay
from runner.report.repro.backends import rounds
from runner.report.repro.stand_alone_script import NotAlone
from runner.report.repro.write import REPRO_NAME, ROUNDED, write_repro
from runner.report.result import write_result
from runner.report.summary import Summary
from runner.schema.backend import BackendSettings, Rounding
from runner.schema.root import Settings
from runner.workers.pool import Pool
from runner.workers.worker import PREPARE_SECONDS

log = logging.getLogger(__name__)

GROUPS = ("strategy", "checker", "target", "reference", "inputs")
"""The configuration groups whose option a replay names."""

SETTLING = ("reference", "error", "exact")
"""What a check measured of a failure that later checks of it depend on."""

PAGE_NAME = "report.html"

_STRATEGIES = Path(__file__).resolve().parents[2] / "conf" / "strategy"


@dataclass(frozen=True)
class ReducedModel:
    """The reduced model as it was handed over, what it is fed and what its outputs should be."""

    model: ModelProto
    samples: tuple[Sample, ...]


def write_bundle(
    settings: Settings,
    folder: Path,
    summary: Summary,
    cwd: Path,
    command: Sequence[str],
    answer: ReducedModel | None,
    pool: Pool | None = None,
    material: Callable[[], Material] = Material,
) -> None:
    """Write result.json, and around it whatever the answer allows: data sets, repro.py, REPORT.md, its page, a replay.

    The answer is in result.json before anything else is tried. What cannot be written is named there and in the log,
    and the rest is written all the same. ``pool``: for a model whose target rounds. ``material``: tells what the
    process of the run knows besides.
    """
    write_result(summary, folder)
    lost: list[str] = []

    def attempt(name: str, write: Callable[[], Any]) -> Any:
        try:
            return write()
        except Exception as error:
            lost.append(f"{name} could not be written: {type(error).__name__}: {error}")
            log.error("%s", lost[-1])
            log.debug("%s", name, exc_info=True)
            with contextlib.suppress(OSError):  # an older one tells of another answer
                (folder / name).unlink()
            return None

    alone = False
    if answer and summary.model:
        attempt("test_data_set_0", lambda: _write_data(folder, answer))
        alone = attempt(REPRO_NAME, lambda: _write_repro(settings, folder, summary, cwd, answer, pool))
    # with these a check of the kept model alone knows what that of the whole one did
    measured = {name: summary.evidence[name] for name in SETTLING if name in summary.evidence}
    recorded: dict[str, Any] = {
        "context": dict(summary.context),
        "versions": dict(summary.versions),
        "measured": measured,
    }
    if answer and summary.model:  # whoever checks the model again sees whether they are all there
        recorded["data_sets"] = len(answer.samples)
    if "changes" in summary.evidence:
        recorded["changes"] = list(summary.evidence["changes"])
    attempt(REPLAY_NAME, lambda: write_replay(folder / REPLAY_NAME, *_configuration(settings, cwd), recorded))
    attempt(REPORT_NAME, lambda: write_report(folder, summary, command, answer.model if answer else None, alone=alone))
    ran = attempt(PAGE_NAME, lambda: _write_page(settings, folder, summary, command, answer, material())) or 0.0
    if lost or ran:
        seconds = dataclasses.replace(summary.seconds, total=summary.seconds.total + ran)
        write_result(dataclasses.replace(summary, seconds=seconds, warnings=(*summary.warnings, *lost)), folder)


def _write_page(
    settings: Settings,
    folder: Path,
    summary: Summary,
    command: Sequence[str],
    answer: ReducedModel | None,
    material: Material,
) -> float:
    """Write the page of the run; return how many seconds the target ran for it."""
    from runner.report.page.collect.run_page import page_of  # noqa: PLC0415 - see the caller
    from runner.report.page.html import write_page  # noqa: PLC0415

    model, samples = (answer.model, answer.samples) if answer else (None, ())
    page, seconds = page_of(settings, folder, summary, command, model, samples, material)
    write_page(folder, page)
    return seconds


def _write_repro(
    settings: Settings, folder: Path, summary: Summary, cwd: Path, answer: ReducedModel, pool: Pool | None
) -> bool:
    """Write repro.py, and what it runs; return whether it stands alone."""
    data = tuple(f"test_data_set_{number}" for number in range(len(answer.samples)))
    model = summary.model or ""
    if rounds(settings.target) and pool:
        _write_rounded(pool, folder, model, settings.target)
    meant = any(not value.finite for sample in answer.samples for value in sample.expected.values())
    printed = partial(_printed, pool, _python(settings)) if pool else None
    return write_repro(folder, summary, settings, cwd, model=model, data=data, meant=meant, printed=printed)


def _printed(pool: Pool, python: str | None, model: ModelProto) -> ModelText:
    """Return a model as ONNX text that this interpreter's onnx reads as the same model."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "structure.onnx"
        path.write_bytes(model.SerializeToString())
        reply = pool.call("print_model", {"model": str(path)}, python=python, timeout=PREPARE_SECONDS)
    if reply.value is None:
        raise NotAlone(reply.failure.message if reply.failure else str(reply.death))
    if why := reply.value["why"]:
        raise NotAlone(str(why))
    lines, prefixes = reply.value["text"]
    return ModelText([*map(str, lines)], {str(sign): str(prefix) for sign, prefix in prefixes.items()})


def _python(settings: Settings) -> str | None:
    """Return the interpreter that a reader is most likely to have: that of the target, where the target was run."""
    return None if settings.checker.runs_own_code else settings.target.python


def _write_rounded(pool: Pool, folder: Path, model: str, target: BackendSettings) -> None:
    """Write the model that is run where low precision is emulated. Raises OSError where that is impossible."""
    strict = getattr(target, "rounding", None) is Rounding.strict
    given = {"model": str(folder / model), "out": str(folder / ROUNDED), "strict": strict}
    reply = pool.call("round", given, python=target.python)
    if reply.value is None:
        raise OSError(reply.failure.message if reply.failure else reply.death)


def _write_data(folder: Path, answer: ReducedModel) -> None:
    for number, sample in enumerate(answer.samples):
        name = f"test_data_set_{number}"
        shutil.rmtree(folder / name, ignore_errors=True)
        graph = answer.model.graph
        feeds = {one.name: sample.feeds[one.name] for one in graph.input if one.name in sample.feeds}
        outputs = {one.name: sample.expected[one.name] for one in graph.output if one.name in sample.expected}
        write_test_data_set(feeds, outputs, folder / name)


def _configuration(settings: Settings, cwd: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return all values, and the option chosen for each group.

    Paths are absolute already; commands are told to run where they ran, so that they mean the same from any folder.
    """
    config = dataclasses.asdict(settings) | {"cwd": str(cwd)}
    config.pop("recorded")
    config.pop("resume")
    choices = {group: config[group]["name"] for group in GROUPS} | {"artifacts": settings.artifacts.keep.value}
    choices["workers"] = "serial"
    if not (_STRATEGIES / f"{choices['strategy']}.yaml").is_file():  # an option of the user's own: all values are here
        choices["strategy"] = type(settings.strategy).name
    return config, choices
