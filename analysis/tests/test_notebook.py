"""The notebooks of docs/tutorials: their cells are run in turn, and what a cell ends with is shown as a notebook would.

    test_notebook.py OUT.html      writes what they show as a page, to be looked at
"""

from __future__ import annotations

import ast
import contextlib
import html
import io
import json
import sys
import unittest
from pathlib import Path
from typing import Any, Dict, List, Tuple

import support

try:
    import pandas  # noqa: F401: frame() needs it
    ready = True
except ImportError:
    ready = False

FOLDER = Path(__file__).resolve().parents[2] / "docs/tutorials"


def shown(cell: str, names: Dict[str, Any]) -> Tuple[str, str]:
    """Runs a cell. Returns the HTML of its last expression, empty if it has none, and what it printed."""
    body = ast.parse(cell).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)  # noqa: S102: our own notebook
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None  # noqa: S307
    if value is None:
        return "", printed.getvalue()
    return (value._repr_html_() if hasattr(value, "_repr_html_") else f"<pre>{html.escape(repr(value))}</pre>"), printed.getvalue()


def run(notebook: Path) -> List[Tuple[str, str, str]]:
    """(source, HTML, printed) of its code cells."""
    names: Dict[str, Any] = {}
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [(source, *shown(source, names)) for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")]


@unittest.skipUnless(ready, "pandas is not installed")
class Notebooks(support.FolderTest):
    def test_each_cell_shows_something_and_no_output_is_stored(self) -> None:
        cells = json.loads((FOLDER / "predict-and-tune.ipynb").read_text(encoding="utf-8"))["cells"]
        self.assertTrue(all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells))
        for source, page, printed in run(FOLDER / "predict-and-tune.ipynb"):
            self.assertTrue(page or printed, source)
            if source.startswith(("import", "swept")) or "run.timeline(" in source:
                self.assertIn("<table" if source.startswith("swept") else "<img", page, source)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("".join(f"<pre style='background:#eee'>{html.escape(source)}</pre><pre>{html.escape(printed)}</pre>{page}"
                                         for notebook in sorted(FOLDER.glob("*.ipynb")) for source, page, printed in run(notebook)), encoding="utf-8")
