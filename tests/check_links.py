#!/usr/bin/python3
"""Reads the links between the Markdown files of a source tree and fails on those that lead nowhere.

    check_links.py SOURCE_TREE

A relative link names a file or folder that is there; what follows a # is the anchor of a heading of that file, made
from its words as GitHub makes it. Links with a scheme (https:) are not followed. A `make NAME` is a target of Makefile.
"""

import re
import sys
from pathlib import Path

SKIPPED = re.compile(r"^(build.*|runs|shared|\..*)$")  # made here, or not the project's
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s[^)]*)?\)|\b(?:src|href)=\"([^\"]+)\"")


def prose(text: str) -> str:
    """Without fenced and indented blocks and `code`."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(text: str) -> set[str]:
    """Anchors of all headings; the second of the same words ends with -1."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number, anchor = 0, name
        while anchor in found:
            number += 1
            anchor = f"{name}-{number}"
        found.add(anchor)
    return found


def pages(tree: Path) -> list[Path]:
    return sorted(p for p in tree.rglob("*.md")
                  if not any(SKIPPED.match(part) for part in p.relative_to(tree).parts[:-1]))


def check(tree: Path) -> list[str]:
    """A sentence for each dead link."""
    problems = []
    targets = set(re.findall(r"^([a-z-]+):", (tree / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in pages(tree):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"(?:`|^ {4}|^\$ )make ([a-z][a-z-]*)", text, re.MULTILINE):
            if target not in targets:
                problems.append(f"{page.relative_to(tree)}: make {target} is no target of Makefile")
        for link in (a or b for a, b in LINK.findall(prose(text))):
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z][a-z0-9+.-]*:", path):
                continue
            target = page.parent / path if path else page
            where = f"{page.relative_to(tree)}: {link}"
            if not target.exists():
                problems.append(f"{where} leads to no file")
            elif anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))):
                problems.append(f"{where} leads to no heading")
    return problems


def main() -> int:
    tree = Path(sys.argv[1])
    problems = check(tree)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{len(pages(tree))} pages, no dead link")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
