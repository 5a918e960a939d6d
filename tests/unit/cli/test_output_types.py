"""The schemas of what `ccm` prints with `--json`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from ccm_agent.cli.program import program
from ccm_agent.resources.catalog import Catalog
from tests.support.ccm_json import SCHEMAS, checked

RECORDS = {"apply", "ensure", "lint"}
"""They print records; `ccm_record.json` is the schema."""

ANY_VALUE = {"eval"}
"""It prints whatever the expression gives."""


def with_json(command: click.Command, path: str = "") -> Iterator[str]:
    """The commands that have an option `--json`."""
    if any("--json" in option.opts for option in command.params):
        yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from with_json(inner, f"{path} {name}".strip())


def test_every_command_with_json_has_a_schema() -> None:
    found = {name for name in with_json(program) if name.split()[0] not in RECORDS | ANY_VALUE}

    types = {f"status {kind.name}" for kind in Catalog().all() if kind.can_status}
    named = (found - {"status"}) | types
    schemas = {path.stem for path in SCHEMAS.glob("ccm_*.json")} - {"ccm_record"}
    assert {f"ccm_{name}".replace(" ", "_").replace("-", "_") for name in named} == schemas


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"was_disabled": True, "agent": "off", "since": 1}, id="unknown field"),
        pytest.param({"was_disabled": True}, id="missing field"),
        pytest.param({"was_disabled": True, "agent": "gone"}, id="unknown word"),
    ],
)
def test_a_document_that_does_not_fit_its_schema_is_found(document: dict[str, object]) -> None:
    with pytest.raises(AssertionError, match="ccm_agent_enable"):
        checked("ccm_agent_enable", json.dumps(document))
