"""The rules by which outputs are compared: one for each metric, with the tolerances of each output."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml

from runner.checkers.task_metrics import TASKS
from runner.judgment import UsageError
from runner.schema.checker import AutoChecker, CheckerSettings, CompareChecker, Metric, Tolerance

OTHERS = ""
"""Stands for all outputs, and tensors inside the model, that have no tolerance of their own."""
_DEFAULTS = CompareChecker()


@dataclass(frozen=True)
class Rules:
    """``rtol``, ``atol``: by output, and under `OTHERS`. ``metrics``: a tensor differs if it does by any of them.

    ``tasks``: metrics of all samples, for the outputs of the whole model. Where nothing else was asked for, ``metrics``
    is `Metric.scale`, for tensors inside the model and outputs that no task metric is about.
    """

    settings: CompareChecker
    metrics: tuple[Metric, ...]
    tasks: tuple[Metric, ...]
    asked: bool
    rtol: Mapping[str, float]
    atol: Mapping[str, float]

    @staticmethod
    def of(settings: CompareChecker) -> Rules:
        """Read the settings. Raises UsageError for a metric or a tolerance that is none."""
        chosen = _metrics(settings.metric)
        tasks = tuple(one for one in chosen if one in TASKS)
        if (len(chosen) > 1 or tasks) and settings.tolerance is Tolerance.auto:
            raise UsageError(
                f"checker.metric={_listed(chosen)} checker.tolerance=auto: noise is measured by one metric"
                f"{', of values' * bool(tasks)}. Give one, or the tolerances: checker.tolerance=fixed checker.rtol=.. "
                "checker.cosine=.."
            )
        for key, needed in (("labels", "labels"), ("boxes", "detections")):
            wanting = [one.value for one in tasks if getattr(TASKS[one], needed)]
            if bool(wanting) != bool(getattr(settings, key)):
                why = f"checker.metric={wanting[0]} needs it" if wanting else "no metric that was chosen reads it"
                raise UsageError(f"checker.{key}={getattr(settings, key) or ''}: {why}")
        if unknown := [name for name in settings.bounds if name not in {one.value for one in tasks}]:
            known = ", ".join(one.value for one in tasks) or "none, as metrics of values have tolerances"
            raise UsageError(f"checker.bounds: {unknown[0]}: no such metric was chosen; those with bounds are {known}")
        values = tuple(one for one in chosen if one not in tasks)
        tolerances = (_tolerances(key, getattr(settings, key)) for key in ("rtol", "atol"))
        return Rules(settings, values or (Metric.scale,), tasks, bool(values), *tolerances)

    def of_output(self, name: str) -> tuple[CompareChecker, ...]:
        """Return the rules of one output: of one metric each, tolerances are numbers."""
        rtol, atol = (table.get(name, table[OTHERS]) for table in (self.rtol, self.atol))
        return tuple(dataclasses.replace(self.settings, metric=one, rtol=rtol, atol=atol) for one in self.metrics)


def rules_of(checker: CheckerSettings) -> Rules:
    """Return the rules of any checker; one that does not compare has those of ``checker=compare`` as it comes."""
    if isinstance(checker, AutoChecker):
        return Rules.of(CompareChecker(name="auto", metric=Metric.scale, rtol=checker.rtol, atol=checker.atol))
    return Rules.of(checker if isinstance(checker, CompareChecker) else CompareChecker())


def check_outputs(checker: CheckerSettings, outputs: Collection[str]) -> None:
    """Raise UsageError for a tolerance of an output that the model does not have."""
    rules = rules_of(checker)
    for key, table in (("rtol", rules.rtol), ("atol", rules.atol)):
        unknown = [name for name in table if name != OTHERS and name not in outputs]
        if unknown:
            close = get_close_matches(unknown[0], outputs, 1)
            raise UsageError(
                f"checker.{key}: the model has no output {unknown[0]!r}"
                + (f"; did you mean {close[0]!r}?" if close else ";")
                + f' its outputs are {", ".join(outputs)}. Tensors inside the model, and all other outputs, are ""'
            )


def _metrics(given: Any) -> tuple[Metric, ...]:
    words = given if isinstance(given, (list, tuple)) else [given]
    try:
        chosen = tuple(dict.fromkeys(Metric(word) for word in words))
    except ValueError:
        chosen = ()
    if not chosen:
        raise UsageError(
            f"checker.metric={_listed(words)}: choose one of {', '.join(one.value for one in Metric)}, or several: "
            "checker.metric=[scale,cosine]"
        )
    return chosen


def _tolerances(key: str, given: Any) -> dict[str, float]:
    """Read a number, or a mapping from outputs to numbers (as text too: Hydra's grammar has no empty key)."""
    table = given
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            table = yaml.safe_load(given)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise _no_tolerance(key, given) from None
    if not isinstance(table, Mapping):
        table = {OTHERS: table}
    try:
        read = {str(name): float(value) for name, value in table.items() if not isinstance(value, bool)}
    except (TypeError, ValueError):
        raise _no_tolerance(key, given) from None
    if len(read) < len(table) or any(math.isnan(value) or value < 0 for value in read.values()):
        raise _no_tolerance(key, given)
    return {OTHERS: float(getattr(_DEFAULTS, key)), **read}


def _no_tolerance(key: str, given: object) -> UsageError:
    return UsageError(
        f"checker.{key}={given}: it must be a number that is at least 0, or one for each of some outputs and for all "
        f"others: checker.{key}='{{logits: 1e-2, \"\": 1e-3}}'"
    )


def _listed(words: Any) -> str:
    shown = [word.value if isinstance(word, Metric) else str(word) for word in words]
    return shown[0] if len(shown) == 1 else f"[{','.join(shown)}]"
