"""The result folder: everything that a bug report needs, in one place."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from runner.candidate import Sample
from runner.files import read_plain
from runner.model.files.onnx_text import ModelText
from runner.model.graph.rename import names_of
from runner.model.values.dtypes import BY_NUMBER
from runner.model.values.recorded import write_test_data_set
from runner.report import bundle_zip, check_files, mixed_bundle
from runner.report.markdown import REPORT_NAME, Shown, present, write_report
from runner.report.page.collect.run_material import RunMaterial
from runner.report.replay import REPLAY_NAME, configuration, write_replay
from runner.report.repro.backends import ROUNDED, rounds
from runner.report.repro.stand_alone import NotAlone
from runner.report.repro.write import REPRO_NAME, Beside, Repro, repro, write_repro
from runner.report.result import write_result
from runner.report.sections.model_section import tensor_type
from runner.report.summary import Summary
from runner.schema.backend import BackendSettings, Rounding
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings
from runner.workers.pool import Pool
from runner.workers.worker import PREPARE_SECONDS

if TYPE_CHECKING:
    from runner.report.page.collect.reduced_model import Reduced

log = logging.getLogger(__name__)

SETTLING = ("reference", "error", "exact")
"""What a check measured of a failure that later checks of it depend on."""

PAGE_NAME = "report.html"

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
    material: Callable[[], RunMaterial] = RunMaterial,
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
    held: bundle_zip.Contents | None = None
    told: Any = None
    if found:
        attempt("test_data_set_0", lambda: _write_data(folder, found))
        written = attempt(REPRO_NAME, lambda: _write_repro(settings, folder, summary, cwd, found, pool))
        script = written or Repro()
        told = attempt(bundle_zip.BUNDLE_NAME, lambda: _handed_on(settings, folder, summary, cwd, found, script))
    elif isinstance(settings.strategy, PrecisionSettings) and summary.precision:
        told = attempt(bundle_zip.BUNDLE_NAME, lambda: _mixed(settings, folder, summary, cwd))
    if told:
        shown, held = told
    # with these a check of the kept model alone knows what that of the whole one did
    measured = {name: summary.evidence[name] for name in SETTLING if name in summary.evidence}
    recorded: dict[str, Any] = {
        "context": dict(summary.context),
        "versions": dict(summary.versions),
        "measured": measured,
    }
    if found:  # whoever checks the model again sees whether they are all there
        recorded["data_sets"] = len(found.samples)
    if "changes" in summary.evidence:
        recorded["changes"] = list(summary.evidence["changes"])
    with ThreadPoolExecutor(1) as beside:  # to wait for the disk, and to compress, needs none of the interpreter
        replay = folder / REPLAY_NAME
        written = beside.submit(
            attempt, REPLAY_NAME, lambda: write_replay(replay, *configuration(settings, cwd), recorded)
        )
        told = attempt("details for the page", material) or RunMaterial()
        made = attempt("values for the page", lambda: _valued(folder, summary, answer, told))
        shown = replace(shown, tensors=made.tensors if made else (), types=_types(answer, told, made) if answer else {})
        attempt(REPORT_NAME, lambda: write_report(folder, _near_summary(summary, cwd), command, shown))
        written.result()  # the page shows what lies in the folder
        if held:
            beside.submit(attempt, bundle_zip.BUNDLE_NAME, partial(_write_zip, folder, held, shown))
        attempt(PAGE_NAME, lambda: _write_page(settings, folder, summary, command, made, told))
    ran = made.seconds if made else 0.0
    if lost or ran:
        seconds = replace(summary.seconds, total=summary.seconds.total + ran)
        write_result(replace(summary, seconds=seconds, warnings=(*summary.warnings, *lost)), folder)


def _valued(folder: Path, summary: Summary, answer: ReducedModel | None, told: RunMaterial) -> Reduced | None:
    """Return the reduced model with good and wrong values."""
    from runner.report.page.collect.run_page import reduced_model  # noqa: PLC0415 - see the caller

    model, samples = (answer.model, answer.samples) if answer else (None, ())
    return reduced_model(folder, summary, model, samples, told)


def _types(answer: ReducedModel, told: RunMaterial, made: Reduced | None) -> dict[str, str]:
    """Return the types of tensors in ONNX's words: as recorded of the whole model, if it had the same inputs; as seen.

    A reduced model may be fed smaller values.
    """
    fed, known = answer.samples[0].feeds if answer.samples else {}, told.recorded
    same = all(name in known and known[name].shape == one.shape for name, one in fed.items())
    named = names_of(answer.model).intersection(known) if known and same else ()
    seen = ((name, known[name]) for name in named if known[name].structure is None)
    found = {name: tensor_type(one.dtype, one.shape) for name, one in seen}
    for one in made.tensors if made else ():
        if values := one["good"] or one["wrong"]:
            number = next((number for number, kind in BY_NUMBER.items() if kind.numpy_name == values["dtype"]), 0)
            found[one["name"]] = tensor_type(number, values["shape"])
    return found


def _write_page(
    settings: Settings,
    folder: Path,
    summary: Summary,
    command: Sequence[str],
    reduced: Reduced | None,
    material: RunMaterial,
) -> None:
    """Write the page of the run."""
    from runner.report.page.collect.run_page import page_of  # noqa: PLC0415 - see the caller
    from runner.report.page.html import write_page  # noqa: PLC0415

    write_page(folder, page_of(settings, folder, summary, command, reduced, material))


def _write_repro(
    settings: Settings, folder: Path, summary: Summary, cwd: Path, answer: ReducedModel, pool: Pool | None
) -> Repro:
    """Write repro.py, and what it runs."""
    if rounds(settings.target) and pool:
        _write_rounded(pool, folder, summary.model or "", settings.target)
    printed = partial(_printed, pool, _python(settings)) if pool else None
    return write_repro(folder, summary, settings, cwd, _beside(summary, answer), printed)


def _beside(summary: Summary, answer: ReducedModel, copies: Mapping[Path, str] | None = None) -> Beside:
    """Return what lies beside a script."""
    data = tuple(f"test_data_set_{number}" for number in range(len(answer.samples)))
    meant = any(not value.finite for sample in answer.samples for value in sample.expected.values())
    return Beside(summary.model or "", data, meant, copies)


def _printed_by_check(settings: Settings, folder: Path, summary: Summary) -> str:
    """Return what the check printed about the reduced model, where that tells something."""
    kind, log_name = (summary.signature or {}).get("kind", ""), summary.evidence.get("log")
    root = folder.parents[1] if folder.parent.name == "answers" else folder
    speaks = settings.checker.runs_own_code or kind.startswith(_SPEAKS)
    return read_plain(root / log_name).decode("utf-8", "replace") if speaks and isinstance(log_name, str) else ""


def _near_summary(summary: Summary, cwd: Path) -> Summary:
    """Return the summary without where the user's folders lie, which is nobody's business in a report."""
    reason = _near(str(summary.evidence.get("reason") or ""), cwd)
    model = Path(summary.input_model).name if summary.input_model else None
    check, said = _near(summary.check, cwd), _near(summary.said, cwd)
    told = {**summary.evidence, "reason": reason}
    return replace(summary, check=check, said=said, input_model=model, evidence=told)


def _near(text: str, cwd: Path) -> str:
    """Return a text in which paths below the user's folder start there."""
    return text.replace(f"{cwd}{os.sep}", "") if cwd != cwd.parent else text


