"""What `fsdpbench watch` reads of a job: a line per step and, each second or two, what PyTorch's flight recorder holds."""

from __future__ import annotations

import atexit
import json
import logging
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, Callable, List, Optional

from .late import Times
from .trace import log, rank_and_ranks

FOLDER = "FSDPBENCH_WATCH"  # where each rank writes; empty: nothing is written
PERIOD_S = 2.0


def recorded() -> List[bytes]:
    """The flight recorders of this process as JSON: gloo's and NCCL's. Both have some fields only in newer versions of
    PyTorch, and old versions have none of them."""
    try:
        from torch._C import _distributed_c10d as c10d
    except ImportError:
        return []
    found = []
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        dump: Optional[Callable[[], Any]] = getattr(c10d, name, None)
        if dump is not None:
            found.append(dump())
    return [one if isinstance(one, bytes) else str(one).encode() for one in found if one]


class Writer:
    """The writer of one rank. A thread of its own writes the dump, so that it goes on while the rank waits in a collective, and stops
    when the process does."""

    def __init__(self, folder: Path, period_s: float = PERIOD_S) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.rank, self.ranks = rank_and_ranks()
        self.host = socket.gethostname()
        self.steps = open(folder / f"steps_{self.rank}.jsonl", "w", buffering=1, encoding="utf-8")  # noqa: SIM115
        self.period_s = period_s
        self.over = threading.Event()
        self.writing = threading.Lock()
        self.dump()
        atexit.register(self.end)
        threading.Thread(target=self._repeat, daemon=True, name="fsdpbench-watch").start()

    def step(self, number: int, times: Times) -> None:
        """A step that has ended."""
        line = {"fsdpbench_step": number, "rank": self.rank, "ranks": self.ranks, "host": self.host,
                "ended_ns": time.time_ns(), "step_ms": times.step_ms}
        line |= {name: ms for name in ("gathers_ms", "reductions_ms", "own_ms") if (ms := getattr(times, name)) is not None}
        self.steps.write(json.dumps(line) + "\n")

    def dump(self, ended: bool = False) -> None:
        """Written beside its place and renamed: who reads it finds all of it."""
        own = {"rank": self.rank, "ranks": self.ranks, "host": self.host, "pid": os.getpid()}
        dumps = b",".join(recorded())
        own["written_ns"] = time.time_ns()
        if ended:
            own["ended"] = True
        text = b'{"fsdpbench":' + json.dumps(own).encode() + b',"dumps":[' + dumps + b"]}"
        place = self.folder / f"flight_{self.rank}.json"
        beside = place.with_suffix(".tmp")
        with self.writing:
            if self.over.is_set() and not ended:
                return
            beside.write_bytes(text)
            beside.replace(place)

    def close(self) -> None:
        self.over.set()

    def end(self) -> None:
        """At the end of the program: who stops writing after this has not fallen silent."""
        if self.over.is_set():
            return
        self.close()
        try:
            self.dump(ended=True)
        except OSError as error:  # a folder that is gone by now
            log.log(logging.WARNING, "fsdpbench: the end is not written for `fsdpbench watch`: %s", error)

    def _repeat(self) -> None:
        while not self.over.wait(self.period_s):
            try:
                self.dump()
            except Exception as error:  # noqa: BLE001: the job matters more
                log.log(logging.WARNING, "fsdpbench: nothing is written for `fsdpbench watch` any more: %s", error)
                return


def writer() -> Optional[Writer]:
    """This rank's, if FSDPBENCH_WATCH names a folder."""
    folder = os.environ.get(FOLDER)
    return Writer(Path(folder)) if folder else None
