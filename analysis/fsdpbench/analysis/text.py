"""Numbers and names as people read them."""

from __future__ import annotations

import unicodedata
from typing import List, Optional, Sequence

# Control characters, those that nobody sees or that turn what follows around, ends of lines, halves of pairs.
_ACTS = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs"))


def visible(text: str, lines: bool = False) -> str:
    """Text from outside, fit for a page, a terminal or a table: characters that act instead of being seen are shown as
    \\x1b, byte by byte, as src/base/read_input.h does it. Every writer of this package passes its texts through here.
    lines: ends of lines and tabs stay, because the text has lines of its own."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(c) if unicodedata.category(c) in _ACTS and not (lines and c in "\n\t") else c for c in text)


def _shown(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def clean(name: Optional[str], limit: int = 60) -> str:
    """A name from a file, fit for one line: visible, and not endlessly long."""
    line = visible((name or "")[:limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"


def sentence(words: str) -> str:
    """With a capital and a full stop, as it stands alone."""
    words = clean(words.strip(), 600)
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")


def dotted(*parts: object) -> str:
    """What there is of the parts, as a subtitle has them."""
    return "  ·  ".join(str(part) for part in parts if part)


def milliseconds(ms: float) -> str:
    """3 digits, with the unit that suits: 12.3 ms, 456 µs, 1.23 s."""
    size = abs(ms)
    if size >= 1000:
        return f"{digits(ms / 1000)}\N{NO-BREAK SPACE}s"
    if size >= 1 or size == 0:
        return f"{digits(ms)}\N{NO-BREAK SPACE}ms"
    return f"{digits(ms * 1000)}\N{NO-BREAK SPACE}µs"


def digits(value: float) -> str:
    """Three significant digits, never in exponent form between 0.001 and a million."""
    size = abs(value)
    if size >= 100 or value == 0:
        return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"


def count_text(count: int, thing: str) -> str:
    """1 rank, 2 ranks."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def percent(value: float) -> str:
    return f"{value:.1f}\N{NO-BREAK SPACE}%" if abs(value) < 10 else f"{value:.0f}\N{NO-BREAK SPACE}%"


def size(byte_count: float) -> str:
    """Binary units, three digits: 18.3 MiB."""
    value, units = float(byte_count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    for unit in units:
        if abs(value) < 1000 or unit == units[-1]:
            return f"{digits(value)}\N{NO-BREAK SPACE}{unit}"
        value /= 1024
    raise AssertionError


# Axes of sweeps as a person would call them; any other key stands for itself.
_AXIS_NAMES = {
    "mesh.ranks": "ranks",
    "mesh.expert": "ranks that split the experts",
    "simulate.cluster": "cluster",
    "mesh.shard": "ranks a shard group",
    "mesh.replicate": "replicas",
    "model.preset": "model",
    "model.layers": "layers",
    "model.width": "model width",
    "train.batch_per_rank": "batch per rank (samples)",
    "train.seq_len": "sequence length (tokens)",
    "train.accumulate": "accumulated micro-batches",
    "fsdp.strategy": "strategy",
    "fsdp.layout": "layout",
    "fsdp.forward_prefetch": "forward prefetch",
    "fsdp.backward_prefetch": "backward prefetch",
    "fsdp.all_gather_limit": "all-gather limit",
    "fsdp.reduce_scatter_buffers": "reduce-scatter buffers",
    "emulate.link_gb_per_s": "link (GB/s)",
    "emulate.link_latency_us": "link latency (µs)",
    "emulate.compute_tflops": "compute (TFLOP/s)",
    "inject.host_delay_us": "host delay (µs)",
}


def axis_name(key: str) -> str:
    return _AXIS_NAMES.get(key, clean(key, 40))


def value_text(value: object, limit: int = 200) -> str:
    """A value of an axis: 4.0 is 4, true is true, anything else its own text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else clean(str(value), limit)


def setting_text(key: str, value: object) -> str:
    """One coordinate of a cell: 'ranks 8', 'backward prefetch pre'."""
    name = axis_name(key).split(" (")[0]
    unit = axis_name(key).partition(" (")[2].rstrip(")")
    return f"{name} {value_text(value)}{' ' + unit if unit in ('GB/s', 'µs', 'TFLOP/s') else ''}"


def ranks_text(ranks: Sequence[int]) -> str:
    """"ranks 0 to 3, 7"."""
    parts: List[List[int]] = []
    for rank in sorted(ranks):
        parts += [[]] if not parts or rank != parts[-1][-1] + 1 else []
        parts[-1].append(rank)
    shown = [f"{one[0]} to {one[-1]}" if len(one) > 2 else ", ".join(map(str, one)) for one in parts]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(shown[:8]) + (" …" if len(shown) > 8 else "")


def does(ranks: Sequence[int], what: str, more: str = "") -> str:
    """"rank 3 has not come", "ranks 3, 4 have not come". `more` stands behind the ranks."""
    first, _, rest = what.partition(" ")
    many = {"has": "have", "is": "are", "waits": "wait", "calls": "call"}[first]
    return f"{ranks_text(ranks)}{more} {first if len(ranks) == 1 else many} {rest}"


def sentences(*parts: str) -> str:
    return " ".join(f"{one[:1].upper()}{one[1:].rstrip('.')}." for one in parts if one)
