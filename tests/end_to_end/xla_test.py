#!/usr/bin/python3
"""What `explain --hlo` reads of the programs that tests/peer/xla_programs.py stored, against XLA's own module.

    xla_test.py PROGRAM SOURCE_FOLDER
"""

import pathlib
import sys
import unittest

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "tests/peer"))

import xla_programs  # noqa: E402


class StoredPrograms(unittest.TestCase):
    def test_each_is_read_as_the_compiler_has_it(self) -> None:
        stored = sorted((SOURCE / "tests/peer/recorded").glob("xla-programs-*.tar.xz"))
        self.assertEqual(len(stored), 2)
        for archive in stored:
            self.assertEqual(xla_programs.check(archive, PROGRAM), 0, archive.name)

    def test_the_recorder_has_as_many_programs_as_are_stored(self) -> None:
        self.assertGreaterEqual(len(xla_programs.programs()), 40)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
