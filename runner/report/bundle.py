"""The result folder, bundle.zip, and what both hold of a precision run.

The result folder: everything that a bug report needs, in one place.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from onnx import ModelProto

from runner.checkers.command_template import Template
from runner.files import MOST_BYTES, is_plain, read_plain, write_text, written_whole
from runner.journal.replay_yaml import GROUPS, REPLAY_NAME, configuration, replay_text, write_replay
from runner.model.files.onnx_text import ModelText
from runner.model.values.recorded import write_test_data_set
from runner.report import bundled_check_files
from runner.report.document import each_text
from runner.report.markdown import REPORT_NAME, Shown, document_of, present
from runner.report.markup import to_markdown
from runner.report.page.data import PageData
from runner.report.page.html import write_page
from runner.report.page.run_page import PAGE_NAME, page_of, reduced_model
from runner.report.repro.fill_templates import ROUNDED, rounds
from runner.report.repro.write import REPRO_NAME, NotAlone, Repro, repro
from runner.report.result_parts import Precision
from runner.report.summary import Summary, write_result
from runner.schema.backend import BackendSettings, Rounding
from runner.schema.checker import CheckerSettings, CommandChecker
from runner.schema.root import Settings
from runner.schema.settings import PathUse, map_paths
from runner.schema.strategy import PrecisionSettings
from runner.text import SCRIPTS, hide_environment
from runner.verdict import Sample
from runner.workers.pool import Pool
from runner.workers.worker import PREPARE_SECONDS

# bundle.zip: one file to attach to a report. What is in it shows the failure where it is unpacked.
#
# Equal contents give equal bytes. The names in it are plain and below one folder; nothing in it is a link.

BUNDLE_NAME = "bundle.zip"
MOST_MB = 25
"""What forges take as an attachment. What does not fit is left out, the largest first, and named."""
_TOP = "bundle"
MIXED_YAML = "mixed.yaml"
"""Makes the mixed model of a precision run from the original (see `mixed_bundle`)."""
_REPORT = "REPORT.md says what was found."
_RUN = """{first} shows the failure:

    python repro.py

Its first lines say what has to be installed. Exit code: 1 the failure shows, 0 it does not, 2 it cannot be
checked here (the reason is printed).
"""
_MAKE = """The mixed-precision model is not here, as it has all weights of the original. Put the original into
this folder, then

    winnow mixed.yaml

makes the mixed model again, and checks it. The first lines of mixed.yaml name the original, and what else is needed.
"""
_MODELS = """Files whose names end in .onnx are models; test_data_set_N holds the inputs, and the outputs that were
expected, as ONNX keeps them.
"""
_CHECK = """check/ has the files of the check, unchanged: {names}.
Other files that these read or start, and packages that they import, are not included.
"""


@dataclass(frozen=True)
class Contents:
    """``files``: by their names in the archive. ``left_out``: by the same names, with their size in bytes.

    ``not_taken``: files of the check that are not handed on (see `bundled_check_files`), as it names them.
    """

    files: Mapping[str, Path]
    left_out: Mapping[str, int]
    not_taken: Sequence[str] = ()

    @property
    def told(self) -> str:
        """Say what is missing; "" where nothing is."""
        each = ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in self.left_out.items())
        large = f"left out, as the archive would be larger than {MOST_MB} MB: {each}" if each else ""
        names = ", ".join(self.not_taken)
        check = f"files that the check names and that were not handed on: {names}" if names else ""
        return "; ".join(filter(None, (large, check)))

    @property
    def copies(self) -> dict[Path, str]:
        """The user's own files that go along, with their names in the folder of the check."""
        start = f"{bundled_check_files.FOLDER}/"
        return {path: name.removeprefix(start) for name, path in self.files.items() if name.startswith(start)}

    def readme(self, written: Collection[str]) -> str:
        """Return what README.txt says. ``written``: the names of what is written for the archive."""
        lacks = f"Missing here: {self.told}. Ask whoever sent this.\n" if self.told else ""
        names = ", ".join(self.copies.values())
        first = "With the files that are named below, this" if lacks else "This"
        how = _RUN.format(first=first) if REPRO_NAME in written else ""
        how = _MAKE if MIXED_YAML in written else how
        models = _MODELS if any(name.endswith(".onnx") for name in self.files) else ""
        check = _CHECK.format(names=names) if names else ""
        return "\n".join(filter(None, [f"{_REPORT}\n", how, lacks, models, check]))


