"""One side of a comparison: a backend with its settings, which runs models in workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.checkers.checker import Tools
from runner.checkers.normalise import normalise
from runner.checkers.template import digest
from runner.errors import UsageError
from runner.model.values import TensorFile
from runner.schema.backend import BackendSettings
from runner.verdict import Signature
from runner.workers.reply import Reply


@dataclass(frozen=True)
class Ran:
    """What came of running one model on all samples.

    ``outputs``: for each sample, its outputs by name (none if it failed). ``signature``: of the failure, None if it
    ran. ``message``: the failure in the backend's words. ``invalid``: why it could not even be tried (a value for an
    input is missing). ``skipped``: outputs of which no value can be had, and why.
    """

    outputs: tuple[Mapping[str, TensorFile], ...] = ()
    signature: Signature | None = None
    message: str = ""
    invalid: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    peak_rss_mb: float = 0.0
    log: Path | None = None


class Side:
    """``key``: `target` or `reference`, as in the configuration.

    ``timeout`` (seconds) and ``memory_mb`` (MiB) hold for each run.
    """

    def __init__(
        self, key: str, settings: BackendSettings, tools: Tools, timeout: float | None, memory_mb: int | None
    ) -> None:
        self._key = key
        self._settings = settings
        self._tools = tools
        self._timeout = timeout
        self._memory_mb = memory_mb

    def run(self, model: Path, samples: Sequence[Mapping[str, TensorFile]], out: Path) -> Ran:
        """Run ``model`` on each sample; outputs are written into the folder ``out``.

        Raises UsageError if the settings or the installation are at fault, WorkerStartError if the interpreter is;
        never for what the model does.
        """
        out.mkdir(parents=True, exist_ok=True)
        arguments = {
            "backend": self._settings.to_json(),
            "model": str(model),
            "samples": [{name: str(feed.path) for name, feed in sample.items()} for sample in samples],
            "out": str(out),
            "outputs": None,
            "inline": False,
        }
        reply = self._tools.pool.call(
            "run", arguments, python=self._settings.python, timeout=self._timeout, memory_mb=self._memory_mb
        )
        return self._ran(reply)

    def identity(self) -> dict[str, str]:
        """The settings, and digests of the files they name: custom-op libraries, a model of its own."""
        settings = self._settings.to_json() | {"python": self._settings.python, "model": self._settings.model}
        named = [*(settings.get("custom_ops") or []), *([self._settings.model] if self._settings.model else [])]
        files = {f"{self._key} {path}": digest(self._tools.at(path)) for path in named}
        return {self._key: json.dumps(settings, sort_keys=True), **files}

    def __str__(self) -> str:
        settings = self._settings.to_json()
        level = f" optimization={settings['optimization']}" if "optimization" in settings else ""
        python = f" python={self._settings.python}" if self._settings.python else ""
        model = f" model={self._settings.model}" if self._settings.model else ""
        return f"{self._key}={self._settings.name}{level}{python}{model}"

    def _ran(self, reply: Reply) -> Ran:
        if reply.failure is not None:
            failure = reply.failure
            if failure.type == "MissingFeed":
                return Ran(invalid=failure.message, peak_rss_mb=reply.peak_rss_mb, log=reply.log)
            if failure.stage == "setup":
                raise UsageError(f"{self}: {failure.message}")
            stage = "load" if failure.stage == "load" else "infer"
            signature = Signature(stage, f"error {failure.type}", normalise(failure.message))
            return Ran((), signature, failure.message, peak_rss_mb=reply.peak_rss_mb, log=reply.log)
        if reply.death is not None or reply.value is None:
            kind = reply.death or "exit"
            message = f"the process ended: {kind}"
            return Ran((), Signature("infer", kind), message, peak_rss_mb=reply.peak_rss_mb, log=reply.log)
        outputs = tuple(
            {name: TensorFile.from_json(tensor) for name, tensor in sample.items()} for sample in reply.value["samples"]
        )
        skipped = reply.value.get("skipped") or {}
        return Ran(outputs, skipped=skipped, peak_rss_mb=reply.peak_rss_mb, log=reply.log)
