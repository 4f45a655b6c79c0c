"""The point of it all in five seconds: when a rank computed, when it communicated, and when it only waited, of a few runs
one above the other on one time scale. For readers who know nothing yet: few words, large, beside what they name."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...fields import ReportError
from .. import style
from ..text import milliseconds, percent
from ..trace import RankTrace
from .canvas import FittingLabels, new_figure, wrapped
from .timeline import TimelinePart, choose_ranks

_Span = Tuple[float, float]  # begin and end, in milliseconds since the step began
_KINDS = {"compute": ("computing", style.BLUE), "communicate": ("communicating", style.ORANGE)}


def draw_contrast(parts: Sequence[TimelinePart], width: float = 7.0) -> Figure:
    """One rank of each: the one that choose_ranks() takes first."""
    style.apply()
    figure = new_figure(width, 1.55 * len(parts) + 0.25)
    all_axes = figure.subplots(len(parts), 1, sharex=True, squeeze=False)[:, 0]
    longest, labels = 0.0, FittingLabels()
    for axes, part in zip(all_axes, parts):
        rank = choose_ranks(part, 1)[0]
        longest = max(longest, _draw_part(axes, part, rank, labels, width))
    all_axes[-1].set_xlim(0, longest)
    labels.prune(figure, padding_px=0)
    return figure


def waits(busy: Sequence[_Span], length_ms: float) -> List[_Span]:
    """What of a step of this length none of the spans covers."""
    gaps, free = [], 0.0
    for begin, end in sorted(busy):
        if begin > free:
            gaps.append((free, min(begin, length_ms)))
        free = max(free, end)
    if free < length_ms:
        gaps.append((free, length_ms))
    return [(begin, end) for begin, end in gaps if end > begin]


def _draw_part(axes: Axes, part: TimelinePart, rank: RankTrace, labels: FittingLabels, width: float) -> float:
    """Returns the step's length."""
    begin, end = rank.steps.get(part.step, (0.0, 0.0))
    length = end - begin
    if length <= 0:
        raise ReportError(f"{part.trace.path} does not say how long step {part.step} of rank {rank.rank} took: an event "
                          "of category 'step' is expected")
    busy = {name: [(s.begin_ms - begin, s.end_ms - begin) for lane in rank.lanes for s in lane.slices
                   if s.step == part.step and s.category == category]
            for name, category in (("compute", "computation"), ("communicate", "communication"))}
    idle = waits(busy["compute"], length)
    waited = sum(b - a for a, b in idle)
    _bars(axes, idle, 0, "#FBE6DA", edge=style.VERMILION, hatch="////")
    for y, (name, (_, colour)) in enumerate(_KINDS.items()):
        _bars(axes, busy[name], y, colour)
    # For the word alone: kernels too short to be seen do not part a wait.
    visible = [span for span in busy["compute"] if span[1] - span[0] > 0.005 * length]
    largest = max(waits(visible, length), key=lambda gap: gap[1] - gap[0], default=None)
    if largest is not None:
        labels.add(axes, *largest, 0, "waiting", fontsize=10.5, color="#8A3A00",
                   bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    axes.axvline(length, color=style.INK, linewidth=1.4)
    axes.set_ylim(1.5, -0.5)
    axes.set_yticks(range(len(_KINDS)), [label for label, _ in _KINDS.values()], fontsize=11)
    for tick, (_, colour) in zip(axes.get_yticklabels(), _KINDS.values()):
        tick.set_color(colour if colour != style.ORANGE else "#9A6A00")
    axes.tick_params(axis="both", length=0)
    axes.set_xticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(wrapped(f"{part.title}: {milliseconds(length)} a step, {percent(100 * waited / length)} of it waiting",
                           width - 1.2, 11), fontsize=12)
    return length


def _bars(axes: Axes, spans: Sequence[_Span], y: int, colour: str, edge: str = "none", hatch: str = "") -> None:
    axes.broken_barh([(a, b - a) for a, b in spans], (y - 0.4, 0.8), facecolors=colour, edgecolors=edge, hatch=hatch,
                     linewidth=0)
