"""Names that hold secrets: shown masked, and found all the same."""

from __future__ import annotations

import asyncio
import json
import traceback
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.engine.secrets import Secrets
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.model.errors import CommandError, DataError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.sessions.directory import new_session_directory
from tests.support.engine import bench

DATA = {"hierarchy": {"secret": ["pw"]}, "data": {"pw": "hunter22"}}


def source(*notes: dict[str, Any], **others: Any) -> ManifestSource:
    resources = [{"note": note} for note in notes]
    text = json.dumps({**DATA, **others, "ccm": {"resources": resources}})
    return ManifestSource(text=text.encode(), name="m.yaml")


PAIR = ({"name": "set {{ Data.pw }}"}, {"name": "then", "require": ["note#set hunter22"]})


async def test_a_requirement_is_found_by_the_name_that_is_shown_masked() -> None:
    on = bench()

    summary = await on.engine.apply(source(*PAIR), on.options())

    assert (summary.state, on.outcomes) == ("changed", [("set ***", "changed"), ("then", "changed")])
    assert "set hunter22" in on.board.notes


async def test_a_requirement_that_is_not_met_is_named_masked() -> None:
    on = bench()
    on.board.broken["set hunter22"] = "unable"

    summary = await on.engine.apply(source(*PAIR), on.options())

    assert on.events[1].unmet_requirements == ["note#set ***"]
    assert [one.resource for one in summary.failed] == ["note#set ***"]


async def test_two_names_that_are_shown_alike_are_two_resources() -> None:
    on = bench()
    both = source(
        {"name": "set {{ Data.pw }}"},
        {"name": "set {{ Data.more }}"},
        hierarchy={"secret": ["pw", "more"]},
        data={"pw": "hunter22", "more": "hunter33"},
    )

    summary = await on.engine.apply(both, on.options())
    managed = await on.engine.managed(both, on.options())

    assert (summary.unique_resources, [event.name for event in on.events]) == (2, ["set ***"] * 2)
    assert len(managed) == 2
    assert all(one.startswith("note#set *** (") for one in managed.values())


def test_a_session_on_disk_holds_names_masked_and_a_later_process_finds_them(tmp_path: Path) -> None:
    directory = new_session_directory(str(tmp_path / "session"))
    first, second = bench(), bench()

    asyncio.run(first.engine.apply(source(PAIR[0]), first.options(session=directory)))
    summary = asyncio.run(second.engine.apply(source(PAIR[1]), second.options(session=directory)))

    assert "hunter22" not in "".join(path.read_text() for path in Path(directory).iterdir())
    assert summary.state == "changed"


async def test_a_run_resumes_after_another_process_under_a_masked_name() -> None:
    first, second = bench(), bench()
    await first.engine.apply(source(*PAIR), first.options())

    done = [msgspec.structs.replace(event, properties=None, status=None) for event in first.events[:1]]
    await second.engine.apply(source(*PAIR), second.options(done=done))

    assert [event.name for event in second.events] == ["then"]
    assert list(second.board.notes) == ["then"]


def fail(secret: str) -> None:
    """Errors behind errors, each with a secret in it."""
    try:
        try:
            raise KeyError(secret)
        except KeyError as err:
            err.add_note(f"it was {secret}")
            raise FileNotFoundError(2, f"no {secret}", f"/{secret}") from err
    except OSError as err:
        raise ExceptionGroup("two", [CommandError(f"not {secret}", output=secret), err]) from err


def test_no_error_and_nothing_behind_it_holds_a_secret() -> None:
    secret, secrets = "hunter22", Secrets()
    secrets.masker.learn(secret)

    with pytest.raises(ExceptionGroup) as caught, secrets.kept_out_of_errors():
        fail(secret)

    shown = "".join(traceback.format_exception(caught.value))
    assert ("it was ***" in shown, "not ***" in shown, "'/***'" in shown) == (True, True, True)
    assert secret not in shown + str(vars(caught.value.exceptions[0]))


def test_lint_names_declared_secrets_as_ours() -> None:
    document = make_document(
        json.dumps({**DATA, "ccm": {"resources": [{"exec": {"name": "ls"}}]}}).encode(), "m.yaml", "/"
    )

    found = [str(one) for one in lint(document, Catalog(), strict_ccm=True)]

    assert len(found) == 1
    assert "Choria CCM's `hierarchy` has no `secret`; only ccm-fleet supports it" in found[0]
    assert lint(document, Catalog()) == []


async def test_a_manifest_whose_secrets_are_not_a_list_is_refused() -> None:
    on = bench()

    with pytest.raises(DataError, match=r"hierarchy\.secret"):
        await on.engine.apply(source({"name": "n"}, hierarchy={"secret": "pw"}), on.options())
