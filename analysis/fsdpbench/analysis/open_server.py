"""A web server of one page, on this machine only: the timeline, the report and the traces of what `open` was given.

Others on this machine, and pages of other sites in the same browser, must not read a trace. So every address has a random
token, only the named pages are there, and a request must be for 127.0.0.1 or localhost: a site whose name leads to
127.0.0.1 is refused. ui.perfetto.dev may read the traces, nothing else.
"""

from __future__ import annotations

import errno
import hmac
import http.server
import os
import secrets
import shutil
import tempfile
import threading
import webbrowser
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Callable, Dict, Optional, Union

from .schema import ReportError, open_input

PERFETTO = "https://ui.perfetto.dev"
_ADDRESS = "127.0.0.1"
_PATIENCE_S = 60  # for a browser that sends half a request


@dataclass(frozen=True)
class Served:
    """A page of the server. content: bytes, a file that is read anew each time, or what makes the bytes at the first
    request. foreign: ui.perfetto.dev may read it, too."""

    kind: str
    content: Union[bytes, Path, Callable[[], bytes]]
    foreign: bool = False


class Server:
    """Serves `pages` by their names; "" is the first page. Raises ReportError if the port is taken; port 0: a free one."""

    def __init__(self, pages: Dict[str, Served], port: int = 0) -> None:
        self._token = secrets.token_urlsafe(18)
        try:
            self._server = _Listener((_ADDRESS, port), _Handler)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                why = "is used by another program" if error.errno == errno.EADDRINUSE else "needs another user"
                raise ReportError(f"--port {port}: port {port} of {_ADDRESS} {why}; give another one, or leave --port out "
                                  "for one that is free") from error
            raise
        self._server.pages, self._server.token, self._server.made = pages, self._token, {}
        self._thread: Optional[threading.Thread] = None
        self._redirect: Optional[Path] = None

    @property
    def url(self) -> str:
        """The address of the first page, with the token."""
        return f"http://{_ADDRESS}:{self._server.server_address[1]}/{self._token}/"

    def serve(self) -> None:
        """Until close() is called in another thread."""
        self._server.serve_forever(poll_interval=0.2)

    def start(self) -> "Server":
        """Serves in a thread of its own."""
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self.forget()

    def show(self) -> bool:
        """Opens the browser; False if there is none to open. A browser's arguments can be read by everybody on the
        machine, so it gets a file that only this user reads, with the address in it."""
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")):
            return False
        folder = Path(tempfile.mkdtemp(prefix="fsdpbench-open-"))
        self._redirect = folder
        page = folder / "open.html"
        page.write_text(f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={self.url}">'
                        f'<a href="{self.url}">the timeline</a>', encoding="utf-8")
        return webbrowser.open(page.as_uri())

    def forget(self) -> None:
        if self._redirect is not None:
            shutil.rmtree(self._redirect, True)
            self._redirect = None

    def __repr__(self) -> str:
        return f"<timeline at {self.url}; close() ends it>"


class _Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    pages: Dict[str, Served]
    token: str
    made: Dict[str, bytes]

    def __init__(self, *arguments: object) -> None:
        self.making = threading.Lock()
        super().__init__(*arguments)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        # Without the look-up of the machine's name that http.server makes.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle is no news."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Listener
    server_version, sys_version = "fsdpbench", ""
    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        self._answer(True)

    def do_HEAD(self) -> None:
        self._answer(False)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: addresses have the token."""

    def _answer(self, body: bool) -> None:
        host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host") or ""
        if host not in (_ADDRESS, "localhost"):
            return self._refuse(403, "This server answers to 127.0.0.1 and localhost only.", body)
        way = self.path.partition("?")[0].split("/")
        if len(way) != 3 or not hmac.compare_digest(way[1].encode(), self.server.token.encode()):
            return self._refuse(403, "The address must be the one that fsdpbench open printed, with its token.", body)
        page = self.server.pages.get(way[2])
        if page is None:
            return self._refuse(404, "There is no such page here.", body)
        try:
            if isinstance(page.content, Path):
                with open_input(page.content) as file:
                    self._head(200, page.kind, os.fstat(file.fileno()).st_size, page.foreign)
                    if body:
                        shutil.copyfileobj(file, self.wfile)
                return
            data = self._bytes_of(way[2], page.content)
        except ReportError as error:
            return self._refuse(500, str(error), body)
        except OSError as error:
            if isinstance(error, (ConnectionError, TimeoutError)):
                raise
            return self._refuse(500, f"{error.filename}: {error.strerror}", body)
        self._head(200, page.kind, len(data), page.foreign)
        if body:
            self.wfile.write(data)

    def _bytes_of(self, name: str, content: Union[bytes, Callable[[], bytes]]) -> bytes:
        if isinstance(content, bytes):
            return content
        with self.server.making:  # matplotlib draws in one thread at a time
            if name not in self.server.made:
                self.server.made[name] = content()
            return self.server.made[name]

    def _refuse(self, code: int, sentence: str, body: bool) -> None:
        data = (f'<!DOCTYPE html><meta charset="utf-8"><title>fsdpbench open</title><p>{escape(sentence)}</p>').encode(
            "utf-8", "replace")
        self._head(code, "text/html; charset=utf-8", len(data), False)
        if body:
            self.wfile.write(data)

    def _head(self, code: int, kind: str, length: int, foreign: bool) -> None:
        self.send_response(code)
        for name, value in (("Content-Type", kind), ("Content-Length", str(length)), ("Cache-Control", "no-store"),
                            ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
                            ("X-Frame-Options", "DENY"), ("Cross-Origin-Resource-Policy", "cross-origin" if foreign else "same-origin")):
            self.send_header(name, value)
        if foreign:
            self.send_header("Access-Control-Allow-Origin", PERFETTO)
            self.send_header("Vary", "Origin")
        self.end_headers()
