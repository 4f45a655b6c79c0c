"""What the tests share: the recorded files, and copies of them that are changed."""

from __future__ import annotations

import json
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Callable, Dict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
DATA = Path(__file__).resolve().parent / "data"

# In names, titles, reasons: nothing of it may act, anywhere.
HOSTILE = "<script>document.title='owned'</script>\"'&<img src=x onerror=alert(1)> ../../etc/passwd $x^{2}$ \\n \u202e\x07"


class FolderTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def copy(self, kind: str, change: Callable[[Dict[str, Any]], None] = lambda value: None) -> Path:
        """A copy of data/<kind>, its result or sweep changed."""
        target = self.folder / kind
        target.mkdir()
        for source in (DATA / kind).iterdir():
            value = json.loads(source.read_text(encoding="utf-8"))
            if source.name != "trace.json":
                change(value)
            (target / source.name).write_text(json.dumps(value), encoding="utf-8")
        return target


def make_hostile(value: Any, depth: int = 0) -> Any:
    """Every text that is no key of the format becomes hostile."""
    if isinstance(value, dict):
        return {k: make_hostile(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [make_hostile(v, depth + 1) for v in value]
    return HOSTILE + value if isinstance(value, str) else value