def contents(
    folder: Path,
    named: Sequence[str],
    checker: CheckerSettings,
    cwd: Path,
    most: int = MOST_MB,
    given: Sequence[Path] = (),
) -> Contents:
    """Return what goes in besides what is written for it: ``named`` files, data sets, the check's files.

    ``named``: names in ``folder``, models with their weights; ``cwd``: where the user stands; ``given``: see
    `bundled_check_files`.
    """
    names = [name for model in named for name in (model, *sorted(path.name for path in folder.glob(f"{model}.data*")))]
    data = sorted(folder.glob("test_data_set_[0-9]*/*.pb"))
    found = {name: folder / name for name in names if Path(name).name == name}
    found |= {path.relative_to(folder).as_posix(): path for path in data}
    found = {name: path for name, path in found.items() if is_plain(path) and not path.is_symlink()}
    copies = bundled_check_files.handed_on(checker, cwd, given)
    found |= {f"{bundled_check_files.FOLDER}/{name}": path for path, name in copies.items()}
    sizes = {name: path.stat().st_size for name, path in found.items()}
    left: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if sum(sizes.values()) - sum(left.values()) <= most * 10**6:
            break
        left[name] = sizes[name]
    files = {name: found[name] for name in sorted(found.keys() - left.keys())}
    return Contents(files, left, bundled_check_files.left_behind(checker, cwd, given))


def given_files(settings: Settings) -> list[Path]:
    """Return the files that a run reads: its model, inputs, expected outputs, original."""
    found: list[Path] = []

    def noted(use: PathUse, value: str) -> str:
        found.extend([Path(value)] if PathUse.READ in use and PathUse.PROGRAM not in use else [])
        return value

    map_paths(settings, noted)
    return found


