"""A file of another system as flat settings: JSON, TOML, YAML, arguments of a command line, or a shell script of them."""

from __future__ import annotations

import errno
import fnmatch
import json
import operator
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple, Union

import yaml

from ..analysis.schema import open_input

try:
    import tomllib
except ImportError:  # Python before 3.11
    import tomli as tomllib  # type: ignore

Scalar = Union[bool, int, float, str]
DEEPEST, MOST_VALUES, MOST_BYTES = 16, 100_000, 16 << 20
EXPECTED = "expected a file of another system's settings."


class Refused(Exception):
    """A sentence for the user: why there is no profile of these files."""


@dataclass
class Settings:
    """ "zero_optimization.stage" -> 3, "optimizer.params.betas.0" -> 0.9. An argument is named without its dashes and is True where it
    has no value; more_words holds the words behind its value, texts those that belong to none."""

    format: str
    values: Dict[str, Scalar] = field(default_factory=dict)
    more_words: Dict[str, List[str]] = field(default_factory=dict)
    texts: List[str] = field(default_factory=list)
    path: str = ""

    def has(self, *names: str) -> bool:
        """Whether each is a setting or, with a dot at its end, a table."""
        return all(name in self.values or name.endswith(".") and any(key.startswith(name) for key in self.values) for name in names)

    def any(self, *names: str) -> bool:
        return any(self.has(name) for name in names)


def flatten(node: Any, name: str, depth: int, found: Dict[str, Scalar]) -> Dict[str, Scalar]:
    if depth > DEEPEST or len(found) > MOST_VALUES:
        raise Refused(f"{name}: nested more than {DEEPEST} deep, or more than {MOST_VALUES} settings.")
    if isinstance(node, (dict, list)):
        for key, value in (node.items() if isinstance(node, dict) else enumerate(node)):
            flatten(value, f"{name}.{key}" if name else str(key), depth + 1, found)
    elif node is not None and node == node:  # not a number
        found[name] = node if isinstance(node, (bool, int, float, str)) else str(node)
    return found


class _Loader(yaml.SafeLoader):
    """1e-5 is a number, as in YAML 1.2; what has the tag of a class is ignored."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_multi_constructor("", lambda *_: None)


def _resolve_references(values: Dict[str, Scalar]) -> None:
    """OmegaConf's ${table.key}, and the defaults of ${oc.env:NAME,default} and of Primus' ${NAME:default}."""
    def referred(match: "re.Match[str]") -> str:
        name, behind = match.group(1), match.group(2)
        if behind is None:
            return str(values.get(name, match.group(0)))
        key, comma, default = behind.partition(",")
        return behind if "." not in name else str(values.get(key, default if comma else match.group(0)))
    for name, value in list(values.items()):
        for _ in range(4):
            if isinstance(value, str) and "${" in value:
                value = scalar_of(re.sub(r"\$\{([\w.]+)(?::([^${}]*))?\}", referred, value))
        values[name] = value


def scalar_of(word: str) -> Scalar:
    """A word of a command line."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return int(word) if re.fullmatch(r"[-+]?\d+", word) else float(word) if re.match(r"[-+.]?\d", word) else word
    except ValueError:
        return word


