#!/usr/bin/python3
"""Fails where two files of a folder give their own things the same name.

    check_anonymous_names.py ROOT...      src tests

The presets compile several files at a time, so that the anonymous namespaces of a folder's files are one. Two types or
constants of one name do not compile then; of two functions the other may be called, without a word. So in one named
namespace no two files of a folder may have one, and none the name of a function in a header of the folder or one that any
of its files includes. Looked at are definitions at the beginning of a line, and what using-declarations bring.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

TEXT_OR_COMMENT = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|//(?! namespace)[^\n]*|/\*.*?\*/', re.DOTALL)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
OPENS = re.compile(r"(?:inline )?namespace (?:([\w:]+) )?\{$")
CLOSES = "}  // namespace"
MACRO = re.compile(r"[A-Z][A-Z_0-9]*\(")  # TEST(…) and its like
NO_DEFINITION = ("#", "using ", "namespace ", "static_assert")
BORROWED = re.compile(r"using (?:\w+::)+(\w+);")
TYPE = re.compile(r"(?:template <.*> ?)?(?:class|struct|union|enum class|enum) (\w+)")
CONSTANT = re.compile(r"(?:inline )?(?:constexpr|constinit|const) [^(={]*?\b(k[A-Z]\w*)\s*[={\[]")
FUNCTION = re.compile(r"(?:[\w:<>,&*\[\]]+[ &*]+)+(\w+)\(")
FREE = {"PrintTo"}  # GoogleTest asks for it by type


def lines_of(text: str) -> Iterator[tuple[str, bool, str]]:
    """Each line that is not indented, after the named namespaces that it is in and whether an anonymous one is among them."""
    open_ones = []
    for line in TEXT_OR_COMMENT.sub('""', text).splitlines():
        if found := OPENS.match(line):
            open_ones.append(found[1])
        elif line.startswith(CLOSES):
            open_ones.pop()
        elif line[:1] not in (" ", "}", ""):
            yield "::".join(filter(None, open_ones)), None in open_ones, line


def defined(line: str) -> str | None:
    """The name that the line defines; an alias is none: twice the same is no fault, and two others do not compile."""
    if MACRO.match(line) or line.startswith(NO_DEFINITION):
        return None
    found = TYPE.match(line) or CONSTANT.match(line) or FUNCTION.match(line)
    forward = found and found.re is TYPE and line.endswith(";")
    return None if not found or forward or found[1] in FREE else found[1]


def anonymous(text: str) -> set[tuple[str, str]]:
    """What a source has for itself: namespace and name."""
    return {(space, name) for space, own, line in lines_of(text) if own and (name := defined(line))}


def borrowed(text: str) -> set[tuple[str, str]]:
    """What a source has by using-declarations, likewise."""
    return {(space, found[1]) for space, _, line in lines_of(text) if (found := BORROWED.match(line))}


def offered(header: str) -> set[tuple[str, str]]:
    """Functions that a header has for all, likewise."""
    return {(space, name) for space, _, line in lines_of(header) if FUNCTION.match(line) and (name := defined(line))}


def complaints(files: dict[Path, str], shared: dict[Path, str]) -> list[str]:
    """`files`: sources and headers of one folder; `shared`: headers from elsewhere that some of them include."""
    owners, others = defaultdict(set), {path: offered(text) for path, text in shared.items()}
    for path, text in files.items():
        others[path] = offered(text) if path.suffix == ".h" else borrowed(text)
        for name in anonymous(text):
            owners[name].add(path)
    found = []
    for (space, name), paths in sorted(owners.items()):
        all_of_them = sorted(paths | {path for path, names in others.items() if (space, name) in names})
        if len(all_of_them) > 1:
            found.append(f"{' and '.join(map(str, all_of_them))}: each has a '{name}' in {space or 'no namespace'}; "
                         "give them different names")
    return found


def folders(root: Path) -> dict[Path, list[Path]]:
    """The files of each folder with a CMakeLists.txt, and of its subfolders without one."""
    found = defaultdict(list)
    for path in [*root.rglob("*.cpp"), *root.rglob("*.h")]:
        found[next((f for f in path.parents if (f / "CMakeLists.txt").exists()), path.parent)].append(path)
    return found


def included(texts: Iterable[str], roots: list[Path]) -> dict[Path, str]:
    """The project's headers that these files include."""
    places = {root / header for text in texts for header in INCLUDE.findall(text) for root in roots}
    return {path: path.read_text(encoding="utf-8") for path in places if path.is_file()}


def main() -> int:
    roots = [Path(root) for root in sys.argv[1:]]
    found = []
    for root in roots:
        for _, files in sorted(folders(root).items()):
            texts = {path: path.read_text(encoding="utf-8") for path in files}
            headers = included(texts.values(), roots)
            found += complaints(texts, {path: text for path, text in headers.items() if path not in texts})
    print("\n".join(found) if found else "In each folder names in anonymous namespaces differ.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
