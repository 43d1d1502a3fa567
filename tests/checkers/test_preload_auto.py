"""``checker.preload=auto``: what of a script is imported ahead, where nothing is, and that answers are the same."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import venv
import warnings
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.checkers.preload import BEARS_A_FORK, leading_imports
from runner.exit_codes import CannotJudge, UsageError
from runner.schema.checker import CommandChecker, Flaky
from runner.workers.commands import ForkedCheck, ForkServer
from runner.workers.gpu_leases import Stopped
from runner.workers.guardian import Guardian
from strategies.search import Outcome
from tests.checkers.conftest import Here
from tests.checkers.test_preload import Make, preloaded, said
from tests.workers.test_command import guardian as own_guardian

__all__ = ["own_guardian", "preloaded"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="works on Linux only")

FORKED = "'fork_server_main' in open('/proc/self/cmdline').read()"
WHO = f"import os\nimport numpy\nprint({FORKED})\n"


@pytest.fixture
def automatic(preloaded: Make) -> Make:
    return lambda text=WHO, *words, **settings: preloaded(text, *words, **{"preload": "auto", **settings})


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ('"""Says."""\nfrom __future__ import annotations\nimport os, sys\nimport numpy as np\n', "numpy"),
        ("from onnx import helper, load, numpy_helper\nimport numpy", "onnx onnx.helper onnx.numpy_helper numpy"),
        ("import numpy.linalg, onnx.numpy_helper\nimport os.path", "numpy.linalg onnx.numpy_helper"),
        ("import numpy\nimport numpy\nfrom numpy import *\n", "numpy"),
        # what comes before an import may be meant for it
        ("import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport numpy\n", ""),
        ("import onnx\nx = 1\nimport numpy\n", "onnx"),
        ("x: int = 3\nimport numpy\n", ""),
        ("if True:\n    import numpy\n", ""),
        ("try:\n    import numpy\nexcept ImportError:\n    pass\n", ""),
        ("with open('x'):\n    import numpy\n", ""),
        ("import onnx\n'no docstring'\nimport numpy\n", "onnx"),
        # others come in the order in which the script imports them
        ("import onnx, torch, numpy\n", "onnx"),
        ("import numpy\nimport onnxruntime\nimport onnx\n", "numpy"),
        ("import onnxruntime, numpy", ""),
        ("import numpy\nimport mine\nimport onnx", "numpy"),
        ("import numpy\nfrom . import beside\nimport onnx", "numpy"),
        ("import numpy\nfrom .numpy import x\nimport onnx", "numpy"),
        # the standard library's are left to the forked check
        ("import numpy\nimport this\nimport onnx", "numpy onnx"),
        ("import numpy.core\nimport numpy", ""),
        # of no use: all that a fork could save is the start of the interpreter
        ("import os, sys, json\n", ""),
        ("", ""),
        # it cannot be read as this Python's
        ("import numpy\ndef f(:\n", ""),
        ("import numpy\n\0", ""),
        ("import numpy\n" + "(" * 10_000, ""),
    ],
)
def test_leading_imports_of_what_is_known(tmp_path: Path, text: str, modules: str) -> None:
    (tmp_path / "check.py").write_text(text)
    assert leading_imports(tmp_path / "check.py") == tuple(modules.split())


def test_a_script_is_read_and_never_run_and_nothing_is_said_of_it(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text("import numpy\nopen('ran', 'w')\nprint('\\d' is 'x')\nimport sys\nsys.exit(3)\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert leading_imports(script) == ("numpy",)
    assert not (tmp_path / "ran").exists() and not Path("ran").exists()
    assert leading_imports(tmp_path / "gone.py") == leading_imports(tmp_path) == ()
    script.write_bytes("# coding: latin-1\nimport numpy\nx = 'ü'\n".encode("latin-1"))
    assert leading_imports(script) == ("numpy",)
    script.write_bytes("import numpy\nx = 'ü'\n".encode("latin-1"))
    assert leading_imports(script) == ()


def test_what_is_imported_ahead_prints_and_starts_nothing(tmp_path: Path, own_guardian: Guardian) -> None:
    names = sorted(BEARS_A_FORK)
    # a script that imports these itself is told what is deprecated
    code = "".join(f"import {name}\n" for name in names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    given: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "guardian": own_guardian}
    server = ForkServer(sys.executable, "check.py", names, unasked=True, **given)
    try:
        assert psutil.Process(server.pid).num_threads() == 1
        assert not psutil.Process(server.pid).children()
    finally:
        server.close()


def test_checks_that_may_share_something_are_forked(
    here: Here, automatic: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    check = automatic()
    assert said(here, check, fresh=True) == "False"
    assert not caplog.records
    assert [said(here, check) for _ in range(2)] == ["True"] * 2
    assert [said(here, check, fresh=True), said(here, check)] == ["False", "True"]
    told = [one for one in caplog.records if "preload" in one.message]
    assert [one.levelname for one in told] == ["DEBUG"] and told[0].message.endswith(" numpy")


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("PYTHON -u check.py {dir}", {}),
        ("sh -c 'PYTHON check.py {dir}; exit 0'", {}),
        ("PYTHON check.py {dir}", {"measure": r"took (\S+) s"}),
        ("PYTHON check.py {dir}", {"flaky": Flaky.always}),
        ("PYTHON check.py {dir}", {"preload": []}),
        ("PYTHON {dir}/../../../here/check.py", {}),
    ],
)
def test_commands_of_which_no_check_is_forked(
    here: Here, automatic: Make, command: str, settings: dict[str, Any]
) -> None:
    check = automatic(command=command.replace("PYTHON", sys.executable), **settings)
    assert check.check(here.candidate(fresh=True)).outcome is Outcome.PASS
    assert said(here, check) == "False"


def test_other_systems_than_linux(here: Here, automatic: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.checkers.preload.sys.platform", "darwin")
    check = automatic()
    monkeypatch.undo()
    assert said(here, check) == "False"


def test_what_python_would_find_elsewhere_is_not_imported_ahead(
    here: Here, automatic: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A module of that name beside the script or in PYTHONPATH, also of what numpy imports itself."""
    caplog.set_level(logging.DEBUG)
    other = here.cwd / "other"
    other.mkdir()
    note = "open('ran', 'a').write('x')\n"
    for folder, env in ((here.cwd, {}), (other, {"PYTHONPATH": "other"})):
        for name in ("numpy.py", "numpy/__init__.py", "numbers.py"):
            place = folder / name
            place.parent.mkdir(exist_ok=True)
            place.write_text(note)
            check = automatic(f"import os\nimport numpy\nprint({FORKED})\n", env=env)
            check.check(here.candidate())
            assert any(f"{place} first" in one.message for one in caplog.records), place
            # by the check itself, and by nothing else
            ran = here.cwd / "ran"
            assert name == "numbers.py" or ran.read_text() == "x"
            ran.unlink(missing_ok=True)
            place.unlink()
    # a folder without __init__.py hides nothing that is installed
    (here.cwd / "numpy").mkdir(exist_ok=True)
    assert said(here, automatic(env={"PYTHONPATH": "other"})) == "True"


