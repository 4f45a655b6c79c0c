#!/usr/bin/python3
"""check_format.py finds a line that clang-format would lay out in another way, and --fix puts it right."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from check_format import problems  # noqa: E402

TABLE = "// clang-format off\nint  wide   = 1;\n// clang-format on\n"


class CheckFormat(unittest.TestCase):
    def test_found_and_fixed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder).resolve()
            shutil.copy(HERE.parent / ".clang-format", tree)
            (tree / "src/base").mkdir(parents=True)
            source = tree / "src/base/x.cpp"
            source.write_text("int x = 1;\n" + TABLE)
            self.assertEqual(problems(tree), [])
            source.write_text("int x  = 1;\n" + TABLE)
            found = problems(tree)
            self.assertEqual(len(found), 1, found)
            self.assertTrue(found[0].startswith("src/base/x.cpp:1:"), found)
            (tree / "src/base/notes.txt").write_text("int y  = 1;\n")
            command = [sys.executable, "-B", str(HERE / "check_format.py"), str(tree), "--fix"]
            self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
            self.assertEqual(source.read_text(), "int x = 1;\n" + TABLE)
            self.assertEqual(problems(tree), [])


if __name__ == "__main__":
    unittest.main()
