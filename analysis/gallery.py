"""Makes the pictures of docs/gallery.md and the README's with the commands that are printed there.

    gallery.py PROGRAM    from the root of the source tree; PROGRAM: what `fsdpbench` stands for in the page
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

from PIL import Image

PAGE = Path("docs/gallery.md")
MOST_BYTES = 300_000


def commands_of(page: str) -> List[List[str]]:
    """The indented lines between <!-- gallery --> and <!-- /gallery -->, as words."""
    found = []
    inside = False
    for line in page.splitlines():
        if line.startswith("<!-- gallery"):
            inside = True
        elif line.startswith("<!-- /gallery"):
            inside = False
        elif inside and line.startswith("    "):
            words = shlex.split(line, comments=True)
            if words:
                found.append(words)
    return found


def shrink(picture: Path) -> None:
    """To a palette that keeps rare colours too: figures have few."""
    with Image.open(picture) as opened:
        image = opened.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    image.save(picture, optimize=True)
    if picture.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{picture} has {picture.stat().st_size} bytes; at most {MOST_BYTES} are wanted")


def main() -> None:
    program = sys.argv[1]
    started = {picture: picture.stat().st_mtime_ns for picture in Path("docs").rglob("*.png")}
    shutil.rmtree("runs/gallery", ignore_errors=True)
    stands_for = {"fsdpbench": [program], "python": [sys.executable], "chromium": ["chromium", "--no-sandbox"]}
    for words in commands_of(PAGE.read_text(encoding="utf-8")):
        if words[0] not in stands_for:
            raise SystemExit(f"{PAGE}: {shlex.join(words)} begins with none of {', '.join(stands_for)}")
        print(shlex.join(words), flush=True)
        complains = words[0] == "chromium"  # about desktops that are not there
        done = subprocess.run(stands_for[words[0]] + words[1:], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE if complains else None, text=True,
                              env=os.environ | {"FSDPBENCH_PYTHON": sys.executable})  # whichever tree the program is of
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(words)} ended with code {done.returncode}\n{done.stderr or ''}")
    for picture in Path("docs").rglob("*.png"):
        if picture.stat().st_mtime_ns != started.get(picture):
            shrink(picture)


if __name__ == "__main__":
    main()
