"""What a run's GPUs were like while it ran, and what those of a host share: tables of a page, from a result file."""

from __future__ import annotations

from typing import List, Optional

from .load import Gpu
from .page import Table
from .schema import Node
from .text import clean

_MOST_ROWS = 64
_MOST_DEVICES = 32


def gpu_table(gpus: List[Gpu]) -> Optional[Table]:
    """None if there are no GPUs."""
    if not gpus:
        return None

    def of(value: Optional[float], most: Optional[float]) -> str:
        if value is None:
            return "–"
        return f"{value:.0f}" if most is None else f"{value:.0f} of {most:.0f}"
    slowest = sorted(gpus, key=lambda g: (g.sm_mhz is None, g.sm_mhz or 0))
    shown = sorted(slowest[:_MOST_ROWS], key=lambda g: g.rank)
    rows = [(str(g.rank), of(g.sm_mhz, g.most_mhz), of(g.power_w, g.power_limit_w), of(g.temperature_c, None),
             clean(g.unknown, 300) if g.unknown else ", ".join(clean(word, 60) for word in g.held_down_by) or "nothing")
            for g in shown]
    note = "Medians over the measured steps, the highest temperature, and what held clocks down in any of them."
    if len(gpus) > len(shown):
        note += f" The {len(shown)} of {len(gpus)} with the slowest clocks."
    return Table("GPUs", ("rank", "SM clock, MHz", "power, W", "temperature, C", "clocks held down by"), rows, texts=(4,), note=note)


def topology_table(world: Node) -> Optional[Table]:
    """What two devices of rank 0's host share; None if the file does not say, or there are too many to show."""
    topology = world.child("topology")
    names = [clean(device.text("name"), 20) for device in topology.children("devices")]
    nodes = [device.text("numa_node", "?") for device in topology.children("devices")]
    paths = topology.items("paths")
    if not names or len(names) > _MOST_DEVICES or len(paths) != len(names):
        return None
    rows = []
    for name, node, path in zip(names, nodes, paths):
        cells = [clean(str(cell), 8) for cell in path] if isinstance(path, list) else []
        if len(cells) != len(names):
            return None
        rows.append((name, *cells, clean(node, 8)))
    return Table("GPUs and network cards of rank 0's host", ("", *names, "NUMA node"), rows, texts=tuple(range(1, len(names) + 1)),
                 note="NV n: n NVLinks; over PCIe PIX: one switch, PXB: several, PHB: a host bridge, NODE: two of one NUMA "
                      "node, SYS: another NUMA node.")
