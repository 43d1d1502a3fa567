"""What a script holds of the checker: which template shows the failure, and the values and source that this needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.checkers.command.exit_rules import NO_SCRIPT, REFUSALS
from runner.checkers.command.template import Template, digest
from runner.checkers.compare.accuracy_drop import Threshold
from runner.checkers.compare.tolerances import rules_of
from runner.report.repro.backends import RUNTIMES, rounds
from runner.schema.backend import TensorRtBackend
from runner.schema.checker import (
    AutoChecker,
    BuildsChecker,
    CheckerSettings,
    CommandChecker,
    CompareChecker,
    FiniteChecker,
    Golden,
    InteractiveChecker,
    Metric,
    PythonChecker,
    Statistic,
    Tolerance,
)
from runner.schema.root import Settings


def template_of(settings: Settings, stage: str, *, runs: bool) -> str:
    """Return the template that shows a failure. ``runs``: the model does, which any runtime may refuse."""
    checker = settings.checker
    if isinstance(checker, (CommandChecker, PythonChecker, InteractiveChecker)):
        return checker.name
    if checker.runs_own_code or settings.target.name not in RUNTIMES:  # of an installed package: not told here
        return "interactive"
    of_a_build = stage in ("load", "build") and isinstance(settings.target, TensorRtBackend)
    if of_a_build or (isinstance(checker, BuildsChecker) and runs):
        return "builds"
    if not runs:
        return "runs"
    finite = isinstance(checker, FiniteChecker) or (isinstance(checker, AutoChecker) and stage != "compare")
    return "finite" if finite else "compare"


def values_of(checker: CheckerSettings, cwd: Path, evidence: Mapping[str, Any], kind: str = "") -> dict[str, Any]:
    """Return the values by which it judges: its settings, and what these say in the end.

    ``cwd``: the user's. ``kind``: the failure's.
    """
    given = dict(vars(checker))
    if isinstance(checker, CommandChecker):
        template = Template(checker.command, cwd, checker.env)
        ours = {cwd / Path(path).expanduser() for path in (checker.place, checker.iteration_info) if path}
        asked, more = template.mentions & {"inputs", "references"}, template.mentions - {"model", "dir"}
        given |= {**dict.fromkeys(asked, True), "samples": bool(asked)}
        given |= {"command": list(template.words), "cwd": str(cwd), "placed": bool(ours)}
        given |= {"reads_more": bool(ours or more - {"inputs"})}
        given |= {"env": sorted(checker.env)}  # values may be secret: whoever runs the script sets them
        given |= {"files": _digests(path for path in template.files().values() if path not in ours)}
        silent = {*checker.invalid_codes, *checker.different_codes}
        given |= {"no_answer": sorted(silent), "listed": sorted({*checker.pass_codes, *checker.fail_codes} | silent)}
        codes, regex = bool(checker.fail_codes), bool(checker.fail_regex)
        deaths = codes or regex or not kind.startswith("exit ")
        given |= {"deaths": deaths, "no_regex_deaths": deaths and not regex}
        given |= {"exits": not (codes or regex), "only_regex": regex and not codes, "both": codes and regex}
        return given | {"refusals": _refusals(kind, given), "no_script": NO_SCRIPT.pattern}
    if isinstance(checker, PythonChecker):
        allowed = Threshold(checker).allowed
        given |= {"threshold": allowed is not None, "allowed": allowed, "drop": checker.max_drop is not None}
        return given | {"files": _digests([cwd / Path(checker.file or "").expanduser()])}
    rules = rules_of(checker)
    finite = checker if isinstance(checker, FiniteChecker) else FiniteChecker()
    looked = [name for name in ("nan", "inf") if getattr(finite, name).value == "fail"]
    given = {**vars(rules.settings), **given, "rtol": rules.rtol, "atol": rules.atol, "looked_for": looked}
    given |= {"unlike": rules.settings.fraction if rules.metrics == (Metric.fraction,) else 0.0}
    measured = isinstance(checker, CompareChecker) and checker.tolerance is Tolerance.auto
    measured = measured and None not in (evidence.get("limit"), evidence.get("output")) and not evidence.get("exact")
    given |= {"counted": evidence.get("output"), "limit": evidence.get("limit"), "measured": measured}
    given |= {f"by_{metric.value}": True for metric in rules.metrics}
    given |= {f"{name}_{given[name].value}": True for name in ("nan", "inf")}
    taken, quantile = (
        {Metric.scale, Metric.elementwise} & {*rules.metrics},
        rules.settings.statistic is Statistic.quantile,
    )
    given |= {"named": taken and not quantile, "quantiles": taken and quantile}
    return given | ({"outputs": [evidence["output"]]} if measured else {})


def runs_beside(settings: Settings) -> bool:
    """Whether the reference says what is right, and can be run beside the target; else recorded outputs are good."""
    given, checker = settings.reference, settings.checker
    ahead = isinstance(checker, CompareChecker) and checker.golden is Golden.ahead
    other = given.name not in RUNTIMES or given.builds_engines
    return not (ahead or given.model or given.python or other or rounds(given))


def placed(checker: CheckerSettings, model: str, weights: Sequence[str]) -> dict[str, str]:
    """Return which files of the bundle lie where, while a command runs that reads a fixed path."""
    place = getattr(checker, "place", None)
    return {place: model, **{str(Path(place).parent / name): name for name in weights}} if place else {}


def _refusals(kind: str, given: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return which words of an output say that nothing was checked, by the exit code.

    Where every code is a failure of its own, those of other codes are another failure anyhow. Where codes are listed,
    that of a wrong usage (64) is no answer, whatever was said.
    """
    codes = {*REFUSALS} - {*given["listed"], *([] if given["exits"] or given["fail_regex"] else [64])}
    if given["exits"]:
        codes &= {int(kind.removeprefix("exit "))} if kind.startswith("exit ") else set()
    return {code: [REFUSALS[code].pattern] for code in sorted(codes)}


def _digests(paths: Iterable[Path]) -> dict[str, str]:
    return {str(path): digest(path)[:16] for path in paths}
