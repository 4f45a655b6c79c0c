"""The critical path, of a run or of a job's traces."""

from __future__ import annotations

from .page import Table
from .schema import Node
from .text import milliseconds, percent

_MOST_ROWS = 20


def path_table(path: Node) -> Table:
    """Of a "critical_path"; without rows if nothing was rated."""
    ranks = path.children("ranks")
    kinds = [kind for kind in ("kernels", "collectives", "copies", "host", "waits", "unknown")
             if any(one.child("kinds_ms").has(kind) for one in ranks)]
    rows = []
    for one in ranks:
        times = one.child("kinds_ms")
        rows.append([f"{one.required('rank'):.0f}", milliseconds(one.required("ms")), percent(one.required("share_pct")),
                     *(milliseconds(times.required(kind)) if times.has(kind) else "" for kind in kinds)])
    return Table("Critical path", ["rank", "a step", "of the step", *kinds], rows[:_MOST_ROWS],
                 note="The chain that decided how long a step was, across ranks: it goes to the rank that arrives last at "
                      "a collective. It is exactly the step.")
