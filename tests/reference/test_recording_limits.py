"""The memory and the disk that recorded values may take, as a user says it."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from runner.cli.check_given import check_given
from runner.disk_space import MEMORY, recording_limits
from runner.exit_codes import UsageError
from runner.schema.root import CutSettings, RecordMode
from tests.cli.test_cli import settings


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1000", 1000), ("3k", 3 << 10), ("512M", 512 << 20), ("2 GiB", 2 << 30), ("1tb", 1 << 40)],
)
def test_a_number_with_a_unit(text: str, size: int, tmp_path: Path) -> None:
    found = recording_limits(CutSettings(memory=text, disk=text), tmp_path)
    assert (found.memory, found.disk, found.lazy) == (size, size, False)


@pytest.mark.parametrize("text", ["plenty", "-1", "1.5G", "1PB", "", "1e3", "٣", "9" * 30])
@pytest.mark.parametrize("key", ["memory", "disk"])
def test_a_size_without_sense_is_refused_before_any_work(key: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"^cut.{key}=.*give bytes, or a number with a unit: cut.{key}=512M"):
        check_given(settings(cut=CutSettings(**{key: text})))


@pytest.mark.parametrize(("mode", "all_kept", "lazy"), [
    (RecordMode.auto, False, False), (RecordMode.lazy, False, True), (RecordMode.all, True, False),
])  # fmt: skip
def test_without_sizes_the_machine_says_them(mode: RecordMode, all_kept: bool, lazy: bool, tmp_path: Path) -> None:
    found = recording_limits(CutSettings(record=mode), tmp_path)
    assert 0 < found.memory <= MEMORY
    assert found.lazy is lazy
    assert (found.disk is None) is all_kept
    assert all_kept or 0 < found.disk < shutil.disk_usage(tmp_path).free
    assert recording_limits(CutSettings(record=mode), tmp_path, seldom=True).lazy is not all_kept


def test_a_limit_of_the_process_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits = {resource.RLIMIT_AS: (resource.RLIM_INFINITY, 0), resource.RLIMIT_DATA: (400 << 20, 0)}
    monkeypatch.setattr("resource.getrlimit", limits.__getitem__)
    assert recording_limits(CutSettings(), tmp_path).memory == 100 << 20