def write_zip(folder: Path, held: Contents, texts: Mapping[str, str]) -> None:
    """Write ``bundle.zip`` into ``folder``, atomically. ``texts``: more files, by name. Raises OSError."""
    said = {**texts, "README.txt": held.readme(texts)}
    with written_whole(folder / BUNDLE_NAME) as part, zipfile.ZipFile(part, "x", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted([*said, *held.files]):
            entry = zipfile.ZipInfo(f"{_TOP}/{name}")  # of 1980: when it was written says nothing
            runs = name in held.files and os.access(held.files[name], os.X_OK)
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            if name in said:
                archive.writestr(entry, hide_environment(said[name]).encode("utf-8", "backslashreplace"))
                continue
            with held.files[name].open("rb") as source, archive.open(entry, "w", force_zip64=False) as target:
                shutil.copyfileobj(source, target, MOST_BYTES)


# What bundle.zip holds of a precision run: what was found, and how the same mixed model is made of the original.
#
# The mixed model has all weights of the original, so neither goes along (docs/adr/0042). What does is a configuration
# with the raised nodes in it: whoever has the original makes the same model of it, in a few checks and without a
# search.

_PARTS = (*GROUPS, "cut", "sanitize")
"""The sections that decide what the model becomes, and how it is judged."""


def mixed_configuration(settings: Settings, summary: Summary, cwd: Path, held: Contents) -> tuple[str, tuple[str, ...]]:
    """Return the text of ``mixed.yaml``, and the files that have to be put there, by their paths from its folder.

    What it names of the user's lies there by name; what only the check opens, where that runs.
    The check is the copy in the archive. Values of ``checker.env`` stay with the user; an interpreter is the reader's.
    """
    copies, beside, told = held.copies, list[str](), summary.precision or Precision()

    def renamed(use: PathUse, value: str) -> str:
        path = cwd / Path(value).expanduser()
        if path in copies:
            return f"{bundled_check_files.FOLDER}/{copies[path]}"
        if not Path(value).is_absolute():  # a library by the name of its package
            return value
        if PathUse.READ in use and PathUse.PROGRAM not in use:
            beside.append(path.name)
        return path.name

    shown = map_paths(settings, renamed)
    config = {name: asdict(getattr(shown, name)) for name in _PARTS}
    for group in ("checker", "target", "reference"):
        config[group] |= {"python": None} if "python" in config[group] else {}
    checker, set_first = settings.checker, ""
    if isinstance(checker, CommandChecker):
        typed = list(Template(checker.command, Path(), {}).words)
        words = bundled_check_files.moved({"command": typed}, checker, cwd, copies)["command"]
        config["checker"] |= {"command": [word.replace("{python}", "python") for word in words], "env": {}}  # type: ignore[attr-defined]
        set_first = ", ".join(checker.env)
    # what the user said stays high, and each raised node by its name, in which no letter is a pattern
    high = [*config["strategy"]["exclude"], *(glob.escape(one.node) for one in told.selected)]
    config["strategy"]["exclude"] = [*dict.fromkeys(high)]
    choices = {group: str(config[group]["name"]) for group in GROUPS}
    choices["strategy"] = type(settings.strategy).name
    content = {"model": shown.model, **config, "cwd": bundled_check_files.FOLDER if copies else "."}
    opened = [f"{bundled_check_files.FOLDER}/{name}" if copies else name for name in held.not_taken]
    missing = tuple(dict.fromkeys([*beside, *opened, *held.left_out]))
    said = [
        f"{SCRIPTS[0]} {MIXED_YAML}",
        "makes the mixed-precision model of the original, and checks it; the raised nodes are in strategy.exclude",
        "exit code 4 (nothing_to_find): no other node has to be raised, as is to be expected; the model is mixed.onnx",
        f"to be put beside this file first: {', '.join(missing)}" if missing else "",
        f"to be set in the environment first: {set_first}" if set_first else "",
    ]
    return replay_text(filter(None, said), content, choices), missing


log = logging.getLogger(__name__)

SETTLING = ("reference", "error", "exact")
"""What a check measured of a failure that later checks of it depend on."""

_OF_GRAPHS = frozenset({"reduced", "whole", "tensors", "layers", "curve"})
"""What of a page holds names, and no text of Winnow's."""

_SPEAKS = ("death", "error")
"""Failures of which what the runtime printed tells more than their kind."""


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
    material: Callable[[], PageData] = PageData,
) -> None:
    """Write result.json, and what the answer allows: data sets, repro.py, REPORT.md, its page, a replay, bundle.zip.

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

    found = answer if summary.model else None
    shown = Shown(model=answer.model if answer else None, files=present(folder, summary))
    told: Any = None
    script: Repro | None = None
    if found:
        attempt("test_data_set_0", lambda: _write_data(folder, found))
        written = attempt(REPRO_NAME, lambda: _write_repro(settings, folder, summary, cwd, found, pool))
        script = written or Repro()
    if found or (isinstance(settings.strategy, PrecisionSettings) and summary.precision):
        told = attempt(BUNDLE_NAME, lambda: _handed_on(settings, folder, summary, cwd, found, script))
    shown, held = told or (shown, None)
    # with these a check of the kept model alone knows what that of the whole one did
    measured = {name: summary.evidence[name] for name in SETTLING if name in summary.evidence}
    recorded = {
        "context": dict(summary.context),
        "versions": dict(summary.versions),
        "measured": measured,
        # whoever checks the model again sees whether they are all there
        **({"data_sets": len(found.samples)} if found else {}),
        **({"changes": list(summary.evidence["changes"])} if "changes" in summary.evidence else {}),
    }
    attempt(REPLAY_NAME, lambda: write_replay(folder / REPLAY_NAME, *configuration(settings, cwd), recorded))
    known = attempt("details for the page", material) or PageData()
    model, samples = (answer.model, answer.samples) if answer else (None, ())
    made = attempt("values for the page", lambda: reduced_model(folder, summary, model, samples, known))
    shown = replace(shown, tensors=made.tensors, types=made.types) if made else shown
    near = partial(_near, cwd=cwd)
    document = attempt(REPORT_NAME, lambda: each_text(document_of(_near_summary(summary, cwd), command, shown), near))
    if document:
        attempt(REPORT_NAME, lambda: write_text(folder / REPORT_NAME, to_markdown(document)))
    if held:
        attempt(BUNDLE_NAME, partial(_write_zip, folder, held, shown))

    def page() -> None:
        told = page_of(settings, folder, summary, command, document, made, known)
        texts = {key: value for key, value in vars(told).items() if key not in _OF_GRAPHS}
        write_page(folder, replace(told, **each_text(texts, near)))

    attempt(PAGE_NAME, page)
    ran = made.seconds if made else 0.0
    if lost or ran:
        seconds = replace(summary.seconds, total=summary.seconds.total + ran)
        write_result(replace(summary, seconds=seconds, warnings=(*summary.warnings, *lost)), folder)


def _write_repro(
    settings: Settings, folder: Path, summary: Summary, cwd: Path, answer: ReducedModel, pool: Pool | None
) -> Repro:
    """Write repro.py, and what it runs."""
    if rounds(settings.target) and pool:
        _write_rounded(pool, folder, summary.model or "", settings.target)
    # the interpreter that a reader is most likely to have: that of the target, where the target was run
    python = None if settings.checker.runs_own_code else settings.target.python
    printed = partial(_printed, pool, python) if pool else None
    made = repro(folder, summary, settings, cwd, answer.samples, printed)
    write_text(folder / REPRO_NAME, made.source)
    return made


def _printed_by_check(settings: Settings, folder: Path, summary: Summary) -> str:
    """Return what the check printed about the reduced model, where that tells something."""
    kind, log_name = summary.failure.kind, summary.evidence.get("log")
    root = folder.parents[1] if folder.parent.name == "answers" else folder
    speaks = settings.checker.runs_own_code or kind.startswith(_SPEAKS)
    return read_plain(root / log_name).decode("utf-8", "replace") if speaks and isinstance(log_name, str) else ""


def _near_summary(summary: Summary, cwd: Path) -> Summary:
    """Return the summary without where the user's folders lie, which is nobody's business in a report."""
    model = Path(summary.input_model).name if summary.input_model else None
    told = each_text(summary, partial(_near, cwd=cwd))
    return replace(told, input_model=model, context=summary.context)


def _near(text: str, cwd: Path) -> str:
    """Return a text in which paths below the user's folder start there, and none says where home and scratch lie."""
    text = text.replace(f"{cwd}{os.sep}", "") if cwd != cwd.parent else text
    for place, name in ((str(Path.home()), "~"), (tempfile.gettempdir(), "$TMPDIR")):
        text = re.sub(rf"(?<![\w.~-]){re.escape(place)}(?![\w.-])", name, text) if len(place) > 1 else text
    return text


