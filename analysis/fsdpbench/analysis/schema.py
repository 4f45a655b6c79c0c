"""Reads files of other people's making: JSON, versions that are checked, and errors that name file, key and remedy."""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Dict, List

from ..fields import FILES, OBJECTS, ReportError, kind_of

# By kind: what messages call it and its file, and keys of which every file of this kind has one.
KINDS = {"run": ("result.json", ("metrics", "config", "failure")), "acceptance": ("acceptance", ("judgements",)),
         "sweep": ("sweep.json", ("cells",)), "compare": ("compare.json", ("a",)), "gate": ("gate", ("sentence",)),
         "explain": ("explain.json", ())}

# A larger file is not read: the page says so instead of filling the memory.
MAX_BYTES = 512 * 1024 * 1024


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def open_input(path: Path) -> BinaryIO:
    """A regular file, open for reading; raises OSError for anything else: a pipe would wait for somebody who writes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a folder, a pipe or a device, and no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_json(path: Path) -> Dict[str, Any]:
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
        raise ReportError(f"{path} holds {kind_of(value)}; a JSON object is expected")
    return value


def check_version(value: Dict[str, Any], path: Path, kind: str, key: str = "schema_version") -> None:
    """Raises ReportError unless a file of this kind says the version that the program writes."""
    readable = 1 if kind == "trace" else FILES[kind][0]
    version = value.get(key)
    if version is None:
        raise ReportError(f"{path} has no {key}; a {path.name} of version {readable} is expected")
    if isinstance(version, bool) or version != readable:
        raise ReportError(f"{path} has {key} {version!r}; this package reads {readable}. "
                          "Use the package of the fsdpbench that wrote the file (make analysis).")


def trace_events(value: Dict[str, Any], path: Path) -> List[Dict[str, Any]]:
    """Those of a merged trace that are on a track."""
    check_version(value, path, "trace", "schemaVersion")
    events = value.get("traceEvents") or []
    if not isinstance(events, list):
        raise ReportError(f"{path}: traceEvents is {kind_of(events)}; a list is expected")
    return [event for event in events if isinstance(event, dict) and isinstance(event.get("pid"), int)
            and isinstance(event.get("tid"), int)]


def read_record(path: Path, kind: str) -> Any:
    """A file of one of KINDS as an object of fields.py. Raises ReportError."""
    name, needed = KINDS[kind]
    value = read_json(path)
    check_version(value, path, kind)
    if needed and all(value.get(key) is None for key in needed):
        raise ReportError(f"{path} has no {' and no '.join(needed)}: it is no {name} of fsdpbench, or a damaged one")
    return OBJECTS[FILES[kind][1]](value, path)


def read_run(path: Path) -> Any:
    """The result of a run that lost no rank. Raises ReportError."""
    run = read_record(path, "run")
    failure = run.data.get("failure")
    if failure is not None:
        why = failure.get("message", "a rank failed") if isinstance(failure, dict) else failure
        raise ReportError(f"{path}: this run did not finish ({why}) and its result holds the step times of one rank only: "
                          "there is nothing to draw")
    return run


def setting(config: Any, key: str) -> Any:
    """A value of a resolved configuration by its dotted key, or None."""
    for part in key.split("."):
        config = config.get(part) if isinstance(config, dict) else None
    return config
