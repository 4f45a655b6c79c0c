"""One call of the program: its messages, its end, and Ctrl-C."""

from __future__ import annotations

import collections
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Deque, List, Optional, Sequence, Union

from .program import environment_of_a_call, program

Progress = Union[None, bool, Callable[[str], None]]

# "step 3/6  0.4 s left", "bounds: 1 of 3888480 policies", "round 2: …, trial 1 of 3".
_PROGRESS = re.compile(r"[^\d]{0,40}\d+(/| of )\d+\b")
_KEPT_LINES = 1000


class ProgramError(RuntimeError):
    """The program ended with an error. Its text is the program's own sentence.

    exit_code: as docs/exit-codes.md has them: 2 for wrong input, 3 where memory or disk will not suffice, …
    folder: where its files are, if it wrote any and `out` was given.
    """

    def __init__(self, sentence: str, exit_code: int, command: Sequence[str], folder: Optional[Path] = None) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.command = list(command)
        self.folder = folder


@dataclass(frozen=True)
class Done:
    """A call that ended well, and what it has said."""

    command: List[str]
    text: str
    notes: List[str]


def call(arguments: Sequence[str], progress: Progress = None, folder: Optional[Path] = None) -> Done:
    """Runs the program to its end. Raises ProgramError if that is not a good one.

    progress: True shows the program's progress, False does not, a function is given each line; None is True in a
    notebook and on a terminal.
    Ctrl-C is handed on: the program finishes its step, keeps what it has, and then KeyboardInterrupt is raised; another
    Ctrl-C ends it at once.
    """
    command = [program(), *arguments]
    show = _shower(progress)
    messages: Deque[str] = collections.deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          encoding="utf-8", errors="replace", env=environment_of_a_call()) as process:
        assert process.stdout is not None and process.stderr is not None
        output: List[str] = []
        reader = threading.Thread(target=_read, args=(process.stdout, output), daemon=True)
        reader.start()
        watcher = threading.Thread(target=_watch, args=(process.stderr, messages, show), daemon=True)
        watcher.start()
        interrupted = _wait(process)
        reader.join()
        watcher.join()
    show.close()
    if interrupted:
        raise KeyboardInterrupt
    if process.returncode != 0:
        raise ProgramError(_sentence(messages, process.returncode), process.returncode, command,
                           folder if folder is not None and folder.exists() else None)
    return Done(command, "".join(output), [line for line in messages if not _PROGRESS.match(line)])


def _wait(process: "subprocess.Popen[str]") -> bool:
    """To the end, whatever happens here. Whether Ctrl-C was pressed meanwhile."""
    interrupted = False
    while True:
        try:
            process.wait()
            return interrupted
        except KeyboardInterrupt:
            # The terminal has told the program, too; two signals at once are one to it.
            process.send_signal(signal.SIGINT)
            interrupted = True
        except BaseException:  # what another thread or an alarm of the caller's throws
            process.terminate()
            process.wait()
            raise


def _read(stream: IO[str], into: List[str]) -> None:
    into.append(stream.read())


def _watch(stream: IO[str], messages: Deque[str], show: "_Shower") -> None:
    for line in stream:
        messages.append(line.rstrip("\n"))
        show.line(messages[-1])


def _sentence(messages: Sequence[str], exit_code: int) -> str:
    errors = [line[len("error: "):] for line in messages if line.startswith("error: ")]
    if errors:
        return "\n".join(errors)
    if exit_code < 0:
        return f"The program was ended by signal {-exit_code} ({signal.Signals(-exit_code).name})."
    said = [line for line in messages if line and not _PROGRESS.match(line)]
    return said[-1] if said else f"The program ended with exit code {exit_code}."


class _Shower:
    """Shows the program's messages, or none of them."""

    def line(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Terminal(_Shower):
    """Progress is one line that is rewritten; other messages stay."""

    def line(self, text: str) -> None:
        sys.stderr.write(f"\r\033[K{text}" if _PROGRESS.match(text) else f"\r\033[K{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


class _Notebook(_Shower):
    """One output that is updated, and gone at the end: the result says the notes once more."""

    def __init__(self) -> None:
        from IPython.display import display
        self._handle = display({"text/plain": "starting"}, raw=True, display_id=True)

    def line(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)

    def close(self) -> None:
        self._handle.update({"text/plain": ""}, raw=True)


class _Function(_Shower):
    def __init__(self, function: Callable[[str], None]) -> None:
        self._function = function

    def line(self, text: str) -> None:
        self._function(text)


def _in_notebook() -> bool:
    """Whether a kernel runs this, whose frontend shows what is displayed."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _shower(progress: Progress) -> _Shower:
    if callable(progress):
        return _Function(progress)
    if progress is False:
        return _Shower()
    if _in_notebook():
        return _Notebook()
    return _Terminal() if progress or sys.stderr.isatty() else _Shower()