def test_what_is_not_installed_is_not_imported_ahead(tmp_path: Path, own_guardian: Guardian) -> None:
    """A package that is worked on changes while a run is under way."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    (tmp_path / "source" / "onnx").mkdir(parents=True)
    (tmp_path / "source" / "onnx" / "__init__.py").touch()
    packages = next((tmp_path / "venv").glob("lib/*/site-packages"))
    (packages / "here.pth").write_text(str(tmp_path / "source"))
    env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    given: dict[str, Any] = {"cwd": tmp_path, "env": env, "guardian": own_guardian, "unasked": True}
    with pytest.raises(UsageError, match=r"source/onnx/__init__\.py, which is not installed"):
        ForkServer(python, "check.py", ["os", "onnx"], **given)
    (packages / "here.pth").unlink()
    (tmp_path / "source" / "onnx").rename(packages / "onnx")
    ForkServer(python, "check.py", ["os", "onnx"], **given).close()
    # each check would print that
    (packages / "onnx" / "__init__.py").write_text("print('hello')")
    with pytest.raises(UsageError, match=r"prints something when it imports them.*hello"):
        ForkServer(python, "check.py", ["os", "onnx"], **given)


@pytest.mark.parametrize(
    ("script", "forked"),
    [
        ('exec "$REAL" "$@"', "True"),  # as pyenv does
        ('"$REAL" "$@"; exit $(($? != 0))', "False"),
        ('cd other; exec "$REAL" "$@"', "False"),
    ],
)
def test_a_script_named_python_that_has_more_to_do_for_each_check(
    here: Here, automatic: Make, script: str, forked: str
) -> None:
    """What it makes of the end of a check counts, and so does the folder that it goes to."""
    (here.cwd / "other").mkdir()
    wrapper = here.cwd / "bin" / "python"
    wrapper.parent.mkdir()
    wrapper.write_text(f"#!/bin/sh\n{script}\n")
    wrapper.chmod(0o755)
    settings: dict[str, Any] = {"command": [str(wrapper), "check.py"], "env": {"REAL": sys.executable}}
    (here.cwd / "other" / "check.py").write_text(WHO + "import sys\nsys.exit(4)\n")
    verdicts = []
    for preload in ("auto", []):
        check = automatic(WHO + "import sys\nsys.exit(3)\n", preload=preload, fail_codes=[3], **settings)
        verdicts += [(check.check(here.candidate()).outcome, said(here, check))]
    assert verdicts[0] == (verdicts[1][0], forked)


def test_a_server_that_cannot_start_is_no_matter_of_the_check(
    here: Here, automatic: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The check says itself that its interpreter has no numpy; an interpreter that is not there is what it ever was."""
    caplog.set_level(logging.DEBUG)
    venv.create(here.cwd / "venv", with_pip=False, symlinks=True)
    for python in (str(here.cwd / "venv" / "bin" / "python"), "venv/bin/python9"):
        verdicts = []
        for preload in ("auto", []):
            check = automatic(command=[python, "check.py", "{dir}"], preload=preload, env={"PYTHONPATH": ""})
            verdicts += [check.check(here.candidate()) for _ in range(2)]
        assert {(one.outcome, one.reason.replace("00001", "")) for one in verdicts[:2]} == {
            (one.outcome, one.reason.replace("00001", "")) for one in verdicts[2:]
        }
    told = [one.message for one in caplog.records if "no more checks are forked" in one.message]
    assert len(told) == 2 and "cannot import numpy" in told[0] and "cannot start venv/bin/python9" in told[1]


