"""The objects of result files (fields.py), which the program declares, and what they are as Python values."""

import re
import sys
import unittest
from pathlib import Path
from unittest import mock

import support  # noqa: F401  (the path)

from fsdpbench import fields
from fsdpbench.record import Records

SOURCES = Path(__file__).resolve().parents[1] / "fsdpbench/analysis"
# Modules that read results, and no traces, tuner's answers, or text of users.
READERS = ("load.py", "accept_page.py", "gate_page.py")
# Configurations and files of other kinds that these read, too.
ELSEWHERE = {"default", "value", "memory_budget_bytes", "time_ms", "schema_version", "failure", "message"}
READ = re.compile(r'\.(?:number|required|integer|text|flag|child|has|items|children|texts|numbers|rows)\("(\w+)"')
CAUSE = {"cause": "late_prefetch", "ms": 1.5, "share_pct": 3, "advice": "<b>",
         "without": {"step_ms": 9, "gain_ms": 1, "ci_low": 0.5, "ci_high": 1.5, "interval": "range", "advised": True}}


class Declared(unittest.TestCase):
    def test_every_field_that_is_read_is_declared(self) -> None:
        declared = {one.name for kind in fields.OBJECTS.values() for one in kind.fields().values()} | ELSEWHERE
        for reader in READERS:
            names = set(READ.findall((SOURCES / reader).read_text(encoding="utf-8")))
            self.assertTrue(names)
            self.assertEqual(names - declared, set(), reader)

    def test_objects_lead_to_objects(self) -> None:
        for name, kind in fields.OBJECTS.items():
            for one in kind.fields().values():
                self.assertEqual("object" in one.type, bool(one.object), name)
                self.assertTrue(not one.object or one.object in fields.OBJECTS, name)
        for _, root in fields.FILES.values():
            self.assertIn(root, fields.OBJECTS)

    def test_no_field_hides_what_all_objects_have(self) -> None:
        for name, kind in fields.OBJECTS.items():
            self.assertEqual(kind.fields().keys() & {"data", "fields", "as_row"}, set(), name)


class Values(unittest.TestCase):
    def test_a_field_is_its_value_and_of_the_class_what_it_means(self) -> None:
        cause = fields.Cause(CAUSE)
        self.assertEqual((cause.ms, cause.without.gain_ms, cause.op, cause.late_rank), (1.5, 1, None, None))
        self.assertEqual((fields.Cause.ms.unit, fields.Cause.ms.type), ("ms", "number"))
        self.assertIn("[ms]", fields.Cause.ms.__doc__)
        self.assertEqual(fields.Metrics.step_ms.figure, "step time")
        with self.assertRaisesRegex(AttributeError, "ms is what the program wrote"):
            cause.ms = 2
        with self.assertRaises(AttributeError):
            cause.milliseconds  # noqa: B018
        self.assertEqual(cause, fields.Cause(dict(CAUSE)))
        self.assertEqual(repr(cause), "<Cause cause='late_prefetch', ms=1.5, share_pct=3, advice='<b>'>")

    def test_lists_and_maps_are_empty_where_the_file_has_none(self) -> None:
        run = fields.Run({"metrics": {"phases": {"forward": {"compute_ms": 2}}}})
        self.assertEqual((run.causes, run.caveats, run.memory), ([], [], None))
        self.assertEqual(run.metrics.phases["forward"].compute_ms, 2)

    def test_a_keyword_has_a_line_behind_it(self) -> None:
        self.assertEqual(fields.Prediction({"from": "a cluster"}).from_, "a cluster")

    def test_rows_have_dotted_names_for_inner_objects(self) -> None:
        causes = fields.Run({"causes": [CAUSE, {"cause": "copy", "ms": 1}]}).causes
        self.assertIsInstance(causes, Records)
        rows = causes.rows()
        self.assertEqual((rows[0]["without.gain_ms"], rows[1]), (1, {"cause": "copy", "ms": 1}))
        frames = mock.Mock()
        with mock.patch.dict(sys.modules, {"pandas": frames}):
            causes.frame()
        frames.DataFrame.assert_called_once_with(rows)
        with mock.patch.dict(sys.modules, {"pandas": None}), self.assertRaisesRegex(ImportError, "pip install pandas"):
            causes.frame()

    def test_notebooks_show_tables_in_which_nothing_acts(self) -> None:
        one = fields.Cause(CAUSE)
        for html in (one._repr_html_(), Records([one])._repr_html_()):
            self.assertIn("late_prefetch", html)
            self.assertIn("&lt;b&gt;", html)
            self.assertNotIn("<b>", html)


if __name__ == "__main__":
    unittest.main()
