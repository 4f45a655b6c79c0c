"""fsdpbench in a PyTorch program: a profile of a wrapped model, explained traces, a line per k steps.

    import fsdpbench.torch
    profile = fsdpbench.torch.profile_of(model)                        # what fsdpbench simulates, tunes and explains
    schedule = torch.profiler.schedule(wait=5, warmup=2, active=3)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=fsdpbench.torch.trace_handler("out/")) as prof: ...

Only this package imports torch, and each name of it only when it is used.
"""

from __future__ import annotations

import importlib
from typing import Any, List

_HOMES = {"profile_of": "profile", "Profile": "profile", "trace_handler": "trace", "step": "steps"}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("." + _HOMES[name], __name__), name)


def __dir__() -> List[str]:
    return __all__
