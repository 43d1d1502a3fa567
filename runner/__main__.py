"""Entry: ``python -m runner`` and the console script ``winnow``."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys

_PACKAGES = ("runner", "strategies", "conf")


def main() -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(300_000, 20, 20)  # what a run loads and indexes stays: it need not be looked through so often
    _mend_path()
    _load_packages()
    try:
        importlib.import_module("runner.cli.supported_system")
    except ImportError as error:
        _leave(str(error), 6)
    # in this order, and only now that names are safe from the user's folder: signals may come while the rest is loaded
    try:
        from runner.cli.signals import ENDING, ignore, leave, listen  # noqa: PLC0415

        listen(leave)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # a sweep blocks them until its job can answer them
    except KeyboardInterrupt:
        sys.exit(130)
    from runner.cli.signals import open_streams  # noqa: PLC0415

    open_streams()
    from runner.cli.app import run  # noqa: PLC0415
    from runner.sweeps.sweep import Sweep  # noqa: PLC0415

    code = run(sys.argv[1:], Sweep())
    ignore()
    gc.freeze()  # all that is left ends with the process: nothing in it need be looked for
    sys.exit(code)


def _load_packages() -> None:
    """Import our packages from where this file lies, whatever is first on the path: so they are found from then on."""
    ours = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - nothing is loaded yet
    sys.path.insert(0, ours)
    packages = [importlib.import_module(name) for name in _PACKAGES]
    del sys.path[0]
    for package in packages:
        if getattr(package, "DISTRIBUTION", None) != "winnow-onnx":
            _leave(
                f"{package.__name__} in {ours} is not Winnow's: another installed package has one of this name, "
                "which was written over it. Install Winnow into an environment of its own: pipx install winnow-onnx",
                2,
            )


def _leave(message: str, code: int) -> None:
    sys.stderr.write(f"winnow: {message}\n")
    sys.exit(code)


def _mend_path() -> None:
    """Take off the path what Python puts first there: names in it are not ours.

    ``python -m`` puts the folder where the user stands, with onnx.py or strategies/ of theirs; a start by path (a sweep
    does that) puts this folder, whose modules have names of the standard library.
    """
    package = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - nothing is loaded yet
    ours = os.path.dirname(package)  # noqa: PTH120 - as above
    first = os.path.realpath(sys.path[0]) if sys.path and sys.path[0] else ""
    if first == package:
        del sys.path[0]
        if ours not in map(os.path.realpath, sys.path):
            sys.path.insert(0, ours)
        return
    try:
        here = os.getcwd()  # noqa: PTH109 - as above
    except FileNotFoundError:
        return  # the folder was removed
    if sys.path and (sys.path[0] or here) == here and os.path.realpath(here) != ours:
        del sys.path[0]


if __name__ == "__main__":
    main()
