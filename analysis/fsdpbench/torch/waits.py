"""Where a step waits for gathers, reductions and the job's own collectives: hooks around what PyTorch's FSDP1, FSDP2 and
DDP do, and around the collectives of torch.distributed, as a loop that sums its tokens or its loss calls them.

A span is a pair of marks: of the host's clock, or CUDA events in the stream that computes. Nothing is waited for here. On
CPUs a collective blocks the host, so that the call itself is the wait. On GPUs the stream waits where FSDP tells it to.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

GATHERS, REDUCTIONS, OWN = "gathers", "reductions", "own collectives"
_COLLECTIVES = ("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "broadcast",
                "all_to_all", "all_to_all_single", "barrier")


class HostClock:
    """Marks are nanoseconds."""

    def mark(self) -> Any:
        return time.perf_counter_ns()

    def is_past(self, mark: Any) -> bool:
        return True

    def ms(self, begin: Any, end: Any) -> float:
        return float(end - begin) / 1e6


class CudaClock:
    """Marks are events of the current stream. They are read once they are past: nobody waits for the device."""

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def is_past(self, mark: Any) -> bool:
        return bool(mark.query())

    def ms(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end))


class Spans:
    """The spans of the step that is running. Of nested ones the outermost counts."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.found: List[Tuple[str, Any, Any]] = []
        self.hooked: Dict[str, bool] = {}
        self.on = False
        self._depth = 0

    def around(self, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            # What is compiled is left alone: a mark would break its graph.
            if torch.compiler.is_compiling() or not self.on or self._depth:
                return original(*args, **kwargs)
            self._depth += 1
            begin = self.clock.mark()
            try:
                return original(*args, **kwargs)
            finally:
                self.found.append((kind, begin, self.clock.mark()))
                self._depth -= 1
        self.hooked[kind] = True
        return timed

    def take(self) -> List[Tuple[str, Any, Any]]:
        found, self.found = self.found, []
        return found


def install(spans: Spans) -> List[Tuple[Any, str, Any]]:
    """Puts the hooks in. Returns what uninstall() takes them out with."""
    replaced: List[Tuple[Any, str, Any]] = []

    def hook(owner: Any, name: str, kind: str) -> None:
        original = getattr(owner, name, None)
        if original is not None:  # a version of PyTorch that has it not
            replaced.append((owner, name, original))
            setattr(owner, name, spans.around(kind, original))

    try:
        from torch.distributed.fsdp._fully_shard import _fsdp_param_group, _fsdp_state
        hook(_fsdp_param_group.FSDPParamGroup, "unshard", GATHERS)
        hook(_fsdp_param_group.FSDPParamGroup, "wait_for_unshard", GATHERS)
        hook(_fsdp_param_group, "foreach_reduce", REDUCTIONS)
        hook(_fsdp_state.FSDPState, "_root_post_backward_final_callback", REDUCTIONS)
    except ImportError:
        pass
    try:
        from torch.distributed.fsdp import _runtime_utils
        hook(_runtime_utils, "_unshard", GATHERS)
        hook(_runtime_utils, "_reduce_grad", REDUCTIONS)
        hook(_runtime_utils, "_reduce_grad_no_shard", REDUCTIONS)
        hook(_runtime_utils, "_post_backward_final_callback", REDUCTIONS)
    except ImportError:
        pass
    for name in _COLLECTIVES:
        hook(torch.distributed, name, OWN)
    try:
        from torch.distributed import _functional_collectives
        hook(_functional_collectives, "wait_tensor", OWN)
    except ImportError:
        pass
    _hook_ddp(spans, replaced)
    return replaced


def uninstall(replaced: List[Tuple[Any, str, Any]]) -> None:
    for owner, name, original in reversed(replaced):
        setattr(owner, name, original)


def _hook_ddp(spans: Spans, replaced: List[Tuple[Any, str, Any]]) -> None:
    """DDP reduces in C++. It waits for its reductions in a callback at the end of backward: one that is queued when
    backward begins runs before it, and one that this queues runs after it."""
    kind = torch.nn.parallel.DistributedDataParallel
    original = kind.forward

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        if spans.on and self.require_backward_grad_sync and torch.is_grad_enabled():
            tensor = _first_tensor(output)
            if tensor is not None:
                tensor.register_hook(begin)
        return output

    def begin(gradient: torch.Tensor) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(computed)

    def computed() -> None:
        start = spans.clock.mark()
        torch.autograd.Variable._execution_engine.queue_callback(lambda: spans.found.append((REDUCTIONS, start, spans.clock.mark())))

    replaced.append((kind, "forward", original))
    kind.forward = forward  # type: ignore[method-assign]


def _first_tensor(output: Any) -> Optional[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return output if output.requires_grad else None
    values = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else ()
    return next((found for found in map(_first_tensor, values) if found is not None), None)