def _handed_on(
    settings: Settings, folder: Path, summary: Summary, cwd: Path, answer: ReducedModel, script: Repro
) -> tuple[Shown, bundle_zip.Contents]:
    """Return what the report shows of an answer, and what bundle.zip holds; say what it does not."""
    models = [summary.model or "", *([ROUNDED] if rounds(settings.target) else [])]
    held = bundle_zip.contents(folder, models, settings.checker, cwd)
    _say(settings, folder, held)
    files = present(folder, summary, script, held.told)
    if settings.checker.runs_own_code and script.source:
        # a reader has the copies of the check in the archive, and not what lies here
        named = check_files.handed_on(settings.checker, cwd).items()
        copies = {path: name for path, name in named if f"{check_files.FOLDER}/{name}" in held.files}
        script = repro(folder, summary, settings, cwd, _beside(summary, answer, copies))
    said = _near(_printed_by_check(settings, folder, summary), cwd)
    check = check_files.texts_of(settings.checker, cwd)
    return Shown(answer.model, (), script, said, check, bundle_zip.BUNDLE_NAME, files, held.told), held


def _mixed(settings: Settings, folder: Path, summary: Summary, cwd: Path) -> tuple[Shown, bundle_zip.Contents]:
    """Return the same of a mixed model."""
    held = mixed_bundle.contents(settings, folder, summary, cwd)
    _say(settings, folder, held)
    made = mixed_bundle.configuration(settings, summary, cwd, held)
    files = present(folder, summary, left_out=held.told, zipped=True)
    return Shown(zipped=bundle_zip.BUNDLE_NAME, files=files, missing=held.told, makes=made), held


def _say(settings: Settings, folder: Path, held: bundle_zip.Contents) -> None:
    """Say in the log what bundle.zip lacks, and what of the user's it shows."""
    if held.left_out:
        log.warning("%s: %s", folder / bundle_zip.BUNDLE_NAME, held.told)
    if held.of_user:
        log.info("%s holds files of yours: %s", folder / bundle_zip.BUNDLE_NAME, ", ".join(held.of_user))
    if typed := check_files.like_secrets(settings.checker):
        shown = f"{REPORT_NAME}, {REPRO_NAME} and {bundle_zip.BUNDLE_NAME} show checker.command as it was typed"
        log.warning("%s, also what looks like a secret: %s", shown, ", ".join(typed))


def _write_zip(folder: Path, held: bundle_zip.Contents, shown: Shown) -> None:
    """Write bundle.zip, with REPORT.md in it."""
    page = (folder / REPORT_NAME).read_text(encoding="utf-8")
    made = {REPRO_NAME: shown.repro.source, bundle_zip.MIXED_YAML: shown.makes}
    bundle_zip.write_zip(folder, held, {REPORT_NAME: page, **{name: text for name, text in made.items() if text}})


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
