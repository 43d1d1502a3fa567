"""The check of a flaky case, its answer apart from the coin remembered: many runs in the time of one.

    python -I -S benchmarks/remembered.py CASE_FOLDER MEMORY_FOLDER MODEL.onnx [FEEDS.npz]

The check of such a case is exact, and then thrown a coin for. The exact part is run once for each model and feeds (by
their bytes) and remembered; the coin is thrown anew in each call, with the probabilities of the case. So every call
answers as the case's own check does, without its cost.
"""

import ast
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

EXACT = (
    "import json, sys\n"
    "sys.path.insert(0, sys.argv[1])\n"
    "import check\n"
    "check.EXTRA += sys.argv[3:]\n"
    "print(json.dumps(check.verdict(sys.argv[2])))\n"
)


def main() -> int:
    case, memory, *files = map(Path, sys.argv[1:])
    config = ast.literal_eval(re.search(r"^CFG = (\{.*\})$", (case / "check.py").read_text(), re.MULTILINE)[1])
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    place = memory / digest.hexdigest()
    if place.exists():
        code, why = json.loads(place.read_text())
    else:
        venvs = Path(os.environ.get("CASE_VENVS", "~/.cache/failing-cases/venvs")).expanduser()
        python = str(venvs / config["venv"] / "bin" / "python")
        argv = [python, "-c", EXACT, str(case), *map(str, files)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr[-500:])
            return 5
        code, why = json.loads(done.stdout.splitlines()[-1])
        partial = place.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps([code, why]))
        partial.replace(place)
    if code in (0, 1):  # (P(exit 1) where the bug shows, P(exit 1) where it does not)
        hit = random.SystemRandom().random() < config["flaky"][1 - code]
        code, why = (1, f"BUG (flaky): {why}") if hit else (0, f"pass (flaky): {why}")
    print(why)
    return code


if __name__ == "__main__":
    sys.exit(main())
