"""What a resource changes, as people read it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ccm_agent.clikit.diffs import diff_block, diff_lines
from ccm_agent.clikit.table import Style
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.resource_diff import ContentInfo, FileDiff, PropertyChange, ResourceDiff
from tests.support.agent import resource_event

SHA = "ab" * 32


def event(diff: ResourceDiff, **fields: Any) -> TransactionEvent:
    return resource_event(
        fields.pop("name", "/etc/motd"), diff=diff, **{"changed": True, "noop": True, **fields}
    )


def test_properties_and_lines_stand_below_the_resource() -> None:
    diff = ResourceDiff(
        properties=[
            PropertyChange(property="mode", before="0600", after="0644"),
            PropertyChange(property="owner", after="root"),
        ],
        files=[FileDiff(path="/etc/motd", text="@@ -1 +1 @@\n-a\n+b\n", added=1, removed=1, left_out=7)],
    )

    assert diff_block(event(diff), Style()) == (
        "file#/etc/motd would change\n"
        "  mode: 0600 → 0644\n"
        "  owner: root\n"
        "  content: 1 line added, 1 removed\n"
        "  @@ -1 +1 @@\n"
        "  -a\n"
        "  +b\n"
        "  … 7 more lines\n"
    )


def test_files_of_a_directory_are_listed() -> None:
    diff = ResourceDiff(
        files=[
            FileDiff(
                path="/srv/a",
                action="create",
                form="lines",
                added=2,
                why="not all users can read the file",
            ),
            FileDiff(
                path="/srv/b",
                action="remove",
                form="binary",
                before=ContentInfo(size_bytes=2048, sha256=SHA),
            ),
            FileDiff(path="/srv/c", form="digests", after=ContentInfo(sha256=SHA), why="it is fetched"),
            FileDiff(path="/srv/d", action="create"),
        ],
        files_left_out=3,
    )

    assert diff_block(event(diff, noop=False), Style(), before="web[1-2]: ") == (
        "web[1-2]: file#/etc/motd changed\n"
        "  create /srv/a: 2 lines added; not shown: not all users can read the file\n"
        "  remove /srv/b: binary, 2.0 KiB sha256:abababababab\n"
        "  change /srv/c: sha256:abababababab; not shown: it is fetched\n"
        "  create /srv/d: empty\n"
        "  … 3 more files\n"
    )


@pytest.mark.parametrize(
    ("noop", "words"),
    [
        (True, "would refresh because file#/a would change"),
        (False, "refreshed because file#/a changed"),
    ],
)
def test_a_chain_is_a_sentence(noop: bool, words: str) -> None:
    diff = ResourceDiff(command="nginx -s reload", refresh="file#/a")

    assert (
        diff_block(event(diff, noop=noop), Style()) == f"file#/etc/motd {words}\n  command: nginx -s reload\n"
    )
    assert diff_lines(event(diff, noop=noop), Style()) == f"  {words}\n  command: nginx -s reload\n"


def test_data_withheld_by_the_policy_is_reported() -> None:
    diff = ResourceDiff(why="the node's policy withholds diffs")

    assert diff_lines(event(diff), Style()) == "  no diff: the node's policy withholds diffs\n"


def test_a_terminal_obeys_nothing_of_a_node() -> None:
    evil = "\x1b]0;owned\x07\x9b2J\r"
    diff = ResourceDiff(
        properties=[PropertyChange(property=evil, before=evil, after=evil)],
        files=[
            FileDiff(path=evil, action=evil, text=f"+{evil}\n", why=evil, before=ContentInfo(sha256=evil))
        ],
        command=evil,
        refresh=evil,
        why=evil,
    )

    text = diff_block(event(diff, name=evil), Style(color=True))

    assert re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\n", "").isprintable()


def test_an_event_without_a_diff_has_no_lines() -> None:
    assert diff_block(resource_event("/a"), Style()) == diff_lines(resource_event("/a"), Style()) == ""
