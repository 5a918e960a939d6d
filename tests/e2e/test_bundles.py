"""Bundles are had back as files by an operator without a role, and only those that nothing needs are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleet import a_file, manifest
from tests.support.secured import secured_fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_an_operator_without_a_role_gets_the_files_of_an_earlier_revision_back(tmp_path: Path) -> None:
    site, out = tmp_path / "site", tmp_path / "out"
    site.mkdir()
    texts = [manifest(a_file(name)) for name in ("first", "second")]
    (tmp_path / "fleet").mkdir()

    with secured_fleet(tmp_path / "fleet") as one:
        one.give("operator", "eve")
        for text in texts:
            (site / "manifest.yaml").write_text(text)
            assert one.as_("tester", "assign", "web", str(site), "--all", "--yes").code == 0
        listed = one.as_("eve", "bundle", "list", "--json").named("bundle")
        got = one.as_("eve", "bundle", "get", listed[1]["digest"][:12], "--out", str(out))

    assert [[(each["kind"], each["revision"]) for each in one["references"]] for one in listed] == [
        [("assignment", 2)],
        [("revision", 1)],
    ]
    assert (got.code, got.err) == (0, "")
    assert {path.name: path.read_text() for path in out.iterdir()} == {"manifest.yaml": texts[0]}


def test_bundles_that_a_command_used_lately_or_that_a_run_on_record_needs_are_not_removed(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "fleet").mkdir()
    (site / "manifest.yaml").write_text(manifest(a_file("first")))

    with secured_fleet(tmp_path / "fleet") as one:
        planned = one.as_("bob", "plan", str(site), "-t", "role=web")
        listed = one.as_("tester", "bundle", "list", "--json").named("bundle")
        kept = one.as_("tester", "bundle", "gc", "--older-than", "1h", "--yes")
        may_not = one.as_("bob", "bundle", "gc", "--dry-run")

    assert planned.code == 0, planned.err
    assert [[each["kind"] for each in one["references"]] for one in listed] == [["ended run"]]
    assert [(done.code, done.err) for done in (kept, may_not)] == [(0, "")] * 2
    assert kept.out == "nothing to remove: all bundles are needed or newer than 1h\n"


def test_bundles_can_be_removed_after_schedules_of_every_kind_were_stored_and_removed(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "fleet").mkdir()
    (site / "manifest.yaml").write_text(manifest(a_file("first")))
    kinds = {
        "nightly": ("--cron", "0 2 * * *"),
        "often": ("--every", "1h"),
        "once": ("--at", "1d"),
        "waves": ("--cron", "@weekly", "--batch", "1"),
    }

    with secured_fleet(tmp_path / "fleet") as one:
        added = [
            one.as_("tester", "schedule", "add", name, str(site), "--all", "--yes", *options)
            for name, options in kinds.items()
        ]
        stored = one.as_("tester", "bundle", "gc", "--dry-run")
        references = one.as_("tester", "bundle", "list", "--json").named("bundle")[0]["references"]
        removed = [one.as_("tester", "schedule", "rm", name, "--yes") for name in kinds]
        listed = one.as_("tester", "bundle", "list")
        gone = one.as_("tester", "bundle", "gc", "--older-than", "1h", "--yes")

    assert [done.code for done in (*added, *removed)] == [0] * 8, [done.err for done in (*added, *removed)]
    assert sorted(each["name"] for each in references) == sorted(kinds)
    assert [(done.code, done.err) for done in (stored, listed, gone)] == [(0, "")] * 3
    assert [done.out for done in (stored, gone)] == [
        f"nothing to remove: all bundles are needed or newer than {age}\n" for age in ("7d", "1h")
    ]
