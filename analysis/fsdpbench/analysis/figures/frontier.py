"""Step time over peak memory of every choice, with a line along those that are worth their memory."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from .. import style
from ..frontier_view import Choice, FrontierPanel
from ..text import clean, digits
from .canvas import legend_below, lines_of, new_figure, wrapped

MOST_COLUMNS = 5  # of a row: more are continued below
_Look = Tuple[str, str]  # colour, marker
# Where a name may stand beside its point: offset in points, and how it is aligned there.
_PLACES = [((6, 5), "left", "bottom"), ((6, -5), "left", "top"), ((-6, -5), "right", "top"), ((0, -8), "center", "top"),
           ((0, 8), "center", "bottom"), ((-6, 5), "right", "bottom"), ((9, -16), "left", "top"),
           ((9, 16), "left", "bottom"), ((-9, -16), "right", "top"), ((9, 28), "left", "bottom")]


def draw_frontier(rows: Sequence[Sequence[FrontierPanel]]) -> Figure:
    style.apply()
    rows = [row[i:i + MOST_COLUMNS] for row in rows for i in range(0, len(row), MOST_COLUMNS)]
    columns = max(len(row) for row in rows)
    choices = [choice for row in rows for panel in row for choice in panel.choices]
    looks = _looks([choice.name for choice in choices])
    large = max(choice.peak_bytes for choice in choices) >= 2.0**30
    unit, unit_name = (2.0**30, "GiB") if large else (2.0**20, "MiB")
    width = min(max(3.9 * columns, 8.0), 18.0)
    titles = [[wrapped(panel.title, width / columns - 0.7) for panel in row] for row in rows]
    figure = new_figure(width, (2.35 + 0.17 * lines_of([title for row in titles for title in row])) * len(rows) + 0.6)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    drawn = []
    for row, all_axes, named in zip(rows, grid, titles):
        for axes in all_axes[len(row):]:
            axes.axis("off")
        for axes, panel, title in zip(all_axes, row, named):
            _draw_panel(axes, panel, looks, unit)
            axes.set_title(title, fontsize=10, fontweight="normal")
            drawn.append((axes, panel))
    for axes in grid[:, 0]:
        axes.set_ylabel("step (ms)")
    for axes in grid[-1]:
        axes.set_xlabel(f"peak memory ({unit_name})")
    handles = [Line2D([], [], linestyle="none", marker=marker, color=colour, markersize=6.5) for colour, marker in
               looks.values()]
    legend_below(figure, handles, list(looks))
    figure.draw_without_rendering()  # places are known only when the layout is
    for axes, panel in drawn:
        _name_front(figure, axes, panel, unit)
    return figure


def _looks(names: Sequence[str]) -> Dict[str, _Look]:
    return {name: style.look(i) for i, name in enumerate(dict.fromkeys(names))}


def _draw_panel(axes: Axes, panel: FrontierPanel, looks: Dict[str, _Look], unit: float) -> None:
    front = panel.front()
    axes.plot([c.peak_bytes / unit for c in front], [c.step_ms for c in front], color=style.DIM, linewidth=1.2, zorder=1)
    for choice in panel.choices:
        colour, marker = looks[choice.name]
        best = choice in front
        axes.plot([choice.peak_bytes / unit], [choice.step_ms], linestyle="none", marker=marker, markersize=6.5,
                  color=colour, markerfacecolor=colour if best else "white", markeredgewidth=1.3, zorder=3 if best else 2)
    axes.margins(x=0.11, y=0.2)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 100 else digits(v)))
    axes.grid(True)


def _name_front(figure: Figure, axes: Axes, panel: FrontierPanel, unit: float) -> None:
    """Names stand where they hide neither point nor line nor each other; one that finds no place is left to the legend."""
    renderer = figure.canvas.get_renderer()
    points = [axes.transData.transform((c.peak_bytes / unit, c.step_ms)) for c in panel.choices]
    taken = [_around(x, y, 5) for x, y in points]
    line = [axes.transData.transform((c.peak_bytes / unit, c.step_ms)) for c in panel.front()]
    for (x, y), (to_x, to_y) in zip(line, line[1:]):
        taken += [_around(x + (to_x - x) * part / 40, y + (to_y - y) * part / 40, 1) for part in range(41)]
    for choice in reversed(panel.front()):  # the fastest has first choice
        for place in _PLACES:
            label = _label(axes, choice, unit, *place)
            box = Annotation.get_window_extent(label, renderer)
            if _inside(box, axes.bbox) and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            label.remove()


def _label(axes: Axes, choice: Choice, unit: float, offset: Tuple[int, int], across: str, up: str) -> Annotation:
    label = axes.annotate(clean(choice.name, 200), (choice.peak_bytes / unit, choice.step_ms), xytext=offset,
                          textcoords="offset points", ha=across, va=up, fontsize=8.5, color=style.INK,
                          arrowprops={"arrowstyle": "-", "color": style.DIM, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4}
                          if abs(offset[1]) > 10 else None)
    label.set_in_layout(False)
    return label


def _around(x: float, y: float, distance: float) -> Bbox:
    return Bbox.from_extents(x - distance, y - distance, x + distance, y + distance)


def _inside(box: Bbox, frame: Bbox) -> bool:
    return box.x0 >= frame.x0 and box.x1 <= frame.x1 + 2 and box.y0 >= frame.y0 and box.y1 <= frame.y1
