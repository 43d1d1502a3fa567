"""The plugin for pytest: a fixture that checks an ONNX model, and ``--winnow``, which reduces one that fails.

pytest imports this module for every suite of an environment with Winnow in it; so all else is imported by the fixture.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from runner.api import Result

_PROPERTY = "winnow"
_OWN = frozenset({"folder", "resume"})
_LONGEST = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("winnow", "Winnow")
    group.addoption(
        "--winnow", action="store_true", help="reduce a model that fails in onnx_model_check, and attach it"
    )
    group.addoption(
        "--winnow-dir", default="winnow-results", metavar="DIR", help="where the results go (default: %(default)s)"
    )


@pytest.fixture
def onnx_model_check(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that checks a model once, with the arguments of `winnow.reduce`; where it fails, the test does.

    With ``--winnow`` the model is then reduced, and the report of the test says to what.
    """

    def check(model: Any, check: Any = None, **options: Any) -> None:
        from runner import api as winnow  # noqa: PLC0415 - see above

        __tracebackhide__ = True
        own = sorted(_OWN & options.keys())
        if own:
            pytest.fail(f"onnx_model_check: {own[0]}= is the plugin's own: see --winnow-dir", pytrace=False)
        once = {key: value for key, value in options.items() if key != "strategy"}
        try:
            with TemporaryDirectory() as scratch:
                found = winnow.repeat(model, check, strategy={"until": 1}, **{**once, "folder": Path(scratch) / "run"})
            last = found.raise_for_status().verdicts[-1]
        except (winnow.UsageError, winnow.NoAnswerError) as error:
            pytest.fail(f"onnx_model_check: {error}", pytrace=False)
        if last.outcome == "pass":
            return
        why = f"{last.outcome}: {last.reason}" if last.reason else last.outcome
        if last.outcome == "unresolved":
            pytest.fail(f"onnx_model_check cannot judge the model: {last.reason}", pytrace=False)
        if not request.config.getoption("--winnow"):
            pytest.fail(f"the model fails its check ({why}). With --winnow it is reduced", pytrace=False)
        place = _folder(request)
        told = _attach(request.node, winnow.reduce(model, check, **{**options, "folder": place}))
        pytest.fail(f"the model fails its check ({why})\n{told}", pytrace=False)

    return check


def _folder(request: pytest.FixtureRequest) -> Path:
    """Return a folder that is not there yet for what the test has reduced, whichever process runs it."""
    name = re.sub(r"\W+", "-", request.node.nodeid)[-_LONGEST:].strip("-")
    place: Path = request.config.rootpath / request.config.getoption("--winnow-dir")
    place.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        folder = place / (f"{name}-{number}" if number > 1 else name)
        with suppress(FileExistsError):  # of an earlier run, or of a process that tests beside this one
            folder.mkdir()
            return folder
    raise AssertionError("numbers have no end")


def _attach(item: pytest.Item, result: Result) -> str:
    """Put the result into the report of the test; return what is said of it."""
    attached = result.bundle or result.folder
    item.user_properties.append((_PROPERTY, str(attached)))
    item.add_report_section("call", "winnow", str(result))
    use = "to attach to an issue" if result.found else "what was tried"
    return f"{str(result).partition(chr(10))[0]}\n{use}: {attached}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was reduced, from whichever processes ran the tests."""
    failed = [report for report in terminalreporter.getreports("failed") if hasattr(report, "user_properties")]
    lines = [
        f"{report.nodeid}: {place}" for report in failed for key, place in report.user_properties if key == _PROPERTY
    ]
    if lines:
        terminalreporter.section("winnow: models that fail")
        terminalreporter.write_line("\n".join(lines))
