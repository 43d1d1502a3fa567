"""A check that is forked from a warm interpreter ends, prints and leaves what a plain run of the same script does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runner.checkers.preload import BEARS_A_FORK
from runner.exit_codes import CannotJudge, UsageError
from runner.schema.root import LeaseMode
from runner.workers.commands import CommandEnd, ForkServer, run_command
from runner.workers.guardian import Guardian
from tests.workers.house import ONE, Make, ended_late, free, soon, written
from tests.workers.test_command import guardian
from tests.workers.test_pool import gone

__all__ = ["guardian"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}


class Forked:
    """Runs ``check.py``, plainly or forked from one server."""

    def __init__(self, folder: Path, guardian: Guardian) -> None:
        self.folder, self.guardian, self.log = folder, guardian, folder / "check.log"
        self.script = folder / "check.py"
        self.server: ForkServer | None = None

    def start(self, *modules: str) -> ForkServer:
        settings: dict[str, Any] = {"cwd": self.folder, "env": ENVIRONMENT, "guardian": self.guardian}
        self.server = ForkServer(sys.executable, "check.py", modules or ("json",), **settings)
        return self.server

    def __call__(
        self, code: str, *words: str, plain: bool = False, script: str = "check.py", **changes: Any
    ) -> CommandEnd:
        self.script.write_text(code)
        limits: dict[str, Any] = {"cwd": self.folder, "env": ENVIRONMENT, "timeout": 60.0, "memory_mb": None, **changes}
        server = None if plain else self.server or self.start()
        argv = [sys.executable, script, *words]
        return run_command(argv, log=self.log, guardian=self.guardian, server=server, **limits)

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")


@pytest.fixture
def forked(tmp_path: Path, guardian: Guardian) -> Iterator[Forked]:
    made = Forked(tmp_path, guardian)
    yield made
    if made.server:
        made.server.close()


SAME = {
    "passes": "print('fine')",
    "what it is told": (
        "import os, sys\n"
        "print(sys.argv, sys.orig_argv[1:], sys.path, __file__, __name__, os.getcwd(), sys.stdin.read(), sys.flags)\n"
        "print(sorted(globals()), __spec__, __package__, __cached__, __annotations__, type(__loader__), __builtins__)\n"
        "print({k: v for k, v in os.environ.items() if k != 'WINNOW_JOB'})\n"
        "print(os.getpid() == os.getsid(0) == os.getpgrp(), sorted(os.listdir('/proc/self/fd')), os.isatty(1))\n"
        "print(sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stderr.errors)\n"
        "import signal; print([str(signal.getsignal(n)).split(' at ')[0] for n in signal.valid_signals()])\n"
    ),
    "what it imports lies beside it": "import beside; print(beside.__file__)",
    "exit": "import sys; sys.exit(7)",
    "exit with words": "import sys; sys.exit('no good')",
    "exit with nothing": "raise SystemExit",
    "exit beyond a byte": "import sys; sys.exit(300)",
    "at once": "import atexit, os; atexit.register(print, 'not seen'); os._exit(3)",
    "at the end": "import atexit, sys; atexit.register(print, 'seen'); sys.exit(2)",
    "a thread goes on": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\n"
    ),
    "raises": (
        "def f():\n    raise KeyError('x')\ntry:\n    f()\nexcept KeyError as e:\n    raise ValueError('y') from e\n"
    ),
    "raises in what it calls": "import json\njson.loads('{')\n",
    "asserts": "assert 1 == 2, 'unequal'",
    **({"raises a group": "raise ExceptionGroup('g', [ValueError('a')])"} if sys.version_info >= (3, 11) else {}),
    "its own hook": "import sys\nsys.excepthook = lambda k, e, t: print('hook', k, e, t.tb_lineno, t.tb_next)\n1 / 0\n",
    "recurses": "import sys; sys.tracebacklimit = 1\ndef f(): f()\nf()\n",
    "no syntax": "def f(:\n    pass\n",
    "interrupted": "raise KeyboardInterrupt",
    "aborts": "import os; os.abort()",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "cannot be flushed": "import os, sys; print('x'); os.close(1)\n",
    "another process": (
        "import multiprocessing as m, sys\n"
        "def f(x): return x + 1\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.map(f, [1]))\n"
    ),
    "annotated": "x: int = 3\nprint(__annotations__)\n",
    "the future of the server is not its own": "def f(x: int): ...\nprint(f.__annotations__)\n",
    "bytes": "import sys; sys.stdout.buffer.write(b'\\xff\\xfe'); print('\\udcff')",
    "closes what it has not opened": "import os; os.closerange(3, 256); print('still here')",
    "executors": (
        "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\n"
        "if __name__ == '__main__':\n"
        "    with ThreadPoolExecutor(3) as t, ProcessPoolExecutor(2) as p:\n"
        "        print(list(t.map(abs, [-1, 2])), list(p.map(abs, [-1, 2])))\n"
    ),
    "an alarm": "import signal\nsignal.alarm(1)\nimport time; time.sleep(30)",
    "warns": "import warnings\nwarnings.warn('odd')\nwarnings.warn('old', DeprecationWarning)",
    "limits": "import resource as r\nprint(r.getrlimit(r.RLIMIT_AS), r.getrlimit(r.RLIMIT_NOFILE))",
    "runs itself": (
        "import runpy, sys\nif len(sys.argv) < 9:\n"
        "    sys.argv += ['x'] * 9\n    runpy.run_path(__file__, run_name='__main__')\n"
    ),
}
#: what may depend on the modules that are imported ahead where nobody names any
AHEAD = {
    "a seed": "import random, numpy as n\nrandom.seed(3); n.random.seed(3)\nprint(random.random(), n.random.rand(3))",
    "algebra": "import numpy\na = numpy.random.RandomState(0).rand(300, 300)\nprint((a @ a).sum().hex())",
    "asks a model": "import onnx\nprint(onnx.__version__, onnx.checker.check_model(onnx.ModelProto()))",
    "what is deprecated": "import numpy.core\nfrom onnx import mapping\n",
}


@pytest.mark.parametrize(("modules", "codes"), [(("json",), SAME), (tuple(sorted(BEARS_A_FORK)), {**SAME, **AHEAD})])
def test_it_ends_and_prints_as_a_plain_run(forked: Forked, modules: tuple[str, ...], codes: dict[str, str]) -> None:
    (forked.folder / "beside.py").touch()
    (forked.folder / "json.txt").touch()
    forked.start(*modules)
    for name, code in codes.items():
        ends = []
        for plain in (True, False):
            end = forked(code, "a b", "ü", plain=plain)
            ends.append((end.returncode, end.death, end.cannot_start, forked.said))
        assert ends[1] == ends[0], name
        assert forked.server and forked.server.alive, name


def test_what_a_check_does_not_wait_for_is_reaped_while_it_runs(forked: Forked) -> None:
    """As by init: else a check that waits until its daemon is gone would wait for ever."""
    code = (
        "import os, subprocess, time\n"
        "pid = int(subprocess.check_output('sleep 60 >/dev/null & echo $!', shell=True))\n"
        "os.kill(pid, 9)\n"
        "while os.path.exists(f'/proc/{pid}'): time.sleep(0.01)\n"
    )
    end = forked(code, timeout=10.0)
    assert (end.returncode, end.death) == (0, None)
    assert forked.server and forked.server.alive


def test_a_server_that_says_nothing_is_not_waited_for_always(forked: Forked, monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit of the check's runs before it is forked."""
    monkeypatch.setattr("runner.workers.commands.FORK_SECONDS", 0.5)
    server = forked.start()
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(CannotJudge, match="ended while a check ran"):
        forked("print('fine')")
    assert not server.alive


