"""``checker.preload``: which checks are forked, which are not, and what they say."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from runner.checkers.command import CommandCheck
from runner.exit_codes import UsageError
from runner.schema.checker import CommandChecker, Flaky
from tests.checkers.conftest import Here
from tests.harness import winnow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="works on Linux only")

WHO = "import os\nprint(os.getppid())\n"
Make = Callable[..., CommandCheck]


@pytest.fixture
def preloaded(here: Here) -> Iterator[Make]:
    def make(text: str = WHO, *words: str, **settings: object) -> CommandCheck:
        (here.cwd / "check.py").write_text(text)
        chosen = {"command": [sys.executable, "check.py", "{dir}", *words], "preload": ["json"], **settings}
        return CommandCheck(CommandChecker(**chosen), here)  # type: ignore[arg-type]

    yield make
    here.ending.close()


def said(here: Here, check: CommandCheck, **more: object) -> str:
    return here.said(check.check(here.candidate(**more)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python -u check.py {model}", "'python -u'"),
        ("./check.py {model}", "'./check.py {model}'"),
        ("sh -c 'python check.py {model}'", "'sh -c'"),
        ("python {model}", "'python {model}'"),
    ],
)
def test_another_command_is_a_usage_error(here: Here, command: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        CommandCheck(CommandChecker(command=command, preload=["json"]), here)
    for part in (
        words,
        "checker.preload=['json']",
        "checker.command='python check.py {model}'",
        "leave checker.preload",
    ):
        assert part in str(raised.value)
    CommandCheck(CommandChecker(command=command), here)


@pytest.mark.parametrize("python", ["python", "python3", "/usr/bin/python3.12", "venv/bin/python3.13t", "{python}"])
def test_interpreters_are_known_by_their_names(here: Here, python: str) -> None:
    CommandCheck(CommandChecker(command=f"{python} dir/check.py {{model}}", preload=["json", "xml.dom"]), here)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_module_that_is_not_there_is_said_by_the_first_check(here: Here, preloaded: Make, fresh: bool) -> None:
    """Also by one that is not forked, as that of the user's file is: before the script has run at all."""
    check = preloaded("open('ran', 'w')", preload=["no_such_module"])
    with pytest.raises(UsageError, match="cannot import no_such_module: ModuleNotFoundError"):
        check.check(here.candidate(fresh=fresh))
    assert not (here.cwd / "ran").exists()


def test_checks_have_one_parent_but_for_those_that_are_to_share_nothing(here: Here, preloaded: Make) -> None:
    check = preloaded()
    parents = [int(said(here, check)) for _ in range(3)]
    assert len(set(parents)) == 1 and parents[0] != os.getpid()
    assert psutil.Process(parents[0]).ppid() == os.getpid()
    assert int(said(here, check, fresh=True)) not in parents
    assert int(said(here, preloaded(flaky=Flaky.always))) not in parents
    here.ending.close()
    assert not psutil.pid_exists(parents[0])


def test_several_at_once_have_a_server_each(here: Here, preloaded: Make) -> None:
    # each waits until all of them have begun
    text = (
        "import os, sys, time\nopen(f'begun{os.getpid()}', 'w').close()\n"
        "while sum(name.startswith('begun') for name in os.listdir()) < 3: time.sleep(0.01)\n" + WHO
    )
    check = preloaded(text, timeout=60)
    with ThreadPoolExecutor(3) as threads:
        parents = set(threads.map(lambda one: here.said(check.check(one)), [here.candidate() for _ in range(3)]))
    assert len(parents) == 3
    # and no fourth one is started for a check that comes later
    assert said(here, check) in parents


def test_a_check_is_the_same_one_whatever_is_imported_ahead(preloaded: Make) -> None:
    """That it ends and prints the same: tests/workers/test_fork_server."""
    assert preloaded().identity() == preloaded(preload=[]).identity()


def test_a_server_that_is_gone_is_replaced(here: Here, preloaded: Make) -> None:
    check = preloaded()
    first = int(said(here, check))
    psutil.Process(first).kill()
    psutil.wait_procs([psutil.Process(first)], timeout=10)
    assert int(said(here, check)) not in (first, os.getpid())


def test_iterations_that_are_counted_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(
        "import os\n"
        "with open('asked.txt', 'a') as file:\n"
        "    print('[\"json\"]' in open(f'/proc/{os.getppid()}/cmdline').read(), file=file)\n"
    )
    words = ["strategy=repeat", "strategy.until=3", "checker=command", "checker.preload=[json]"]
    command = f"checker.command={json.dumps([sys.executable, 'check.py'])}"
    done = winnow(*words, command, folder=tmp_path / "run", cwd=tmp_path)
    assert (tmp_path / "asked.txt").read_text().split() == ["False"] * 3, done.output
