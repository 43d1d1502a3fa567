"""The TensorRT library, found and loaded, what it says, and which failure that is.

What a version can do is asked of it (``hasattr``), never told from its number; enumerations are looked up by name,
since TensorRT 11 renumbered them.
"""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PTH100, PTH118, PTH120, PTH123, SIM115
from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, List, Sequence, TextIO, Tuple

from runner.backends.errors import StageError, choose

FLAVORS = ("auto", "tensorrt", "tensorrt_rtx")
# flavor -> modules that may provide it, in the order in which they are tried
MODULES = {
    "tensorrt": ("tensorrt",),
    "tensorrt_rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}
_INSTALL = {
    "tensorrt": "pip install tensorrt",
    "tensorrt_rtx": "pip install onnxruntime-ep-nv-tensorrt-rtx-cu13 tensorrt-rtx-cu13-bindings (of one release), "
    "or NVIDIA's own tensorrt_rtx package",
}
# the wheel that brings the libraries of RTX without Python bindings, and what it holds in the order of loading
_RTX_LIBRARIES = "onnxruntime_ep_nv_tensorrt_rtx"
_RTX_NAMES = ("libtensorrt_rtx.so", "libtensorrt_onnxparser_rtx.so")


@dataclass(frozen=True)
class Library:
    """A loaded TensorRT. ``api``: its Python module; ``flavor``: tensorrt or tensorrt_rtx; ``version``: its own."""

    api: Any
    flavor: str
    version: str

    def __str__(self) -> str:
        return f"{self.flavor} {self.version}"

    def members(self, enumeration: str) -> Dict[str, Any]:
        """Return an enumeration's members by name; empty where this TensorRT has no such enumeration."""
        found = getattr(self.api, enumeration, None)
        return dict(getattr(found, "__members__", {}))

    def member(self, enumeration: str, key: str, name: str) -> Any:
        """Return a member that the setting ``key`` names, in any case. Raises StageError (setup) if it is not there."""
        members = self.members(enumeration)
        if name.upper() in members:
            return members[name.upper()]
        raise self.lacks(key, name, members)

    def lacks(self, key: str, given: str, valid: Iterable[str]) -> StageError:
        """Return the error for something that this TensorRT does not have."""
        error = choose(key, given, valid)
        return StageError("setup", error.kind, str(error).replace("not known here", f"not in {self}", 1))


# two libraries of one flavor cannot be told from one another in the memory of a process
@lru_cache(maxsize=None)  # noqa: UP033 - an interpreter of the user's may be Python 3.8
def load(flavor: str) -> Library:
    """Return the library of this flavor; auto: the first that is installed.

    Raises StageError (setup): NotInstalled with what to install, or for a flavor that does not exist.
    """
    if flavor not in FLAVORS:
        raise choose("flavor", flavor, FLAVORS)
    wanted = [flavor] if flavor != "auto" else list(MODULES)
    said = []
    for name in wanted:
        for module in MODULES[name]:
            if importlib.util.find_spec(module) is None:
                continue
            try:
                if module.endswith("_bindings"):
                    _preload()
                api = importlib.import_module(module)
                # a model, and an engine that was built before, may hold any of TensorRT's own plugins
                register = getattr(api, "init_libnvinfer_plugins", None)
                if register is not None and not register(None, ""):
                    raise OSError("its own plugins cannot be registered")
                return Library(api, name, str(api.__version__))
            except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
                said.append(f"{module}: {type(error).__name__}: {error}")
    ways = "; ".join(f"{name}: {_INSTALL[name]}" for name in wanted)
    why = f" ({' | '.join(said)})" if said else ""
    raise StageError(
        "setup",
        "NotInstalled",
        f"TensorRT is not {'usable' if said else 'installed'} under this interpreter{why}. Install one ({ways}), "
        "or name an interpreter that has it: target.python=PATH (reference.python=PATH for a reference)",
    )


def has_gpu() -> bool:
    """Return whether the CUDA driver finds a GPU that this process may use."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return False


def _preload() -> None:
    """Load the libraries that the bindings without libraries need, in this order, for all to see."""
    spec = importlib.util.find_spec(_RTX_LIBRARIES)
    if spec is None or spec.origin is None:
        return
    folder = os.path.dirname(os.path.abspath(spec.origin))
    for name in _RTX_NAMES:
        path = os.path.join(folder, name)
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            # importing the package creates the links by which it, and what it needs, is found
            importlib.import_module(_RTX_LIBRARIES)
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


# TensorRT's one logger in a process: its messages are kept apart call by call, those on stderr included.
#
# TensorRT keeps the first logger that it is given for as long as the process lives, so there is one, and each call
# starts it anew. What Myelin (the compiler behind it) prints goes past the logger to descriptor 2.

_ERRORS = ("ERROR", "INTERNAL_ERROR")
# of a fused layer: its name, then the ONNX nodes that went into it
_METADATA = " metadata: [ONNX Layer:"
_MOST_ERRORS = 64
_MOST_LAYERS = 100_000
_MOST_BYTES = 1 << 28
_STDERR_BYTES = 1 << 16


class Messages:
    """The messages of one call. ``errors``: texts; ``layers``: lines that tell of fused layers; ``path``: all of it."""

    def __init__(self) -> None:
        self.errors: List[str] = []
        self.layers: List[str] = []
        self.listener: Callable[[str], None] | None = None
        self._file: TextIO | None = None
        self._written = 0
        self._stderr = 0

    def start(self, path: str | None) -> None:
        """Forget the last call; with ``path`` every message is written there (256 MiB at most)."""
        self.stop()
        self.errors.clear()
        self.layers.clear()
        self.listener = None
        self._written = 0
        self._file = None if path is None else open(path, "w", encoding="utf-8", errors="replace")
        self._stderr = _size_of_stderr()

    def stop(self) -> None:
        """Close the file; what the C library printed comes last."""
        if self._file is not None:
            self._file.writelines(f"[stderr] {line}\n" for line in self.printed())
            self._file.close()
            self._file = None

    def hear(self, severity: str, text: str) -> None:
        """Take one message; ``listener`` hears it too."""
        if self.listener is not None:
            self.listener(text)
        if severity in _ERRORS and len(self.errors) < _MOST_ERRORS:
            self.errors.append(text)
        elif _METADATA in text and len(self.layers) < _MOST_LAYERS:
            self.layers.append(text)
        if self._file is not None and self._written < _MOST_BYTES:
            self._written += len(text) + len(severity) + 4
            self._file.write(f"[{severity}] {text}\n")

    def printed(self) -> List[str]:
        """Return the lines that went to descriptor 2 meanwhile (the worker's log is a file that can be read again)."""
        try:
            end = _size_of_stderr()
            text = os.pread(2, min(end - self._stderr, _STDERR_BYTES), self._stderr)
        except (OSError, ValueError):
            return []
        return [line for line in text.decode(errors="replace").splitlines() if line.strip()]


def _size_of_stderr() -> int:
    """Return where the file ends to which the worker's stderr goes; 0 where it goes to none."""
    try:
        return os.fstat(2).st_size
    except OSError:
        return 0


@lru_cache(maxsize=None)  # noqa: UP033 - as above; a process has one logger, which is TensorRT's own rule
def logger(library: Library) -> Any:
    """Return the process's logger; its attribute ``messages`` holds what was said."""
    api = library.api

    class Logger(api.ILogger):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            api.ILogger.__init__(self)
            self.messages = Messages()

        def log(self, severity: Any, text: str) -> None:
            self.messages.hear(getattr(severity, "name", str(severity)), text)

    return Logger()


# TensorRT's messages as one failure: an error code, and the message without what changes from model to model.
#
# A code alone does not tell failures apart (4 is every misuse, 1 all that its compiler says), so the first sentence
# belongs to the kind; names, numbers, shapes, paths and the lines of TensorRT's own source do not.

_CODE = re.compile(r"Error Code (\d+): ([A-Za-z ]+?)\s*\(")
# said on machines without a GPU or with an older driver, whatever the model
_NOISE = re.compile(
    r"cudaError ?\d+|CUDA driver version is insufficient|CUDA initialization failure|no CUDA-capable device"
    r"|catchCudaError|^\s*-+ (Begin|End) node|While parsing node number"
)
_UNUSABLE = re.compile(r"driver version is insufficient|initialization failure|no CUDA-capable device")
_RULES: Tuple[Tuple[re.Pattern[str], str], ...] = (
    # who says it: IBuilder::buildSerializedNetwork:, [pass.cpp:337: check_turing_op_compatibility]
    (re.compile(r"\[[^\[\]]*\.(?:cpp|cc|h|cu):[^\[\]]*\]|\b[\w/]+\.(?:cpp|cc|h|cu)(?::\d+)?:?"), " "),
    (re.compile(r"\bI[A-Z]\w+::\w+:"), " "),
    # where: In analyzeShapes at /_src/optimizer/shapeof/graphShapeAnalyzer.cpp:2825
    (re.compile(r"\bIn [\w()~:]+ at \S*"), " "),
    (re.compile(r"`[^`']*[`']|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|\{[^{}]*\}"), "_"),
    (re.compile(r"\(See https?:[^)]*\)|https?:\S+"), " "),
    (re.compile(r"(?:/?[\w.~+-]+/){2,}[\w.+-]*"), "_"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "#"),
    (re.compile(r"\[[-\d,x\s]*\]|\([-\d,x\s]*\)"), "#"),
    (re.compile(r"[-+]?(?<![A-Za-z\d.])\d+(?:\.\d+)*(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"[\s()]+"), " "),
)
# which layer: ITopKLayer node_of_v:
_LAYER = re.compile(r"\bI[A-Z]\w*Layer (?:\(Unnamed [^:]*:|\S+:|_ )")
# (axis >= 0) && "message", or Assertion failed: mode == "linear": Message
_ASSERTIONS = (re.compile(r'&&\s*"(.+)"\s*$'), re.compile(r"^\s*Assertion failed: .*?: (?=[A-Z])(.*)$"))
# a word or a number that may be a node's name: value, zero-point, 16
_WORD = re.compile(r"[A-Za-z]+(?:[ -][A-Za-z]+)*|\d+")
# an engine for another GPU or of another release, or a library that runs on no GPU like this one
_ANOTHER_GPU = re.compile(
    r"cannot run on this GPU|generated on an incompatible device|not compatible with this version"
    r"|[Vv]ersion tag does not match"
)
# said where a flag makes the builder use a GPU that is not there
_CUDA_CALL = re.compile(r"CHECK\(.*CUDA_SUCCESS")
_LONGEST = 100


def parsing(code: str, operator: str, description: str, names: Iterable[str], node: str = "") -> StageError:
    """Return the failure (stage load) of the parser's first error: its code by name, the operator, its description.

    The message ends with a line that names the operator, and the ``node``. Of all operators that it does not know the
    parser itself says no more than "false".
    """
    names = [*names, node] if node else list(names)
    lines = _telling([description if description.strip() != "false" else "the parser does not support it"], names)
    # the first line of several repeats the code and names the node; the next one is the cause
    telling = [line for line in lines if not re.match(r"(Invalid|Unsupported) Node\b", line.strip())] or lines
    _, text = _code_and_words(telling, names)
    at = " ".join(part for part in (operator, f"'{node}'" if node else "") if part)
    message = "\n".join([*lines[:-1], _joined(at, lines[-1] if lines else "")])
    return StageError(
        "load", _joined(" ".join(part for part in (code.rpartition(".")[2], operator) if part), text), message
    )


def building(errors: Sequence[str], printed: Sequence[str], names: Iterable[str], *, gpu: bool = True) -> StageError:
    """Return the failure (stage build) told by the logger's errors, or by what was printed where there are none.

    Where a missing GPU is all that was said, or without one (``gpu=False``) a call to CUDA is what failed, the stage is
    setup: no model is at fault.
    """
    names = list(names)
    lines = _telling(errors, names)
    wanted = next((line for line in [*lines, *printed] if not gpu and _CUDA_CALL.search(line)), None)
    lines = lines or _telling(printed, names)
    if not lines and any("udaError" in text or "CUDA" in text for text in errors):
        if not gpu or any(_UNUSABLE.search(text) for text in errors):
            wanted = errors[0]
        # with a GPU, an error of CUDA is the failure itself
        lines = [line for text in errors for line in text.splitlines()]
    if wanted:
        message = (
            f"this build needs a GPU, and none is usable here ({wanted.strip()[:200]}). TensorRT for RTX builds "
            "without one for the GPUs that are named (compute_capabilities: [SM86]), unless flags want one, as REFIT "
            "and STRIP_PLAN do"
        )
        return StageError("setup", "NoGpu", message)
    if not lines:
        return StageError("build", "Unexplained", "TensorRT built nothing and did not say why")
    return StageError("build", _joined(*_code_and_words(lines, names)), "\n".join(lines))


def unreadable(said: Sequence[str], printed: Sequence[str]) -> StageError:
    """Return the failure (stage infer) of an engine that cannot be read.

    Where this GPU or this release cannot run it, whatever it computes, the stage is setup: no model is at fault.
    """
    wanted = next((line for text in said for line in text.splitlines() if _ANOTHER_GPU.search(line)), None)
    if wanted is None:
        return executing("the engine cannot be read", said, printed, ())
    code = _CODE.search(wanted)
    why = (wanted[code.end() :] if code else wanted).partition(" In ")[0].strip(" ().")
    message = (
        f"engines cannot run here: {why}. Name another GPU (workers.gpus), or what runs on this one "
        "(target=onnxruntime, target.flavor=tensorrt); an engine from a file must have been built by this release "
        "for this kind of GPU"
    )
    return StageError("setup", "WrongGpu", message)


def executing(what: str, said: Sequence[str], printed: Sequence[str], names: Iterable[str]) -> StageError:
    """Return the failure (stage infer) of an engine that cannot be read or does not run; ``what``: in our words.

    On a GPU an error of CUDA is what happened, not noise.
    """
    names = list(names)
    lines = _telling(said, names) or [line for text in said for line in text.splitlines()] or _telling(printed, names)
    kind = _joined(*_code_and_words(lines, names)) if lines else "Unexplained"
    return StageError("infer", kind, "\n".join([what, *(lines or ["TensorRT did not say why"])]))


def _telling(texts: Iterable[str], names: Sequence[str]) -> List[str]:
    """Return the lines that are about the model, whatever its nodes are called."""
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    return [line for line in lines if not _NOISE.search(_without(line, names))]


def _joined(code: str, words: str) -> str:
    return ": ".join(part for part in (code, words) if part)


def _code_and_words(lines: Sequence[str], names: Iterable[str]) -> Tuple[str, str]:
    """Return the code and the words of the first line that has a code, else of the first line."""
    line = next((line for line in lines if _CODE.search(line)), lines[0] if lines else "")
    match = _CODE.search(line)
    return (match.group(1) if match else ""), essence(line[match.end() :] if match else line, names)


def essence(text: str, names: Iterable[str] = ()) -> str:
    """Return the first sentence of a message without ``names``, numbers, shapes and places; 100 characters at most."""
    text = _LAYER.sub(" ", _without(text, names))
    for assertion in _ASSERTIONS:
        found = assertion.search(text)
        text = found.group(1) if found else text
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    sentences = re.split(r"(?<=[^\s.#_])\. (?=[A-Z(])", text.strip())
    said = [sentence.strip(" ._:;,") for sentence in sentences]
    # the text of a failed CHECK says less than the message after it
    telling = [one for one in said if one and not re.search(r"\bCHECK\b", one)] or [one for one in said if one]
    return re.sub(r"(?:_ )+", "_ ", telling[0]).strip(" _")[:_LONGEST].strip() if telling else ""


def _without(text: str, names: Iterable[str]) -> str:
    """Return a message without names. One that could be a word is only taken for a name where a name stands.

    A candidate that lacks the node would otherwise say something else than one that has it.
    """
    present = sorted({name for name in names if name and name in text}, key=len, reverse=True)
    marked = [re.escape(name) for name in present if not _WORD.fullmatch(name)]
    words = [re.escape(name) for name in present if _WORD.fullmatch(name)]
    if marked:
        text = re.sub(rf"(?<![\w/.-])(?:{'|'.join(marked)})(?![\w/-])(?: *: *)?", "_ ", text)
    if words:
        either = "|".join(words)
        text = re.sub(rf"((?:^|[(:\]]|\bI[A-Z]\w*Layer)\s*)(?:(?:{either}) ?: )+", r"\1_ ", text)
        text = re.sub(rf"\b((?:for|of|in|at) (?:node|layer|tensor|input|output) )(?:{either})(?![\w/-])", r"\1_ ", text)
    return text
