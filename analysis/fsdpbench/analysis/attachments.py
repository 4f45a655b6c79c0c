"""Traces inside the page: it is mailed alone, and a link to a file that stayed behind would be dead."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import List

from .page import Attachment
from .schema import MAX_BYTES, open_input
from .text import clean, size
from .trace import find_trace

MOST_BYTES = 5_000_000  # packed, of one trace


def trace_attachments(folder: Path, name: str = "trace", most_bytes: int = MOST_BYTES) -> List[Attachment]:
    """The merged trace, packed in where it is small; and where the files of the ranks lie. name: of the saved file."""
    files = []
    path = find_trace(folder)
    if path is not None:
        files.append(packed_trace(path, name, most_bytes))
    if (folder / "trace").is_dir():
        files.append(Attachment(f"One file a rank, for tools that read PyTorch profiler traces, is not in this page: "
                                f"trace/ of the result folder {clean(folder.resolve().name, 80)} has it."))
    return files


def packed_trace(path: Path, name: str, most_bytes: int = MOST_BYTES) -> Attachment:
    """One trace, or why it is not in the page; name: of the saved file."""
    where = f"{path.name} of the result folder {clean(path.parent.resolve().name, 80)}"
    try:
        large = path.stat().st_size > MAX_BYTES
        with open_input(path) as file:
            data = b"" if large else file.read()
    except OSError as error:
        return Attachment(f"The trace cannot be read ({error.strerror}): {where}.")
    if not large and path.suffix != ".gz":
        data = gzip.compress(data, mtime=0)
    if large or len(data) > most_bytes:
        return Attachment(f"The trace ({size(path.stat().st_size)}) is too large to be in this page: it is {where}.")
    return Attachment(f"{name}.json.gz, all ranks ({size(len(data))}), saved by a click", f"{name}.json.gz", data)
