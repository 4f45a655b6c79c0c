"""The command line of `fsdpbench watch`, which hands over to this, and what it prints. docs/watch.md has the rules."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ..analysis.text import visible
from .job import S, VERDICTS, Comm, Job, WatchError
from .judge import Judgement, judge
from .sources import Sources

SECONDS = {"--every": (1, 0.05, 3600), "--for": (0, 0, 1e8), "--hang": (12, 1, 1e6)}  # default, least, most
MOST = 12  # lines of one kind


def add_options(parser: Any) -> None:
    parser.add_argument("sources", nargs="*", metavar="SOURCE")
    for name in ("--once", "--stopped", "--json"):
        parser.add_argument(name, action="store_true")
    for name in ("--metrics", "--ras", *SECONDS):
        parser.add_argument(name, default=str(SECONDS[name][0]) if name in SECONDS else "", dest=name[2:] + "_")


def _seconds(name: str, text: str) -> float:
    _, least, most = SECONDS[name]
    if re.fullmatch(r"\+?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", text) and least <= float(text) <= most:
        return float(text)
    raise WatchError(f"{name} must be from {least:g} to {most:.0f} seconds.")


def run(chosen: Any) -> int:
    """Watches until it is interrupted or the time is over; returns the code of the last verdict."""
    every, until, hang = (_seconds(name, getattr(chosen, name[2:] + "_")) for name in SECONDS)
    if not chosen.sources and not chosen.ras_:
        raise WatchError("watch needs a SOURCE or --ras HOST:PORT.")
    sources, job, said, begun = Sources(chosen.sources, chosen.ras_), Job(), "", time.monotonic()
    while True:
        sources.read(job, chosen.once)
        now = job.newest() if chosen.once else max(time.time_ns(), job.newest())
        judgement = judge(job, now, int(hang * S), chosen.stopped)
        if chosen.metrics_:
            Path(chosen.metrics_ + ".tmp").write_text(_metrics(judgement), encoding="utf-8")
            os.replace(chosen.metrics_ + ".tmp", chosen.metrics_)
        whom = str([(one.verdict, one.communicator, one.sequence, one.ranks) for one in judgement.all] or judgement.verdict)
        if chosen.once or whom != said:  # sentences have seconds in them that grow
            print(_json(job, judgement, now, chosen.once) if chosen.json else
                  _text(job, judgement) if chosen.once else f"{judgement.verdict}: {visible(judgement.sentence)}", flush=True)
        said = whom
        if chosen.once or (until and time.monotonic() + every >= begun + until):
            return VERDICTS[judgement.verdict]
        time.sleep(every)


def _text(job: Job, judgement: Judgement) -> str:
    """The verdict first; then communicators, of which those that are equal are one row, and the one that is named the first."""
    kinds: Dict[Tuple[bool, str, str, int], List[Comm]] = {}
    for source, comms in (("flight recorder", job.comms), ("NCCL RAS", job.ras)):
        for comm in comms.values():
            is_other = all(one.communicator != comm.name for one in judgement.all)
            what = re.search(r"\((.*)\)", comm.name) if is_other else None
            kinds.setdefault((is_other, what[1] if what else comm.name, source, len(comm.ranks)), []).append(comm)
    rows = [["communicator", "source", "how many", "ranks", "newest"]] if kinds else []
    for (_, name, source, size), same in sorted(kinds.items(), key=lambda one: one[0])[:MOST]:
        newest = [one.entered for comm in same for one in comm.members.values() if one.entered is not None]
        rows += [[name, source, str(len(same)), str(size), f"{min(newest)} to {max(newest)}" if newest else "-"]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    notes = [f"- {note}" for note in judgement.notes + job.notes][:MOST]
    lines = [f"{judgement.verdict}: {judgement.sentence}", *(f"- {one.verdict}: {one.sentence}" for one in judgement.all[1:MOST])]
    return "\n".join(visible(line) for line in lines + [""] * bool(table) + table + [""] * bool(notes) + notes)


def _json(job: Job, judgement: Judgement, now: int, indent: bool) -> str:
    out = {"kind": "watch", "schema_version": 1, "verdict": judgement.verdict, "sentence": judgement.sentence,
           "accusations": [{key: value for key, value in asdict(one).items() if value not in (None, "")} for one in judgement.all],
           "communicators": len(job.comms) + len(job.ras), "ranks": len(job.ranks), "notes": judgement.notes + job.notes,
           **({"as_of_ns": now} if now else {})}
    return json.dumps(out, indent=2 if indent else None)


def _metrics(judgement: Judgement) -> str:
    """For the textfile collector of node_exporter."""
    lines = [f"# TYPE fsdpbench_watch_{name} gauge" for name in ("verdict", "accused", "late_share")]
    lines += [f'fsdpbench_watch_verdict{{verdict="{one}"}} {int(one == judgement.verdict)}' for one in VERDICTS]
    for one in judgement.all:
        for rank in one.ranks or [""]:
            name = visible(one.communicator or "").replace("\\", "\\\\").replace('"', '\\"')
            labels = f'rank="{rank}",communicator="{name}"'
            lines.append(f'fsdpbench_watch_accused{{verdict="{one.verdict}",{labels}}} 1')
            lines += [f"fsdpbench_watch_late_share{{{labels}}} {one.share}"] if one.share else []
    return "\n".join(lines) + "\n"
