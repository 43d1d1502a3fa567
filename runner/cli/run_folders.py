"""Folders of runs: the one that a run claims, and the link to the latest.

The folder that a run writes into, and the one that it stands in.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner import run_folder
from runner.exit_codes import UsageError
from runner.run_folder import Marker
from runner.text import one_line, program_name

#: what names the folder: of a run, of a sweep's job
KEYS = ("hydra.run.dir", "hydra.sweep.dir")
#: what Hydra has written before a job begins
_OF_HYDRA = frozenset({".hydra", "winnow.log", run_folder.NAME})
_SHOWN, _LONGEST_SHOWN = 8, 200


class FolderTakenError(UsageError):
    """The run's folder is not free; nothing may be written there, not even a result."""


class AtWorkError(FolderTakenError):
    """Another run or sweep has the folder."""


def claim(folder: Path, *, key: str, sweep: bool = False) -> None:
    """Make ``folder`` a run's (a ``sweep``'s), before anything is written there; ``key``: what named it.

    Raises FolderTakenError if it holds files that are no run's and that a run would write over.
    """
    _refuse_name(folder, key)
    _refuse_foreign(folder, key, frozenset(), sweep=sweep)
    if run_folder.read(folder) is None:
        with making(folder):
            run_folder.write(folder, Marker(running=False))


@contextmanager
def making(folder: Path) -> Iterator[tuple[Path, ...]]:
    """Make ``folder`` where it is not there, and those above it; an exception in the block takes them away again.

    The value: what was made, innermost first. What another run made meanwhile is not of it, and what another run has
    taken stays.
    """
    made: list[Path] = []
    try:
        for path in [path for path in (folder, *folder.parents) if not os.path.lexists(path)][::-1]:
            with suppress(FileExistsError):  # another run was first, or it leads through ".."
                path.mkdir(parents=True)
                made.insert(0, path)
        folder.mkdir(parents=True, exist_ok=True)  # raises where it is a file
        yield tuple(made)
    except AtWorkError:
        raise
    except BaseException:
        if folder in made:  # else what lies in it is somebody's
            with suppress(OSError):
                (folder / run_folder.NAME).unlink()
        unmake(made)
        raise


def unmake(made: Iterable[Path]) -> None:
    """Remove folders that were made, innermost first; one in which something lies stays, and so do those above it."""
    for path in made:
        with suppress(OSError):
            path.rmdir()


def _refuse_name(folder: Path, key: str) -> None:
    """Refuse what Hydra would take for an interpolation, what no command can be copied with, and what no runtime takes.

    Those take names in UTF-8, and Python must read them so (not with LC_ALL=C and PYTHONUTF8=0).
    """
    name = str(folder.absolute())
    if "${" in name or "\n" in name or re.search(r"[\ud800-\udfff]", name):
        raise FolderTakenError(
            f"{name!a}: a folder's name has no ${{, no line break and only characters of UTF-8. Give another: "
            f"{key}=FOLDER"
        )


@contextmanager
def holding(folder: Path, *, sweep: bool = False) -> Iterator[frozenset[str]]:
    """Have ``folder`` for this run alone; the lock goes with the process, however that ends. ``sweep``: it is a job.

    The value are the names in it that are not a run's. Raises FolderTakenError if another run is at work in it, or if
    it holds files that are no run's and that a run would write over.
    """
    descriptor = lock(folder, "run", KEYS[sweep])
    try:
        _refuse_foreign(folder, KEYS[sweep], _OF_HYDRA)
        ours = run_folder.own(folder)
        run_folder.drop_parts(folder, ours)
        foreign = frozenset(run_folder.present(folder)) - ours - _OF_HYDRA
        run_folder.write(folder, Marker(running=True, wrote=ours))
        try:
            yield foreign
        finally:
            left = frozenset(run_folder.present(folder)) - foreign - {run_folder.NAME}
            with suppress(OSError):  # a full disk: then all that has a run's name counts as its own
                run_folder.write(folder, Marker(running=False, wrote=left))
    finally:
        os.close(descriptor)


