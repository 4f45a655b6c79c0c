"""step(): how long steps take and what they wait for, without the profiler; one line every k steps."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
import time
from typing import Any, Dict, List, Optional

import torch

from . import waits, watch
from .late import Times, line_of
from .trace import log, rank_and_ranks, say

OFF = "FSDPBENCH_STEP"  # 0: step() does nothing
_PATIENCE_S = 60.0
_POLL_S = 0.5
_FIRST_STEPS = 1  # left out: they allocate, compile and learn an order


class _Timer:
    """All that is known of this process's steps."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.clock: Any = waits.CudaClock() if torch.cuda.is_available() and torch.cuda.is_initialized() else waits.HostClock()
        self.spans = waits.Spans(self.clock)
        self.replaced = waits.install(self.spans)
        self.pending: List[Any] = []   # (begin, end, spans) of steps that the device has not finished
        self.done: List[Times] = []
        self.count = 0
        self.ended = _FIRST_STEPS
        self.lines = 0
        self.writer = watch.writer()

    def begin(self) -> None:
        self.spans.on = True
        self.spans.take()
        self.start = self.clock.mark()

    def end(self, failed: bool) -> None:
        self.spans.on = False
        found = self.spans.take()
        if failed:
            return
        self.count += 1
        if self.count > _FIRST_STEPS:
            self.pending.append((self.start, self.clock.mark(), found))
        while self.pending and self.clock.is_past(self.pending[0][1]):
            self.done.append(self._times(*self.pending.pop(0)))
            self.ended += 1
            if self.writer is not None:
                self.writer.step(self.ended, self.done[-1])
        if len(self.done) >= self.every:
            self._line(self.done[:self.every])
            del self.done[:self.every]

    def _times(self, begin: Any, end: Any, found: List[Any]) -> Times:
        spent: Dict[str, float] = {}
        for kind, first, last in found:
            spent[kind] = spent.get(kind, 0.0) + self.clock.ms(first, last)
        return Times(self.clock.ms(begin, end), spent.get(waits.GATHERS), spent.get(waits.REDUCTIONS), spent.get(waits.OWN))

    def _line(self, steps: List[Times]) -> None:
        mine = Times(*(_mean([getattr(one, of.name) for one in steps]) for of in dataclasses.fields(Times)))
        self.lines += 1
        rank, ranks = rank_and_ranks()
        if ranks == 1 or not torch.distributed.is_initialized():
            say(line_of({rank: mine}, len(steps), 1))
            return
        store = torch.distributed.distributed_c10d._get_default_store()
        key = f"fsdpbench/step/{self.lines}/"
        store.set(f"{key}{rank}", json.dumps(dataclasses.astuple(mine)))
        if rank == 0:
            threading.Thread(target=_collect, args=(store, key, ranks, len(steps)), daemon=True, name="fsdpbench-step").start()


def _mean(values: List[Optional[float]]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) / len(values) if known else None


def _collect(store: Any, key: str, ranks: int, steps: int) -> None:
    """Rank 0, beside its training: what the others have put into the store that the job began with. No collective."""
    try:
        until = time.monotonic() + _PATIENCE_S
        found: Dict[int, Times] = {}
        while len(found) < ranks:
            for rank in range(ranks):
                if rank not in found and store.check([f"{key}{rank}"]):
                    found[rank] = Times(*json.loads(store.get(f"{key}{rank}")))
            if len(found) < ranks:
                if time.monotonic() >= until:
                    break
                time.sleep(_POLL_S)
        with contextlib.suppress(RuntimeError):  # a store that cannot
            for rank in found:
                store.delete_key(f"{key}{rank}")
        say(line_of(found, steps, ranks))
    except Exception as error:  # noqa: BLE001: the job matters more
        _give_up(error)


_timer: Optional[_Timer] = None
_gave_up = False


def _give_up(error: BaseException) -> None:
    """Said once; the job goes on without."""
    global _timer, _gave_up
    if not _gave_up:
        log.warning("fsdpbench: steps are no longer timed: %s: %s", type(error).__name__, error)
    _gave_up = True
    if _timer is not None:
        waits.uninstall(_timer.replaced)
        if _timer.writer is not None:
            _timer.writer.close()
        _timer.spans.on = False
        _timer = None


class step:
    """`with fsdpbench.torch.step():` around each optimizer step. Every so many steps rank 0 says one line: the step, the
    waits for gathers, reductions and its own collectives, and the rank for which the others wait.

    every: steps from one line to the next; the first call's counts.

    Nothing is synchronised: times of GPUs are events that are read when they are past, and ranks tell theirs through the
    store with which the job began. FSDPBENCH_STEP=0 in the environment makes this do nothing. If FSDPBENCH_WATCH names a
    folder, each rank writes there what `fsdpbench watch` reads: a line per step, and every two seconds its flight recorder.
    """

    def __init__(self, every: int = 50) -> None:
        self._every = every

    def __enter__(self) -> "step":
        global _timer
        if _gave_up or os.environ.get(OFF) == "0":
            return self
        try:
            if _timer is None:
                _timer = _Timer(self._every)
            _timer.begin()
        except Exception as error:  # noqa: BLE001: the job matters more
            _give_up(error)
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if _timer is None:
            return
        try:
            _timer.end(kind is not None)
        except Exception as error:  # noqa: BLE001: the job matters more
            _give_up(error)
