"""report DIR: the page of a run or a sweep, and its figures as files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from .page import Page, png_of, render, svg_of
from .run_page import run_page
from .schema import ReportError
from .sweep_page import sweep_page


def write_report(folder: Path, out: Optional[Path] = None, memory_budget: Optional[float] = None) -> Path:
    """Writes OUT/report.html and OUT/*.svg, *.png; returns the page's path. Budget: bytes a rank."""
    if not folder.is_dir():
        raise ReportError(f"{folder} is no folder; a result folder of fsdpbench run or sweep is expected")
    out = folder / "report" if out is None else out
    page = _make_page(folder, out, memory_budget)
    out.mkdir(parents=True, exist_ok=True)
    for picture in page.pictures:
        if picture.figure is not None:
            _write(out / f"{picture.name}.svg", svg_of(picture.figure))
            _write(out / f"{picture.name}.png", png_of(picture.figure))
    _write(out / "report.html", render(page).encode("utf-8", errors="replace"))
    return out / "report.html"


def _make_page(folder: Path, out: Path, memory_budget: Optional[float]) -> Page:
    if (folder / "sweep.json").is_file():
        return sweep_page(folder / "sweep.json", out, memory_budget)
    if (folder / "result.json").is_file():
        return run_page(folder / "result.json", out)
    raise ReportError(f"{folder} has neither result.json nor sweep.json; a result folder of fsdpbench run or sweep "
                      "is expected")


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
