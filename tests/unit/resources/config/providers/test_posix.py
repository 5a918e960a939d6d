"""A config through the flow, on files in memory."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.resources.config import TYPE
from ccm_agent.resources.config.model import ConfigProperties
from ccm_agent.resources.config.providers.posix import LIMIT_BYTES, PosixConfig
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.runner import FakeRunner
from tests.support.resources import manage

PATH = "/etc/app.json"


async def apply(files: FakeFiles, runner: FakeRunner | None = None, **properties: Any) -> TransactionEvent:
    wanted = ConfigProperties(**{"name": PATH, "ensure": "present", **properties})
    return await manage(TYPE, PosixConfig(files, runner or FakeRunner()), wanted)


async def test_several_keys_are_one_change_that_keeps_owner_and_mode() -> None:
    files = FakeFiles()
    files.put(PATH, '{"a": 1}\n', mode=0o640, uid=1)

    first = await apply(files, values={"a": 2, "b.c": True})
    second = await apply(files, values={"a": 2, "b.c": True})

    node = files.nodes[PATH]
    assert node.content == b'{"a": 2, "b": {\n  "c": true\n}}\n'
    assert (node.mode, node.uid, first.changed, first.error, second.changed) == (0o640, 1, True, [], False)


async def test_an_invalid_content_leaves_the_file_alone() -> None:
    files, runner = FakeFiles(), FakeRunner()
    files.put(PATH, "{}")
    runner.when("dockerd", code=1)

    event = await apply(files, runner, key="a", value=1, validate="dockerd --validate --config-file=%s")

    assert (event.failed, files.nodes[PATH].content) == (True, b"{}")


async def test_a_missing_file_is_created_on_request() -> None:
    files = FakeFiles()
    files.put_directory("/etc")

    refused = await apply(files, key="a", value=1)
    created = await apply(files, key="a", value=1, create=True)

    assert refused.error == [f"{PATH}: there is no such file; set `create: true` to create it"]
    assert (created.error, files.nodes[PATH].content) == ([], b'{\n  "a": 1\n}\n')


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"{", f"{PATH}: it is not JSON: line 1: expected a string in double quotes"),
        (b" " * (LIMIT_BYTES + 1), f"{PATH}: is larger than {LIMIT_BYTES} bytes, which is the limit here"),
    ],
)
async def test_a_file_that_cannot_be_read_stays(content: bytes, error: str) -> None:
    files = FakeFiles()
    files.put(PATH, content)

    event = await apply(files, key="a", value=1)

    assert (event.error, files.nodes[PATH].content) == ([error], content)
