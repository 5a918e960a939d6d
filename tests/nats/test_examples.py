"""The examples of Choria CCM's documentation that need a broker; see tests/examples/test_pages.py."""

from __future__ import annotations

import getpass
import grp
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.testing.nats_server import NatsServer
from tests.support.examples import Ground, read_pages
from tests.support.nats_server import running_server
from tests.support.warm_ccm import warm_ccm

pytestmark = pytest.mark.nats

EXAMPLES = [
    pytest.param(example, id=f"{page}-{'-'.join(map(str, example['blocks']))}")
    for page, listed in read_pages().items()
    for example in listed["examples"]
    if example["how"] == "broker"
]


@pytest.fixture(scope="module")
def ccm() -> Iterator[Path]:
    with warm_ccm() as program:
        yield program


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as server:
        yield server


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_documented(
    example: dict[str, Any], tmp_path: Path, ccm: Path, server: NatsServer
) -> None:
    folder = tmp_path / "example"
    context = folder / ".config" / "nats" / "context" / "CCM.json"
    context.parent.mkdir(parents=True)
    context.write_text(json.dumps({"url": server.url}))

    def run(command: Sequence[str], stdin: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        path = f"{ccm.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        home = {"HOME": str(folder), "TMPDIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
        return subprocess.run(
            [ccm, *command[1:]] if command[0] == "ccm" else command,
            cwd=folder,
            input=stdin,
            env={"PATH": path, **home, **env},
            capture_output=True,
            text=True,
            check=False,
        )

    ground = Ground(str(folder), Path, run, {
        "@USER@": getpass.getuser(),
        "@GROUP@": grp.getgrgid(os.getgid()).gr_name,
    })  # fmt: skip

    assert ground.play(example) == []