def test_what_an_interpreter_changes_in_its_environment_is_changed_for_each_check(forked: Forked) -> None:
    """Without a locale it sets LC_CTYPE for itself and for what it starts; what is imported may set more."""
    (forked.folder / "heavy.py").write_text("import os\nos.environ['SET'] = 'yes'\nos.environ.pop('TAKEN', None)\n")
    bare = {name: text for name, text in ENVIRONMENT.items() if not name.startswith(("LC_", "LANG"))}
    env = {**bare, "TAKEN": "1", "SET": "no"}
    settings: dict[str, Any] = {"cwd": forked.folder, "env": env, "guardian": forked.guardian}
    forked.server = ForkServer(sys.executable, "check.py", ["heavy"], **settings)
    said = []
    for plain in (True, False):
        code = "import heavy, os\nprint([(n, os.environ.get(n)) for n in ('LC_CTYPE', 'SET', 'TAKEN', 'OWN')])"
        assert forked(code, plain=plain, env={**env, "OWN": "2"}).returncode == 0
        said.append(forked.said)
    assert said[0] == said[1]
    assert "('SET', 'yes'), ('TAKEN', None), ('OWN', '2')" in said[0]


def test_what_cannot_start_is_said_and_the_server_goes_on(forked: Forked, tmp_path: Path) -> None:
    assert "folder" in str(forked("", cwd=tmp_path / "nowhere").cannot_start)
    assert "null byte" in str(forked("", "1\0").cannot_start)
    ends = [forked("", plain=plain, script="gone.py") for plain in (True, False)]
    assert [end.returncode for end in ends] == [2, 2] and "can't open file" in forked.said
    assert forked("import sys; sys.exit(4)").returncode == 4


