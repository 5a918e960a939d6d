"""A web server that can fail: with a status, by being slow, by sending half."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

SLOW = "slow"
HALF = "half"


class Web:
    """
    A web server on loopback.

    Attributes:
        pages: What is there, by path.
        trouble: A status that it answers everything with, SLOW or HALF; "" when it is well.
        answers: The status of each answer that it gave; 0 for one that it did not finish.
    """

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.trouble: int | str = ""
        self.answers: list[int] = []
        self._ends = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def heal(self) -> None:
        """All is well from here on; who waits for the rest of an answer waits in vain."""
        self.trouble = ""

    def close(self) -> None:
        """Stop it."""
        self._ends.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Web:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def hang(self) -> None:
        """Until the server is closed."""
        self._ends.wait()


def _handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            trouble, content = web.trouble, web.pages.get(self.path)
            status = trouble if isinstance(trouble, int) else 404 if content is None else 200
            etag = f'"{hashlib.sha256(content or b"").hexdigest()}"'
            if not trouble and status == 200 and self.headers.get("If-None-Match") == etag:
                status = 304
            body = (content or b"") if status == 200 else b""
            self.send_response(status)
            self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if trouble in (SLOW, HALF):
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                web.answers.append(0)
                if trouble == SLOW:
                    web.hang()
                return
            self.wfile.write(body)
            web.answers.append(status)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output to itself."""

    return Handler
