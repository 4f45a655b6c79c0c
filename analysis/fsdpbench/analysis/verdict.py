"""The verdict in words, put together from the numbers and the advice of the result files."""

from __future__ import annotations

from typing import List, Optional, Sequence

from ..fields import Record
from .numbers import complete
from .text import milliseconds, percent


def made_of(step_ms: Optional[float], parts: Record) -> Optional[str]:
    """'Of a step of 89 ms, 61 % is computation, 34 % …'."""
    if step_ms is None or step_ms <= 0 or not complete(parts):
        return None
    def share(ms: float) -> str:
        return percent(100 * ms / step_ms)
    return (f"A step takes {milliseconds(step_ms)}: {share(parts.compute_ms)} of it computation, "
            f"{share(parts.exposed_comm_ms)} exposed communication, {share(parts.exposed_copy_ms)} exposed copies, "
            f"{share(parts.idle_ms)} idle.")


def hidden(overlap_pct: Optional[float], comm_ms: Optional[float]) -> Optional[str]:
    if overlap_pct is None or comm_ms is None:
        return None
    return f"{percent(overlap_pct)} of the {milliseconds(comm_ms)} of communication is hidden behind computation."


def would_help(causes: Sequence[Record], count: int = 2) -> List[str]:
    """The advice of the largest causes, in the words of the file; what has no known cause has no remedy."""
    ranked = [c for c in sorted(causes, key=lambda c: -c["ms"]) if c.advice][:count]
    words = iter(("What would help most: ", *("Then: " for _ in ranked)))
    return [("Not explained: " if cause.cause == "unknown" else next(words)) + cause.advice for cause in ranked]
