#!/usr/bin/python3
"""Runs the tests here in the project's virtual environment; exits with 77 (skipped) where there is none.

    run_tests.py PYTHON [unittest arguments]
"""

import os
import subprocess
import sys

SKIPPED = 77


def main() -> int:
    python, arguments = sys.argv[1], sys.argv[2:]
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        ready = subprocess.run([python, "-I", "-c", "import matplotlib, numpy, PIL, yaml"], capture_output=True).returncode == 0
    except OSError:
        ready = False
    if not ready:
        print(f"skipped: {python} has no matplotlib or PyYAML; `make analysis` installs it (needs a network once)")
        return SKIPPED
    return subprocess.run([python, "-B", "-m", "unittest", *(arguments or ["discover"])], cwd=here).returncode


if __name__ == "__main__":
    sys.exit(main())
