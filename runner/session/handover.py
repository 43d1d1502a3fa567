"""What is handed over: models that stand alone, in the run folder and where the user wants them besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import UsageError
from runner.model.files.candidate_store import Store
from runner.run_folder import MIN_GOOD, MIXED, REDUCED, WORKAROUND
from runner.schema.run import ResultSettings
from runner.session.subject import Subject, cutting
from strategies.trial import Trial


@dataclass
class HandOver:
    """Writes the model of a trial under a name, ``reduced``, ``mixed`` or ``min_good``, and takes it away again.

    ``first``: false for further answers, which the user named no places for. ``before_good``: called before min_good is
    written, which is the last model and may be a large one. ``at`` gives a path of the configuration,
    from where the user stands. Raises UsageError for a place that holds something else than a file.
    """

    settings: ResultSettings
    folder: Path
    at: Callable[[str], Path]
    store: Store
    first: bool = True
    before_good: Callable[[], None] = lambda: None
    _written: dict[str, list[Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("path", "min_good"):
            wanted = getattr(self.settings, key)
            if wanted and self.first and self.at(wanted).exists() and not self.at(wanted).is_file():
                # a device or a folder would be replaced by a model
                raise UsageError(f"result.{key}={wanted}: what is there is no file. Name a file, or one that is to be")

    def write(self, subject: Subject, trial: Trial, name: str) -> Path:
        """Write the model of a trial of ``subject`` to all its places; return the one in the run folder."""
        model = cutting(subject).cut(trial).model
        wanted = self.settings.min_good if name == MIN_GOOD else self.settings.path
        if name == MIN_GOOD:
            self.before_good()
        places = [self.folder / f"{name}.onnx", *([self.at(wanted)] if wanted and self.first else [])]
        self._written[name] = []
        self.folder.mkdir(parents=True, exist_ok=True)
        for place in places:
            self._written[name] += self.store.standalone(
                model,
                place,
                external_data=self._weights_of(name),
                threshold=self.settings.external_data_threshold,
                one_file=self.settings.external_data_one_file,
            )
        return places[0]

    def label(self, name: str) -> str:
        """Return what the check of that is called."""
        return f"{name}, as handed over"

    def beside(self, folder: Path) -> HandOver:
        """Return one for a further answer, in a folder of its own."""
        return HandOver(self.settings, folder, self.at, self.store, first=False)

    def withdraw(self, name: str) -> None:
        """Remove what was written under this name: it did not stand the test."""
        for path in self._written.pop(name, []):
            path.unlink(missing_ok=True)

    def _weights_of(self, name: str) -> str | None:
        """The file for weights, if there is to be one; two models in one folder must not share it."""
        wanted = self.settings.external_data
        return f"{name}.{wanted}" if wanted and name not in (REDUCED, MIXED, WORKAROUND) else wanted
