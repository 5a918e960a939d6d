"""Rules in files that other rules name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ccm_agent.health.goss.gossfiles import FILES_LIMIT, with_files
from ccm_agent.model.errors import FileError, PropertyError

FILES = {
    "/rules/a.yaml": b"gossfile: {sub/b.yaml: {}}\nport: {tcp:80: {listening: true}}\n",
    "/rules/sub/b.yaml": b"file: {/x: {exists: true}}\n",
    "/rules/loop.yaml": b"gossfile: {loop.yaml: {}}\n",
    "/rules/list.yaml": b"[a]\n",
    "/rules/template.yaml": b"file: {'{{ .Env.HOME }}': {exists: true}}\n",
}


async def read(path: str) -> bytes:
    if path not in FILES:
        raise FileError(f"{path}: no such file")
    return FILES[path]


async def test_rules_of_files_replace_those_of_the_same_name() -> None:
    rules = {
        "gossfile": {"/rules/a.yaml": {}, "/nosuch": {"skip": True}, "mine": {"file": "/rules/sub/b.yaml"}},
        "file": {"/x": {"exists": False}, "/y": {"exists": True}},
    }

    found = await with_files(rules, read)

    assert found == {
        "file": {"/x": {"exists": True}, "/y": {"exists": True}},
        "port": {"tcp:80": {"listening": True}},
    }


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"b.yaml": {}}, "no matched files were found: `gossfile` b.yaml must be an absolute path", id="relative"),
        pytest.param({"/nosuch": {}}, "no matched files were found: /nosuch: /nosuch: no such file", id="missing"),
        pytest.param({"/rules/*": {}}, "`gossfile` /rules/*: patterns are not supported", id="pattern"),
        pytest.param({"/rules/a.yaml": None}, "the options must be a mapping", id="without options"),
        pytest.param({"/rules/a.yaml": {"x": 1}}, "there is no `x`", id="unknown option"),
        pytest.param(["/rules/a.yaml"], "`gossfile` must be a mapping", id="list"),
        pytest.param({"/rules/list.yaml": {}}, "could not read json data in /rules/list.yaml", id="list in a file"),
        pytest.param({"/rules/template.yaml": {}}, "contains a goss template", id="template"),
        pytest.param({"/rules/loop.yaml": {}}, f"more than {FILES_LIMIT} files", id="loop"),
    ],
)  # fmt: skip
async def test_a_file_that_cannot_be_used_is_an_error(files: Any, message: str) -> None:
    with pytest.raises(PropertyError, match=re.escape(message)):
        await with_files({"gossfile": files}, read)
