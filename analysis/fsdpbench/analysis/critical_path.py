"""The critical path, of a run or of a job's traces."""

from __future__ import annotations

from ..fields import Record
from .page import Table
from .text import milliseconds, percent

_MOST_ROWS = 20


def path_table(path: Record) -> Table:
    """Of a "critical_path"; without rows if nothing was rated."""
    kinds = [kind for kind in ("kernels", "collectives", "copies", "host", "waits", "unknown")
             if any(kind in one.kinds_ms for one in path.ranks)]
    rows = [[f"{one['rank']}", milliseconds(one["ms"]), percent(one["share_pct"]),
             *(milliseconds(one.kinds_ms[kind]) if kind in one.kinds_ms else "" for kind in kinds)] for one in path.ranks]
    return Table("Critical path", ["rank", "a step", "of the step", *kinds], rows[:_MOST_ROWS],
                 note="The chain that decided how long a step was, across ranks: it goes to the rank that arrives last at "
                      "a collective. It is exactly the step.")
