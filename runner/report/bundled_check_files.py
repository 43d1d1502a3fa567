"""The user's own files that a check consists of, as far as they may be handed on: its scripts, and small data beside.

What a check is told of may be anything: models are confidential and large, a token file is neither. So only programs go
along, with what they import that lies beside them, and data that lies where the user stands; models never, nothing of
the system or of an interpreter, and nothing that is hidden or has the name of a key or a secret, also by a link. Of the
files that a run was given besides (``given``: its inputs, say) those are the check's that a program of it names.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from runner.checkers.command_template import Template, imported
from runner.files import is_plain, read_plain
from runner.schema.checker import CheckerSettings, CommandChecker, PythonChecker

FOLDER = "check"
"""The folder of a bundle that they lie in."""
BY_VALUE = "# the function by value:"
"""Below this line of a script that a program's function was written to is what only a worker reads."""
DATA_OPENED = 'open(os.path.join(HERE, {file!r}), "rb")'
"""How such a script opens the data of its function, where that is too large for the script."""
_OPENED = re.compile(re.escape(DATA_OPENED).replace(re.escape("{file!r}"), r"'([\w.-]+)'"))
_OF_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/proc", "/sys")))
_MODELS = frozenset((".onnx", ".ort", ".engine", ".plan", ".trt", ".pt", ".pth", ".ckpt", ".h5", ".tflite", ".gguf"))
_WEIGHTS = frozenset((".data", ".safetensors", ".pb", ".bin", ".weights"))
_TEXT = re.compile(r"""["']([\w.-][\w./-]*)["']""")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_ROUNDS = re.compile(rb"runner\.backends(\.emulation)?(\.rounding\b|\s+import\b[^\n]*\brounding\b)")
_MOST_TEXT = 1 << 18
_MOST_MODULES = 50
# files of keys and passwords by their names; a tokenizer is none
_PRIVATE = re.compile(
    r"\.(pem|key|env|p12|pfx|keystore)$|^id_|token(?!i[sz])|secret|credential|passw(or)?d|^\.", re.IGNORECASE
)
_PRIVATE_FOLDER = re.compile(r"^\.|secret|credential|passw", re.IGNORECASE)
_SECRET_WORD = re.compile(r"(passw(or)?d|token(?!i[sz])|secret|api[_-]?key|credential)", re.IGNORECASE)


def files_named(checker: CheckerSettings, cwd: Path) -> dict[str, Path]:
    """Return the existing files that a check names, by the words that name them; ``cwd``: where the user stands."""
    if isinstance(checker, CommandChecker):
        template = Template(checker.command, cwd, checker.env)
        ours = {cwd / Path(path).expanduser() for path in (checker.place, checker.iteration_info) if path}
        return {word: path for word, path in template.files().items() if path not in ours}
    if isinstance(checker, PythonChecker) and checker.file:
        path = cwd / Path(checker.file).expanduser()
        return {checker.file: path} if is_plain(path) else {}
    return {}


def _programs(named: Mapping[str, Path]) -> list[Path]:
    """Return the files that a check names and that are no data."""
    return [path for word, path in named.items() if word not in Template.data(named)]


def handed_on(checker: CheckerSettings, cwd: Path, given: Sequence[Path] = ()) -> dict[Path, str]:
    """Return which of them go along, and under what name, below `FOLDER`: a relative path of plain characters."""
    named = files_named(checker, cwd)
    data = Template.data(named)
    found: dict[Path, str] = {}
    for word, path in named.items():
        if path not in found and not _foreign(path, cwd) and _fit(path, cwd, data=word in data):
            found[path] = _place(path, cwd, found)
    for path in [one for one in _programs(named) if one in found]:
        for module in imported(path, (path.parent,)).values():  # that lie below the user's folder
            taken = is_plain(module) and _fit(module, cwd, data=True) and not _foreign(module, cwd)
            if taken and module not in found and len(found) < _MOST_MODULES:
                found[module] = _place(module, cwd, found)
    for path in _named_inside(checker, cwd, given):
        place = _below(path, cwd)
        if path not in found and place and _fit(path, cwd, data=True) and str(place) == _place(path, cwd, found):
            found[path] = str(place)  # under another name the script would not find it
    return found