DIES = [
    ("os.abort()", "death MEMORY"),
    ("os.kill(os.getpid(), 15)", "death TERM"),
    ("time.sleep(60)", "timeout"),
    ("x = b'x' * (400 << 20); time.sleep(60)", "memory"),
]


@pytest.mark.variants
@pytest.mark.parametrize(("ending", "kind"), DIES)
def test_a_death_is_confirmed_once_and_no_more_checks_are_forked(
    here: Here, automatic: Make, ending: str, kind: str
) -> None:
    text = f"import os, time\nimport numpy\nwith open('told', 'a') as told: print({FORKED}, file=told)\n{ending}\n"
    check = automatic(text, timeout=5, memory_mb=300)
    for told in (["True", "False"], ["True", "False", "False"]):
        verdict = check.check(here.candidate())
        assert verdict.outcome is Outcome.FAIL and verdict.signature and verdict.signature.kind == kind
        assert (here.cwd / "told").read_text().split() == told
    assert not servers_of_modules()


def servers_of_modules() -> list[psutil.Process]:
    """What has imported modules and forks checks; what starts programs has none, and no site either."""
    left = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    return [one for one in left if "fork_server_main" in " ".join(one.cmdline()) and "-S" not in one.cmdline()]


def test_a_death_that_the_fork_alone_causes_is_no_verdict(here: Here, automatic: Make) -> None:
    check = automatic(f"import os\nimport numpy\nprint({FORKED})\nif {FORKED}: os.abort()\n")
    assert [said(here, check) for _ in range(2)] == ["False"] * 2


def test_a_check_that_ends_its_server_is_run_plainly(here: Here, automatic: Make) -> None:
    text = f"import os\nimport numpy\nif {FORKED}: os.kill(os.getppid(), 9)\nprint({FORKED})\n"
    check = automatic(text)
    assert [said(here, check) for _ in range(2)] == ["False"] * 2
    with pytest.raises(CannotJudge):
        automatic(text, preload=["numpy"]).check(here.candidate())


def test_a_check_that_cannot_be_forked_is_run_plainly(
    here: Here, automatic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = ForkServer.fork

    def refuses(server: ForkServer, *given: Any, **more: Any) -> ForkedCheck:
        if server.script:
            raise OSError("cannot fork a check: no process is left")
        return forks(server, *given, **more)

    check = automatic()
    monkeypatch.setattr(ForkServer, "fork", refuses)
    assert [said(here, check) for _ in range(2)] == ["False"] * 2


def test_a_run_that_ends_while_a_server_starts_leaves_none(
    here: Here, automatic: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for the imports either."""
    entered, greeting = threading.Event(), ForkServer._greeting

    def slow(self: ForkServer, *given: Any) -> str:
        os.kill(self.pid, 19)
        entered.set()
        return greeting(self, *given)

    monkeypatch.setattr(ForkServer, "_greeting", slow)
    check, ends = automatic(), list[BaseException]()

    def asks() -> None:
        try:
            check.check(here.candidate())
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            ends.append(error)

    thread = threading.Thread(target=asks)
    thread.start()
    assert entered.wait(60)
    here.guardian.kill()
    thread.join()
    here.ending.close()
    assert not servers_of_modules()
    assert [type(one) for one in ends] == [Stopped]


@pytest.mark.parametrize("wrong", ["onnx", None, True, 3, {"onnx": 1}])
def test_what_the_key_may_be(wrong: object) -> None:
    with pytest.raises(UsageError, match=r"checker\.preload=.*: it is auto, \[\] \(no check is forked\) or a list"):
        CommandChecker(command="python check.py {model}", preload=wrong)
    for right in ("auto", [], ["onnx"]):
        assert CommandChecker(command="python check.py {model}", preload=right).preload == right
    with pytest.raises(UsageError, match="auto"):
        CommandChecker(command="python check.py {model}", preload="Auto")


"""What may depend on the modules that are imported ahead; tests/workers/test_fork_server has scripts of all kinds."""
