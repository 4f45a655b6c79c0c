"""The gallery: every picture of the page is made by the commands beside it, and is there and small."""

from __future__ import annotations

import re
import shlex
import sys
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "analysis"))

from gallery import MOST_BYTES, commands_of  # noqa: E402


class Gallery(unittest.TestCase):
    def setUp(self) -> None:
        self.page = (SOURCE / "docs/gallery.md").read_text(encoding="utf-8")
        self.commands = [shlex.join(words) for words in commands_of(self.page)]

    def test_commands_are_the_indented_lines_between_the_marks(self) -> None:
        self.assertEqual(commands_of("    no\n<!-- gallery -->\ntext\n    a 'b c'  # why\n<!-- /gallery -->\n    no\n"),
                         [["a", "b c"]])
        self.assertEqual(sum(line.startswith("    ") for line in self.page.splitlines()), len(self.commands))

    def test_every_picture_has_its_command_and_is_small(self) -> None:
        pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", self.page)
        self.assertGreaterEqual(len(pictures), 5)
        for picture in pictures:
            with self.subTest(picture):
                self.assertTrue(any(f"docs/{picture}" in command for command in self.commands))
                self.assertLessEqual((SOURCE / "docs" / picture).stat().st_size, MOST_BYTES)


if __name__ == "__main__":
    unittest.main()
