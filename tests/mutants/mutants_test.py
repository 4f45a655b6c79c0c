#!/usr/bin/python3
"""Lines that mutants.py changes, and those it leaves alone."""

import unittest

import mutants


def changes(body: str) -> set[str]:
    return {change[6] for change in mutants.File(f"int f(int a) {{\n{body}\n}}\n").mutants()}


class Mutants(unittest.TestCase):
    def test_each_kind(self) -> None:
        self.assertEqual(changes("if (a < b) { }"), {"a < b  →  a <= b", "a < b  →  a > b", "if (a < b)  →  if not"})
        self.assertEqual(changes("x = std::min(a, b);"), {"std::min(a, b)  →  std::max(a, b)", "x = std::min(a, b);  →  ;"})
        self.assertEqual(changes("return a + b;"), {"a + b  →  a - b", "return a + b  →  return {}"})
        self.assertEqual(changes("take(a, 7);"), {"7  →  (7 + 1)", "take(a, 7);  →  ;"})
        self.assertEqual(changes("take(a, 0.5);"), {"0.5  →  (0.5 * 0.9)", "take(a, 0.5);  →  ;"})
        self.assertEqual(changes("take(a, 0.0);"), {"0.0  →  (0.0 + 1)", "take(a, 0.0);  →  ;"})
        self.assertEqual(changes('throw Error("none");'), {'throw Error("none");  →  ;'})
        self.assertIn("a += b ? 2 : c  →  a -= b ? 2 : c", changes("a += b ? 2 : c;"))
        self.assertEqual(changes("auto both = a && !b;"), {"a && !b  →  a || !b"})

    def test_declarations_and_types_stay(self) -> None:
        for line in ("std::vector<int> all(a);", "const Kind kind = of(a);", "constexpr int kMost = 3;", "// a < b",
                     "#include <x>", "static_assert(a < 3);", "Shape shape{a, b};"):
            self.assertEqual(changes(line), set(), line)

    def test_what_would_be_the_same_is_no_mutant(self) -> None:
        for line in ("return nullptr;", "return std::nullopt;"):
            self.assertEqual(changes(line), set(), line)

    def test_text_is_joined_and_not_subtracted(self) -> None:
        self.assertNotIn("-", "".join(changes('says("a" + name);')).replace("→", ""))

    def test_what_is_written_stays_on_its_lines(self) -> None:
        text = "int f(int a) {\n  return a +\n         1;\n}\n"
        for _, begin, end, before, after, *_ in mutants.File(text).mutants():
            self.assertEqual((text[:begin] + before + text[begin:end] + after + text[end:]).count("\n"), text.count("\n"))


if __name__ == "__main__":
    unittest.main()
