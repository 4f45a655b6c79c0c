"""The objects of result files (records.json), which the program declares, and what they are as Python values."""

import sys
import unittest
from pathlib import Path
from unittest import mock

import support  # noqa: F401  (the path)

from fsdpbench import fields
from fsdpbench.fields import Records, ReportError

CAUSE = {"cause": "late_prefetch", "ms": 1.5, "share_pct": 3, "advice": "<b>",
         "without": {"step_ms": 9, "gain_ms": 1, "ci_low": 0.5, "ci_high": 1.5, "interval": "range", "advised": True}}


class Declared(unittest.TestCase):
    def test_objects_lead_to_objects(self) -> None:
        for name, kind in fields.OBJECTS.items():
            for one in kind.fields().values():
                self.assertEqual("object" in one.type, bool(one.object), name)
                self.assertTrue(not one.object or one.object in fields.OBJECTS, name)
        for _, root in fields.FILES.values():
            self.assertIn(root, fields.OBJECTS)

    def test_no_field_hides_what_all_objects_have(self) -> None:
        for name, kind in fields.OBJECTS.items():
            self.assertEqual(kind.fields().keys() & set(vars(fields.Record)) | kind.fields().keys() & {"data", "path"}, set(), name)


class Values(unittest.TestCase):
    def test_a_field_is_its_value_and_of_the_class_what_it_means(self) -> None:
        cause = fields.Cause(CAUSE)
        self.assertEqual((cause.ms, cause.without.gain_ms, cause.op, cause.late_rank), (1.5, 1, None, None))
        self.assertEqual((fields.Cause.ms.unit, fields.Cause.ms.type), ("ms", "number"))
        self.assertIn("[ms]", fields.Cause.ms.__doc__)
        self.assertEqual(fields.Metrics.step_ms.figure, "step time")
        with self.assertRaisesRegex(AttributeError, "ms is what the program wrote"):
            cause.ms = 2
        with self.assertRaisesRegex(AttributeError, "Cause has no field 'share'; the nearest is 'share_pct'"):
            cause.share  # noqa: B018
        with self.assertRaisesRegex(AttributeError, "Cause has no field 'milliseconds'$"):
            cause.milliseconds  # noqa: B018
        self.assertLessEqual({"ms", "advice", "as_row"}, set(dir(cause)))
        self.assertEqual(cause, fields.Cause(dict(CAUSE)))
        self.assertEqual(repr(cause), "<Cause cause='late_prefetch', ms=1.5, share_pct=3, advice='<b>'>")

    def test_lists_and_maps_are_empty_where_the_file_has_none(self) -> None:
        run = fields.Run({"metrics": {"phases": {"forward": {"compute_ms": 2}}}})
        self.assertEqual((run.causes, run.caveats, run.memory), ([], [], None))
        self.assertEqual(run.metrics.phases["forward"].compute_ms, 2)

    def test_a_value_of_another_type_is_named_with_its_file_and_place(self) -> None:
        run = fields.Run({"causes": [{"ms": "long", "late_rank": True, "op": 7}, None], "metrics": 3, "rated": 0,
                          "world": {"libraries": {"fmt": 9}}, "steps": {"slowest_rank_ms": [1, None], "by_rank": [[1e999]]}},
                         Path("a/result.json"))
        self.assertEqual(run.steps.slowest_rank_ms, [1, None])
        for expected, read in {
                "metrics is 3; an object is expected": lambda: run.metrics,
                "rated is 0; true or false is expected": lambda: run.rated,
                r"causes\[1\] is null; an object is expected": lambda: run.causes,
                "world.libraries.fmt is 9; a text is expected": lambda: run.world.libraries,
                r"steps.by_rank\[0\]\[0\] is Infinity; a finite number is expected": lambda: run.steps.by_rank,
                r"steps.slowest_rank_ms\[1\] is missing; a number is expected": lambda: run.steps["slowest_rank_ms"],
                "jitter.ms is missing; a number is expected": lambda: run.inner("jitter")["ms"]}.items():
            with self.assertRaisesRegex(ReportError, f"^a/result.json: {expected}$"):
                read()
        for name, expected in (("ms", 'ms is "long"; a number'), ("late_rank", "late_rank is true; a number"),
                               ("op", "op is 7; a text")):
            with self.assertRaisesRegex(ReportError, f"^{expected} is expected$"):
                getattr(fields.Cause(run.data["causes"][0]), name)

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
