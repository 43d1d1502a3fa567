"""The answer of a run, for programs and notebooks: what `result.json` says, and what lies in the run's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from runner.cli.last_screen import headline, rows
from runner.exit_codes import ANSWERED, ENDED_WELL, WinnowError
from runner.journal.replay_yaml import REPLAY_NAME
from runner.report.markdown import REPORT_NAME
from runner.report.progress import CheckEvent
from runner.report.repro.write import REPRO_NAME
from runner.report.short_answer import other_answers
from runner.report.summary import Checks, Summary, result_json
from runner.text import listed, one_line, with_inside

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

_SHOWN = 10
#: the rows of a screen that end it: what to open and to type next is for the command line
_OF_A_COMMAND = frozenset({"open", "next"})


class NoAnswerError(WinnowError):
    """A run ended without an answer; ``result``: how."""

    def __init__(self, result: Result) -> None:
        super().__init__(str(result))
        self.result = result


@dataclass(frozen=True, repr=False)
class Result:
    """How a run ended, and what was found.

    ``summary``: all that is known, in the words of result.json. ``folder``: where the run wrote; it stays.
    ``verdicts``: the checks of this call in their order, with those of a triage's steps.
    """

    summary: Summary
    folder: Path
    verdicts: tuple[CheckEvent, ...] = ()

    @property
    def status(self) -> str:
        """How it ended: found, nothing_to_find, could_not_judge ... (docs: exit codes)."""
        return str(self.summary.status)

    @property
    def exit_code(self) -> int:
        """The exit code that the command line would have."""
        return self.summary.exit_code

    @property
    def found(self) -> bool:
        """Whether there is an answer of the kind that was asked for."""
        return self.summary.status in ANSWERED

    @property
    def message(self) -> str:
        """What is said of how it ended."""
        return self.summary.message

    @property
    def culprits(self) -> tuple[str, ...]:
        """The names of the nodes of the answer: those that fail, or that have to stay in high precision."""
        return self.summary.culprits

    @property
    def cause(self) -> str | None:
        """Whether the failure of the whole model was shown to arise in the answer; None: that was not asked."""
        return self.summary.cause.status if self.summary.cause else None

    @property
    def minimality(self) -> str | None:
        """How minimal the answer was shown to be."""
        return self.summary.minimality

    @property
    def checks(self) -> Checks:
        """How many checks were made, by purpose."""
        return self.summary.checks

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known of the answer."""
        return self.summary.warnings

    @property
    def model_path(self) -> Path | None:
        """The model that was handed over: reduced, mixed, or with a workaround."""
        return self.folder / self.summary.model if self.summary.model else None

    @property
    def model(self) -> ModelProto | None:
        """That model with its weights, read anew each time; None: there is none."""
        import onnx  # noqa: PLC0415 - an answer without a model needs none of it

        return onnx.load(str(self.model_path)) if self.model_path else None

    @property
    def inputs(self) -> tuple[Mapping[str, np.ndarray[Any, Any]], ...]:
        """What that model is fed: for each sample the arrays by name."""
        return self._samples("input")

    @property
    def expected(self) -> tuple[Mapping[str, np.ndarray[Any, Any]], ...]:
        """What its outputs should be, in the same way."""
        return self._samples("output")

    @property
    def report(self) -> Path | None:
        """REPORT.md."""
        return self._file(REPORT_NAME)

    @property
    def page(self) -> Path | None:
        """report.html."""
        return self._file("report.html")

    @property
    def repro(self) -> Path | None:
        """repro.py, which shows the failure of the model that was handed over."""
        return self._file(REPRO_NAME)

    @property
    def replay(self) -> Path | None:
        """replay.yaml, with which the command line repeats the run."""
        return self._file(REPLAY_NAME)

    @property
    def bundle(self) -> Path | None:
        """bundle.zip, to attach to an issue."""
        return self._file("bundle.zip")

    def to_dict(self) -> dict[str, Any]:
        """Return what result.json holds."""
        return result_json(self.summary)

    def raise_for_status(self) -> Result:
        """Return this; raise NoAnswerError where the run has no answer (interrupted, it could not judge, ...).

        That nothing fails is an answer.
        """
        if self.exit_code not in ENDED_WELL:
            raise NoAnswerError(self)
        return self

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        """Return a few lines for a notebook: all text is escaped, and there are no scripts."""
        first, *rest = map(escape, self._lines())
        links = " · ".join(
            f'<a href="{escape(_address(path))}" target="_blank">{escape(path.name)}</a>'
            for path in (self.page, self.report, self.repro, self.bundle)
            if path
        )
        return f"<div><b>{first}</b><br>{'<br>'.join(rest)}<br>{links}</div>"

    def __repr__(self) -> str:
        names, nested = ([*map(one_line, some)] for some in (self.culprits, self.summary.nested))
        culprits = with_inside(listed(names, _SHOWN), listed(nested, _SHOWN), len(names))
        named = "; ".join(filter(None, (culprits, other_answers(self.summary.answers))))
        return f"<Result {self.summary.strategy}: {self.status}{f' {named}' if named else ''}; {self.folder}>"

    def _lines(self) -> list[str]:
        """Return what the last screen of a command says, without what to open and to type next."""
        result, folder = self.summary, self.folder
        told = takewhile(lambda row: row.name not in _OF_A_COMMAND, rows(result, folder))
        said = [f"{row.name}: {row.text}" if row.name else row.text for row in told if row.name != "and"]
        lines = [f"{self.summary.strategy}: {headline(result, most=_SHOWN, above=True)}", *said, str(folder)]
        return [one_line(line.strip()) for text in lines for line in text.splitlines()]

    def _file(self, name: str) -> Path | None:
        """Return a file of the run, or of that step of a triage whose model is the answer."""
        folders = [self.folder, *([self.model_path.parent] if self.model_path else [])]
        return next((path for folder in folders if (path := folder / name).is_file()), None)

    def _samples(self, kind: str) -> tuple[Mapping[str, np.ndarray[Any, Any]], ...]:
        from onnx import load_tensor, numpy_helper  # noqa: PLC0415 - as above

        found: list[Mapping[str, np.ndarray[Any, Any]]] = []
        while (folder := self.folder / f"test_data_set_{len(found)}").is_dir():
            tensors = [load_tensor(str(path)) for path in sorted(folder.glob(f"{kind}_*.pb"))]
            found.append({one.name: numpy_helper.to_array(one) for one in tensors})
        return tuple(found)


def _address(path: Path) -> str:
    """Return a link for a notebook: relative where the notebook may show it, for its server sends nothing else."""
    relative = os.path.relpath(path)
    return path.as_uri() if relative.startswith("..") else f"./{quote(relative)}"
