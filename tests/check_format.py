#!/usr/bin/python3
"""Fails on sources that clang-format would lay out in another way, with the file in the root of the tree.

    check_format.py SOURCE_TREE [--fix]

Of src, tests and bench. With --fix they are laid out so. Tables between `// clang-format off` and `on` stay as they
are. clang-format is Debian 12's: another version has another opinion.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
FOLDERS = ("src", "tests", "bench")
AT_A_TIME = 50


def sources(tree: Path) -> list[str]:
    return sorted(str(path) for folder in FOLDERS for path in (tree / folder).rglob("*") if path.suffix in SUFFIXES)


def clang_format(tree: Path, *options: str) -> list[str]:
    """Its lines about files of the tree, in their order."""
    files = sources(tree)

    def run(some: list[str]) -> str:
        done = subprocess.run(["clang-format", "--style=file", *options, *some], capture_output=True, text=True)
        return done.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = pool.map(run, [files[i : i + AT_A_TIME] for i in range(0, len(files), AT_A_TIME)])
    return [line.removeprefix(f"{tree}/") for text in texts for line in text.splitlines()]


def problems(tree: Path) -> list[str]:
    """The places, and what is there."""
    return [line for line in clang_format(tree, "--dry-run", "--Werror") if "code should be clang-formatted" in line]


def main() -> int:
    tree = Path(sys.argv[1]).resolve()
    if sys.argv[2:] == ["--fix"]:
        clang_format(tree, "-i")
    found = problems(tree)
    if found:
        print("\n".join(found))
        print(f"{len(found)} lines are not as clang-format has them: tests/check_format.py . --fix")
        return 1
    print("All sources are laid out as .clang-format says.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
