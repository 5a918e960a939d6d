"""Bundles of earlier revisions are had back as files, by an operator who may only look."""

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
