"""What the package reads from results is declared by the program (fields.py)."""

import re
import unittest
from pathlib import Path

import support  # noqa: F401  (the path)

from fsdpbench.analysis import fields

SOURCES = Path(__file__).resolve().parents[1] / "fsdpbench/analysis"
# Modules that read results, and no traces, tuner's answers, or text of users.
READERS = ("load.py", "accept_page.py", "gate_page.py")
# Configurations and files of other kinds that these read, too.
ELSEWHERE = {"default", "value", "memory_budget_bytes", "time_ms", "schema_version", "failure", "message"}
READ = re.compile(r'\.(?:number|required|integer|text|flag|child|has|items|children|texts|numbers|rows)\("(\w+)"')


class Fields(unittest.TestCase):
    def test_every_field_that_is_read_is_declared(self) -> None:
        declared = {name for one in fields.OBJECTS.values() for name in one} | ELSEWHERE
        for reader in READERS:
            names = set(READ.findall((SOURCES / reader).read_text(encoding="utf-8")))
            self.assertTrue(names)
            self.assertEqual(names - declared, set(), reader)

    def test_objects_lead_to_objects(self) -> None:
        for name, members in fields.OBJECTS.items():
            for field in members.values():
                self.assertEqual("object" in field.type, bool(field.object), name)
                self.assertTrue(not field.object or field.object in fields.OBJECTS, name)
        for _, root in fields.FILES.values():
            self.assertIn(root, fields.OBJECTS)


if __name__ == "__main__":
    unittest.main()
