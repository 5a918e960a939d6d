"""What an operator reads after runs, from a real broker and real agents: history, states, differences and reports."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from tests.support.fleet import Fleet, a_file, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("web1", "web2")
        yield built


def test_past_of_a_node_is_read_from_the_stream(pair: Fleet) -> None:
    before = datetime.now(UTC).isoformat()
    good = pair.write("site.yaml", manifest(a_file("motd")))
    first = pair.ctl("apply", good, "--all", "--yes", "--json")
    bad = pair.write("site.yaml", manifest(a_file("motd", "y"), ("exec", "fails", {"command": "false"})))
    between = datetime.now(UTC).isoformat()
    second = pair.ctl("apply", bad, "--targets", "node=web1", "--yes", "--json")
    base = pair.write("base.yaml", manifest(a_file("motd")))
    assert pair.ctl("assign", "base", base, "--targets", "node=web2", "--yes").code == 0
    assert pair.ctl("assignment", "status", "base", "--wait", "60s").code == 0
    page, junit = pair.directory / "run.html", pair.directory / "run.xml"

    history = pair.ctl("history", "web1", "--json")
    converged = pair.ctl("history", "web2", "--all", "--json")
    now = pair.ctl("state", "web1", "--json")
    then = pair.ctl("state", "web1", "--at", between, "--json")
    never = pair.ctl("state", "web1", "--at", before)
    difference = pair.ctl("run", "diff", first.run, second.run, "--json")
    report = pair.ctl("report", second.run, "--html", str(page), "--junit", str(junit))
    [own] = pair.ctl("run", "list", "--assignment", "base", "--json").named("run")
    shown = pair.ctl("run", "show", own["run"], "--json")

    assert [(one["run"], one["state"], one["cause"]) for one in history.named("session")] == [
        (first.run, "changed", "request"),
        (second.run, "failed", "request"),
    ]
    assert [(one["cause"], one.get("origin")) for one in converged.named("session")] == [
        ("request", None),
        ("assignment", "base"),
    ]
    assert {one["resource"]: one["outcome"] for one in now.named("state")} == {
        f"file#{pair.agents['web1'].files}/motd": "changed",
        "exec#fails": "failed",
    }
    assert [(one["outcome"], one["run"]) for one in then.named("state")] == [("changed", first.run)]
    assert never.code == 3
    assert {one["node"]: one["b"]["state"] for one in difference.named("difference")} == {
        "web1": "failed",
        "web2": "absent",
    }
    assert report.code == 0
    assert "exec#fails" in page.read_text()
    assert ElementTree.parse(junit).getroot().get("failures") == "2"
    assert shown.states == {"web2": "stable"}
