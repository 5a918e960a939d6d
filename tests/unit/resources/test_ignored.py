"""`ignore`: properties that are set when a resource is created, and left as they are afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ccm_agent.engine.request import ManifestSource
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import ProviderSpec
from ccm_agent.resources.file import TYPE as FILE
from ccm_agent.resources.file.providers.posix import PosixFile
from ccm_agent.testing.download import FakeDownload
from tests.support.engine import Bench, bench

HEAD = "ccm:\n  resources:\n    - file:\n        - /etc/x:\n            "


def host() -> Bench:
    on = bench()
    provider = ProviderSpec(name="posix", make=lambda context: PosixFile(on.files, context.directory))
    kinds = {"file": replace(FILE, providers=(provider,))}
    on.engine.deps.catalog._found.update(kinds)  # type: ignore[attr-defined]
    return on


def manifest(ignore: str, **changes: str) -> str:
    values = {
        "ensure": "present",
        "content": "new",
        "owner": "root",
        "group": "root",
        "mode": '"0644"',
    } | changes
    lines = [f"{key}: {value}" for key, value in values.items() if value] + [f"ignore: {ignore}"]
    return HEAD + "\n            ".join(lines) + "\n"


async def apply(on: Bench, text: str, **options: Any) -> str:
    """The outcome of the only resource."""
    on.files.put("/work/m.yaml", text)
    await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options(**options))
    event = on.events[-1]
    assert event.error == []
    return event.outcome.value


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        pytest.param("[content]", ("old", 0, 0, 0o644), id="content"),
        pytest.param("[source]", ("old", 0, 0, 0o644), id="source is content"),
        pytest.param("[owner]", ("new", 1, 0, 0o644), id="owner"),
        pytest.param("[group]", ("new", 0, 1, 0o644), id="group"),
        pytest.param("[mode]", ("new", 0, 0, 0o600), id="mode"),
        pytest.param("[content, mode]", ("old", 0, 0, 0o600), id="two"),
    ],
)
async def test_other_properties_are_changed_and_the_ignored_ones_stay(
    ignore: str, left: tuple[str, int, int, int]
) -> None:
    on = host()
    on.files.put("/etc/x", "old", mode=0o600, uid=1, gid=1)

    first, second = await apply(on, manifest(ignore)), await apply(on, manifest(ignore))

    node = on.files.nodes["/etc/x"]
    assert (node.content.decode(), node.uid, node.gid, node.mode) == left
    assert (first, second) == ("changed", "stable")


async def test_a_new_resource_gets_every_property_and_keeps_later_changes() -> None:
    on, text = host(), manifest("[content, owner, group, mode]")
    on.files.put_directory("/etc")

    created = await apply(on, text)
    node = on.files.nodes["/etc/x"]
    made = (node.content.decode(), node.uid, node.mode)
    on.files.put("/etc/x", "edited", mode=0o600, uid=1, gid=1)
    later = [await apply(on, text), await apply(on, text, noop=True)]

    assert (created, made) == ("changed", ("new", 0, 0o644))
    assert later == ["stable", "stable"]
    assert on.files.nodes["/etc/x"].content == b"edited"


async def test_a_plan_and_its_diff_do_not_name_ignored_properties() -> None:
    on = host()
    on.files.put("/etc/x", "old", mode=0o600)

    await apply(on, manifest("[mode]"), noop=True, diff=True)

    diff = on.events[-1].diff
    assert diff is not None
    assert [one.property for one in diff.properties] == []
    assert [one.path for one in diff.files] == ["/etc/x"]


async def test_a_directory_that_nobody_may_enter_keeps_its_mode() -> None:
    on = host()
    on.files.put_directory("/etc/x", mode=0o640)

    outcome = await apply(on, manifest("[mode]", ensure="directory", content=""))

    assert (outcome, on.files.nodes["/etc/x"].mode) == ("stable", 0o640)


async def test_a_url_is_not_downloaded_for_an_existing_file_whose_content_is_ignored() -> None:
    on = host()
    download = FakeDownload()
    made = ProviderSpec(name="posix", make=lambda _context: PosixFile(on.files, "/", lambda: download))
    on.engine.deps.catalog._found["file"] = replace(FILE, providers=(made,))  # type: ignore[attr-defined]
    on.files.put("/etc/x", "old")

    outcome = await apply(on, manifest("[content]", content="", source="https://example.net/x"))

    assert outcome == "stable"


async def test_removal_ignores_nothing() -> None:
    on = host()
    on.files.put("/etc/x", "old", mode=0o600)

    outcome = await apply(
        on, manifest("[content, mode]", ensure="absent", content="", owner="", group="", mode="")
    )

    assert (outcome, "/etc/x" in on.files.nodes) == ("changed", False)


@pytest.mark.parametrize(
    ("kind", "ignore", "message"),
    [
        ("file", "[mod]", "the type `file` has no property `mod`, did you mean `mode`?"),
        ("file", "['../etc']", "the type `file` has no property `../etc`"),
        (
            "file",
            "[owner, ensure]",
            "`ensure` cannot be ignored; for the type `file`, `ignore` accepts `content`, `source`, `owner`, `group`, `mode`",
        ),
        ("service", "[enable]", "`ignore` is not supported for the type `service`"),
    ],
)
def test_a_name_that_cannot_be_ignored_is_an_error(kind: str, ignore: str, message: str) -> None:
    own = (
        "name: /x, ensure: present, owner: a, group: a, mode: '0644'"
        if kind == "file"
        else "name: x, ensure: running"
    )
    text = f"ccm:\n  resources:\n    - {kind}: {{{own}, ignore: {ignore}}}\n"

    (finding,) = lint(make_document(text.encode(), "m.yaml", "/"), Catalog())

    assert (finding.rule, finding.message.partition(": ")[2]) == ("property", message)


async def test_a_wrong_name_is_refused_before_anything_is_changed() -> None:
    on = host()

    with pytest.raises(PropertyError, match="has no property `mod`, did you mean `mode`"):
        await apply(on, manifest("[mod]"))

    assert on.events == []
