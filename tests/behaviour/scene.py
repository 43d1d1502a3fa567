"""A folder in which a golden run is made, and the text that is kept of it."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx.parser

from tests.behaviour import seen
from tests.fork_server import run_forked
from tests.harness import ROOT, check_script

#: what decides how wide and how colored a screen is
_SCREEN = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "FORCE_COLOR": "", "TTY_COMPATIBLE": "0"}
_TIMEOUT = 240


@dataclass
class Scene:
    """Runs commands in one folder, and writes down what a user sees of each.

    ``rtx``: returns an interpreter with TensorRT for RTX, or skips the test.
    """

    here: Path
    rtx: Callable[[], str]
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All that was seen."""
        return "\n".join(self.parts) + "\n"

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.here / name).parent.mkdir(parents=True, exist_ok=True)
        (self.here / name).write_text(text)

    def model(self, text: str, name: str = "net.onnx") -> None:
        """Write a model that is given in ONNX's own text form."""
        (self.here / name).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(onnx.parser.parse_model(text), str(self.here / name))

    def check(self, body: str, *more: str, name: str = "check.py") -> tuple[str, ...]:
        """Write a check that knows the names and kinds of a candidate's nodes; return the words that ask for it."""
        check_script(self.here, body, name)
        words = shlex.join([sys.executable, "-I", "-S", name])
        return ("checker=command", f"checker.command='{' '.join([words, '{model}', *more])}'")

    def winnow(
        self,
        *words: str,
        folder: str = "run",
        shows: str = "screen result journal files",
        within: str = ".",
        environment: Mapping[str, str] | None = None,
        script: str = "",
        typed: str = "",
    ) -> int:
        """Run a command as a user types it and return its exit code.

        ``folder``: of the results; "": the command is about none. ``shows``: the parts that are written down.
        ``within``: the folder in which the user stands. ``script``: what starts Winnow with a part of it broken.
        ``typed``: the answers of a person at a terminal.
        """
        own = (f"hydra.run.dir={folder}",) if folder and "hydra.sweep" not in " ".join(words) else ()
        variables = {**os.environ, **_SCREEN, **(environment or {})}
        if script or typed:
            start = [script] if script else ["-m", "runner"]
            done = self._started([*start, *words, *own], {**variables, "PYTHONPATH": str(ROOT)}, typed)
        else:
            argv = [sys.executable, "-m", "runner", *words, *own]
            done = run_forked(argv, cwd=self.here / within, env=variables, timeout=_TIMEOUT, merged=True)
        return self.saw(shlex.join(["winnow", *words]), done.returncode, done.stdout, within, folder, shows)

    def saw(self, command: str, code: int, screen: str, within: str, folder: str, shows: str) -> int:
        """Write down what a command left; return its exit code."""
        self.parts.append(f"$ {self.plain(command)}")
        if "screen" in shows:
            self.parts += [line.rstrip() for line in self.plain(screen).rstrip().splitlines()]
        self.parts += [f"exit {code}", ""]
        left = self.here / within / folder
        for path in left.rglob("result.json") if folder else ():
            seen.RESULT.validate(json.loads(path.read_text()))
        for name, part in (
            ("result", lambda: seen.result(left, self.here)),
            ("journal", lambda: seen.journal(left, self.here)),
            ("report", lambda: self.plain((left / "REPORT.md").read_text().rstrip())),
            ("files", lambda: seen.files(left)),
        ):
            if folder and name in shows.split() and left.is_dir():
                self.parts += [f"--- {name}", part(), ""]
        return code

    def plain(self, text: str) -> str:
        """Return a text without what differs from machine to machine."""
        return seen.plain(text, self.here)

    def python(self, body: str) -> None:
        """Run a program of the user's and write down what it prints."""
        self.write("ask.py", body)
        done = self._started(["ask.py"], {**os.environ, **_SCREEN, "PYTHONPATH": str(ROOT)})
        self.saw("python ask.py", done.returncode, f"{body}\n{done.stdout}", ".", "", "screen")

    def _started(
        self, words: Sequence[str], environment: Mapping[str, str], typed: str = ""
    ) -> subprocess.CompletedProcess[str]:
        keyboard, terminal = pty.openpty()
        try:
            os.write(keyboard, typed.replace(" ", "\n").encode() + b"\n" * bool(typed))
            return subprocess.run(
                [sys.executable, *words],
                cwd=self.here,
                env=environment,
                stdin=terminal if typed else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=_TIMEOUT,
            )
        finally:
            os.close(keyboard)
            os.close(terminal)


Golden = Callable[[Scene], None]
GOLDEN: dict[str, Golden] = {}
"""The golden runs by name; the name is that of the file of what was seen."""


def golden(run: Golden) -> Golden:
    """Have a function run as a golden run."""
    GOLDEN[run.__name__] = run
    return run
