"""Every command and piece of code in the README and in docs/ works as it stands, or says why it cannot be run here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.conftest import CI
from tests.docs.blocks import ELSEWHERE, Block, blocks, shown
from tests.docs.scene import BEFORE, prepare
from tests.fork_server import run_forked
from tests.harness import ROOT
from tests.jobs.optimizer_defect import defective, loads

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {page.relative_to(ROOT).as_posix(): list(blocks(page, ROOT)) for page in PAGES}
#: pages whose runs take more than a second or two
_NAMES = (
    "accuracy bugs checks configurations continuous-integration converted costs from-polygraphy index inspect "
    "layerwise passes precision python reduce sweeps tactics tensorrt triage troubleshooting tutorial "
    "what-a-run-leaves workarounds"
)
LONG = {"README.md", *(f"docs/{name}.md" for name in _NAMES.split())}
_SHELL = ("sh", "bash", "console")


class Shell:
    """Runs what a page says in one folder, as a user would type it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = list[Block]()
        self.printed = ""
        programs = folder.parent / "bin"
        programs.mkdir()
        for name, words in (("winnow", "-m runner"), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
            (programs / name).chmod(0o755)
        rest = {name: text for name, text in os.environ.items() if not name.startswith("WINNOW")}
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {**rest, "PATH": path, "HOME": str(folder.parent)}

    def words(self, command: str) -> list[str]:
        """As bash splits and expands them."""
        echoed = self.bash(f"printf '%s\\0' {command}")
        assert echoed.returncode == 0, echoed.stderr
        return echoed.stdout.split("\0")[:-1]

    def bash(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", text], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def winnow(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "runner", *words]
        return run_forked(argv, cwd=self.folder, env=self.environment, timeout=300, merged=True)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        alone = (
            command.startswith("winnow ")
            and " > " not in command
            and command in Block("", 0, "sh", "", "", (), command).commands()
        )
        done = self.winnow(*self.words(command)[1:]) if alone else self.bash(command)
        self.printed += _said(done)
        return done

    def python(self) -> None:
        """Run what a page says in Python, each piece after the one before."""
        if self.session:
            (self.folder / "session.py").write_text("\n".join(block.text for block in self.session))
            _confirm(self.bash("python session.py"), 0, self.session[0].page, "its Python, in order")

    def compose(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return self.winnow("--cfg", "job", *words)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.stdout or ''}{done.stderr or ''}"


def _confirm(done: subprocess.CompletedProcess[str], code: int, where: str, command: str) -> None:
    said = _said(done)[-3000:]
    assert done.returncode == code, f"{where}: {command}\nends with {done.returncode}, not {code}\n{said}"


def _run_commands(block: Block, shell: Shell) -> None:
    codes = list(map(int, block.words)) if block.mark == "exits" else []
    shell.printed = ""
    for command in block.commands():
        _confirm(shell.run(command), codes.pop(0) if codes else 0, block.place, command)


def _confirm_printed(block: Block, shell: Shell) -> None:
    """Hold a block against what the commands before it printed, or what the command in its mark does."""
    if block.words:
        shell.printed = ""
        _confirm(shell.run(" ".join(block.words)), 0, block.place, " ".join(block.words))
    said = shell.printed.replace("python -m runner", "winnow")
    assert shown(block.text, said), f"{block.place}: what is printed is\n{said}"


def _execute(block: Block, shell: Shell) -> None:
    if block.title:
        file = shell.folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)
    if block.mark == "quoted":
        assert block.text.strip() in (ROOT / block.words[0]).read_text(), block.place
    elif block.mark == "prints":
        _confirm_printed(block, shell)
    elif block.mark == "settings":
        for line in block.commands():
            _confirm(shell.compose(["net.onnx", *shell.words(line)]), 0, block.place, line)
    elif block.language in _SHELL and not block.title:  # a file is run by a later block
        _run_commands(block, shell)
    elif block.language in _SHELL:
        _confirm(shell.bash(f"bash -n {block.title}"), 0, block.place, block.title)
    elif block.language == "python":
        compile(block.text, block.place, "exec")
        if not block.title:
            shell.session.append(block)
    elif block.language == "yaml":
        assert yaml.safe_load(block.text), block.place
        if block.title.endswith(".yaml"):
            _confirm(shell.compose([block.title]), 0, block.place, block.title)
    else:
        raise AssertionError(f"{block.place}: say what this is: a language that runs, or one of the marks")


@pytest.fixture(scope="module", autouse=True)
def _defect(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The model that the docs call net.onnx fails by a defect of ONNX Runtime."""
    if loads(defective(tmp_path_factory.mktemp("probe") / "net.onnx", behind="Exp")):
        missing = "this ONNX Runtime lacks the defect by which net.onnx fails: give tests/docs/scene.py another"
        (pytest.fail if os.environ.get(CI) else pytest.skip)(missing)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in LONG else ()) for page in BLOCKS if BLOCKS[page]]
)
def test_what_a_page_says_works(page: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    shell = Shell(prepare(tmp_path / "here"))
    for command in BEFORE.get(page, ()):
        _confirm(shell.run(command), 0, page, command)
    for block in BLOCKS[page]:
        if block.runs:
            _execute(block, shell)
        elif block.mark in ("gpu", "network"):  # its keys are still ours to keep
            for command in block.commands():
                if command.startswith("winnow ") and " -m " not in command:
                    _confirm(shell.compose(shell.words(command)[1:]), 0, block.place, command)
    shell.python()


def test_each_block_runs_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    """No block is skipped silently. Prints how many there are of each kind."""
    every = [block for page in BLOCKS.values() for block in page]
    kinds = Counter("run" if block.mark in ("", "exits") else block.mark for block in every)
    with capsys.disabled():
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        sys.stdout.write(f"\n{len(every)} blocks of the docs: {counts}\n")
    ran = [block for block in every if block.runs]
    assert len(ran) + sum(kinds[mark] for mark in (*ELSEWHERE, "output")) == len(every)
    text = [block for block in ran if block.language not in (*_SHELL, "python", "yaml")]
    unknown = [block.place for block in text if not block.words and block.mark != "prints"]
    assert not unknown, f"neither a language that runs nor a mark: {unknown}"
    indented = [block.place for block in every if not block.language]
    assert not indented, f"code without a fence, or without a language: {indented}"


def test_what_a_block_shows_is_held_against_what_was_printed() -> None:
    printed = """INFO [1] FAIL in 0.31 s
found: a (1 of 4 nodes)
  checks   3 search; 1.2 s in all
  open  outputs/2026-02-03/04-05-06-700000/x"""
    assert shown("found: a (1 of 4\nnodes)\n  checks 3 search; 9 s in all\n", printed)
    assert shown("FAIL in 2 s\n...\nopen outputs/2026-01-31/12-00-00-000000/x", printed)
    assert not shown("found: a (1 of 5 nodes)", printed)
    assert not shown("checks 4 search", printed)
    assert not shown("found: a ...\nINFO", printed)  # not in that order
