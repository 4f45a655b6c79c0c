"""What all figures share: making one, and labels that are left out where they do not fit."""

from __future__ import annotations

import textwrap
from typing import List, Optional, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from ..text import clean, value_text


def new_figure(width: float, height: float) -> Figure:
    """Inches; no pyplot, so that nothing is kept alive after drawing."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def wrapped(text: str, inches: float, points: float = 10) -> str:
    """The whole text, on as many lines as it needs in that width; names are parted behind "_", or where they must be."""
    characters = max(int(inches * 72 / (0.66 * points)), 8)
    swapped = str.maketrans("_-", "-_")  # textwrap parts names behind "-"
    return "\n".join(textwrap.wrap(clean(text, 2000).translate(swapped), characters)).translate(swapped) or text


def lines_of(texts: Sequence[str]) -> int:
    return max([text.count("\n") + 1 for text in texts], default=1)


def ticks_of(values: Sequence[object], inches: float) -> "tuple[List[str], float]":
    """Names below an axis of that width, and how high they are: side by side where they fit, else for untangle_ticks()."""
    names = [value_text(v) for v in values]
    beside = [wrapped(name, inches / len(names) - 0.2, 9) for name in names]
    longest = max(map(len, names)) * 9 * 0.66 / 72
    whole = all(name == lines.replace("_\n", "_").replace("\n", " ") for name, lines in zip(names, beside))
    if lines_of(beside) <= 2 and whole:  # else a word would be parted
        return beside, 0.15 * lines_of(beside) if longest < inches / len(names) else 0.4
    tall = [wrapped(name, 2.6, 9) for name in names]
    return tall, 9 * 0.66 / 72 * max(len(line) for name in tall for line in name.split("\n"))


def legend_below(figure: Figure, handles: Sequence[object], names: Sequence[str], title: str = "") -> None:
    """The legend of all panels, below them, with every name in full; the figure grows by its height."""
    width, height = figure.get_size_inches()
    labels = [wrapped(name, width - 0.8, 9) for name in names]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    columns = max(1, min(len(labels), int(width * 72 / ((0.66 * longest + 6) * 9))))
    rows = -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.2 * rows * lines_of(labels) + (0.3 if title else 0.1))
    figure.legend(handles, labels, title=title or None, loc="outside lower center", ncols=columns, alignment="left")


def untangle_ticks(figure: Figure, all_axes: Sequence[Axes], gap_px: float = 8) -> None:
    """Turns the labels below axes in one row where neighbours would touch, also those of two axes; all axes alike, and
    upright where they have several lines."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    labels = [label for axes in all_axes for label in axes.get_xticklabels()]
    boxes = [t.get_window_extent(renderer) for t in labels if t.get_visible() and t.get_text()]
    boxes.sort(key=lambda box: box.x0)
    if any(left.x1 + gap_px > right.x0 for left, right in zip(boxes, boxes[1:])):
        upright = any("\n" in label.get_text() for label in labels)
        for label in labels:
            label.set(rotation=90 if upright else 30, ha="right", va="center" if upright else "baseline",
                      rotation_mode="anchor")


class FittingLabels:
    """Texts centred in boxes of data coordinates; prune() shortens, moves or takes away those wider than their box."""

    def __init__(self) -> None:
        self._texts: List[Tuple[Axes, Text, float, float, str, Optional[float]]] = []

    def add(self, axes: Axes, left: float, right: float, y: float, text: str, short: str = "",
            above: Optional[float] = None, **style: object) -> None:
        """short: replaces the text if that is wider than its box. above: if short is too wide, too, it is drawn above
        this height instead; of two labels that would touch there, the one of the wider box stays."""
        label = axes.text((left + right) / 2, y, text, ha="center", va="center", clip_on=True, **style)
        label.set_in_layout(False)
        self._texts.append((axes, label, left, right, short, above))

    def prune(self, figure: Figure, padding_px: float = 3) -> None:
        """After the layout is final."""
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()
        moved: List[Bbox] = []
        for axes, label, left, right, short, above in sorted(self._texts, key=lambda t: t[2] - t[3]):
            low, high = axes.get_xlim()
            ends = axes.transData.transform([(max(left, low), 0), (min(right, high), 0)])
            room = ends[1][0] - ends[0][0] - 2 * padding_px
            if label.get_window_extent(renderer).width > room and short:
                label.set_text(short)
            if label.get_window_extent(renderer).width <= room:
                continue
            if above is not None and room + 2 * padding_px >= 1:  # else there is nothing to be seen below it
                label.set(y=above, va="bottom", bbox=None)
                box = label.get_window_extent(renderer).padded(1)
                if axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and not any(box.overlaps(other) for other in moved):
                    moved.append(box)
                    continue
            label.remove()
        self._texts.clear()
