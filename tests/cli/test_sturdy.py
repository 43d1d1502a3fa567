"""What goes wrong around a run is one line, and nothing is lost by it."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from runner import api, files
from runner.cli import signals
from runner.errors import UsageError
from runner.journal import journal
from runner.schema.checker import CommandChecker
from tests.chain_models import chain
from tests.harness import by_command, check_script, winnow


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_queues_warning_ends_a_run_as_sigterm_does(number: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(signals.Terminated), signals.terminable():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_warning_that_somebody_else_handles_stays_theirs() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
    try:
        with signals.terminable() as arrived:
            os.kill(os.getpid(), signal.SIGUSR1)
        assert (heard, arrived) == ([signal.SIGUSR1], [])
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"A": "x\0y"}, {"A\0": "x"}, {"": "x"}])
def test_variables_that_no_process_can_have(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"checker\.env"):
        CommandChecker(command=["true"], env=env)


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(tmp_path / "journal", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    write, full = os.write, False

    def short(fd: int, content: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, bytes(content)[:3])

    monkeypatch.setattr(os, "write", short)
    journal.write_line(descriptor, b'{"first": 1}\n')
    full = True
    with pytest.raises(OSError, match="No space left"):
        journal.write_line(descriptor, b'{"second": 2}\n')
    os.close(descriptor)
    assert (tmp_path / "journal").read_text() == '{"first": 1}\n'


def test_a_disk_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="Input/output error") as caught:
        files.write_text(tmp_path / "REPORT.md", "text")
    assert caught.value.filename == str(tmp_path / "REPORT.md")
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_removes_the_journal_is_named(tmp_path: Path) -> None:
    journal = str(tmp_path / "run" / "journal.jsonl")
    removes = f"import os\nos.path.exists({journal!r}) and os.remove({journal!r})\nsys.exit(1)"
    check = by_command(check_script(tmp_path, removes))
    run = winnow("strategy=reduce", f"model={chain(tmp_path / 'net.onnx', 4)}", *check, folder=tmp_path / "run")
    assert run.code == 1
    assert "journal.jsonl is gone: something, perhaps the check, removed it" in run.output
    assert "This is a bug" not in run.output


def test_a_folder_that_is_gone_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match="is gone"):
        api.reduce(tmp_path / "net.onnx", check=["true", "{model}"])
