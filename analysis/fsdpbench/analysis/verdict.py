"""The verdict in words, put together from the numbers and the advice of the result files."""

from __future__ import annotations

from typing import List, Optional

from .load import Cause, Metrics
from .text import milliseconds, percent


def made_of(metrics: Metrics) -> Optional[str]:
    """'Of a step of 89 ms, 61 % is computation, 34 % …'."""
    step, total = metrics.step, metrics.total
    if step is None or step.median <= 0 or not total.complete():
        return None
    def share(ms: Optional[float]) -> str:
        return percent(100 * (ms or 0) / step.median)
    return (f"A step takes {milliseconds(step.median)}: {share(total.compute_ms)} of it computation, "
            f"{share(total.exposed_comm_ms)} exposed communication, {share(total.exposed_copy_ms)} exposed copies, "
            f"{share(total.idle_ms)} idle.")


def hidden(metrics: Metrics) -> Optional[str]:
    if metrics.overlap_pct is None or metrics.total.comm_ms is None:
        return None
    return (f"{percent(metrics.overlap_pct)} of the {milliseconds(metrics.total.comm_ms)} of communication "
            "is hidden behind computation.")


def would_help(causes: List[Cause], count: int = 2) -> List[str]:
    """The advice of the largest causes, in the words of the file; what has no known cause has no remedy."""
    ranked = [c for c in sorted(causes, key=lambda c: -c.ms) if c.advice][:count]
    words = iter(("What would help most: ", *("Then: " for _ in ranked)))
    return [("Not explained: " if cause.cause == "unknown" else next(words)) + cause.advice for cause in ranked]