def test_modules_are_imported_once_and_each_check_has_a_state_of_its_own(forked: Forked) -> None:
    (forked.folder / "heavy.py").write_text("print('imported', flush=True)\nSEEN = []\n")
    forked.start("heavy")
    for _ in range(3):
        assert forked("import heavy; heavy.SEEN.append(1); print(heavy.SEEN)").returncode == 0
        assert forked.said == "[1]\n"


def test_checks_draw_other_random_numbers(forked: Forked) -> None:
    pytest.importorskip("numpy")
    forked.start("random", "numpy.random")
    drawn = set()
    for _ in range(3):
        forked("import random, numpy; print(random.random(), numpy.random.rand())")
        drawn |= set(forked.said.split())
    assert len(drawn) == 6


@pytest.mark.parametrize(
    ("module", "code", "words"),
    [
        ("no_such_module", None, "cannot import no_such_module: ModuleNotFoundError"),
        ("broken", "print('so far so good')\n1 / 0", "cannot import broken: ZeroDivisionError: division by zero"),
        ("leaves", "import sys; sys.exit(3)", "cannot import leaves: SystemExit: 3"),
        ("dies", "import os; print('now', flush=True); os.abort()", "ended while it imported them (death MEMORY)"),
        (
            "threads",
            "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "importing threads starts a thread",
        ),
        (
            "waits",
            "import atexit, os\nOWNER = os.getpid()\natexit.register(lambda: OWNER == os.getpid() or os.abort())",
            "a process that is forked from there does not end as it should: it is killed by signal 6",
        ),
        ("helpers", "import subprocess; P = subprocess.Popen(['sleep', '60'])", "importing helpers starts a process"),
    ],
)
def test_what_cannot_be_imported_is_one_error(forked: Forked, module: str, code: str | None, words: str) -> None:
    if code:
        (forked.folder / f"{module}.py").write_text(code)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(UsageError) as raised:
        forked.start("json", module)
    said = str(raised.value)
    assert words in said and f"checker.preload=[json, {module}]" in said and "leave checker.preload out" in said
    assert ("so far so good" in said) == (module == "broken")
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert not [child for child in left if "guardian.py" not in " ".join(child.cmdline())]


def test_an_interpreter_that_is_none(forked: Forked) -> None:
    for python, words in (("no-python-here", "cannot start"), ("true", "ended while it imported them (exit 0)")):
        with pytest.raises(UsageError, match=r"checker\.preload") as raised:
            ForkServer(python, "c.py", ["json"], cwd=forked.folder, env=ENVIRONMENT, guardian=forked.guardian)
        assert words in str(raised.value)


HANGS = (
    "import os, subprocess, sys, time\n"
    "for new in (False, True):\n"
    "    print(subprocess.Popen(['sleep', '600'], start_new_session=new).pid, flush=True)\n"
    "print(os.getpid(), flush=True)\n"
    "open('started', 'w').close()\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "forked"])
def test_timeout_kills_descendants_too(forked: Forked, plain: bool) -> None:
    forked.start()
    end = ended_late(lambda seconds: forked(HANGS, timeout=seconds, plain=plain), forked.folder / "started")
    assert end.death == "timeout" and end.returncode is None
    pids = [int(line) for line in forked.said.split()]
    assert len(pids) == 3 and all(gone(pid) for pid in pids)
    assert forked("").returncode == 0


def test_memory_is_that_of_the_check_and_not_of_its_server(forked: Forked) -> None:
    (forked.folder / "heavy.py").write_text("DATA = b'x' * (150 << 20)\n")
    forked.start("heavy")
    # what was imported before counts as often as in a plain run: once
    end = forked("import heavy, time; time.sleep(0.2)", memory_mb=280)
    assert end.returncode == 0 and 150 < end.peak_rss_mb < 280
    end = forked("import heavy, time; more = b'x' * (200 << 20); time.sleep(600)", memory_mb=280)
    assert end.death == "memory" and end.returncode is None and end.peak_rss_mb > 280
    assert forked("").returncode == 0


def test_a_check_that_ends_its_server_is_one_error_and_leaves_nothing(forked: Forked) -> None:
    server = forked.start()
    code = "import os, subprocess, signal, time\nP = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    code += "print(P.pid, os.getpid(), flush=True)\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)\n"
    with pytest.raises(CannotJudge, match=r"fork server of checker.preload .* ended while a check ran \(death KILL\)"):
        forked(code)
    assert not server.alive
    assert all(gone(int(pid)) for pid in forked.said.split())


