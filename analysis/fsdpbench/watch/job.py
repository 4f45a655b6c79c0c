"""A job as the sources have told of it. Times are Unix time in nanoseconds; None: not told."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, DefaultDict, Dict, List, Optional, Sequence, Tuple

from ..analysis.text import clean

S = 1_000_000_000
MOST_RANKS = 1 << 20
GAP = 3 * S  # a longer gap between signs counts as so long: where everybody pauses, nobody falls silent
VERDICTS = {"mismatch": 5, "hang": 5, "silent": 5, "late rank": 10, "unknown": 11, "clean": 0}  # exit codes, the worst verdict first


class WatchError(Exception):
    """A sentence on input that cannot be read, or on a choice that is none."""


@dataclass
class Op:
    """One collective as one rank saw it."""

    seq: int
    name: str
    shape: str = ""  # must be the same on all ranks; empty: not told, or it may differ
    came: Optional[int] = None  # when the rank's host began it
    done: bool = True
    timed_out: bool = False  # the library gave it up
    started: bool = False  # by the GPU


@dataclass
class Member:
    """One rank in one communicator."""

    ops: Dict[int, Op] = field(default_factory=dict)
    sends: List[Tuple[str, int, Op]] = field(default_factory=list)  # pending: "send" or "recv", to or from whom
    talks: bool = False  # it has sent or received in this communicator
    entered: Optional[int] = None  # the newest collective that its host has entered, where that is known
    left: int = -1  # the newest one that has ended
    timed: bool = False  # its source tells when its GPU begins an operation
    heard: int = 0  # as of when its source tells; 0: not told
    # NCCL's RAS, by which it has entered as many as its host has handed over.
    lost: Optional[int] = None  # since when
    dead: bool = False
    error: Any = 0
    process: str = ""  # as a sentence has it in brackets behind the rank


@dataclass
class Comm:
    name: str
    ranks: Sequence[int] = ()  # empty: not told
    by_host: bool = False  # gloo: hosts do what GPUs do elsewhere, and what has failed looks as if it had ended
    changes: bool = False  # it begins or ends: its ranks need not do the same
    members: DefaultDict[int, Member] = field(default_factory=lambda: defaultdict(Member))

    def all_ranks(self) -> Sequence[int]:
        return self.ranks or sorted(self.members)


@dataclass
class Rank:
    """One process."""

    ended: bool = False  # it said so itself, at the end of its program
    heard: List[int] = field(default_factory=list)  # the newest times of its signs
    steps: Dict[int, Tuple[int, float]] = field(default_factory=dict)  # when it ended, ms of waits or -1

    def hear(self, time: int) -> None:
        if not self.heard or time > self.heard[-1]:
            self.heard = [*self.heard[-511:], time]

    def active_after(self, time: int) -> int:
        """How long there were signs after that; 0: since ever."""
        later = [one for one in ([time] if time else []) + self.heard if one >= time]
        return sum(min(after - before, GAP) for before, after in zip(later, later[1:]))


@dataclass
class Job:
    comms: Dict[Any, Comm] = field(default_factory=dict)  # of flight recorders
    ranks: Dict[int, Rank] = field(default_factory=dict)
    dumps: Dict[int, List[Any]] = field(default_factory=dict)  # of flight recorders, by rank
    world: int = 0
    # Of NCCL's RAS: the newest look, what ranks had entered by it, and since when that is so.
    ras: Dict[Any, Comm] = field(default_factory=dict)
    looked: int = 0
    counts: Any = None
    moved: int = 0
    notes: List[str] = field(default_factory=list)

    def newest(self) -> int:
        return max([self.looked] + [view.heard[-1] for view in self.ranks.values()] +
                   [member.heard for comm in self.comms.values() for member in comm.members.values()])


@dataclass
class Accusation:
    verdict: str
    ranks: List[int] = field(default_factory=list)
    sentence: str = ""
    communicator: Optional[str] = None
    sequence: Optional[int] = None
    since_ns: Optional[int] = None
    share: Optional[float] = None  # of the time, that the others wait


def whole(value: Any, most: int = 1 << 62) -> Optional[int]:
    """A whole number from 0, also as text: PyTorch writes those of pg_status so in JSON."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def need(told: Dict[str, Any], key: str, most: int = 1 << 62) -> int:
    found = whole(told.get(key), most)
    if found is None:
        raise WatchError(f"lacks {key}, or it is no number that may be there.")
    return found


def words(value: Any) -> str:
    return clean(value, 200) if isinstance(value, str) else ""


def inside(value: Any, key: str) -> Dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def objects(value: Any) -> List[Dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
