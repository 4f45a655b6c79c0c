#!/usr/bin/python3
"""check_used_names.py finds each kind of missing include in a small tree, and nothing in a clean one."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_used_names import problems  # noqa: E402

CLEAN = {
    "base/bytes.h": "#pragma once\n#include <string>\nnamespace base {\nstruct Amount {\n  int bytes;\n};\nconstexpr int kMost = 3;\n"
    "std::string format_amount(const Amount& a);\n}\n",
    "base/bytes.cpp": '#include "base/bytes.h"\nnamespace base {\nstd::string format_amount(const Amount& a) { return {}; }\n}\n',
    "plan/plan.h": '#pragma once\n#include "base/bytes.h"\nnamespace plan {\nclass Plan {\n  base::Amount amount() const;\n};\n}\n',
    "plan/by_the_way.cpp": '#include "plan/plan.h"\nint x = base::kMost;\nstd::string text = base::format_amount({});\n',
    "plan/pointer.cpp": "namespace plan {\nclass Plan;\nPlan* plan = nullptr;\n}\n",
}


class CheckUsedNames(unittest.TestCase):
    def problems(self, files: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**CLEAN, **files}.items():
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return [line.removeprefix(folder + "/") for line in problems([Path(folder)])]

    def expect(self, text: str, *found: str) -> None:
        self.assertEqual(self.problems({"app/x.cpp": text}), [f"app/x.cpp: uses {line}" for line in found])

    def test_a_clean_tree(self) -> None:
        self.assertEqual(self.problems({}), [])

    def test_names_of_the_standard_library(self) -> None:
        self.expect("std::vector<int> v;\n", "std::vector and does not include <vector>")
        self.expect("#include <string>\nstd::string_view v;\n")
        # Includes between headers of the library are its own affair.
        self.expect("#include <map>\nstd::optional<int> v;\n", "std::optional and does not include <optional>")

    def test_names_of_the_project(self) -> None:
        self.expect("base::Amount a;\n", 'Amount and does not include "base/bytes.h"')
        self.expect("int most = base::kMost;\n", 'kMost and does not include "base/bytes.h"')
        self.expect("auto text = base::format_amount({});\n", 'format_amount and does not include "base/bytes.h"')
        self.expect('#include "plan/plan.h"\nplan::Plan p;\n')

    def test_names_that_may_mean_something_else(self) -> None:
        self.expect("struct Amount {};\nAmount a;\n")
        self.expect("void f() { x.format_amount(); other::kMost; }\n")
        self.expect('// base::Amount\nauto text = "base::Amount";\n')


if __name__ == "__main__":
    unittest.main()
