"""What mkdocs.yml beside it needs beside docs/: links that leave the folder, and a page of the Python package's docstrings."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any, List

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A link to a file of the source tree that the site does not have becomes the file's path. One to a file that does not
    exist stays, and mkdocs fails on it."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def said(link: "re.Match[str]") -> str:
        target = (folder / link[2]).resolve()
        inside = ROOT / "docs" in target.parents and not (target.is_dir() or ROOT / "docs/recipes" in target.parents)
        if ":" in link[2] or inside or not target.exists():
            return link[0]
        path = str(target.relative_to(ROOT))
        return link[1] if link[1].strip("`") == path else f"{link[1]} (`{path}`)"

    return _LINK.sub(said, markdown)


def on_files(files: Any, *, config: Any) -> Any:
    files.append(File.generated(config, "api.md", content=api_page()))
    return files


def api_page() -> str:
    """Every public function and class of `import fsdpbench`, as its docstrings say."""
    sys.path.insert(0, str(ROOT / "analysis"))
    import fsdpbench
    lines = ["# Python API", "", "From the docstrings; [python.md](python.md) is the introduction."]
    for name in sorted(fsdpbench.__all__):
        thing = getattr(fsdpbench, name)
        if inspect.isclass(thing):
            lines += _said(name, thing)
            for member, value in vars(thing).items():
                function = value.fget if isinstance(value, property) else getattr(value, "func", value)
                if not member.startswith("_") and inspect.isfunction(function):
                    lines += ["", f"### {name}.{member}", "", *_signature(function if function is value else None), *_text(function)]
        elif inspect.isfunction(thing):
            lines += _said(name, thing)
    return "\n".join(lines) + "\n"


def _said(name: str, thing: Any) -> List[str]:
    return ["", f"## {name}", "", *_signature(thing if inspect.isfunction(thing) else None), *_text(thing)]


def _signature(function: Any) -> List[str]:
    if function is None:
        return []
    # Annotations are strings there; they are shown as they are written.
    words = re.sub(r"(: |-> )[\"']+(.+?)[\"']+(?= =|, |\)|$)", r"\1\2", str(inspect.signature(function)))
    return ["```python", function.__name__ + words, "```", ""]


def _text(thing: Any) -> List[str]:
    """Blocks that are indented or aligned keep their lines."""
    text = inspect.getdoc(thing) or ""
    return [line + ("  " if re.match(r"\w+: ", line) else "") for line in text.splitlines()]
