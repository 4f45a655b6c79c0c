"""Step time over two settings as colour, with the step time and the peak memory written in, and the memory budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .. import style
from ..text import digits, size, value_text
from .canvas import lines_of, new_figure, ticks_of, untangle_ticks, wrapped

_COLOURS = "viridis_r"  # ordered also in grey, and for the colour-blind


@dataclass(frozen=True)
class HeatCell:
    """Milliseconds and bytes; a reason instead where the cell failed."""

    step_ms: Optional[float]
    peak_bytes: Optional[float]
    reason: str = ""
    rated: bool = True  # else the machine did not keep up, and the time has no colour
    best: bool = False  # its time is bold


@dataclass(frozen=True)
class HeatPanel:
    title: str
    cells: Dict[Tuple[int, int], HeatCell]  # (row, column)


def draw_heatmap(panels: Sequence[HeatPanel], rows: Sequence[object], columns: Sequence[object], row_label: str,
                 column_label: str, budget_bytes: Optional[float] = None, width: float = 12.0) -> Figure:
    """One colour scale for each panel, since panels may be different machines; cells beyond the budget are hatched."""
    style.apply()
    across = min(len(panels), 2 if len(columns) <= 6 else 1)
    down = -(-len(panels) // across)
    titles = [wrapped(panel.title, width / across - 1.8) for panel in panels]
    (below, height), beside = ticks_of(columns, width / across - 2.8), [wrapped(value_text(v), 1.6, 9) for v in rows]
    figure = new_figure(width, down * (max(0.62, 0.16 * lines_of(beside) + 0.1) * len(rows) + 1.1
                                       + 0.17 * lines_of(titles) + height) + 0.2)
    grid = figure.subplots(down, across, squeeze=False)
    for i, axes in enumerate(grid.flat):
        if i >= len(panels):
            axes.set_visible(False)
            continue
        _draw_panel(figure, axes, panels[i], rows, columns, budget_bytes)
        axes.set_xticks(range(len(columns)), below, fontsize=9)
        axes.set_yticks(range(len(rows)), beside, fontsize=9)
        axes.set_title(titles[i], fontsize=10)
        axes.set_xlabel(column_label)
        if i % across == 0:
            axes.set_ylabel(row_label)
    untangle_ticks(figure, [axes for axes in grid.flat if axes.get_visible()])
    return figure


def _draw_panel(figure: Figure, axes: Axes, panel: HeatPanel, rows: Sequence[object], columns: Sequence[object],
                budget: Optional[float]) -> None:
    times = [c.step_ms for c in panel.cells.values() if c.step_ms is not None and c.rated]
    low, high = (min(times), max(times)) if times else (0.0, 1.0)
    # Differences smaller than a fifth of the fastest shall not look dramatic.
    norm = Normalize(low, max(high, low * 1.2, 1e-9))
    colours = style.matplotlib.colormaps[_COLOURS]
    for (row, column), cell in panel.cells.items():
        if cell.step_ms is None or not cell.rated:
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="#F3F3F3", edgecolor="white"))
            text = "failed" if cell.reason else "not run" if cell.step_ms is None else "not rated"
            axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color=style.FAINT)
            continue
        colour = colours(norm(cell.step_ms))
        over = budget is not None and cell.peak_bytes is not None and cell.peak_bytes > budget
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=1))
        ink = "white" if 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 0.55 else style.INK
        axes.text(column, row - 0.13, f"{digits(cell.step_ms)} ms", ha="center", va="center", fontsize=9.5, color=ink,
                  fontweight="bold" if cell.best else "normal")
        if cell.peak_bytes is not None:
            axes.text(column, row + 0.22, size(cell.peak_bytes) + (" ✕" if over else ""), ha="center", va="center",
                      fontsize=8, color=ink)
    if budget is not None:
        _draw_budget(axes, panel, len(rows), len(columns), budget)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(style.matplotlib.cm.ScalarMappable(norm, colours), ax=axes, fraction=0.04, pad=0.02)
    bar.set_label("step time (ms)", fontsize=9)
    bar.outline.set_visible(False)


def _draw_budget(axes: Axes, panel: HeatPanel, rows: int, columns: int, budget: float) -> None:
    """A line between the cells within the budget and those beyond it."""
    def over(row: int, column: int) -> Optional[bool]:
        cell = panel.cells.get((row, column))
        return None if cell is None or cell.peak_bytes is None else cell.peak_bytes > budget

    segments: List[Tuple[List[float], List[float]]] = []
    for row in range(rows):
        for column in range(columns):
            here = over(row, column)
            for other, xs, ys in ((over(row, column + 1), [column + 0.5] * 2, [row - 0.5, row + 0.5]),
                                  (over(row + 1, column), [column - 0.5, column + 0.5], [row + 0.5] * 2)):
                if here is not None and other is not None and here != other:
                    segments.append((xs, ys))
    for xs, ys in segments:
        axes.plot(xs, ys, color=style.VERMILION, linewidth=3.5, solid_capstyle="projecting")


def describe_budget(budget: float) -> str:
    return (f"The red line parts the settings that fit into {size(budget)} of memory from those that do not "
            "(marked ✕).")



