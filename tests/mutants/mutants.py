"""Do the tests notice one changed line? Draws mutants of the sources, compiles all into one build, and runs the tests.

A mutant is one small change: a comparison, a constant off by one, a statement dropped, min for max, + for -, a condition
negated, a constant returned. MUTANT in the environment chooses one. What does not compile (constexpr, templates) is left
out. A first run of every test program without a mutant notes which tests reach which mutants; each mutant then gets those
that reach it, those with its file's name, its room's own and quick ones first, until one fails or hangs, or --budget is
spent.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Room: its library targets, its own test programs and suites of tests/end_to_end. Rooms with a floor first.
ROOMS = {
    "schedule": (["schedule"], ["schedule_test"]),
    "plan": (["plan"], ["plan_test"]),
    "clock": (["clock"], ["clock_test"]),
    "account": (["account"], ["account_test"]),
    "accept": (["accept", "acceptance"], ["accept_test", "acceptance_test", "fabric_test", "gate_test.py", "accept_test.py",
                                          "collectives_test.py"]),
    "engine": (["engine"], ["engine_test", "checkpoint_test.py", "run_test.py"]),
    "backend/cpu": (["backend_cpu"], ["cpu_backend_test", "cpu_conformance_test", "cpu_processes_test"]),
    "trace": (["trace"], ["trace_test", "readers_test.py"]),
    "tune": (["tune"], ["tune_test", "tune_test.py", "what_if_test.py"]),
}
FLOOR = ("schedule", "plan", "clock", "account", "accept", "engine")
OTHERS = ["dialects_test", "model_test", "golden_model_test", "runs_test", "foreign_test", "peer_test", "app_test"]
# A comparison with files that the program itself writes anew kills nothing.
RENEWED = "-ResultFormat.*"

TOKEN = re.compile(r"""
    (?P<skip>//[^\n]*|/\*.*?\*/|^[ ]*\#[^\n]*(?:\\\n[^\n]*)*)
  | (?P<text>R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')
  | (?P<number>(?:0x[0-9a-fA-F']+|\d[\d']*(?:\.\d*)?(?:e[+-]?\d+)?)[uUlLzZfF]*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<mark>->\*?|<=>|<<=|>>=|\.\.\.|::|\+\+|--|&&|\|\||<<|[-+*/%&|^=!<>]=|[^\s\w])""", re.X | re.S | re.M)
SWAPS = {"<": ["<=", ">"], "<=": ["<", ">"], ">": [">=", "<"], ">=": [">", "<"], "==": ["!="], "!=": ["=="],
         "+": ["-"], "-": ["+"], "&&": ["||"], "||": ["&&"], "+=": ["-="], "-=": ["+="]}
WORDS = dict(min="max", max="min", min_element="max_element", max_element="min_element", true="false", false="true")
OPEN, CLOSE = "([{", ")]}"
ASSIGNS = {"=", "+=", "-=", "*=", "/=", "|=", "&=", "^=", "%=", "<<=", ">>="}
ENDS = {",", ";", "?", ":", "return", "throw", "else", "case"} | ASSIGNS
NO_STATEMENT = set("return if const auto using case break continue delete else static for while do switch constexpr default "
                   "struct try catch template static_assert { ; } ) [".split())


class File:
    """Tokens of a source file, with the pairs of their brackets, and which of them stand in a function's body."""

    def __init__(self, text):
        self.text = text
        self.tokens = [(m.lastgroup, m.group(), m.start()) for m in TOKEN.finditer(text) if m.lastgroup != "skip"]
        self.words = [t[1] for t in self.tokens]
        self.pair, self.in_body, self.inside = {}, [], []
        stack = []
        for i, word in enumerate(self.words):
            if word in OPEN:
                before = self.words[i - 1] if i else ""
                body = word == "{" and before in (")", "const", "noexcept", "else", "do", "try", "]", "override", "mutable")
                stack.append((i, body or bool(stack and stack[-1][1])))
            elif word in CLOSE and stack:
                j = stack.pop()[0]
                self.pair[i], self.pair[j] = j, i
            self.in_body.append(bool(stack and stack[-1][1]))
            self.inside.append(self.words[stack[-1][0]] if stack else "")

    def end_of(self, i):
        return self.tokens[i][2] + len(self.words[i])

    def join(self, first, last, change=None):
        """Tokens first to last in one line, as written but for comments and for what `change` puts at one index."""
        out = ""
        for i in range(first, last + 1):
            if i > first and self.tokens[i][2] > self.end_of(i - 1):
                out += " "
            out += change[1] if change and change[0] == i else self.words[i]
        return out

    def around(self, i, ends):
        """First and last token of the expression around token i, up to what ends an expression; of an assignment all
        that is assigned."""
        after = ends - {"?", ":"} if self.words[i] in ASSIGNS else ends
        first, last = i, i
        while first > 0 and self.words[first - 1] not in ends and self.words[first - 1] not in OPEN:
            before = self.pair.get(first - 1, 0) if self.words[first - 1] in CLOSE else first - 1
            if self.words[first - 1] == "}" and self.words[before - 1] in (")", "else", "{", "}", ";") or (
                    self.words[first - 1] == ")" and self.words[before - 1] in ("if", "for", "while", "switch")):
                break
            first = before
        while last + 1 < len(self.words) and self.words[last + 1] not in after and self.words[last + 1] not in CLOSE:
            last += 1
            last = self.pair.get(last, last) if self.words[last] in OPEN else last
        return first, last

    def mutants(self):
        """All that could be made: (place, first byte, one past the last, what comes before it and after, kind, change)."""
        for i, (kind, word, at) in enumerate(self.tokens):
            if not self.in_body[i]:
                continue
            line = self.text[self.text.rfind("\n", 0, at) + 1:self.text.find("\n", at)]
            if re.search(r"\b(constexpr|static_assert|template|enum|using|case)\b", line):
                continue
            changes, ends = [], ENDS | {"&&", "||"}
            spaced = self.text[at - 1] in " \n" and self.text[at + len(word)] in " \n"
            if kind == "mark" and word in SWAPS and spaced:
                changes = SWAPS[word]
                ends = ends - ASSIGNS if word in ASSIGNS else ENDS if word in ("&&", "||") else ends
            elif kind == "number" and not word.startswith("0x"):
                digits = re.match(r"[\d'.e+-]*", word).group()
                fraction = re.search(r"[.e]", word) and float(digits.replace("'", "")) != 0
                changes = [f"({word} * 0.9)"] if fraction else [
                    f"({word} + 1)" if digits != "1" or i % 2 else word.replace("1", "0", 1)]
            elif kind == "word" and word in WORDS:
                changes = [WORDS[word]]
            for change in changes:
                first, last = self.around(i, ends)
                before, after = self.join(first, last), self.join(first, last, (i, change))
                if word not in ("+", "-") or '"' not in before:  # else text is joined
                    yield (at, self.tokens[first][2], self.end_of(last), f"(::mutants::on(@) ? ({after}) : (", "))",
                           {"number": "constant", "word": "swapped"}.get(kind, word + " to " + change), before + "  →  " + after)
            yield from self.whole(i)

    def whole(self, i):
        """Conditions negated, constants returned, statements dropped; i is the token before."""
        word, at = self.words[i], self.tokens[i][2]
        if word == "if" and self.words[i + 1] == "(":
            first, last = i + 2, self.pair[i + 1] - 1
            semicolons = [j for j in range(first, last) if self.words[j] == ";"]
            first = semicolons[-1] + 1 if semicolons else first
            if first <= last and not ASSIGNS & set(self.words[first:last]):
                yield (at, self.tokens[first][2], self.end_of(last), f"(::mutants::on(@) ? !({self.join(first, last)}) : bool(",
                       "))", "negated", f"if ({self.join(first, last)})  →  if not")
        elif word == "return" and self.words[i + 1] not in (";", "{", "false", "true", "*"):
            first, last = i + 1, self.around(i + 1, {";"})[1]
            shown = self.join(first, last)
            if "[&" not in shown and "[](" not in shown and shown not in ("nullptr", "std::nullopt"):  # {} is the same
                yield (at, self.tokens[first][2], self.end_of(last),
                       f"::mutants::on(@) ? ::mutants::nothing<decltype(({shown}))>() : (", ")", "returned",
                       f"return {shown}  →  return {{}}")
        elif word in (";", "{", "}", ")", "else") and self.inside[i + 1] == "{":
            next_word, kind = self.words[i + 1], self.tokens[i + 1][0]
            if next_word in NO_STATEMENT or kind not in ("word", "mark") or word == ")" and (
                    self.text[self.end_of(i)] != " " or self.words[self.pair.get(i, 0) - 1] not in ("if", "for")):
                return
            first, last = self.around(i + 1, {";"})
            if first != i + 1 or self.words[last + 1:last + 2] != [";"]:
                return
            outer, j = [], first  # tokens that no bracket encloses
            while j <= last:
                outer.append(j)
                j = self.pair[j] + 1 if self.words[j] in OPEN else j + 1
            declares = any((self.tokens[a][0] == "word" or self.words[a] in ">&*" and self.text[self.tokens[a][2] - 1] != " ")
                           and self.tokens[b][0] == "word" for a, b in zip(outer, outer[1:]))
            acts = self.words[last] == ")" or any(self.words[j] in ASSIGNS | {"++", "--"} for j in outer)
            shown, throws = self.join(first, last), next_word == "throw"
            unreachable = throws and "logic_error" in shown
            if acts and (throws or not declares) and not unreachable and ".reserve(" not in shown:
                yield (self.tokens[first][2], self.tokens[first][2], self.end_of(last), "(::mutants::on(@) ? void() : " +
                       ("" if throws else "void("), ")" if throws else "))", "dropped", shown + ";  →  ;")


def changed_lines(since):
    """{path below src: line numbers} of what `git diff` shows."""
    lines, path = collections.defaultdict(set), None
    for row in subprocess.run(["git", "diff", "-U0", since, "--", "src"], cwd=SOURCE, capture_output=True, text=True,
                              check=True).stdout.splitlines():
        if row.startswith("+++ "):
            path = row[len("+++ b/src/"):]
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", row):
            lines[path] |= set(range(int(match[1]), int(match[1]) + int(match[2] or 1)))
    return lines


def draw(arguments):
    """As many mutants of each room as asked for, no two of which overlap or stand on one line."""
    since = changed_lines(arguments.since) if arguments.since else None
    drawn = []
    for room in arguments.rooms:
        found = []
        for path in sorted((SOURCE / "src" / room).rglob("*.cpp")):
            name = str(path.relative_to(SOURCE / "src"))
            if "/kernels/" in name or arguments.files and path.stem not in arguments.files:  # kernels' loops are timed
                continue
            file = File(path.read_text())
            for at, *rest in file.mutants():
                line = file.text.count("\n", 0, at) + 1
                if since is None or line in since.get(name, ()):
                    found.append((name, line, *rest))
        random.Random(f"{arguments.seed} {room}").shuffle(found)
        mine = []
        for name, line, begin, end, before, after, kind, change in found:
            if len(mine) < arguments.per_room and not any(
                    name == m["file"] and (line == m["line"] or begin < m["end"] and m["begin"] < end) for m in mine):
                mine.append(dict(room=room, file=name, line=line, begin=begin, end=end, before=before, after=after,
                                 kind=kind, change=change))
        drawn += mine
    return [dict(m, number=n) for n, m in enumerate(drawn)]


def write_sources(mutants, folder):
    by_file = collections.defaultdict(list)
    for mutant in mutants:
        by_file[mutant["file"]].append(mutant)
    known = {str(path.relative_to(folder)) for path in folder.rglob("*.cpp")}
    for name in known | set(by_file):  # of those known the last mutant may have gone
        text = (SOURCE / "src" / name).read_text()
        for m in sorted(by_file[name], key=lambda m: -m["begin"]):
            text = (text[:m["begin"]] + m["before"].replace("@", str(m["number"])) + text[m["begin"]:m["end"]] + m["after"] +
                    text[m["end"]:])
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def programs(arguments):
    own = [p for room in arguments.rooms for p in ROOMS[room][1]]
    if arguments.own:
        return [p for p in own if not p.endswith(".py")]
    return own + [p for room in ROOMS for p in ROOMS[room][1] if p not in own] + OTHERS


def build(mutants, arguments):
    """Builds the test programs; mutants that the compiler does not take are left out. Returns the others."""
    folder = arguments.build / "mutated"
    write_sources(mutants, folder)
    tests = [p for p in programs(arguments) if not p.endswith(".py")]
    runner = [] if arguments.own else ["fsdpbench", "check_trace"]
    targets = ["fsdpbench_" + t for libraries, _ in ROOMS.values() for t in libraries] + tests
    subprocess.run(["cmake", "--preset", "default", "-B", arguments.build, "--log-level=WARNING", "-D", "FSDPBENCH_BENCH=OFF",
                    "-D", f"CMAKE_PROJECT_INCLUDE={SOURCE}/tests/mutants/mutants.cmake", "-D", f"FSDPBENCH_MUTANTS={folder}",
                    "-D", "FSDPBENCH_MUTATED_TARGETS=" + ";".join(targets)], cwd=SOURCE, check=True,
                   stdout=subprocess.DEVNULL)
    while True:
        done = subprocess.run(["cmake", "--build", arguments.build, "-j", "2", "--target", *runner, *tests, "--", "-k",
                               "0"], capture_output=True, text=True)
        if done.returncode == 0:
            return mutants
        spots = {(m[1], int(m[2])) for m in re.finditer(r"mutated/(\S+?):(\d+):(?:\d+:)? +(?:error|.*required from)", done.stdout)}
        refused = []
        for m in mutants:
            text = (SOURCE / "src" / m["file"]).read_text()
            lines = range(text.count("\n", 0, m["begin"]) + 1, text.count("\n", 0, m["end"]) + 2)
            if any((m["file"], line) in spots for line in lines):
                refused.append(m)
        if not refused:
            sys.exit(done.stdout[-8000:] + done.stderr)
        mutants = [m for m in mutants if m not in refused]
        print(f"{len(refused)} mutants do not compile", flush=True)
        write_sources(mutants, folder)


def run(program, names, seconds, cpu_seconds, build_folder, **environment):
    """"" if the tests pass, else "fails", "hangs" or "crashes". Other folders, other limits: a mutant may do what it likes."""
    def first_to_go():
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")  # where a mutant takes all memory
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds)))  # which load does not shorten

    if program.endswith(".py"):
        command = ["/usr/bin/python3", "-B", SOURCE / "tests/end_to_end" / program, build_folder / "bin/fsdpbench", SOURCE]
    else:
        command = [build_folder / "bin" / program, "--gtest_fail_fast" if names else "--gtest_brief=1"]
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        process = subprocess.Popen(
            command, cwd=folder, preexec_fn=first_to_go, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, **environment, "TMPDIR": folder, "GTEST_FILTER": ":".join(names) if names else RENEWED})
        try:
            status = process.wait(timeout=seconds)
            if status in (-signal.SIGXCPU, -signal.SIGKILL):
                return "hangs"
            return "crashes" if status < 0 else "fails" if status else ""
        except subprocess.TimeoutExpired:
            return "hangs"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tests_by_mutant(mutants, arguments):
    """{mutant: {program: [(seconds of processors, seconds, test)]}} of the tests that pass without a mutant."""
    reached = collections.defaultdict(lambda: collections.defaultdict(list))
    size = 1 + max(m["number"] for m in mutants)
    for program in programs(arguments):
        notes = (arguments.build / f"{program}.reached").resolve()
        stamp = (arguments.build / "bin" / ("fsdpbench" if program.endswith(".py") else program)).stat().st_mtime
        if not notes.exists() or notes.stat().st_mtime < stamp:
            notes.unlink(missing_ok=True)
            flags = (arguments.build / "reached").resolve()
            flags.write_bytes(bytes(size))
            begin, began = time.monotonic(), cpu_of_children()
            failed = run(program, None, 3600, 3600, arguments.build, MUTANTS_REACHED=str(flags), MUTANTS_TESTS=str(notes))
            if program.endswith(".py"):  # one test
                times = [1000 * (time.monotonic() - begin), 1000 * (cpu_of_children() - began)]
                numbers = [n for n, hit in enumerate(flags.read_bytes()) if hit]
                notes.write_text(" ".join(map(str, [program, int(bool(failed)), *map(round, times), *numbers])) + "\n")
            elif failed in ("hangs", "crashes"):  # then nobody knows what its other tests reach
                sys.exit(f"{program} {failed} without a mutant")
        for line in notes.read_text().splitlines():
            name, failed, wall_ms, cpu_ms, *numbers = line.split()
            if failed == "1":
                print(f"{program} {name} fails without a mutant and is left out", flush=True)
            for number in numbers if failed == "0" else ():
                reached[int(number)][program].append((int(cpu_ms) / 1000, int(wall_ms) / 1000, name))
    return reached


