#!/usr/bin/python3
"""check_anonymous_names.py finds what would meet when files are compiled together, and nothing else."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_anonymous_names import anonymous, complaints, included  # noqa: E402

SOURCE = """#include <string>
namespace project {
namespace {
using nlohmann::json;
using Rows = std::vector<int>;
constexpr double kShare = 0.5;
constexpr std::array<Part, kCount> kParts{a, b};
struct Declared;
struct Row {
  int kind(int inner);
};
template <typename T>
std::optional<T> number_in(const std::string& text, T least) {
  return local(text);
}
const char* kRaw = R"(
int in_a_text(int a) {
})";
// int commented(int a) {
void PrintTo(const Row& row, std::ostream* out) {
}
bool operator==(const Row& a, const Row& b) {
}
TEST(Suite, Case) {
  int x = 0;
}
namespace own_of_this {
int rules(int a) {
}
}  // namespace own_of_this
}  // namespace
int outside(int a) { return a; }
}  // namespace project
"""


def source(function: str, *namespaces: str) -> str:
    """A file with one function of its own, in these namespaces; "" is an anonymous one."""
    text = f"int {function}(int a) {{\n}}\n"
    for name in reversed(namespaces):
        between = f" {name}" if name else ""
        text = f"namespace{between} {{\n{text}}}  // namespace{between}\n"
    return text


class CheckAnonymousNames(unittest.TestCase):
    def meet(self, one: str, other: str, name: str = "other.cpp") -> list[str]:
        return complaints({Path("one.cpp"): one, Path(name): other}, {})

    def test_what_an_anonymous_namespace_defines(self) -> None:
        own = {("project", name) for name in ("kShare", "kParts", "kRaw", "Row", "number_in")}
        self.assertEqual(anonymous(SOURCE), own | {("project::own_of_this", "rules")})

    def test_names_of_two_files_of_a_folder_differ(self) -> None:
        self.assertEqual(complaints({Path("one.cpp"): SOURCE}, {}), [])
        found = self.meet(SOURCE, source("number_in", "project", ""))
        self.assertEqual(len(found), 1)
        self.assertIn("one.cpp and other.cpp: each has a 'number_in' in project", found[0])
        self.assertEqual(self.meet(source("order"), source("order", "")), [])  # the first is for all
        self.assertEqual(len(self.meet(source("order", ""), source("order", ""))), 1)

    def test_in_namespaces_of_their_own_they_may_be_the_same(self) -> None:
        one = source("rules", "project", "", "one")
        self.assertEqual(self.meet(one, source("rules", "project", "", "other")), [])
        self.assertEqual(self.meet(one, source("rules", "project", "")), [])
        self.assertEqual(len(self.meet(one, source("rules", "project", "one", ""))), 1)
        self.assertEqual(len(self.meet(one, source("rules", "project::one", ""))), 1)

    def test_included_are_headers_of_the_project(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            header = Path(folder, "plan", "order.h")
            header.parent.mkdir()
            header.write_text("int order(int a);\n", encoding="utf-8")
            text = '#include <map>\n#include "gtest/gtest.h"\n#include "plan/order.h"\n'
            self.assertEqual(included([text], [Path(folder)]), {header: "int order(int a);\n"})

    def test_headers_of_the_folder_and_shared_ones_count(self) -> None:
        own = source("order", "project", "")
        for header in ("inline int order(int a) { return a; }\n", "int order(const Plan& plan, bool all = false);\n"):
            header = f"namespace project {{\n{header}}}  // namespace project\n"
            self.assertEqual(len(self.meet(own, header, "own.h")), 1)
            self.assertEqual(len(complaints({Path("own.cpp"): own}, {Path("plan/order.h"): header})), 1)
            self.assertEqual(complaints({}, {Path("plan/order.h"): header}), [])
            self.assertEqual(self.meet(source("order", "project::part", ""), header, "own.h"), [])

    def test_using_declarations_count(self) -> None:
        borrowed = "namespace project {\nnamespace {\nusing testing::order;\n}  // namespace\n}  // namespace project\n"
        self.assertEqual(len(self.meet(source("order", "project", ""), borrowed)), 1)
        self.assertEqual(self.meet(borrowed, borrowed), [])


if __name__ == "__main__":
    unittest.main()