def lock(folder: Path, what: str, key: str) -> int:
    """Return the descriptor of the folder, locked for this process; it goes with it, however that ends.

    Raises AtWorkError where another run or sweep (``what``) has the folder, which ``key`` names.
    """
    try:
        return _locked(folder, fcntl.LOCK_EX)
    except BlockingIOError:
        raise AtWorkError(
            f"another {what} is at work in {folder}. Wait for its end, or give this one its own: {key}=FOLDER"
        ) from None


def at_work(folder: Path) -> bool:
    """Whether a process holds the folder."""
    try:
        os.close(_locked(folder, fcntl.LOCK_SH))
    except BlockingIOError:
        return True
    except OSError:  # there is none
        return False
    return False


def _locked(folder: Path, kind: int) -> int:
    """Return the descriptor of the folder with a lock of this kind. Raises BlockingIOError where others have it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:  # a file system that locks no folders
        pass
    return descriptor


def _refuse_foreign(folder: Path, key: str, hydras: frozenset[str], *, sweep: bool = False) -> None:
    """``hydra.run.dir=.`` is all it takes to lose data, where somebody keeps it in a folder called inputs."""
    if sweep:
        found = [] if run_folder.read(folder) else run_folder.named(folder, run_folder.OF_A_SWEEP)
    else:
        own = run_folder.own(folder) | hydras
        found = [name for name in run_folder.named(folder, run_folder.OF_A_RUN) if name not in own]
    if found:
        raise FolderTakenError(
            f"{folder} holds files that are no run's of this version and that this one would write over: "
            f"{', '.join(found[:_SHOWN])}{' ...' if len(found) > _SHOWN else ''}. "
            f"Give it a folder of its own: {key}=FOLDER"
        )
    _refuse_strange(folder, key, sweep=sweep)


def _refuse_strange(folder: Path, key: str, *, sweep: bool = False) -> None:
    strange = [folder / name for name in run_folder.strange(folder, sweep=sweep)]
    if key == KEYS[True] and not sweep and folder.is_symlink():  # a sweep makes the folders of its jobs itself
        strange.append(folder)
    if strange:
        raise FolderTakenError(
            f"{strange[0]} is a link or a pipe, and a run writes and removes in its own folder only. Remove "
            f"it, or give the run another folder: {key}=FOLDER"
        )


def check_resumed(resume: str) -> None:
    """Raise UsageError where ``resume`` names no folder of a run or a sweep."""
    try:
        known = resume.strip() and run_folder.read(Path(resume).expanduser())
    except RuntimeError:  # no such user
        known = None
    if not known:
        raise UsageError(
            f"resume={one_line(resume, _LONGEST_SHOWN)}: this is no folder of a run (it has no {run_folder.NAME}). "
            f"{program_name()} ls lists those that there are. To use verdicts of others, in a new run: "
            "journal.reuse=[FOLDER]"
        )


@contextmanager
def standing_in(folder: str | Path | None) -> Iterator[None]:
    """Run the block with ``folder`` as the current one; None: where the user stands."""
    before = Path.cwd()
    try:
        if folder is not None:
            os.chdir(folder)
        yield
    finally:
        os.chdir(before)


# ``outputs/latest``: a link to the newest run (or sweep) in Winnow's own default place.

OUTPUTS, NAME = "outputs", "latest"
#: a folder as conf/config.yaml names it, below the outputs
_DEFAULT = re.compile(r"\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d-\d{6}(-sweep)?")


def point_to(folder: Path) -> None:
    """Let the link lead to ``folder``, or to the sweep whose job it is, if that lies in the default place.

    That is below where the user stands. A file or link of that name that is not Winnow's stays as it is, and one that
    cannot be made is no loss.
    """
    top = Path.cwd() / OUTPUTS
    folder = next((above for above in folder.parents if run_folder.is_sweep(above)), folder)
    if not folder.is_relative_to(top) or not _DEFAULT.fullmatch(target := folder.relative_to(top).as_posix()):
        return
    link, made = top / NAME, top / f".{NAME}-{os.getpid()}"
    with suppress(OSError):
        before = os.readlink(link) if link.is_symlink() else None  # noqa: PTH115 - as it is written
        if not _DEFAULT.fullmatch(before) if before is not None else link.exists():
            return
        made.symlink_to(target)
        try:
            made.replace(link)  # the link itself: what it led to is not touched
        finally:
            made.unlink(missing_ok=True)
