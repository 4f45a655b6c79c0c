"""Traces of one profiled window: where they are put, who explains them, and the one line that is said of them.

This file needs no torch, so that it is tested without.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..call import ProgramError
from ..program import environment_of_a_call, program
from .late import Times, late_rank

_POLL_S = 0.2


def trace_file(folder: Path, step: int, rank: int) -> Path:
    """Where a rank's trace of the window that ended at this step is."""
    return folder / f"step_{step}" / f"rank_{rank}.json.gz"


def wait_for_traces(folder: Path, ranks: int, patience_s: float) -> List[Path]:
    """The traces that all ranks have written into a folder, or those that are there when patience is over."""
    until = time.monotonic() + patience_s
    while True:
        found = sorted(folder.glob("rank_*.json.gz"), key=lambda path: int(path.name.split("_")[1].split(".")[0]))
        if len(found) >= ranks or time.monotonic() >= until:
            return found
        time.sleep(_POLL_S)


def explain_traces(traces: Sequence[Path], out: Path) -> Dict[str, Any]:
    """Runs `fsdpbench trace explain` on the traces and returns what it says. It runs in a process of lower priority, so
    that the job keeps the processors. Raises ProgramError with the program's sentence."""
    command = [program(), "trace", "explain", *map(str, traces), "--out", str(out), "--overwrite", "--quiet"]
    nice = shutil.which("nice")
    done = subprocess.run([*([nice, "-n", "10"] if nice else []), *command], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", env=environment_of_a_call(), start_new_session=True)
    if done.returncode != 0:
        said = [line[len("error: "):] for line in done.stderr.splitlines() if line.startswith("error: ")]
        raise ProgramError(said[0] if said else f"trace explain ended with exit code {done.returncode}", done.returncode, command, out)
    found: Dict[str, Any] = json.loads((out / "explain.json").read_text(encoding="utf-8"))
    return found


def line_of(explanation: Mapping[str, Any], out: Optional[Path] = None, missing: int = 0) -> str:
    """Step, exposed communication, the first cause and what would help, in the job's own words."""
    ranks = explanation["ranks"]
    slowest = max(ranks, key=lambda rank: rank["mean"]["step_ms"])["mean"] if ranks else None
    if slowest is None:
        parts = ["no whole step in the traces"]
    else:
        share = 100 * slowest["exposed_comm_ms"] / slowest["step_ms"] if slowest["step_ms"] else 0
        parts = [f"step {slowest['step_ms']:.1f} ms", f"exposed communication {slowest['exposed_comm_ms']:.1f} ms ({share:.0f} %)"]
    causes = sorted(explanation["causes"], key=lambda cause: -cause["ms"])
    if causes:
        first = causes[0]
        parts.append(f"first cause {first['cause']}, {first['ms']:.1f} ms")
    late = explanation.get("late_rank")
    if late is None:  # in gloo's traces the wait for a late rank is a collective that takes long on the others
        late = late_rank({rank["rank"]: Times(rank["mean"]["step_ms"], rank["mean"]["exposed_comm_ms"], None) for rank in ranks})
        if late is not None:
            parts.append(f"rank {late} has least exposed communication, so that the others may wait for it")
    else:
        parts.append(f"rank {late} comes last in most of the waiting")
    # How late a rank is, and by what of it, says more than how the waiting is split into causes.
    headline = str(explanation.get("headline", ""))
    help_ = headline if headline.startswith("Rank ") else _advice(explanation, causes)
    line = "; ".join(parts) + (f". {help_[0].upper()}{help_[1:].rstrip('.')}" if help_ else "") + "."
    if missing:
        line += f" The traces of {missing} ranks are missing."
    return line + (f" {_page(out)}" if out is not None else "")


def _advice(explanation: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """Of the first cause; else the setting that is advised and gains most."""
    if causes and causes[0].get("advice"):
        return str(causes[0]["advice"])
    knobs = [knob for knob in explanation.get("knobs", []) if knob.get("advised") and not knob.get("no_word")]
    best = max(knobs, key=lambda knob: knob["gain_ms"], default=None)
    return "" if best is None else f"{best.get('words') or best['set']}: {best['gain_ms']:.2f} ms less a step"


def _page(out: Path) -> str:
    page = out / "report" / "report.html"
    return str(page if page.exists() else out / "explain.json")