def is_killed(mutant, reached, arguments):
    """The test program that notices the mutant, and how, or None."""
    own, of_file = ROOMS[mutant["room"]][1], pathlib.Path(mutant["file"]).stem.replace("_", "")
    rounds = collections.defaultdict(list)
    for program, tests in reached.items():
        for cpu, wall, name in tests:
            namesake = of_file in name.split(".")[0].lower()
            rounds[not namesake, program not in own, cpu >= 0.1, program].append((cpu, wall, name))
    left = arguments.budget
    for (_, _, _, program), tests in sorted((key, sorted(tests)) for key, tests in rounds.items()):
        fit = sum(spent <= left for spent in itertools.accumulate(test[0] for test in tests))
        if fit == 0:
            continue
        cpu, wall, names = zip(*tests[:fit])
        left -= sum(cpu)
        how = run(program, names, 60 + 10 * sum(wall), 10 + 5 * sum(cpu), arguments.build, MUTANT=str(mutant["number"]))
        if how:
            return f"{program}{' (hangs)' if how == 'hangs' else ''}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build-mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-room", type=int, default=30)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--files", nargs="+", metavar="STEM", help="only sources of these names, as in calibration")
    parser.add_argument("--own", action="store_true", help="only the rooms' own test programs, which is quick")
    parser.add_argument("--since", metavar="COMMIT", help="only lines that `git diff COMMIT` shows")
    parser.add_argument("--budget", type=float, default=60, help="seconds of processors for the tests of a mutant")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at a time")
    parser.add_argument("--survivors", action="store_true", help="the same mutants again, only those that survived last time")
    arguments = parser.parse_args()
    os.nice(10)
    state = arguments.build / "mutants.json"
    if arguments.survivors:
        mutants = json.loads(state.read_text())
    else:
        shutil.rmtree(arguments.build / "mutated", ignore_errors=True)
        mutants = draw(arguments)
    if not mutants:
        return print("no line to mutate")
    mutants = build(mutants, arguments)
    reached = tests_by_mutant(mutants, arguments)
    left = [m for m in mutants if not m.get("killed")]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        answers = pool.map(lambda m: is_killed(m, reached[m["number"]], arguments), left)
        for mutant, mutant["killed"] in zip(left, answers):
            place = f"src/{mutant['file']}:{mutant['line']}: {mutant['kind']}: {mutant['change']}"
            print(f"  killed by {mutant['killed']}: {place}" if mutant["killed"] else
                  f"SURVIVED{'' if reached[mutant['number']] else ' (no test reaches it)'} {place}", flush=True)
            state.write_text(json.dumps(mutants, indent=1))
    low = []
    print(f"\n{'room':12} {'mutants':>8} {'killed':>8} {'hang':>6} {'%':>6}   seed {arguments.seed}")
    for room in ROOMS:
        those = [m for m in mutants if m["room"] == room]
        killed = sum(bool(m["killed"]) for m in those)
        if those:
            hang = sum(m["killed"].endswith("(hangs)") for m in those if m["killed"])
            print(f"{room:12} {len(those):8} {killed:8} {hang:6} {100 * killed / len(those):6.1f}")
            if room in FLOOR and killed < 0.9 * len(those):
                low.append(room)
    if low:
        sys.exit(f"below 90 %: {', '.join(low)}")


if __name__ == "__main__":
    main()
