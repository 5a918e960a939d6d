"""The undo of a run in the browser: its preview names what comes back and what does not, and only then it is started."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.conftest import SCRIPT, WAYS, Site, Way, context_of, looks_well
from tests.dashboard.keyboard import Hands
from tests.support.fleet import a_file, a_gate, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SECRET = "planted-secret-of-the-file"


@pytest.fixture(params=WAYS, ids=str)
def hands(request: pytest.FixtureRequest, browser: Browser, acting: Site) -> Iterator[Hands]:
    """A user who may act."""
    way: Way = request.param
    with context_of(browser, storage_state=acting.signed_in(browser), **way.settings) as context:
        yield Hands(context.new_page(), is_keyboard=way.is_keyboard)


@pytest.fixture
def page(browser: Browser, acting: Site) -> Iterator[Page]:
    with context_of(browser, storage_state=acting.signed_in(browser)) as context:
        yield context.new_page()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all can read, so that diffs show lines, on the host of all nodes."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def node_file(name: str, content: str, mode: str = "0644") -> tuple[str, str, dict[str, str]]:
    """A file of each node below the folder, by the node's name."""
    own = {"owner": str(os.getuid()), "group": str(os.getgid()), "mode": mode}
    return (
        "file",
        f"{name}/{{{{ lookup('facts.name') }}}}.conf",
        {"ensure": "present", "content": content, **own},
    )


def applied(site: Site, name: str, *resources: tuple[str, str, dict[str, str]], on: str = "node=web*") -> str:
    """Apply a manifest; the run."""
    path = site.fleet.write(f"{name}.yaml", manifest(*resources))
    done = site.fleet.ctl("apply", path, "-t", on, "--yes", "--json")
    assert done.code == 0, done.out + done.err
    return done.run


def test_a_run_is_undone_after_its_preview(hands: Hands, acting: Site, folder: Path) -> None:
    page = hands.page
    private = folder / "private"
    private.mkdir(mode=0o700)
    for node in ("web1", "web2"):
        (folder / f"{node}.conf").write_text(f"old {SCRIPT}\n")
        (private / f"{node}.conf").write_text(f"{SECRET}\n")
        (private / f"{node}.conf").chmod(0o600)
    run = applied(
        acting,
        "undone",
        node_file(str(folder), f"new {SCRIPT}\n"),
        node_file(str(private), "changed\n", "0600"),
        ("exec", "true", {}),
    )
    (private / "web2.conf").write_text("edited\n")
    page.goto(f"{acting.address}/runs/{run}")

    hands.press(page.get_by_role("button", name="Undo …"))
    looks_well(page)
    hands.press(page.get_by_role("button", name="Preview the undo"))

    preview = page.get_by_role("region", name="Preview of the undo")
    expect(preview.get_by_role("status")).to_contain_text("Preview done: 2 would change")
    hands.assert_not_lost()
    group = preview.locator("details.group").filter(has_text=f"{folder}/web1.conf")
    expect(group.locator(".diff .add")).to_have_text(f"+old {SCRIPT}")
    expect(group.locator(".diff .del")).to_have_text(f"-new {SCRIPT}")
    left = preview.get_by_role("listitem")
    expect(left.filter(has_text="exec#true")).to_have_text(
        "exec#true on web1, web2: changes of the type `exec` are not recorded"
    )
    expect(left.filter(has_text="web2.conf")).to_contain_text(f"changed since the run {run[:8]}: its content")
    assert SECRET not in page.content()
    assert page.locator("main script, main img").count() == 0
    looks_well(page)
    # nothing has changed yet
    assert (folder / "web1.conf").read_text() == f"new {SCRIPT}\n"

    hands.write(page.get_by_label("Message"), f"wrong port {SCRIPT}")
    looks_well(page)
    hands.press(page.get_by_role("button", name="Undo on 2 nodes"))

    expect(page.get_by_role("heading", name="Run")).not_to_have_text(f"Run {run[:8]}")
    expect(page.get_by_role("group", name="Nodes by state")).to_contain_text("2 changed")
    expect(page.locator(".title .sub").first).to_contain_text(f"undo {run[:8]} by tester")
    expect(page.locator(".lead")).to_have_text(f"wrong port {SCRIPT}")
    hands.assert_not_lost()
    looks_well(page)
    assert [(folder / f"{node}.conf").read_text() for node in ("web1", "web2")] == [f"old {SCRIPT}\n"] * 2
    assert (private / "web1.conf").read_text() == f"{SECRET}\n"
    assert (private / "web2.conf").read_text() == "edited\n"
    expect(page.get_by_role("button", name="Redo …")).to_be_visible()


