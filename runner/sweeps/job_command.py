"""A job of a sweep as a command line: the run that Hydra's basic launcher would have made of it, in its own process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf

from runner.cli.config.quoting import quote


def command_line(
    number: int, overrides: Sequence[str], folder: Path, sweep: DictConfig, loader: ConfigLoader
) -> list[str]:
    """Return the arguments of a run that is job ``number``, in ``folder``, of the ``sweep`` with this configuration."""
    places = {item.provider: item.path.removeprefix("file://") for item in loader.get_search_path().get_path()}
    beside = ["--config-dir", places["command-line"]] if "command-line" in places else []
    typed = cast("list[str]", OmegaConf.to_container(sweep.hydra.overrides.hydra))  # interpolations as they are
    ours = {"mode": "RUN", "run.dir": quote(str(folder)), "job.id": number, "job.num": number}
    return [
        *("--config-name", str(sweep.hydra.job.config_name), "--config-path", places["main"], *beside),
        *(*typed, *overrides),
        *(f"hydra.{key}={value}" for key, value in ours.items()),
    ]


def returned(overrides: Sequence[str]) -> JobReturn:
    """Return for Hydra's sweepers that nothing is to be raised: how a job ended is in its result.json."""
    made = JobReturn(overrides=list(overrides), working_dir=str(Path.cwd()), status=JobStatus.COMPLETED)
    made.return_value = None
    return made
