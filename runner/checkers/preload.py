"""Fork servers for a command that runs a Python script: what it imports is imported once (``checker.preload``).

One rule says what that is where nobody names it: the packages that checks are slow to import and that bear a fork, as
far as the script's leading import statements name them (docs/adr/0051). The script is read for that, and never run.
"""

from __future__ import annotations

import ast
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from runner.checkers.command_template import syntax_of
from runner.exit_codes import UsageError
from runner.files import read_plain
from runner.schema.checker import AUTO
from runner.workers.commands import ForkServer, ForkServers
from runner.workers.guardian import Guardian
from runner.workers.worker import PREPARE_SECONDS

log = logging.getLogger(__name__)

BEARS_A_FORK = frozenset(
    {
        *("numpy", "numpy.linalg", "numpy.random", "onnx", "onnx.checker", "onnx.external_data_helper"),
        *("onnx.helper", "onnx.numpy_helper", "onnx.reference", "onnx.shape_inference"),
    }
)
"""What takes most of a check's time, and was tried under fork. ONNX Runtime is not there: docs/adr/0051."""
_PYTHON = re.compile(r"python[\d.]*[a-z]?|\{python\}")


# seconds after which what nobody has asked for is not waited for any more
_PATIENCE = 20.0


class Preloaded:
    """As many servers as there are checks at once. Safe for threads.

    ``words``: the command's, with placeholders. ``wanted``: modules to be imported, in this order (none: there are no
    servers), or `AUTO`: what the script itself imports first. ``env``: the environment that all checks have in common.
    ``unasked``: whether `AUTO` may mean any: not where a check may measure time, or where none is forked. Raises
    UsageError for modules that are named beside a command that is not `PYTHON SCRIPT.py ...`.

    With `AUTO` nothing is refused: where something is not as it should be there are no servers, or no more.
    """

    def __init__(
        self,
        words: Sequence[str],
        wanted: str | Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        guardian: Guardian,
        unasked: bool,
    ) -> None:
        self._auto = wanted == AUTO
        if wanted and not self._auto:
            _confirm(words, wanted)
        self._modules = tuple(wanted)
        if self._auto:
            self._modules = _known_modules(words, cwd) if unasked else ()
        self._cwd, self._env, self._guardian = cwd, env, guardian
        self._servers = ForkServers()
        self._started = False

    @contextmanager
    def server(self, argv: Sequence[str], *, fresh: bool) -> Iterator[ForkServer | None]:
        """Lend a server for one check; None where there are none, or it is to share nothing with others (``fresh``).

        Modules that were named: the first check has one started, whether it uses it or not: what is wrong with them is
        said before any check counts. Raises UsageError where they cannot be imported, and Stopped where all checks were
        killed meanwhile.
        """
        with ExitStack() as stack:
            server = None
            if self._modules and not (fresh and (self._auto or self._started)):
                try:
                    server = stack.enter_context(self._servers.lent(argv[0], argv[1], lambda: self._start(argv)))
                except (UsageError, OSError) as error:
                    if not self.given_up(str(error)):
                        raise
            if server and not self._started:
                log.debug("checker.preload: checks are forked from a process that has %s", ", ".join(self._modules))
                self._started = True
            if fresh:
                stack.close()
                server = None
            yield server

    def given_up(self, why: str) -> bool:
        """Return whether these modules were nobody's wish; then there are no more servers."""
        if self._auto and self._modules:
            log.debug("checker.preload=auto: no more checks are forked: %s", why)
            self._modules = ()
            self._servers.close()
        return self._auto

    def close(self) -> None:
        """End them."""
        self._servers.close()

    def _start(self, argv: Sequence[str]) -> ForkServer:
        return ForkServer(
            argv[0],
            argv[1],
            self._modules,
            cwd=self._cwd,
            env=self._env,
            guardian=self._guardian,
            unasked=self._auto,
            patience=_PATIENCE if self._auto else PREPARE_SECONDS,
        )


def _known_modules(words: Sequence[str], cwd: Path) -> tuple[str, ...]:
    """Return what the script of a command imports first, as far as that is known to bear a fork."""
    if not _fits(words) or sys.platform != "linux" or "{" in words[0] + words[1]:
        return ()
    found = leading_imports(cwd / words[1])
    if not found:
        log.debug("checker.preload=auto: %s begins with no import of a module that is known to bear a fork", words[1])
    return found


def leading_imports(script: Path) -> tuple[str, ...]:
    """Return the modules of `BEARS_A_FORK` that ``script`` imports first, in its order.

    The standard library's are passed over: the forked check imports them itself. Empty where the file cannot be read or
    parsed: it may be of another Python's.
    """
    found: list[str] = []
    for name in _leading(syntax_of(read_plain(script)).body):
        if name in BEARS_A_FORK:
            found.append(name)
        elif name.partition(".")[0] not in sys.stdlib_module_names:
            break
    return tuple(dict.fromkeys(found))


def _leading(body: list[ast.stmt]) -> Iterator[str]:
    """Yield what the leading import statements name, in their order."""
    for number, statement in enumerate(body):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            yield module
            inner = (f"{module}.{alias.name}" for alias in statement.names)
            yield from (name for name in inner if name in BEARS_A_FORK)
        elif number or not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            return  # no docstring


def _fits(words: Sequence[str]) -> bool:
    """Whether a command is `PYTHON SCRIPT.py ...`."""
    return bool(len(words) > 1 and _PYTHON.fullmatch(Path(words[0]).name) and re.fullmatch(r"[^-].*\.py", words[1]))


def _confirm(words: Sequence[str], modules: Sequence[str]) -> None:
    if not _fits(words):
        raise UsageError(
            f"checker.preload={list(modules)}: it needs a command that runs a script, checker.command='python check.py "
            f"{{model}}', and this one is {' '.join(words[:2])!r} ... . Write it so, without options of Python, or "
            "leave checker.preload out"
        )
    if sys.platform != "linux":
        raise UsageError(
            "checker.preload works on Linux only: what forked checks leave behind cannot be found elsewhere. Leave it "
            "out, or write the check as a function: checker=python checker.file=check.py"
        )