def test_a_change_on_a_node_is_undone_there_alone(hands: Hands, acting: Site) -> None:
    page, name = hands.page, f"alone-{'keyboard' if hands.is_keyboard else 'mouse'}"
    run = applied(acting, name, a_file(name))
    files = [acting.fleet.agents[node].files / name for node in ("web1", "web2")]
    page.goto(f"{acting.address}/nodes/web2")

    row = page.get_by_role("region", name="Sessions").get_by_role("row").filter(has_text=run[:8])
    hands.press(row.get_by_role("link", name="Undo …"))
    expect(page.get_by_label("On")).to_have_value("web2")
    looks_well(page)
    hands.press(page.get_by_role("button", name="Preview the undo"))
    hands.press(page.get_by_role("button", name="Undo on 1 node"))

    expect(page.get_by_role("group", name="Nodes by state")).to_contain_text("1 changed")
    assert [path.exists() for path in files] == [True, False]


def test_a_preview_that_finds_nothing_offers_no_undo(page: Page, acting: Site) -> None:
    run = applied(acting, "nothing", a_file("nothing"), on="node=web1")
    (acting.fleet.agents["web1"].files / "nothing").write_text("edited")
    page.goto(f"{acting.address}/runs/{run}?undo=all")

    page.get_by_role("button", name="Preview the undo").click()

    preview = page.get_by_role("region", name="Preview of the undo")
    expect(preview.get_by_role("status")).to_contain_text("There is nothing to undo on these nodes now")
    expect(page.get_by_role("button", name="Undo on")).to_have_count(0)
    looks_well(page)


def test_what_an_assignment_applies_again_is_named(page: Page, acting: Site) -> None:
    path = acting.fleet.write("again.yaml", manifest(a_file("again")))
    assert acting.fleet.ctl("assign", "again", path, "-t", "node=web1", "--yes").code == 0
    assert acting.fleet.ctl("assignment", "status", "again", "--wait", "60s").code == 0
    run = acting.fleet.ctl("run", "list", "--assignment", "again", "--json").named("run")[0]["run"]
    page.goto(f"{acting.address}/runs/{run}")

    page.get_by_role("button", name="Undo …").click()
    page.get_by_role("button", name="Preview the undo").click()

    preview = page.get_by_role("region", name="Preview of the undo")
    expect(preview).to_contain_text("web1: the assignment again applies this again at the next interval")
    assert acting.fleet.ctl("unassign", "again", "--yes").code == 0


def test_a_run_that_has_not_ended_is_not_undone(page: Page, acting: Site) -> None:
    path = acting.fleet.write("unended.yaml", manifest(a_file("unended"), a_gate("end")))
    driver = acting.fleet.begin("apply", path, "-t", "node=web1", "--yes", "--json")
    acting.fleet.wait_for((acting.fleet.agents["web1"].files / "at-end").exists, "the gate")
    page.goto(f"{acting.address}/runs/{driver.so_far.run}?undo=all")

    expect(page.get_by_text("There is nothing to undo: ")).to_be_visible()

    acting.fleet.open_gates("web1", gate="end")
    driver.end()
    expect(page.get_by_role("button", name="Preview the undo")).to_be_visible()


def test_without_the_right_no_undo_is_offered(browser: Browser, site: Site) -> None:
    run = applied(site, "looked-at", a_file("looked-at"))
    with context_of(browser, storage_state=site.signed_in(browser)) as context:
        page = context.new_page()
        page.goto(f"{site.address}/runs/{run}?undo=all")
        expect(page.get_by_role("group", name="Nodes by state")).to_contain_text("2 changed")
        expect(page.get_by_text("undo", exact=False)).to_have_count(0)
        page.goto(f"{site.address}/nodes/web1")
        expect(page.get_by_role("region", name="Sessions")).to_contain_text(run[:8])
        expect(page.get_by_role("link", name="Undo …")).to_have_count(0)
