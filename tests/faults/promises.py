"""Promises that hold after any fault; docs/reliability.md says them to people."""

import collections
import json
import re
from pathlib import Path

import harness

# Words of libraries and of programs that fall: none of these is a sentence of ours.
FOREIGN_WORDS = re.compile(
    r"Traceback \(most recent|terminate called|what\(\):|std::|\[json\.exception|basic_string|filesystem error"
    r"|bad_alloc|Segmentation fault|core dumped|AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:"
    r"|CLI::|toml::|Assertion .* failed")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
KILLED = -9


class Broken(AssertionError):
    """A promise that was not kept."""


def exit_codes() -> dict[int, str]:
    """The table in docs/exit-codes.md: there is one list."""
    text = (harness.SOURCE / "docs/exit-codes.md").read_text(encoding="utf-8")
    return {int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE)}


def speaks_plainly(text: str) -> None:
    found = FOREIGN_WORDS.search(text)
    if found:
        raise Broken(f"words of a library: ...{text[max(0, found.start() - 200):found.end() + 200]}")
    found = CONTROL.search(text)
    if found:
        around = text[max(0, found.start() - 80):found.end() + 80]
        raise Broken(f"a control character, {found.group()!r}, in: {around!r}")


def ends_as_documented(started: harness.Started, code: int, killed: bool = False, heard: bool = True) -> None:
    """killed: somebody sent SIGKILL. heard: its standard error could be written."""
    if code == KILLED and killed:
        return
    if code not in exit_codes():
        raise Broken(f"exit code {code} is not in docs/exit-codes.md; {started.words()}: {started.err[-600:]}")
    if heard and code not in (harness.OK, harness.INTERRUPTED, 7) and not re.search(
            r"^error: .{10}", started.err, re.MULTILINE) and not started.out:
        raise Broken(f"exit code {code} without a sentence; {started.words()}: {started.err[-600:]!r}")


def whole_json(path: Path) -> dict | None:
    """None: it is not there."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Broken(f"{path.name} is not whole: {error}; {len(text)} bytes") from error
    if not isinstance(value, dict):
        raise Broken(f"{path.name} is no object")
    return value


def result_of(folder: Path) -> dict | None:
    """result.json is absent, or whole and says whether it is complete."""
    result = whole_json(folder / "result.json")
    if result is not None and not isinstance(result.get("complete"), bool):
        raise Broken(f"result.json does not say whether it is complete: {str(result)[:200]}")
    if result is not None and result["complete"] and "step_ms" not in result.get("metrics", {}):
        raise Broken("result.json is complete and has no step time")
    return result


def whole_lines(path: Path) -> list[bytes]:
    """Lines of a log that only grows; text behind the last newline was torn by a kill."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def nothing_lost(before: list[bytes], path: Path) -> list[bytes]:
    """Finished trials stay as they were. Returns the lines of now."""
    now = whole_lines(path)
    if now[:len(before)] != before:
        raise Broken(f"{path.name} had {len(before)} lines, and they are not the first of its {len(now)} now")
    return now


def each_once(path: Path, cells: int, trials: int) -> None:
    """All trials of a sweep that says it is complete."""
    logged = [json.loads(line) for line in whole_lines(path)[1:]]
    times = collections.Counter((trial["cell"], trial["trial"]) for trial in logged)
    if len(times) != cells * trials or set(times.values()) != {1}:
        raise Broken(f"{len(times)} different trials of {cells * trials}; the most frequent: {times.most_common(2)}")


def no_drafts(folder: Path) -> None:
    """Whoever ends in order takes its temporary files away."""
    drafts = [path.name for path in folder.rglob(".*") if re.match(r"^\..+\.\w{6}$|^\.probe-", path.name)]
    if drafts:
        raise Broken(f"temporary files were left: {drafts}")


def nobody_left(bench: harness.Bench) -> None:
    try:
        harness.until(lambda: not bench.left(), "no process is left", harness.PATIENCE_S / 2)
    except harness.Hang:
        words = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in bench.left()]
        raise Broken(f"processes were left: {words}") from None
