"""trace_handler(): torch.profiler's traces of all ranks, explained while the job goes on."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from .explained import explain_traces, line_of, trace_file, wait_for_traces

log = logging.getLogger("fsdpbench")

_running: List[threading.Thread] = []


def rank_and_ranks() -> Tuple[int, int]:
    """Of the process group, or of the launcher, or one rank alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def say(line: str) -> None:
    """To the logger `fsdpbench`; to stderr where nobody has set up logging for lines that are not warnings."""
    if log.isEnabledFor(logging.INFO) and log.hasHandlers():
        log.info(line)
    else:
        import sys
        print(f"fsdpbench: {line}", file=sys.stderr, flush=True)


def trace_handler(folder: Union[str, "os.PathLike[str]"], *, on_explained: Optional[Callable[[Dict[str, Any]], None]] = None,
                  patience_s: float = 120, wait_at_exit_s: float = 60) -> Callable[[Any], None]:
    """For torch.profiler.profile(on_trace_ready=…). Each rank writes its trace to FOLDER/step_N/rank_R.json.gz. Rank 0
    explains those of all ranks in a background process and logs one line; the page, explain.json and the timeline of all
    ranks are in FOLDER/step_N/explained.

    folder: seen by all ranks; where it is not, rank 0 explains the ranks that it sees.
    on_explained: called on rank 0, by another thread, with the content of explain.json.
    patience_s: how long rank 0 waits for the other ranks' traces.
    wait_at_exit_s: how long the job's end waits for an explanation that is not done.

    No error of its own ends the job: it is logged as a warning.
    """
    home = Path(folder)

    def handler(prof: Any) -> None:
        try:
            rank, ranks = rank_and_ranks()
            file = trace_file(home, int(prof.step_num), rank)
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_name(f".{os.getpid()}.{file.name}")
            prof.export_chrome_trace(str(unfinished))
            os.replace(unfinished, file)  # seen once it is whole
        except Exception as error:  # noqa: BLE001: the job matters more
            log.warning("fsdpbench: no trace was written: %s", error)
            return
        if rank == 0:
            thread = threading.Thread(target=_explain, args=(file.parent, ranks, patience_s, on_explained), daemon=True,
                                      name="fsdpbench-explain")
            thread.start()
            if not _running:
                atexit.register(_finish, wait_at_exit_s)
            _running.append(thread)

    return handler


def _explain(folder: Path, ranks: int, patience_s: float, on_explained: Optional[Callable[[Dict[str, Any]], None]]) -> None:
    try:
        traces = wait_for_traces(folder, ranks, patience_s)
        explanation = explain_traces(traces, folder / "explained")
        say(line_of(explanation, folder / "explained", ranks - len(traces)))
        if on_explained is not None:
            on_explained(explanation)
    except Exception as error:  # noqa: BLE001: the job matters more
        log.warning("fsdpbench: the traces in %s were not explained: %s", folder, error)


def _finish(wait_s: float) -> None:
    for thread in _running:
        thread.join(wait_s)
        if thread.is_alive():
            log.warning("fsdpbench: the explanation is not done; `fsdpbench trace explain` makes it of the traces")
