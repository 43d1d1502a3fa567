"""What goes wrong around a run is one line, and nothing is lost by it."""

from __future__ import annotations

import errno
import logging
import os
import signal
from pathlib import Path

import onnx
import pytest

from runner import api, files
from runner.cli import logs, signals
from runner.exit_codes import UsageError
from runner.schema.checker import CommandChecker
from runner.schema.root import LogSettings
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
    files.write_line(descriptor, b'{"first": 1}\n')
    full = True
    with pytest.raises(OSError, match="No space left"):
        files.write_line(descriptor, b'{"second": 2}\n')
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


def reduced(tmp_path: Path, body: str) -> tuple[str, ...]:
    """The words of a reduction whose check is ``body``."""
    check = by_command(check_script(tmp_path, body))
    return "strategy=reduce", f"model={chain(tmp_path / 'net.onnx', 4)}", *check


def test_a_check_that_removes_the_journal_is_named(tmp_path: Path) -> None:
    journal = str(tmp_path / "run" / "journal.jsonl")
    removes = f"import os\nos.path.exists({journal!r}) and os.remove({journal!r})\nsys.exit(1)"
    run = winnow(*reduced(tmp_path, removes), folder=tmp_path / "run")
    assert run.code == 1
    assert "journal.jsonl is gone: something, perhaps the check, moved or removed it" in run.output
    assert "This is a bug" not in run.output


def test_a_folder_that_is_gone_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match="is gone"):
        api.reduce(tmp_path / "net.onnx", check=["true", "{model}"])


def test_a_check_that_renames_the_folder_is_named_and_the_run_goes_on_there(tmp_path: Path) -> None:
    run, moved = str(tmp_path / "run"), str(tmp_path / "moved")
    body = f"import os\nos.path.isdir({moved!r}) or len(names) < 3 and os.rename({run!r}, {moved!r})\n"
    words = reduced(tmp_path, f"{body}sys.exit(1 if 'n2' in names else 0)")
    ended = winnow(*words, folder=tmp_path / "run")
    assert ended.code == 1, ended.output
    assert f"{run} is gone: something, perhaps the check, moved or removed it" in ended.output
    assert "This is a bug" not in ended.output
    again = winnow(*words, f"resume={moved}", folder=tmp_path / "moved")
    assert (again.code, again.result["culprits"]) == (0, ["n2"]), again.output


@pytest.mark.parametrize(("at", "strategy", "code"), [("input", "reduce", 3), ("output", "inspect", 0)])
def test_a_type_that_no_onnx_knows_is_the_models_own(tmp_path: Path, at: str, strategy: str, code: int) -> None:
    model = onnx.load(chain(tmp_path / "net.onnx", 4))
    getattr(model.graph, at)[0].type.tensor_type.elem_type = 2**31 - 1
    (tmp_path / "odd.onnx").write_bytes(model.SerializeToString())
    run = winnow(f"strategy={strategy}", f"model={tmp_path / 'odd.onnx'}", folder=tmp_path / strategy)
    assert run.code == code, run.output
    assert "2147483647" in run.output
    assert "This is a bug" not in run.output


def test_a_line_that_a_full_disk_loses_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.raiseExceptions, list(logging.getLogger().handlers)
    full = open("/dev/full", "w")  # noqa: PTH123, SIM115
    try:
        logs.configure(LogSettings(), logs.levels("info"))
        logging.StreamHandler(full).handle(logging.LogRecord("runner", logging.ERROR, "", 0, "lost", None, None))
        assert "Logging error" not in capsys.readouterr().err
    finally:
        logging.raiseExceptions, logging.getLogger().handlers[:] = before
        with pytest.raises(OSError, match="No space left"):
            full.close()
