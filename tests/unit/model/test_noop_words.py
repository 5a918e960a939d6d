"""What a plan would have done, in words for people."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.noop_words import noop_words
from tests.support.agent import resource_event

SHA = "ab" * 32


@pytest.mark.parametrize(
    ("state", "wanted", "words"),
    [
        pytest.param("absent", {}, "Would have created the file", id="it is not there"),
        pytest.param("present", {"content": "new"}, "Would have changed content", id="content"),
        pytest.param(
            "present",
            {"content": f"sha256:{SHA} (3 bytes)", "mode": "0600"},
            "Would have changed mode",
            id="mode",
        ),
        pytest.param(
            "present",
            {"content": "new", "owner": "app", "mode": "6xx"},
            "Would have changed content and owner",
            id="owner",
        ),
        pytest.param(
            "present",
            {"content": f"sha256:{SHA} (3 bytes)", "owner": "0"},
            "Would have changed the file",
            id="number",
        ),
    ],
)
def test_a_file_that_exists_is_not_called_created(state: str, wanted: dict[str, Any], words: str) -> None:
    metadata = {"owner": "root", "uid": 0, "group": "root", "gid": 0, "mode": "0644", "checksum": SHA}
    properties = {"owner": "root", "group": "root", "mode": "0644", **wanted}

    told = resource_event(
        "/etc/motd",
        noop_message="Would have created the file",
        properties=properties,
        status={"ensure": state, "metadata": metadata},
    )

    assert noop_words(told) == words
