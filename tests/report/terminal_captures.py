"""What a terminal shows during and after a run of about a minute: captures of tmux, as text.

    python -m tests.report.terminal_captures [--into docs/pictures] [--widths 80 120 200] [--during 35] [--triage]

The run is real: a chain of nodes, two of which make a check fail that takes two seconds. Writes
``terminal-WIDTH-during.txt`` and ``terminal-WIDTH-after.txt``; with ``--triage`` ``triage-WIDTH.txt``, all that a
triage of the example shows, and nothing else. Needs tmux.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chain_models import chain
from tests.harness import LIGHT, ROOT

HEIGHT = 40
NODES, CULPRITS = 150, ("t31", "t90")
CHECK = """
import random, time
time.sleep(random.lognormvariate(0, 0.2) * {seconds})
sys.exit(1 if made.issuperset({culprits}) else 0)
"""
MOST_SECONDS = 300.0


class Tmux:
    """A terminal of this size, in a server of its own. A context manager; its end ends what runs in it."""

    def __init__(self, width: int, height: int, place: Path) -> None:
        self._server = ["tmux", "-S", str(place / f"tmux-{width}"), "-f", "/dev/null"]
        size = ["-x", str(width), "-y", str(height)]
        subprocess.run([*self._server, "new-session", "-d", *size, "sh"], check=True, cwd=place)

    def __enter__(self) -> Tmux:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([*self._server, "kill-server"], check=False)

    def type(self, line: str) -> None:
        """Type a line."""
        subprocess.run([*self._server, "send-keys", "-l", line + "\n"], check=True)

    def resize(self, width: int, height: int) -> None:
        """Give the terminal another size."""
        subprocess.run([*self._server, "resize-window", "-x", str(width), "-y", str(height)], check=True)

    def shown(self, *, colors: bool = False, scrolled: bool = False) -> str:
        """Return what it shows; ``colors``: with their escapes; ``scrolled``: with what has left it at its top."""
        words = [*self._server, "capture-pane", "-p", *(["-e"] if colors else []), *(["-S", "-"] if scrolled else [])]
        text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"

    def waited(self, words: str, seconds: float = MOST_SECONDS) -> str:
        """Return what it shows as soon as that holds these words. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while words not in (text := self.shown()):
            if time.monotonic() > end:
                raise TimeoutError(f"no {words!r} in\n{text}")
            time.sleep(0.1)
        return text


def run_line(place: Path, seconds: float, *more: str) -> str:
    """Return a line that runs Winnow on a model that it makes, with a check that takes so long."""
    model, check = chain(place / "net.onnx", NODES), place / "check.py"
    check.write_text(LIGHT + CHECK.format(seconds=seconds, culprits=set(CULPRITS)))
    argv = json.dumps(["python", "-IS", "check.py", "{model}"])
    words = ["winnow", "strategy=reduce", f"model={model.name}", "checker=command", f"checker.command={argv}", *more]
    return shlex.join(words)


def settled(place: Path) -> str:
    """Return a line after which ``winnow`` and ``python`` are these here, and the prompt is short."""
    program = f'winnow() {{ {shlex.quote(sys.executable)} -m runner "$@"; }}'
    paths = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH PYTHONPATH={shlex.quote(str(ROOT))}"
    return f"export {paths} PS1='$ '; {program}; cd {shlex.quote(str(place))}; clear"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--widths", type=int, nargs="+", default=[80, 120, 200])
    parser.add_argument("--during", type=float, default=35.0, help="seconds after the start")
    parser.add_argument("--seconds", type=float, default=1.4, help="that a check takes")
    parser.add_argument("--triage", action="store_true", help="a triage of the example instead")
    given = parser.parse_args()
    given.into.mkdir(parents=True, exist_ok=True)
    for width in given.widths:
        with tempfile.TemporaryDirectory() as scratch, Tmux(width, HEIGHT, Path(scratch)) as terminal:
            place = Path(scratch) / "work"
            place.mkdir()
            terminal.type(settled(place))
            time.sleep(1)
            if given.triage:
                shutil.copy(ROOT / "examples" / "overflow.onnx", place)
                terminal.type("winnow overflow.onnx hydra.run.dir=run")
                terminal.waited("\n  next ")
                terminal.waited("\n$\n")
                (given.into / f"triage-{width}.txt").write_text(terminal.shown(scrolled=True))
                continue
            terminal.type(run_line(place, given.seconds))
            time.sleep(given.during)
            (given.into / f"terminal-{width}-during.txt").write_text(terminal.shown())
            terminal.waited("\n$\n")  # the prompt is back: all of the last screen is there
            (given.into / f"terminal-{width}-after.txt").write_text(terminal.shown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
