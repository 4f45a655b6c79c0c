"""One self-contained HTML page: no scripts, no outside files, every text escaped."""

from __future__ import annotations

import base64
import functools
import io
from dataclasses import dataclass, field, replace
from html import escape
from typing import List, Sequence, Tuple

from matplotlib.figure import Figure

from .text import visible

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #222; font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 28px 32px 64px; }
h1 { font-size: 28px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 40px 0 8px; padding-top: 14px; border-top: 1px solid #ddd; }
p, li { max-width: 90ch; overflow-wrap: anywhere; }
p.sub { max-width: none; color: #555; margin: 0 0 14px; }
.badge { display: inline-block; background: #FFF3D6; border: 1px solid #E69F00; border-radius: 4px; padding: 1px 9px; margin: 0 8px 10px 0; font-size: 14px; }
.caveats { background: #FFF3D6; border-left: 5px solid #E69F00; padding: 8px 20px; margin: 10px 0 8px; }
.caveats p { margin: 5px 0; }
.verdict { background: #F2F7FB; border-left: 5px solid #0072B2; padding: 12px 20px; margin: 10px 0 8px; }
.verdict p { margin: 5px 0; }
.verdict p:first-child { font-size: 18px; }
figure { margin: 10px 0 30px; break-inside: avoid; }
figure img { display: block; width: 100%; height: auto; }
figcaption { color: #444; font-size: 14.5px; max-width: 105ch; overflow-wrap: anywhere; margin-top: 4px; }
h3 { font-size: 16.5px; margin: 26px 0 2px; break-after: avoid; }
h2 { break-after: avoid; }
.wide { overflow-x: auto; }
.swipe { display: none; }
table { border-collapse: collapse; font-size: 13.5px; line-height: 1.35; }
th, td { padding: 4px 10px; text-align: right; border-bottom: 1px solid #e5e5e5; vertical-align: top; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { white-space: normal; overflow-wrap: break-word; max-width: 680px; }
td.name:last-child { max-width: 600px; }
th { background: #f6f6f6; border-bottom: 1px solid #bbb; white-space: normal; }
td.name, th.name { text-align: left; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 18px; font-size: 14px; margin: 8px 0; }
dt { color: #555; } dd { margin: 0; overflow-wrap: anywhere; }
pre { background: #f7f7f7; border: 1px solid #e2e2e2; padding: 10px 14px; font-size: 12.5px; line-height: 1.4; white-space: pre-wrap; overflow-wrap: anywhere; }
code { overflow-wrap: anywhere; }
.missing, .note { color: #555; font-size: 14.5px; }
summary { cursor: pointer; }
a { color: #005A8F; }
@media (max-width: 700px) {
  main { padding: 18px 14px 40px; }
  h1 { font-size: 23px; }
  .verdict, .caveats { padding: 10px 14px; }
  .verdict p:first-child { font-size: 16.5px; }
  figure img { width: 940px; max-width: none; }
  .swipe { display: block; color: #555; font-size: 14.5px; }
  table { font-size: 14px; }
  dl { grid-template-columns: minmax(0, 1fr); } dd { margin-bottom: 6px; }
}
@media print {
  @page { margin: 14mm; }
  body { font-size: 11pt; }
  main { max-width: none; padding: 0; }
  table { font-size: 8pt; } th, td { padding: 2px 4px; }
  .verdict, .caveats, .badge { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  tr { break-inside: avoid; }
}
"""

# Nothing may be loaded or run, whatever a name in a result file says.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass
class Picture:
    """A figure of the page; figure None: left out, because of the reason."""

    name: str
    title: str
    caption: str
    figure: "Figure | None" = None
    reason: str = ""

    def drawn(self, figure: Figure) -> Picture:
        return replace(self, figure=figure)

    def without(self, reason: str) -> Picture:
        return replace(self, reason=reason)


@dataclass
class Table:
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1  # how many columns on the left are names
    texts: Sequence[int] = ()  # further columns of words: aligned left
    note: str = ""


@dataclass
class Attachment:
    """A file inside the page, saved by a click; data None: left out, and the text says where it lies."""

    text: str
    name: str = ""
    data: "bytes | None" = None


@dataclass
class Page:
    title: str
    subtitle: str
    badges: List[str] = field(default_factory=list)
    caveats: List[str] = field(default_factory=list)  # to be read before any number
    verdict: List[str] = field(default_factory=list)
    first: List[Table] = field(default_factory=list)  # before the pictures
    pictures: List[Picture] = field(default_factory=list)
    tables: List[Table] = field(default_factory=list)
    traces: List[Attachment] = field(default_factory=list)
    world: List[Tuple[str, str]] = field(default_factory=list)
    config: List[Tuple[str, str]] = field(default_factory=list)  # (title, text), folded away


@functools.lru_cache(maxsize=64)  # drawing is most of the work, and files and page have the same pictures
def svg_of(figure: Figure) -> bytes:
    """The same bytes for the same figure, which is not changed afterwards."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


@functools.lru_cache(maxsize=64)
def png_of(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def data_uri(figure: Figure, largest_svg: int = 1_500_000) -> str:
    """As SVG; as PNG where the SVG would be too much for a browser."""
    svg = svg_of(figure)
    kind, data = ("svg+xml", svg) if len(svg) <= largest_svg else ("png", png_of(figure))
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _text(text: str, lines: bool = False) -> str:
    """The only way of a text into the page."""
    return escape(visible(text, lines))


def render(page: Page) -> str:
    parts = ["<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
             f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
             '<meta name="viewport" content="width=device-width, initial-scale=1">',
             f"<title>{_text(page.title)}</title>", f"<style>{_STYLE}</style>", "</head>", "<body>", "<main>",
             f"<h1>{_text(page.title)}</h1>", f'<p class="sub">{_text(page.subtitle)}</p>']
    parts += [f'<span class="badge">{_text(text)}</span>' for text in page.badges]
    for kind, texts in (("caveats", page.caveats), ("verdict", page.verdict)):
        if texts:
            parts.append(f'<section class="{kind}">')
            parts += [f"<p>{_text(text)}</p>" for text in texts]
            parts.append("</section>")
    for table in page.first:
        parts += _table(table)
    if page.pictures or page.tables:
        parts.append('<p class="swipe">Wide figures and tables scroll sideways.</p>')
    for picture in page.pictures:
        parts += _picture(picture)
    missing = [p for p in page.pictures if p.figure is None]
    if missing:
        parts.append("<h2>Left out</h2><ul>")
        parts += [f'<li class="missing">{_text(p.title)}: {_text(p.reason)}</li>' for p in missing]
        parts.append("</ul>")
    for table in page.tables:
        parts += _table(table)
    if page.traces:
        parts.append("<h2>Traces</h2><p>Open a trace at https://ui.perfetto.dev (Open trace file) or in "
                     "chrome://tracing: every op of every rank and lane is in it.</p><ul>")
        parts += [f"<li>{_attachment(file)}</li>" for file in page.traces]
        parts.append("</ul>")
    if page.world:
        parts.append("<h2>The world it was measured in</h2><dl>")
        parts += [f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>" for name, text in page.world]
        parts.append("</dl>")
    for title, text in page.config:
        parts.append(f"<details><summary>{_text(title)}</summary><pre>{_text(text, lines=True)}</pre></details>")
    parts += ["</main>", "</body>", "</html>", ""]
    return "\n".join(parts)


def _picture(picture: Picture) -> List[str]:
    if picture.figure is None:
        return []
    return [f"<h2>{_text(picture.title)}</h2>", "<figure>",
            f'<div class="wide"><img src="{data_uri(picture.figure)}" alt="{_text(picture.title)}"></div>',
            f"<figcaption>{_text(picture.caption)}</figcaption>", "</figure>"]


def _attachment(file: Attachment) -> str:
    if file.data is None:
        return _text(file.text)
    data = base64.b64encode(file.data).decode("ascii")
    return (f'<a download="{_text(file.name)}" href="data:application/octet-stream;base64,{data}">'
            f"{_text(file.text)}</a>")


def _table(table: Table) -> List[str]:
    def kind(column: int) -> str:
        return ' class="name"' if column < table.names or column in table.texts else ""

    parts = [f"<h2>{_text(table.title)}</h2>", '<div class="wide"><table>', "<thead><tr>"]
    parts += [f"<th{kind(i)}>{_text(text)}</th>" for i, text in enumerate(table.header)]
    parts.append("</tr></thead><tbody>")
    for row in table.rows:
        parts.append("<tr>" + "".join(f"<td{kind(i)}>{_text(text)}</td>" for i, text in enumerate(row)) + "</tr>")
    parts.append("</tbody></table></div>")
    if table.note:
        parts.append(f'<p class="note">{_text(table.note)}</p>')
    return parts
