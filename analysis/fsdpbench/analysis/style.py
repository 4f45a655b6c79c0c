"""One look for all figures: the same colour for the same thing everywhere, told apart also by the colour-blind.

Colours are those of Okabe and Ito (2008), with greys and one darker purple: blues and green are computation, orange, pink
and purple collectives, yellow copies, greys nothing that runs, vermilion what computation waited for. The trace's colours
for chrome://tracing (src/trace/merged_writer.cpp) are the nearest of its palette.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

import matplotlib

matplotlib.use("Agg", force=True)

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILION, PINK, GREY, PLUM = "#E69F00", "#D55E00", "#CC79A7", "#CFCFCF", "#7A3E6B"
SLATE, DIM, PEACH = "#5B6B7B", "#9A9A9A", "#F2C4A0"
INK, FAINT, GRID = "#222222", "#666666", "#E3E3E3"

# What a step consists of, bottom to top; (key in metrics, label, colour).
BREAKDOWN: List[Tuple[str, str, str]] = [
    ("compute_ms", "compute", BLUE),
    ("exposed_comm_ms", "exposed communication", VERMILION),
    ("exposed_copy_ms", "exposed copies", YELLOW),
    ("idle_ms", "idle", GREY),
]

# Slices of a timeline, by class.
SLICES: Dict[str, Tuple[str, str]] = {
    "forward": ("forward", SKY),
    "backward": ("backward", BLUE),
    "optimizer": ("optimizer", GREEN),
    "all_gather": ("all-gather", ORANGE),
    "reduce_scatter": ("reduce-scatter", PINK),
    "all_to_all": ("all-to-all", PINK),  # in its place, never beside it
    "all_reduce": ("all-reduce", PLUM),
    "tensor": ("tensor group", INK),
    "copy": ("copies", YELLOW),
    "host": ("host", DIM),
    "other": ("other", SLATE),
}

# Waiting is the lighter shade of what is waited for: nothing runs in it.
PEERS: Tuple[str, str] = ("waiting for peers", PEACH)

# Memory, bottom to top; each has the colour of the op that makes it, and what is always there none of them.
MEMORY: List[Tuple[str, str, str]] = [
    ("parameter_shards", "parameter shards", SLATE),
    ("optimizer", "optimizer", GREEN),
    ("gradients", "gradients", PINK),
    ("unsharded_parameters", "unsharded parameters", ORANGE),
    ("activations", "activations", SKY),
    ("communication_buffers", "communication buffers", YELLOW),
]

# Lines of one figure, which are things of the reader's own choice: the colours that stand out on white, with markers and dashes as second sign.
SERIES = [BLUE, VERMILION, GREEN, PINK, ORANGE, PLUM, SKY, INK]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
MOST_SERIES = len(SERIES)  # of one panel: with more nobody tells them apart


def look(index: int) -> Tuple[str, str]:
    """Colour and marker of the series of this number: no two of the first 24 share a colour."""
    turn, colour = divmod(index, len(SERIES))
    shade = {0: 1.0, 1: 0.55}.get(turn % 3)
    parts = [int(SERIES[colour][i:i + 2], 16) for i in (1, 3, 5)]
    parts = [p * shade if shade is not None else 128 + p * 0.5 for p in parts]
    return "#" + "".join(f"{min(round(p), 255):02X}" for p in parts), MARKERS[(colour + turn) % len(MARKERS)]

_DARK = {BLUE, GREEN, VERMILION, PLUM, SLATE, INK}


def text_on(colour: str) -> str:
    """White or dark, whichever can be read on this colour."""
    return "white" if colour in _DARK else INK


def apply() -> None:
    """Sets matplotlib up; call before drawing."""
    matplotlib.rcdefaults()
    matplotlib.use("Agg", force=True)
    matplotlib.rcParams.update({
        "figure.dpi": 100,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.labelcolor": INK,
        "axes.edgecolor": "#999999",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": False,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "text.color": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "hatch.linewidth": 0.6,
        # Names come from files: a dollar sign in one is a dollar sign.
        "text.parse_math": False,
        "axes.unicode_minus": True,
        "svg.fonttype": "path",
        "svg.hashsalt": "fsdpbench",
    })
