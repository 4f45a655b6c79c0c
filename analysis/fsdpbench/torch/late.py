"""What the ranks' times of some steps say: one line, and who is late. No torch is needed here."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import List, Mapping, Optional, Sequence, Tuple

# A rank is late if the others wait for it longer than it waits for them by this share of the step.
LEAST_SHARE = 0.1


@dataclass(frozen=True)
class Times:
    """Means of one rank over some steps, in milliseconds. A wait is None where no hook was there to see it."""

    step_ms: float
    gathers_ms: Optional[float]
    reductions_ms: Optional[float]
    own_ms: Optional[float] = None  # the job's own collectives

    @property
    def waits_ms(self) -> float:
        return (self.gathers_ms or 0) + (self.reductions_ms or 0) + (self.own_ms or 0)


def late_rank(ranks: Mapping[int, Times]) -> Optional[int]:
    """The rank that waits least, if the others wait for so much longer that it matters: in a collective everybody waits
    for the last one. None if nobody stands out or one rank says nothing of the others."""
    if len(ranks) < 2:
        return None
    first, *others = sorted(ranks, key=lambda rank: ranks[rank].waits_ms)
    difference = min(ranks[rank].waits_ms for rank in others) - ranks[first].waits_ms
    step = statistics.median(times.step_ms for times in ranks.values())
    return first if difference > LEAST_SHARE * step else None


def late_throughout(waits: Sequence[List[float]], span_ms: float) -> Optional[Tuple[int, float]]:
    """The place of the rank that is late in each quarter of some steps, and for which share of the time the others wait for it:
    equal ranks are not the same one's victims four times. `waits`: of each step, by rank."""
    quarters = [waits[i * len(waits) // 4:(i + 1) * len(waits) // 4] for i in range(4)]
    means = [[statistics.fmean(own) for own in zip(*quarter)] for quarter in quarters]
    late = {late_rank({i: Times(span_ms / len(waits), None, None, own) for i, own in enumerate(one)}) for one in means}
    place = late.pop()
    if late or place is None:
        return None
    others = [statistics.fmean(one[:place] + one[place + 1:]) - one[place] for one in means]
    return place, statistics.fmean(others) * len(waits) / span_ms


def line_of(ranks: Mapping[int, Times], steps: int, expected: int) -> str:
    """Of the slowest rank's step, the median waits, and the late rank with what it costs the others."""
    step = max(times.step_ms for times in ranks.values())
    parts = [f"step {step:.1f} ms over {steps} steps"]
    for name, of in (("gathers", "gathers_ms"), ("reductions", "reductions_ms"), ("own collectives", "own_ms")):
        waits = [getattr(times, of) for times in ranks.values() if getattr(times, of) is not None]
        if waits:
            parts.append(f"waits for {name} {statistics.median(waits):.1f} ms")
    late = late_rank(ranks)
    if late is not None:
        others = statistics.median(times.waits_ms for rank, times in ranks.items() if rank != late)
        parts.append(f"rank {late} is late: it waits {ranks[late].waits_ms:.1f} ms, the others {others:.1f} ms")
    if len(ranks) < expected:
        parts.append(f"{expected - len(ranks)} ranks have said nothing")
    return "; ".join(parts)