def _handed_on(
    settings: Settings, folder: Path, summary: Summary, cwd: Path, answer: ReducedModel | None, script: Repro | None
) -> tuple[Shown, Contents]:
    """Return what the report shows of an answer, or of a mixed model, and what bundle.zip holds.

    The log says what it lacks, and what of the user's it shows.
    """
    told = summary.precision or Precision()
    models = [summary.model, *([ROUNDED] if rounds(settings.target) else [])]
    named = filter(None, models if answer else [told.layers, told.plot, told.curve_plot])
    held = contents(folder, [*named], settings.checker, cwd, given=given_files(settings))
    if held.left_out:
        log.warning("%s: %s", folder / BUNDLE_NAME, held.told)
    if held.copies:
        names = (f"{bundled_check_files.FOLDER}/{name}" for name in held.copies.values())
        log.info("%s holds files of yours: %s", folder / BUNDLE_NAME, ", ".join(names))
    if typed := bundled_check_files.like_secrets(settings.checker):
        shown = f"{REPORT_NAME}, {REPRO_NAME} and {BUNDLE_NAME} show checker.command as it was typed"
        log.warning("%s, also what looks like a secret: %s", shown, ", ".join(typed))
    files = present(folder, summary, script, held.told)
    if answer is None or script is None:
        made, beside = mixed_configuration(settings, summary, cwd, held)
        return Shown(zipped=BUNDLE_NAME, files=files, missing=held.told, makes=made, beside=beside), held
    if settings.checker.runs_own_code and script.source:
        # a reader has the copies of the check in the archive, and not what lies here
        script = repro(folder, summary, settings, cwd, answer.samples, copies=held.copies)
    said = _near(_printed_by_check(settings, folder, summary), cwd)
    check = bundled_check_files.texts_of(settings.checker, cwd)
    return Shown(answer.model, (), script, said, check, BUNDLE_NAME, files, held.told), held


def _write_zip(folder: Path, held: Contents, shown: Shown) -> None:
    """Write bundle.zip, with REPORT.md in it."""
    page = (folder / REPORT_NAME).read_text(encoding="utf-8")
    made = {REPRO_NAME: shown.repro.source, MIXED_YAML: shown.makes}
    write_zip(folder, held, {REPORT_NAME: page, **{name: text for name, text in made.items() if text}})


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
