"""report DIR [DIR]: the page of a run, of a sweep, of a comparison or of two runs, and its figures as files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Optional, Sequence

from ..fields import ReportError
from . import job_page, run_page
from .accept_page import accept_page
from .gate_page import gate_page
from .page import Page, Picture, png_of, render, svg_of
from .pair_page import compare_page, pair_page
from .schema import read_json, read_record
from .sweep_page import sweep_page
from .tune_page import tune_page


def write_report(folders: Sequence[Path], out: Optional[Path] = None, memory_budget: Optional[float] = None) -> Path:
    """Writes OUT/report.html and OUT/*.svg, *.png; returns the page's path. One folder of any kind, or two of runs;
    budget: bytes a rank. Raises ReportError, OSError."""
    for folder in folders:
        if not folder.is_dir():
            raise ReportError(f"{folder} is no folder; a result folder of fsdpbench run, sweep or compare is expected")
    page = page_of(folders[0], memory_budget) if len(folders) == 1 else page_of_two(folders)
    out = folders[-1] / "report" if out is None else out
    out.mkdir(parents=True, exist_ok=True)
    for picture in page.pictures:
        if picture.figure is not None:
            write_file(out / f"{picture.name}.svg", svg_of(picture.figure))
            write_file(out / f"{picture.name}.png", png_of(picture.figure))
    write_file(out / "report.html", render(page).encode("utf-8", errors="replace"))
    return out / "report.html"


def page_of(folder: Path, memory_budget: Optional[float] = None) -> Page:
    """The page of a result folder, not yet written. Raises ReportError."""
    if (folder / "sweep.json").is_file():
        return sweep_page(folder / "sweep.json", memory_budget)
    for name, page in (("compare.json", compare_page), ("tune.json", tune_page), ("gate.json", gate_page),
                       ("explain.json", job_page.job_page)):
        if (folder / name).is_file():
            return page(folder / name)
    if (folder / "result.json").is_file():
        accepted = read_json(folder / "result.json").get("kind") == "acceptance"
        return (accept_page if accepted else run_page.run_page)(folder / "result.json")
    raise ReportError(f"{folder} has neither result.json nor sweep.json nor compare.json nor tune.json nor gate.json nor "
                      "explain.json; a result folder of fsdpbench run, accept, sweep, compare, tune, gate or trace "
                      "explain is expected")


def timeline_of(folder: Path, ranks: int, step: Optional[int]) -> Picture:
    """One step of a run, or of a job that trace explain explained; its figure is None where there is a reason."""
    if (folder / "explain.json").is_file():
        return job_page.timeline(read_record(folder / "explain.json", "explain"), folder, ranks, step)
    return run_page.timeline(folder, ranks, step)


def page_of_two(folders: Sequence[Path]) -> Page:
    for folder in folders:
        if not (folder / "result.json").is_file():
            raise ReportError(f"{folder} has no result.json; two result folders of fsdpbench run are expected")
    return pair_page(folders[0] / "result.json", folders[1] / "result.json")


def write_file(path: Path, data: bytes) -> None:
    """Whole or not at all, under a new name that is nobody else's first."""
    mask = os.umask(0o077)
    os.umask(mask)
    try:
        descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(part, 0o666 & ~mask)
        os.replace(part, path)
    except OSError as error:
        os.unlink(part)
        raise OSError(error.errno, error.strerror, str(path)) from None