def _named_inside(checker: CheckerSettings, cwd: Path, given: Sequence[Path]) -> list[Path]:
    """Return the files of these that a program of the check names in its text."""
    texts = [read_plain(path, _MOST_TEXT) for path in _programs(files_named(checker, cwd))]
    names = {path: re.compile(rb"(?<![\w.-])" + re.escape(path.name.encode()) + rb"(?![\w.-])") for path in given}
    return [path for path, name in names.items() if is_plain(path) and any(map(name.search, texts))]


def _opened(checker: CheckerSettings, cwd: Path) -> Iterator[Path]:
    """Yield the files below the user's folder whose paths are texts in a program of the check."""
    for program in _programs(files_named(checker, cwd)):
        for text in dict.fromkeys(_TEXT.findall(read_plain(program, _MOST_TEXT).decode("utf-8", "replace"))):
            path = cwd / text
            if path != program and is_plain(path) and _below(path, cwd):
                yield path


def _place(path: Path, cwd: Path, taken: Mapping[Path, str]) -> str:
    """Return under what name a file goes along."""
    place = _below(path, cwd) or PurePosixPath(path.name)
    plain = PurePosixPath(*(_OTHER.sub("_", part).lstrip(".") or "_" for part in place.parts))
    while str(plain) in taken.values():
        plain = plain.with_name(f"_{plain.name}")
    return str(plain)


def _fit(path: Path, cwd: Path, *, data: bool) -> bool:
    """Whether a file may be handed on: judged by its name, and by that of what it links to."""
    target, home = path.resolve(), cwd.resolve()
    if data and not (_below(path, cwd) and _below(target, home)):
        return False
    # the user's folder may itself be below a hidden one
    places = [Path(os.path.relpath(one, start)) for one, start in ((path, cwd), (target, home))]
    folders = {part for place in places for part in place.parts[:-1]} - {".."}
    private = any(_PRIVATE.search(place.name) for place in places) or any(map(_PRIVATE_FOLDER.search, folders))
    unfit = {path.suffix.lower(), target.suffix.lower()} & (_MODELS | _WEIGHTS)
    return not (private or unfit or _is_compiled(path))


def left_behind(checker: CheckerSettings, cwd: Path, given: Sequence[Path] = ()) -> list[str]:
    """Return what a check names besides, as it names it: whoever runs the check elsewhere has to be given it."""
    taken = handed_on(checker, cwd, given)
    named = files_named(checker, cwd).items()
    left = [word.removeprefix(_option(word)) for word, path in named if path not in taken and not _foreign(path, cwd)]
    of_functions = [(name, path) for path, name in taken.items() if isinstance(checker, PythonChecker)]
    opened = (*_named_inside(checker, cwd, given), *_opened(checker, cwd))
    inside = [str(_below(path, cwd) or path.name) for path in opened if path not in taken]
    return [
        *dict.fromkeys([*left, *inside]),
        *(f"{data} (the function's data, for {FOLDER}/{name})" for name, path in of_functions for data in _data(path)),
    ]


def _data(script: Path) -> list[str]:
    """Return the name of the file with the data of a program's function, which may hold anything, also a model."""
    _, _, read = read_plain(script, _MOST_TEXT).decode("utf-8", "replace").partition(f"\n{BY_VALUE}\n")
    return _OPENED.findall(read)


def rounds_itself(checker: CheckerSettings, cwd: Path) -> bool:
    """Whether a program of the check, or what it imports that lies beside it, takes Winnow's session that rounds."""
    programs = dict.fromkeys((*files_named(checker, cwd).values(), *handed_on(checker, cwd)))
    return any(_ROUNDS.search(read_plain(path, _MOST_TEXT)) for path in programs)


