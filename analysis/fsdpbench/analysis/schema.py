"""Reads JSON of other people's making: checked versions, typed access, and errors that name file, key and remedy."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Optional

from ..fields import FILES

# The version of each kind of file that this package reads. Kinds of results have theirs from the program (fields.py).
VERSIONS: Dict[str, int] = {"result.json": FILES["run"][0], "sweep.json": FILES["sweep"][0],
                            "compare.json": FILES["compare"][0], "gate.json": FILES["gate"][0], "tune.json": 1,
                            "explain.json": FILES["explain"][0], "trace.json": 1}

# A larger file is not read: the page says so instead of filling the memory.
MAX_BYTES = 512 * 1024 * 1024


class ReportError(Exception):
    """Something is wrong with what the user gave; the message is a complete sentence."""


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def open_input(path: Path) -> BinaryIO:
    """A regular file, open for reading; raises OSError for anything else: a pipe would wait for somebody who writes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a folder, a pipe or a device, and no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_json(path: Path) -> "Node":
    """The whole of a .json or .json.gz file as an object; raises ReportError naming the file."""
    try:
        with open_input(path) as file:
            unpacked = gzip.GzipFile(fileobj=file) if path.name.endswith(".gz") else file
            data = unpacked.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ReportError(f"cannot read {path}: {reason}") from error
    if len(data) > MAX_BYTES:
        raise ReportError(f"{path} is larger than {MAX_BYTES >> 20} MiB and was not read")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_reject_constant)
    except UnicodeDecodeError as error:
        raise ReportError(f"{path} is not UTF-8 text (byte {error.start}): is it a file of fsdpbench?") from error
    except json.JSONDecodeError as error:
        raise ReportError(
            f"{path} is truncated or damaged: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ReportError(f"{path} holds {_kind(value)}; a JSON object is expected")
    return Node(path, "", value)


def check_version(node: "Node", kind: str, key: str = "schema_version") -> None:
    """Raises ReportError unless the file says the version that this package reads."""
    readable = VERSIONS[kind]
    version = node.value.get(key)
    if version is None:
        raise ReportError(f"{node.path} has no {key}; a {kind} of version {readable} is expected")
    if isinstance(version, bool) or version != readable:
        raise ReportError(f"{node.path} has {key} {version!r}; this package reads {readable}. "
                          "Use the package of the fsdpbench that wrote the file (make analysis).")


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


@dataclass(frozen=True)
class Node:
    """An object inside a file, with its place for error messages. Absent and null are the same: None or empty."""

    path: Path
    where: str
    value: Dict[str, Any]

    def place(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def wrong(self, key: str, expected: str) -> ReportError:
        return ReportError(f"{self.path}: {self.place(key)} is {_kind(self.value.get(key))}; {expected} is expected")

    def number(self, key: str) -> Optional[float]:
        value = self.value.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(key, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(key, "a finite number")
        return number

    def required(self, key: str) -> float:
        number = self.number(key)
        if number is None:
            raise ReportError(f"{self.path}: {self.place(key)} is missing; a number is expected")
        return number

    def integer(self, key: str) -> Optional[int]:
        number = self.number(key)
        return None if number is None else int(number)

    def text(self, key: str, default: str = "") -> str:
        value = self.value.get(key)
        if value is None:
            return default
        if isinstance(value, (dict, list)):
            raise self.wrong(key, "a text")
        return value if isinstance(value, str) else json.dumps(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.value.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def child(self, key: str) -> "Node":
        """An inner object; empty when absent."""
        value = self.value.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Node(self.path, self.place(key), value)

    def has(self, key: str) -> bool:
        return self.value.get(key) is not None

    def expect(self, kind: str, *keys: str) -> None:
        """Raises ReportError unless one of these keys is there, which every file of this kind has."""
        if not any(self.has(key) for key in keys):
            raise ReportError(f"{self.path} has no {' and no '.join(keys)}: it is no {kind} of fsdpbench, or a damaged "
                              "one")

    def items(self, key: str) -> List[Any]:
        value = self.value.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def children(self, key: str) -> List["Node"]:
        """A list of objects; empty when absent."""
        nodes = []
        for i, value in enumerate(self.items(key)):
            if not isinstance(value, dict):
                raise ReportError(f"{self.path}: {self.place(key)}[{i}] is {_kind(value)}; an object is expected")
            nodes.append(Node(self.path, f"{self.place(key)}[{i}]", value))
        return nodes

    def texts(self, key: str) -> List[str]:
        """A list of texts; empty when absent."""
        values = self.items(key)
        inner = Node(self.path, self.place(key), {str(i): v for i, v in enumerate(values)})
        return [inner.text(str(i)) for i in range(len(values))]

    def numbers(self, key: str) -> List[float]:
        """A list of finite numbers; empty when absent."""
        values = self.items(key)
        inner = Node(self.path, self.place(key), {str(i): v for i, v in enumerate(values)})
        return [inner.required(str(i)) for i in range(len(values))]

    def rows(self, key: str) -> List[List[float]]:
        """A list of equally long lists of finite numbers; empty when absent."""
        rows = []
        for i, value in enumerate(self.items(key)):
            if not isinstance(value, list):
                raise ReportError(f"{self.path}: {self.place(key)}[{i}] is {_kind(value)}; a list is expected")
            rows.append(Node(self.path, self.place(key), {str(i): value}).numbers(str(i)))
        if any(len(row) != len(rows[0]) for row in rows):
            raise ReportError(f"{self.path}: {self.place(key)} has rows of several lengths; a matrix is expected")
        return rows

    def number_map(self) -> Dict[str, float]:
        """The members of this object that are numbers."""
        return {k: self.required(k) for k, v in self.value.items()
                if isinstance(v, (int, float)) and not isinstance(v, bool)}