def test_all_checks_can_be_killed_from_outside_and_the_server_stays(forked: Forked) -> None:
    server = forked.start()
    killer = threading.Timer(0.2, forked.guardian.kill)
    killer.start()
    end = forked("import time; time.sleep(60)")
    killer.join()
    assert end.death == "death KILL"
    assert forked("").returncode == 0 and server.alive


_JOB = """
import os, sys
from pathlib import Path
from runner.workers.commands import run_command
from runner.workers.guardian import Guardian
from runner.workers.commands import ForkServer
folder, env = Path(sys.argv[1]), dict(os.environ)
with Guardian() as guardian:
    server = ForkServer(sys.executable, "check.py", ["json"], cwd=folder, env=env, guardian=guardian)
    run_command([sys.executable, "check.py"], cwd=folder, env=env, timeout=None, memory_mb=None,
                log=folder / "log", guardian=guardian, server=server)
"""
_BUSY = (
    "import os, subprocess, time\n"
    "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "forked = os.fork()\n"
    "if not forked:\n"
    "    os.setsid()\n"
    "    time.sleep(600)\n"
    "open('pids.part', 'w').write(f'{os.getpid()} {os.getppid()} {child.pid} {forked}')\n"
    "os.rename('pids.part', 'pids')\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_job_leaves_no_orphan(tmp_path: Path, number: int) -> None:
    (tmp_path / "check.py").write_text(_BUSY)
    job = subprocess.Popen([sys.executable, "-c", _JOB, str(tmp_path)], stderr=subprocess.DEVNULL)
    pids = [int(pid) for pid in written(tmp_path / "pids", job).split()]
    pids += [child.pid for child in psutil.Process(job.pid).children()]
    job.send_signal(number)
    job.wait()
    assert len(pids) >= 6 and all(gone(pid) for pid in pids)


def test_a_lease_is_held_by_the_check_and_by_nobody_after_it(house: Make, forked: Forked, tmp_path: Path) -> None:
    here = house(ONE, mode=LeaseMode.gpu)
    locks = tmp_path / "locks"
    code = (
        "import os, sys, time\n"
        "number = os.environ['WINNOW_LEASE'].rpartition(':')[2]\n"
        f"held = os.readlink('/proc/self/fd/' + number).startswith({str(locks)!r})\n"
        "print(os.getpid(), os.environ['CUDA_VISIBLE_DEVICES'], held, os.get_inheritable(int(number)), number)\n"
        "open('there', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
    )
    with here.pool.user_lease() as lease:
        assert lease
        ends: list[CommandEnd] = []
        number = lease.fds[0]
        thread = threading.Thread(target=lambda: ends.append(forked(code, lease=lease)))
        thread.start()
        assert soon((forked.folder / "there").exists)
        assert not free(tmp_path, ONE)
        assert soon(lambda: not lease.fds)  # the job gives its own up once the check has started
        (forked.folder / "go").touch()
        thread.join()
    assert ends[0].returncode == 0
    pid, seen, held, inheritable, other = forked.said.split()
    assert int(other) != number
    assert int(pid) != os.getpid() and (seen, held, inheritable) == (ONE, "True", "True")
    assert soon(lambda: free(tmp_path, ONE))


def test_a_check_that_is_killed_before_it_runs_is_killed_at_once(forked: Forked) -> None:
    """Its group is what is killed, so the group has to be there as soon as its number is known."""
    late = "import os, time\nos.register_at_fork(after_in_child=lambda: time.sleep(0.5))\n"
    (forked.folder / "late.py").write_text(late)
    server = forked.start("late")
    forked.script.write_text("import time\ntime.sleep(600)\n")
    with forked.log.open("wb") as log:
        words = [sys.executable, "check.py"]
        check = server.fork(words, cwd=forked.folder, env=ENVIRONMENT, log=log.fileno(), lease=None)
    os.killpg(check.pid, signal.SIGKILL)
    check.wait()
    assert server.alive