def texts_of(checker: CheckerSettings, cwd: Path) -> dict[str, str]:
    """Return what people read of the check's programs, by their names below `FOLDER`."""
    programs = _programs(files_named(checker, cwd))
    texts = {name: read_plain(path, _MOST_TEXT) for path, name in handed_on(checker, cwd).items() if path in programs}
    return {name: text.decode("utf-8", "replace").partition(f"\n{BY_VALUE}\n")[0] for name, text in texts.items()}


def like_secrets(checker: CheckerSettings) -> list[str]:
    """Return the options of a command whose names sound like a secret: a report shows them as they were typed."""
    words = Template(checker.command, Path(), {}).words if isinstance(checker, CommandChecker) else ()
    names = (word.partition("=")[0] for word in words if word.startswith("-") or "=" in word)
    return [name for name in names if _SECRET_WORD.search(name)]


def moved(
    values: Mapping[str, object], checker: CheckerSettings, cwd: Path, copies: Mapping[Path, str]
) -> dict[str, object]:
    """Return the values of a script with the copies' names in place of the user's paths."""
    named = files_named(checker, cwd)
    copied = {word: copies[path] for word, path in named.items() if path in copies}
    words = list(map(str, values.get("command") or ()))  # type: ignore[call-overload]
    program = Path(words[0]) if words else Path()
    own = program.is_absolute() and program.name.startswith("python")
    command = [_renamed(word, copied) for word in words]
    digests = {str(path): digest for path, digest in dict(values.get("files") or {}).items()}  # type: ignore[call-overload]
    files = {
        f"{FOLDER}/{copies[path]}" if path in copies else word.removeprefix(_option(word)): digests[str(path)]
        for word, path in named.items()
        if str(path) in digests and (path in copies or not _foreign(path, cwd))
    }
    return {
        **values,
        "command": [*(["{python}"] if own else _started(words, named, copied)), *command[1:]],
        "cwd": FOLDER if copies else ".",
        "files": files,
    }


def _started(words: Sequence[str], named: Mapping[str, Path], copied: Mapping[str, str]) -> list[str]:
    """Return how a command begins: a script that is a copy is given to what its first line names, as it may not run."""
    if not words or words[0] not in copied:
        return list(words[:1])
    head = read_plain(named[words[0]], 256).partition(b"\n")[0].decode("utf-8", "replace")
    starts = head[2:].split() if head.startswith("#!") else []
    starts = starts[1:] if starts and Path(starts[0]).name == "env" else starts
    if not starts:
        return [f"./{copied[words[0]]}"]
    name = Path(starts[0]).name
    return ["{python}" if name.startswith("python") else name, *starts[1:], copied[words[0]]]


def _renamed(word: str, copied: Mapping[str, str]) -> str:
    """Return a word with the names of copies in it, which may be a shell's command line."""
    if word in copied:
        return f"{_option(word)}{copied[word]}"
    for name in sorted(copied, key=len, reverse=True):
        word = re.sub(rf"(?<![\w./~-]){re.escape(name)}(?![\w./-])", copied[name].replace("\\", r"\\"), word)
    return word


def _option(word: str) -> str:
    """Return what stands before the file in ``--option=FILE``."""
    option, equals, _ = word.partition("=")
    return f"{option}=" if word.startswith("-") and equals else ""


def _below(path: Path, cwd: Path) -> PurePosixPath | None:
    """Return where a file lies below the user's folder; None: elsewhere."""
    if cwd == cwd.parent:  # of everything
        return None
    try:
        return PurePosixPath(Path(os.path.normpath(path)).relative_to(cwd).as_posix())
    except ValueError:
        return None


def _foreign(path: Path, cwd: Path) -> bool:
    """Whether a file is an interpreter's or the system's."""
    roots = [Path(place) for place in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    roots += [] if _below(path, cwd) else _OF_SYSTEM
    places = {path, path.parent.resolve() / path.name}
    if any(place.is_relative_to(root) for place in places for root in roots):
        return True
    return path.name.startswith("python") and _is_compiled(path)


def _is_compiled(path: Path) -> bool:
    """Whether a file is a program for one kind of machine."""
    return read_plain(path, 4) == b"\x7fELF"
