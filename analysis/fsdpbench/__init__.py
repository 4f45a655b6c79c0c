"""fsdpbench from Python: it starts the program and reads what this writes; nothing is computed here.

    import fsdpbench as fb
    run = fb.simulate("llama3-8b-emulated", cluster="dgx-h100", ranks=64, set={"fsdp.backward_prefetch": "none"})
    run.step_ms, run.exposed_comm_ms, run.causes
    run.timeline()

A call that the program refuses raises ProgramError with the program's own sentence and exit code.
"""

from __future__ import annotations

import importlib
from typing import Any, List

# Where each name is, imported when it is used: `fsdpbench` on PATH imports this package at every start.
_HOMES = {
    "simulate": "commands", "run": "commands", "what_if": "commands", "explain": "commands", "tune": "commands",
    "expect": "commands", "Expectation": "results",
    "sweep": "commands", "open": "commands", "load": "results", "Result": "results", "Run": "results", "Sweep": "results", "Tuning": "results",
    "Explanation": "results", "WhatIf": "results", "Comparison": "results", "Gate": "results", "Acceptance": "results",
    "TraceExplanation": "results", "Record": "fields", "Records": "fields", "Picture": "results", "ProgramError": "call", "program": "program",
}
__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata
        try:
            return metadata.version("fsdpbench")
        except metadata.PackageNotFoundError:  # used from a source tree
            return importlib.import_module(".analysis", __name__).__version__
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("." + _HOMES[name], __name__), name)


def __dir__() -> List[str]:
    return __all__
