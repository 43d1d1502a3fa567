"""Renew what golden runs saw, and print what is different: python -m tests.behaviour [NAME ...]."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.behaviour.test_behaviour import EXPECTED, RENEW

if __name__ == "__main__":
    chosen = ["-k", " or ".join(sys.argv[1:])] if sys.argv[1:] else []
    tests = [sys.executable, "-m", "pytest", "-n", "auto", "tests/behaviour", *chosen]
    ended = subprocess.run(tests, check=False, env={**os.environ, RENEW: "1"})
    subprocess.run(["git", "add", "--intent-to-add", str(EXPECTED)], check=False)
    subprocess.run(["git", "--no-pager", "diff", "--", str(EXPECTED)], check=False)
    sys.exit(ended.returncode)
