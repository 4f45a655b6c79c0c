#!/usr/bin/python3
"""Fails where a file uses a name that none of its includes brings.

    check_used_names.py ROOT...      folders that includes start at: src tests

The presets compile several files at a time, which hides a missing include: the file beside it has it. Looked at here are
names that only one header can mean: of the standard library those in STANDARD, of the project every type,
kConstant and function that one header alone declares. A file may have a name by its own includes or by
those of the project's headers that it includes; what the standard library's headers include of each other differs
between its versions and does not count. `cmake -D FSDPBENCH_UNITY=OFF` asks the compiler, which knows all names.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
# Header: names in std:: that only it has, as far as anybody relies on.
STANDARD = {
    "algorithm": "sort stable_sort nth_element partial_sort find_if any_of all_of none_of count_if max_element "
    "min_element minmax_element lower_bound upper_bound transform copy_n fill_n replace reverse unique clamp",
    "array": "array to_array",
    "atomic": "atomic atomic_thread_fence memory_order_relaxed memory_order_acquire memory_order_release",
    "bit": "bit_cast bit_ceil popcount countr_zero",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "sqrt llround lround floor ceil isnan isfinite log log2 exp pow fabs",
    "condition_variable": "condition_variable",
    "cstring": "memcpy memset memcmp strerror strcmp strlen",
    "deque": "deque",
    "exception": "exception_ptr current_exception rethrow_exception",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream fstream",
    "functional": "function reference_wrapper hash",
    "future": "future promise async",
    "limits": "numeric_limits",
    "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared",
    "mutex": "mutex lock_guard scoped_lock unique_lock once_flag call_once",
    "numeric": "accumulate iota gcd lcm partial_sum",
    "optional": "optional nullopt",
    "queue": "queue priority_queue",
    "random": "mt19937 mt19937_64 uniform_int_distribution uniform_real_distribution normal_distribution",
    "set": "set multiset",
    "span": "span",
    "sstream": "ostringstream istringstream stringstream",
    "stdexcept": "logic_error runtime_error invalid_argument out_of_range domain_error",
    "string": "string to_string stoi stod",
    "string_view": "string_view",
    "thread": "thread this_thread jthread",
    "tuple": "tuple tie make_tuple apply",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "variant": "variant visit monostate holds_alternative get_if",
    "vector": "vector",
}
HEADERS_OF = {name: header for header, names in STANDARD.items() for name in names.split()}
# Headers that promise others: <string> has all of a string_view that one needs to use it.
BRINGS = {"string": ["string_view"], "map": [], "thread": [], "condition_variable": ["mutex"]}

# Namespaces of others that this project adds a declaration to.
OF_OTHERS = {"CLI", "testing", "std"}
# They declare what belongs to NVIDIA.
STAND_INS = "backend/cuda/fake/"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
STD_NAME = re.compile(r"\bstd::(\w+)")
WORD = re.compile(r"(?<![.\w:])(?:(\w+)::)*([A-Zk]\w{3,})")
SUITE = re.compile(r"\bTEST(?:_[FP])?\(\w+, *\w+\)|\bINSTANTIATE_TEST_SUITE_P\(\w+, *\w+")
# Types and constants where they are declared; what only promises one ("class Kernels;") is enough for a pointer.
TYPE = re.compile(r"\b(?:class|struct|enum class|enum|union|using|typename|class\.\.\.|namespace) (?:alignas\(\w+\) )?(\w+)(?! *;)\b")
# Functions likewise, by the word before them; of a header those that begin a line. Calls are told by the parenthesis.
FUNCTION = re.compile(r"(?<![\w.])(\w+)[>&*\]]* +[&*]?(?:\w+::)*([a-z]\w{3,})\(")
NO_TYPE = {"return", "else", "case", "throw", "not", "delete", "new", "co_return", "operator", "and", "or", "alignas"}
VARIABLE = re.compile(r"\b(?:auto|const|double|int|bool|std::\w+|\w+)[>&*]* *[&*]? ([a-z]\w{3,})(?= *(?:[={;:,)]|\[))")
CALL = re.compile(r"(?<![.\w:])(?<!->)(?:(\w+)::)*([a-z]\w{3,})\(")
PROMISED = re.compile(r"\b(?:class|struct) (\w+);")
CONSTANT = re.compile(r"\b(k[A-Z]\w*)\b(?=(?:\[[^\]]*\])?\s*[={](?!=))")
ENUMERATORS = re.compile(r"\benum (?:class )?\w*[^{;]*\{([^}]*)\}")
COMMENTS_AND_TEXTS = re.compile(r'//[^\n]*|/\*.*?\*/|R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"', re.DOTALL)


class Tree:
    """All files under the roots by the path that an include names them with."""

    def __init__(self, roots: list[Path]) -> None:
        self.texts: dict[str, str] = {}
        self.places: dict[str, Path] = {}
        for root in roots:
            for file in sorted(root.rglob("*")):
                if file.suffix in SUFFIXES and file.is_file():
                    path = file.relative_to(root).as_posix()
                    self.texts[path] = file.read_text(encoding="utf-8")
                    self.places[path] = file
        self.code = {path: COMMENTS_AND_TEXTS.sub('""', text) for path, text in self.texts.items()}
        self.reached: dict[str, frozenset[str]] = {}
        self.namespaces = {part for code in self.code.values() for found in re.findall(r"\bnamespace ([\w:]+)", code)
                           for part in found.split("::")}
        self.promised = {path: frozenset(PROMISED.findall(code)) for path, code in self.code.items()}
        self.declared_in = self._declared_in()

    def _declared_in(self) -> dict[str, str]:
        """Of each name that one header alone declares, and no other file but this header's source: the header."""
        places = defaultdict(set)
        functions = defaultdict(set)
        others = set()  # names that mean something else somewhere
        for path, code in self.code.items():
            names = TYPE.findall(code) + CONSTANT.findall(code)
            for values in ENUMERATORS.findall(code):
                names += re.findall(r"\b\w+\b", values)
            for name in set(names) - NO_TYPE:
                places[name].add(path)
            others.update(VARIABLE.findall(code))
            for found in FUNCTION.finditer(code):
                before, name = found.groups()
                if before in NO_TYPE or name in NO_TYPE:
                    continue
                first = code.rfind("\n", 0, found.start()) + 1
                if code[first] in " }" and path.endswith((".h", ".cuh")):
                    others.add(name)  # a member
                functions[name].add(re.sub(r"\.cpp$", ".h", path))
        once = {name: min(at) for name, at in places.items() if len(at) == 1 and re.match(r"k?[A-Z]", name)}
        once |= {name: min(at) for name, at in functions.items() if len(at) == 1 and name not in others}
        return {name: path for name, path in once.items() if path.endswith((".h", ".cuh")) and path in self.code and not path.startswith(STAND_INS)}

    def reach(self, path: str) -> frozenset[str]:
        """What `path` includes, directly or through the project's headers: theirs as paths, others as <name>."""
        if path not in self.reached:
            self.reached[path] = frozenset()  # a circle ends here
            found = set()
            for quote, header in INCLUDE.findall(self.texts[path]):
                local = (Path(path).parent / header).as_posix()
                known = header if header in self.texts else local if local in self.texts else None
                if known is None:
                    found.add(f"<{header}>")
                    found.update(f"<{other}>" for other in BRINGS.get(header, []))
                else:
                    found.add(known)
                    found |= self.reach(known)
            self.reached[path] = frozenset(found)
        return self.reached[path]


def problems(roots: list[Path]) -> list[str]:
    tree = Tree(roots)
    found = []
    for path, code in tree.code.items():
        reach = tree.reach(path)
        missing = {}
        for name in STD_NAME.findall(code):
            header = HEADERS_OF.get(name)
            if header and f"<{header}>" not in reach:
                missing.setdefault(f"<{header}>", f"std::{name}")
        used = SUITE.sub("", code)
        for within, name in {*WORD.findall(used), *CALL.findall(used)}:
            if within and (within in OF_OTHERS or within not in tree.namespaces):  # a type's own, or somebody else's
                continue
            header = tree.declared_in.get(name)
            if header is None or header == path or header in reach:
                continue
            promised = any(name in tree.promised[file] for file in (path, *(reach & tree.code.keys())))
            if not promised:
                missing.setdefault(f'"{header}"', name)
        found += [f"{tree.places[path]}: uses {name} and does not include {header}" for header, name in sorted(missing.items())]
    return found


def main() -> int:
    found = problems([Path(root) for root in sys.argv[1:]])
    print("\n".join(found) if found else "Every file includes what it uses.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
