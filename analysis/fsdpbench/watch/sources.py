"""The files that are watched, read as they grow. What a file is shows its content."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from . import ras
from .flight import add_dump, read_pickle
from .job import MOST_RANKS, Job, Rank, WatchError, inside, need, number, words

MOST = 64 << 20  # bytes: of a longer file the last ones
EXPECTED = "expected dumps of PyTorch's flight recorder, answers of NCCL's RAS, or what fsdpbench.torch writes"


def add_record(job: Job, text: str, path: str, seen: Optional[int]) -> bool:
    """One object of a file; whether more of its kind may follow. Raises WatchError with why it is none that is known."""
    told = ras.parse(text)
    if "fsdpbench_step" in told:
        _add_step(job, told)
    elif "nccl_version" in told and "communicators" in told:
        ras.add_answer(job, told, None)
    elif told:
        add_dump(job, told, path, seen)
        return False
    else:
        raise WatchError("is no JSON.")
    return True


def _add_step(job: Job, line: Dict) -> None:  # type: ignore[type-arg]
    """One line of fsdpbench.torch.step()."""
    rank, ranks = need(line, "rank", MOST_RANKS), need(line, "ranks", MOST_RANKS)
    step, ended, took = need(line, "fsdpbench_step"), need(line, "ended_ns"), number(line.get("step_ms"))
    if rank >= ranks or took is None:
        raise WatchError("lacks a rank below ranks, or step_ms.")
    waits = [ms for key in ("gathers_ms", "reductions_ms", "own_ms") if (ms := number(line.get(key))) is not None]
    view = job.ranks.setdefault(rank, Rank())
    job.world, view.host = max(job.world, ranks), words(line.get("host")) or view.host
    view.hear(ended)
    if view.steps and step <= next(reversed(view.steps)):
        view.steps.clear()  # a job that begins anew in the same files
    view.steps[step] = (ended, took, sum(waits) if waits else -1.0)
    if len(view.steps) > 2000:
        del view.steps[next(iter(view.steps))]


@dataclass
class File:
    offset: int = 0  # where steps and answers are read on; every other file is read anew
    state: Tuple[int, int] = (-1, -1)
    good: int = 0
    bad: int = 0
    why: str = ""  # of the first that is left out


class Sources:
    """`paths`: files, or folders of which every file is read that is one of these."""

    def __init__(self, paths: List[str]) -> None:
        self.paths, self.first = paths, True
        self.files: Dict[str, File] = {}
        for path in paths:
            if not os.path.exists(path):
                raise WatchError(f"{path}: there is no such file or folder.")

    def read(self, job: Job, now: int, once: bool) -> None:
        """What is new since the last time. `once`: files are whole, so that a last line without its end counts."""
        for path in [file for given in self.paths for file in self._list(given, once)]:
            file = self.files.setdefault(path, File())
            try:
                self._read(path, file, job, None if self.first else now, once)
            except FileNotFoundError:
                continue  # renamed or taken away meanwhile
            except (OSError, WatchError) as error:
                file.why = f"cannot be read: {error.strerror}." if isinstance(error, OSError) else str(error)
            if once and path in self.paths and not file.good:
                raise WatchError(f"{path}: {file.why}")
        job.notes = [f"{path}: {file.why}" if not file.bad else
                     f"{path}: {file.bad} of {file.good + file.bad} records are left out; the first {file.why}"
                     for path, file in self.files.items() if file.why]
        if once and self.paths and not any(file.good for file in self.files.values()):
            raise WatchError(job.notes[0] if job.notes else f"{self.paths[0]}: there is nothing to read; {EXPECTED}.")
        self.first = False

    @staticmethod
    def _list(path: str, once: bool) -> List[str]:
        if not os.path.isdir(path):
            return [path]
        try:
            own = sorted(one.path for one in os.scandir(path) if one.name[0] != "." and one.is_file())
        except OSError as error:
            raise WatchError(f"{path}: cannot be read: {error.strerror}.") from None
        if not own and once:
            raise WatchError(f"{path}: has no files; {EXPECTED}.")
        return [one for one in own if not one.endswith(".tmp")]

    def _read(self, path: str, file: File, job: Job, seen: Optional[int], once: bool) -> None:
        status = os.stat(path)
        if (status.st_size, status.st_mtime_ns) == file.state:
            return
        file.state = (status.st_size, status.st_mtime_ns)
        file.offset = max(file.offset if file.offset <= status.st_size else 0, status.st_size - MOST)
        with open(path, "rb") as stream:
            stream.seek(file.offset)
            data = stream.read(MOST)
        text = data.decode("utf-8", "replace")
        if data[:1] == b"\x80":
            try:
                add_dump(job, inside({"": read_pickle(data)}, ""), path, seen)
            except (ValueError, RecursionError) as error:
                raise WatchError(f"is a pickle that is not read: {words(str(error))}.") from None
        elif ras.IN_TEXT in text:
            ras.add_text(job, text[max(text.rfind("NCCL version"), 0):], status.st_mtime_ns)
        elif file.offset or text.startswith("{"):
            return self._records(path, file, job, data, once, seen)
        elif data or once:
            raise WatchError(f"is neither JSON nor a pickle; {EXPECTED}.")
        file.good, file.why = 1, ""

    @staticmethod
    def _records(path: str, file: File, job: Job, data: bytes, once: bool, seen: Optional[int]) -> None:
        """One object after another, each of which begins a line. The last one may not be written to its end."""
        starts = [match.start() for match in re.finditer(rb"^\{", data, re.MULTILINE)]
        base = file.offset
        for begin, end in zip(starts, [*starts[1:], len(data)]):
            try:
                if not add_record(job, data[begin:end].decode("utf-8", "replace"), path, seen):
                    file.good, file.bad, file.why = 1, 0, ""
                    return
                file.good, file.offset = file.good + 1, base + end
            except WatchError as error:
                if end == len(data) and not once:
                    return
                file.bad, file.why = file.bad + 1, file.why or str(error)