def _split(text: str, whole: bool = False) -> List[str]:
    """As the shell splits words, and once more where a quoted word holds several arguments."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        words = text.split()
    return words if whole else [part for word in words for part in (
        _split(word, True) if " " in word and re.search(r"(^|\s)--\w", word) else [word])]


_ASSIGNMENT = re.compile(r"\s*(?:(?:export|local|readonly|declare)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?=)(.*)$", re.S)
_REFERENCE = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?:(:?[-=+])((?:[^{}]|\$\{[^{}]*\})*))?\}|\$([A-Za-z_]\w*)")
_COMPARE = {"-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-lt": operator.lt, "-ge": operator.ge, "-le": operator.le}


class _Shell:
    """Assignments, arrays, defaults and plain conditions of a script; what only a run could know stays as it is written."""

    def __init__(self) -> None:
        self.variables: Dict[str, str] = {}  # an array is its words, as they are quoted
        self.branches: List[Tuple[bool, bool, str]] = []  # of each open if or case: taken now, taken before, and what a case is about

    def expand(self, text: str, depth: int = 0) -> str:
        def value(match: "re.Match[str]") -> str:
            name, operation, default = match.group(1) or match.group(4), match.group(2) or " ", match.group(3)
            known = self.variables.get(name)
            if operation[-1] in "-=" and not known or operation[-1] == "+":
                found = self.expand(default.strip("\"'"), depth + 1) if depth < DEEPEST and (known or operation[-1] != "+") else ""
                self.variables.update({name: found} if operation[-1] == "=" else {})
                return found
            return match.group(0) if known is None else known
        return _REFERENCE.sub(value, re.sub(r"\$\(\((.*?)\)\)(?!\))", lambda m: self._sum(m.group(1)), text))

    def _sum(self, text: str) -> str:
        digits = re.sub(r"[A-Za-z_]\w*", lambda m: self.variables.get(m.group(0), m.group(0)), self.expand(text).replace("$", ""))
        try:  # digits and operators alone are computed
            plain = len(digits) < 200 and "**" not in digits and re.fullmatch(r"[\d\s+\-*/%()]+", digits)
            return str(eval(digits.replace("/", "//"), {"__builtins__": {}})) if plain else f"$(({text}))"
        except (SyntaxError, ArithmeticError, TypeError):
            return f"$(({text}))"

    def _test(self, text: str) -> bool:
        words = ["" if re.fullmatch(r"\$\{?\w+\}?", word) else word for word in map(self.expand, _split(re.sub(r"\[\[?|\]\]?|^\s*test\s", " ", text), True))]
        if len(words) == 2 and words[0] in ("-z", "-n"):
            return (words[1] == "") == (words[0] == "-z")
        if len(words) == 3 and words[1] in ("=", "==", "!="):
            return fnmatch.fnmatch(words[0], words[2]) == (words[1] != "!=")
        try:
            return len(words) == 3 and _COMPARE[words[1]](float(words[0]), float(words[2]))
        except (KeyError, ValueError):
            return False  # as whether there is a file

    def enter(self, line: str) -> str:
        """Follows if and case; returns what is left to do of the line, nothing in a branch that is not taken."""
        word = re.match(r"(if|elif|else|fi|case|esac|then|do|done|for|while)?\b", line + " ")
        word = word.group(1) if word else None
        if word in ("if", "case"):
            self.branches.append((False, False, self.expand(re.sub(r"^case\s+|\s+in\b.*$", "", line)).strip("\"' ") if word == "case" else ""))
        pattern = re.match(r"\(?([^()\s;=]+)\)(.*)$", line, re.S) if not word and self.branches and self.branches[-1][2] else None
        if self.branches and (word in ("if", "elif", "else") or pattern):
            _, before, about = self.branches[-1]
            condition = re.sub(r";?\s*then\b.*$", "", line.split("if", 1)[-1], flags=re.S)
            holds = word == "else" or (any(fnmatch.fnmatch(about, one.strip("\"'")) for one in pattern.group(1).split("|")) if pattern
                                       else any(all(map(self._test, part.split("&&"))) for part in condition.split("||")))
            taken = holds and not before and all(now for now, _, _ in self.branches[:-1])
            self.branches[-1] = (taken, taken or before, about)
        if word in ("fi", "esac") or word == "if" and re.search(r";\s*fi\s*$", line):
            del self.branches[-1:]
        if word or not all(taken for taken, _, _ in self.branches):
            return ""
        return pattern.group(2).strip() if pattern else line

    def assigns(self, line: str) -> bool:
        match = _ASSIGNMENT.match(line)
        name, adds, text = (match.group(1), match.group(2) == "+=", match.group(3).strip().rstrip("; ")) if match else ("", False, "")
        words = [] if text.startswith("(") else _split(text, True)
        if not match or len(words) > 1 and not re.search(r"\$\(|`", text) and not all("=" in word for word in words[1:]):
            return False  # no assignment, or one for a single command
        before = self.variables.get(name, "") * adds
        array = " ".join(map(shlex.quote, _split(self.expand(text[1:].rstrip(")")))))
        self.variables[name] = f"{before} {array}".strip() if text.startswith("(") else before + self.expand(" ".join(words))
        return True


def _statements(text: str) -> Iterator[str]:
    """Lines, joined where a backslash, an open bracket of an array or a quote continues them."""
    pending = ""
    for line in re.sub(r"[ \t]*\\[ \t]*\n", " ", text).splitlines():
        if pending or not re.match(r"\s*#", line):
            pending += "\n" * bool(pending) + line
            bare = re.sub(r"(?m)(^|\s)#.*$", "", pending)
            array, value = re.match(r"\s*(?:\w+\s+)?\w+\+?=\(", pending), re.match(r"\s*(?:export\s+)?\w+\+?=", pending)
            is_open = array and bare.count("(") > bare.count(")") or value and not array and pending.count('"') % 2
            if not is_open or pending.count("\n") > 500:
                yield pending.strip()
                pending = ""
    yield pending.strip()


def read_arguments(text: str, path: str) -> Settings:
    """Arguments over one or more lines, or a script that calls a program with them."""
    shell, commands, found = _Shell(), [], Settings("arguments", path=path)
    for line in filter(None, map(shell.enter, _statements(text))):
        if not shell.assigns(line):
            commands.append([word for word in _split(shell.expand(line)) if word not in ("\\", "(", ")")])
    named = [words for words in commands if any(re.search(r"--\w|=|^[a-z_]+:\w+$", word) for word in words)]
    for words in named or [_split(value) for value in shell.variables.values() if re.search(r"--|^\w[\w.]*=", value)]:
        last = argument = ""
        for word in words:
            setting, named_by = re.fullmatch(r"\+{0,2}([A-Za-z_][\w.@/-]*)=(.*)", word, re.S), last
            last = ""
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                found.values[name] = scalar_of(value) if equals else True
                last = argument = "" if equals else name
            elif named_by:
                found.values[named_by] = scalar_of(word)
            elif setting:
                found.values[setting.group(1)], argument = scalar_of(setting.group(2)), ""
            elif re.fullmatch(r"[a-z_]+:\w+", word):
                found.values[word.partition(":")[0]] = word.partition(":")[2]
            else:
                (found.more_words.setdefault(argument, []) if argument else found.texts).append(word)
    return found


def _format_of(text: str, path: str) -> str:
    if path.endswith(".sh") or re.match(r"#!.*sh\b", text):
        return "arguments"
    lines = (re.sub(r"(^|\s)#.*$", "", raw).strip() for raw in text.splitlines())
    line = next((line for line in lines if line and line != "---"), "")
    if line.startswith("--") or line.endswith("=(") or " --" in line or re.match(r"(export|set) ", line):
        return "arguments"
    return "json" if line.startswith("{") or path.endswith(".json") else "toml" if line.startswith("[") or " = " in line else "yaml"


def parse_settings(text: str, path: str) -> Settings:
    """By what the text looks like. Raises Refused, which names `path`."""
    found = Settings(_format_of(text, path), path=path)
    try:
        if found.format == "arguments":
            return read_arguments(text, path)
        if found.format == "yaml":
            for document in yaml.load_all(text, _Loader):
                flatten(document, "", 0, found.values)
            _resolve_references(found.values)
        else:
            flatten((json if found.format == "json" else tomllib).loads(text), "", 0, found.values)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise Refused(f"{path}:{mark.line + 1 if mark else 1}: no YAML: {getattr(error, 'problem', str(error).splitlines()[0])}.")
    except ValueError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise Refused(f"{path}{':' + line.group(1) if line else ''}: no {found.format.upper()}: {error}.")
    except RecursionError:
        raise Refused(f"{path}: nested more than {DEEPEST} deep.")
    return found


def read_file(path: str) -> Tuple[str, str]:
    """The text of a file, and its path for messages."""
    try:
        with open_input(Path(path)) as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise Refused(f"{path}: {'is no file' if error.errno == errno.EINVAL else error.strerror}; {EXPECTED}")
    if len(data) > MOST_BYTES:
        raise Refused(f"{path}: more than {MOST_BYTES} bytes; {EXPECTED}")
    return data.decode("utf-8-sig", "replace"), path
