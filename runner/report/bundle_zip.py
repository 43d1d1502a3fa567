"""bundle.zip: one file to attach to a report. What is in it shows the failure where it is unpacked.

Equal contents give equal bytes. The names in it are plain and below one folder; nothing in it is a link.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.files import MOST_BYTES, is_plain, written_whole
from runner.report import check_files
from runner.schema.checker import CheckerSettings

BUNDLE_NAME = "bundle.zip"
MOST_MB = 25
"""What forges take as an attachment. What does not fit is left out, the largest first, and named."""
_TOP = "bundle"
_SCRIPT = "repro.py"
MIXED_YAML = "mixed.yaml"
"""Makes the mixed model of a precision run from the original (see `mixed_bundle`)."""
_REPORT = "REPORT.md says what was found, and on what."
_RUN = """{first} shows the failure:

    python repro.py

It says in its first lines what has to be installed. Exit status: 1 the failure shows, 0 it does not, 2 it cannot be
told here (the reason is printed).
"""
_MAKE = """The mixed-precision model is not here, as it has all weights of the original. With that beside this file:

    winnow mixed.yaml

makes it again, and checks it. The first lines of mixed.yaml name the original, and what else it needs.
"""
_MODELS = """Files whose names end in .onnx are models; test_data_set_N holds the inputs, and the outputs that were
expected, as ONNX keeps them.
"""
_CHECK = """check/ holds files of the check that was run, as its author wrote them: {names}.
What these read, source or start besides, and packages that they import, was not looked for.
"""


@dataclass(frozen=True)
class Contents:
    """``files``: by their names in the archive. ``left_out``: by the same names, with their size in bytes.

    ``not_taken``: files of the check that are not handed on (see `check_files`), as it names them.
    """

    files: Mapping[str, Path]
    left_out: Mapping[str, int]
    not_taken: Sequence[str] = ()

    @property
    def told(self) -> str:
        """Say what is missing; "" where nothing is."""
        each = ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in self.left_out.items())
        large = f"left out, as the archive would be larger than {MOST_MB} MB: {each}" if each else ""
        check = f"not handed on, though the check names it: {', '.join(self.not_taken)}" if self.not_taken else ""
        return "; ".join(filter(None, (large, check)))

    @property
    def of_user(self) -> list[str]:
        """Name the user's own files that go along."""
        return [name for name in self.files if name.startswith(f"{check_files.FOLDER}/")]

    def readme(self, written: Collection[str]) -> str:
        """Return what README.txt says. ``written``: the names of what is written for the archive."""
        lacks = f"Missing here: {self.told}. Ask whoever sent this.\n" if self.told else ""
        names = ", ".join(name.partition("/")[2] for name in self.of_user)
        first = "With what is named below," if lacks else "This"
        how = _RUN.format(first=first) if _SCRIPT in written else ""
        how = _MAKE if MIXED_YAML in written else how
        models = _MODELS if any(name.endswith(".onnx") for name in self.files) else ""
        check = _CHECK.format(names=names) if names else ""
        return "\n".join(filter(None, [f"{_REPORT}\n", how, lacks, models, check]))


def contents(folder: Path, named: Sequence[str], checker: CheckerSettings, cwd: Path, most: int = MOST_MB) -> Contents:
    """Return what goes in besides what is written for it: ``named`` files, data sets, the check's files.

    ``named``: names in ``folder``, models with their weights; ``cwd``: where the user stands.
    """
    names = [name for model in named for name in (model, *sorted(path.name for path in folder.glob(f"{model}.data*")))]
    data = sorted(folder.glob("test_data_set_[0-9]*/*.pb"))
    found = {name: folder / name for name in names if Path(name).name == name}
    found |= {path.relative_to(folder).as_posix(): path for path in data}
    found = {name: path for name, path in found.items() if is_plain(path) and not path.is_symlink()}
    copies = check_files.handed_on(checker, cwd)
    found |= {f"{check_files.FOLDER}/{name}": path for path, name in copies.items()}
    sizes = {name: path.stat().st_size for name, path in found.items()}
    left: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if sum(sizes.values()) - sum(left.values()) <= most * 10**6:
            break
        left[name] = sizes[name]
    files = {name: found[name] for name in sorted(found.keys() - left.keys())}
    return Contents(files, left, check_files.left_behind(checker, cwd))


def write_zip(folder: Path, held: Contents, texts: Mapping[str, str]) -> None:
    """Write ``bundle.zip`` into ``folder``, atomically. ``texts``: more files, by name. Raises OSError."""
    said = {**texts, "README.txt": held.readme(texts)}
    with written_whole(folder / BUNDLE_NAME) as part, zipfile.ZipFile(part, "x", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted([*said, *held.files]):
            entry = zipfile.ZipInfo(f"{_TOP}/{name}")  # of 1980: when it was written says nothing
            runs = name in held.files and os.access(held.files[name], os.X_OK)
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            if name in said:
                archive.writestr(entry, said[name].encode("utf-8", "backslashreplace"))
                continue
            with held.files[name].open("rb") as source, archive.open(entry, "w", force_zip64=False) as target:
                shutil.copyfileobj(source, target, MOST_BYTES)
