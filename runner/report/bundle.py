"""The result folder: everything that a bug report needs, in one place."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from onnx import ModelProto

from runner.candidate import Sample
from runner.model.values import write_test_data_set
from runner.report.markdown import write_report
from runner.report.replay import write_replay
from runner.report.repro import facts_of, write_repro
from runner.report.result import write_result
from runner.report.summary import Summary
from runner.schema.root import Settings

log = logging.getLogger(__name__)

GROUPS = ("strategy", "checker", "target", "reference", "inputs")
"""The configuration groups whose option a replay names."""

_STRATEGIES = Path(__file__).resolve().parents[2] / "conf" / "strategy"


@dataclass(frozen=True)
class Answer:
    """The reduced model as it was handed over, what it is fed and what its outputs should be."""

    model: ModelProto
    samples: tuple[Sample, ...]


def write_bundle(
    settings: Settings, folder: Path, summary: Summary, cwd: Path, command: Sequence[str], answer: Answer | None
) -> None:
    """Write result.json, and around it whatever the answer allows: data sets, repro.py, REPORT.md, replay.yaml.

    result.json comes last: where it is, everything that it speaks of is.
    """
    data = _write_data(folder, answer) if answer and summary.model else ()
    if answer and summary.model:
        write_repro(folder, summary, dataclasses.replace(facts_of(settings, cwd), model=summary.model, data=data))
    write_report(folder, summary, command, answer.model if answer else None)
    write_replay(folder / "replay.yaml", *_configuration(settings, cwd), recorded=_recorded(summary))
    write_result(summary, folder)


def _write_data(folder: Path, answer: Answer) -> tuple[str, ...]:
    names = []
    for number, sample in enumerate(answer.samples):
        name = f"test_data_set_{number}"
        shutil.rmtree(folder / name, ignore_errors=True)
        feeds = {
            value.name: sample.feeds[value.name] for value in answer.model.graph.input if value.name in sample.feeds
        }
        outputs = {v.name: sample.expected[v.name] for v in answer.model.graph.output if v.name in sample.expected}
        write_test_data_set(feeds, outputs, folder / name)
        names.append(name)
    return tuple(names)


def _recorded(summary: Summary) -> dict[str, Any]:
    return {"context": dict(summary.context), "versions": dict(summary.versions)}


def _configuration(settings: Settings, cwd: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return all resolved values, and the option chosen for each group.

    Paths are absolute already; commands are told to run where they ran, so that they mean the same from any folder.
    """
    config = _plain(dataclasses.asdict(settings)) | {"cwd": str(cwd)}
    config.pop("recorded")
    config.pop("resume")
    choices = {group: config[group]["name"] for group in GROUPS} | {"artifacts": config["artifacts"]["keep"]}
    choices["workers"] = "serial"
    if not (_STRATEGIES / f"{choices['strategy']}.yaml").is_file():  # an option of the user's own: all values are here
        choices["strategy"] = "reduce"
    return config, choices


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
