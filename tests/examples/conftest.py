"""What the examples share: a `ccm` that starts at once, and a web server on loopback."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.warm_ccm import warm_ccm


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and says nothing; the page /private/ wants a user, /token/ a header."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        wants = {"private": "Basic ZGVwbG95OnMzY3JldA==", "token": "Bearer t0ken"}
        wanted = wants.get(self.path.split("/")[2] if self.path.count("/") > 2 else "")
        if wanted is not None and self.headers.get("Authorization") != wanted:
            self.send_error(401)
        else:
            super().do_GET()


@pytest.fixture(scope="session")
def ccm() -> Iterator[Path]:
    with warm_ccm() as program:
        yield program


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of what lies in the folder `www` of the test; deploy:s3cret is who may read /www/private."""
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
