"""python -I -m fsdpbench.analysis report|open|watch|import|timeline|contrast|table ...

-I, because Python looks for modules in the current folder first, which may be a result folder of somebody else.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from pathlib import Path
from typing import List, Optional

# No display is needed, whatever the environment says; before matplotlib is imported anywhere.
os.environ["MPLBACKEND"] = "Agg"

from . import __version__
from .schema import ReportError
from .text import clean, visible
from ..watch.command import add_options as add_watch_options, run as watch
from ..watch.job import WatchError

FAILED, BAD_INPUT, CANNOT_WRITE, INTERRUPTED = 1, 2, 4, 130
_MOST_OF_A_MESSAGE = 2000


def _end_at_once(*_: object) -> None:
    """A page can be drawn again: nothing of it is worth finishing."""
    os._exit(INTERRUPTED)


def _obey_signals() -> None:
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    for number in signals:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end_at_once)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)  # fsdpbench blocks them while Python starts


def _print(text: object) -> int:
    """The exit code: a result that nobody could read is no success."""
    try:
        print(visible(str(text)), flush=True)
        return 0
    except OSError as error:
        # Python would try again at the end, and complain in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _complain(f"standard output could not be written: {error.strerror}; files were written as usual")
        return CANNOT_WRITE


def _complain(sentence: str) -> None:
    print(f"error: {clean(sentence, _MOST_OF_A_MESSAGE)}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """Its complaints repeat what was typed."""

    def _print_message(self, message: str, file: object = None) -> None:
        super()._print_message(visible(message, lines=True), file)


def _bytes(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(B|KiB|MiB|GiB|TiB)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 18MiB or 64GiB")
    return float(match.group(1)) * 1024.0 ** ("B", "KiB", "MiB", "GiB", "TiB").index(match.group(2) or "B")


def _open(paths: List[Path], port: int, browser: bool, html: Optional[Path]) -> int:
    """Serves until Ctrl-C, which is how one ends it: then the exit code is 0."""
    from .open_page import make_server, write_timeline_page
    if len(paths) > 2:
        raise ReportError(f"{len(paths)} results are given; one, or two above each other, can be opened")
    if html is not None:
        return _print(write_timeline_page(paths, html))
    server = make_server(paths, port)

    def end(*_: object) -> None:
        server.forget()
        os._exit(0)  # a request may be under way, and nothing is written
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    said = _print(server.url)
    if said != 0:
        return said
    if not browser or not server.show():
        print("Open this address in a browser; Ctrl-C ends.", file=sys.stderr)
    server.serve()
    return 0


def _import(chosen: argparse.Namespace) -> int:
    from ..call import ProgramError
    from ..imports import command, settings
    try:
        return command.main(chosen.files, chosen.set, chosen.ranks, chosen.model, chosen.out, chosen.overwrite, chosen.quiet)
    except (settings.Refused, ProgramError) as error:
        _complain(str(error))
        return BAD_INPUT


def main(arguments: Optional[List[str]] = None) -> int:
    parser = _Parser(prog="fsdpbench report", description="Draws the result files of fsdpbench.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    report = commands.add_parser("report", help="one HTML page, with its figures beside it")
    report.add_argument("folder", type=Path, metavar="DIR",
                        help="of a run or an acceptance (result.json), a sweep (sweep.json), a comparison (compare.json), a "
                             "tuning (tune.json), a gate (gate.json) or an explained trace (explain.json)")
    report.add_argument("other", type=Path, metavar="DIR", nargs="?", help="of a second run: both on one page")
    report.add_argument("--out", type=Path, metavar="DIR", help="where to write; default: report/ in the (last) DIR")
    report.add_argument("--memory-budget", type=_bytes, metavar="SIZE",
                        help="bytes a rank may use, as 18MiB or 64GiB: marked in the heat map of a sweep")
    opened = commands.add_parser("open", help="a server on this machine for the timeline, the report and Perfetto")
    opened.add_argument("paths", type=Path, nargs="+", metavar="RESULT|TRACE", help="one or two result folders or traces")
    opened.add_argument("--port", type=int, default=0, help="of 127.0.0.1; default: one that is free")
    opened.add_argument("--no-browser", action="store_true", help="only print the address")
    opened.add_argument("--html", type=Path, metavar="FILE", help="write the timeline as one file; nothing is served")
    timeline = commands.add_parser("timeline", help="one step of one or more runs, one above the other, as a picture")
    timeline.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="result folders with a trace")
    timeline.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png or .svg file")
    timeline.add_argument("--step", type=int, help="which step; default: the one with the median step time")
    timeline.add_argument("--ranks", type=int, help="how many ranks; default: 4 of one run, 1 of several")
    contrast = commands.add_parser("contrast", help="when one rank of each run computed, communicated and waited")
    contrast.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="result folders with a trace")
    contrast.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png or .svg file")
    table = commands.add_parser("table", help="the cells of a sweep as CSV")
    table.add_argument("folder", type=Path, metavar="DIR", help="of a sweep (sweep.json)")
    table.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .csv file")
    imported = commands.add_parser("import", help="settings of other systems as a profile")
    imported.add_argument("files", nargs="*", metavar="FILE", help="settings of another system, and its model's; default: list them")
    imported.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set one key of the profile")
    imported.add_argument("--ranks", type=int, metavar="N", help="ranks of the job, where the files do not say it")
    imported.add_argument("--model", default="", metavar="NAME", help="a model of profiles/models, or a config.json")
    imported.add_argument("--out", default="", metavar="FILE", help="file for the profile; default: print it")
    imported.add_argument("--overwrite", action="store_true", help="replace FILE")
    imported.add_argument("--quiet", action="store_true", help="results, warnings and errors only")
    add_watch_options(commands.add_parser("watch", help="who in a running job is late, silent or does not come"))
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "import":
            return _import(chosen)
        if chosen.command == "watch":
            return watch(chosen)
        if chosen.command == "open":
            return _open(chosen.paths, chosen.port, not chosen.no_browser, chosen.html)
        elif chosen.command == "timeline":
            from .timeline_command import write_timeline
            return _print(write_timeline(chosen.folders, chosen.out, chosen.step, chosen.ranks))
        elif chosen.command == "contrast":
            from .timeline_command import write_contrast
            return _print(write_contrast(chosen.folders, chosen.out))
        elif chosen.command == "table":
            from .sweep_view import write_table
            return _print(write_table(chosen.folder, chosen.out))
        from .report import write_report
        return _print(write_report([chosen.folder] + ([chosen.other] if chosen.other else []), chosen.out,
                                   chosen.memory_budget))
    except (ReportError, WatchError) as error:
        _complain(str(error))
        return BAD_INPUT
    except ModuleNotFoundError as error:
        _complain(f"Python's package {error.name} is missing; `make analysis` installs it.")
        return FAILED
    except (FileExistsError, NotADirectoryError) as error:
        _complain(f"{error.filename} is a file, or in one; expected a folder, which is made if need be.")
        return CANNOT_WRITE
    except OSError as error:
        _complain(f"cannot write {error.filename or 'the report'}: {error.strerror}")
        return CANNOT_WRITE


if __name__ == "__main__":
    _obey_signals()
    sys.exit(main())
