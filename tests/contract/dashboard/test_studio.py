"""The studio over HTTP: who may check and save, from which page, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.system.render_process import RenderLimits, RenderProcess
from ccm_agent.testing.memory_bus import MemoryBus
from ccm_ctl.dashboard.access import DashboardUser, Right
from ccm_ctl.dashboard.middleware import FORGERY_HEADER
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.stored_session import read_session_events
from ccm_ctl.studio import fleet_pages
from ccm_ctl.studio.studio_pages import BODY_BYTES, StudioPages
from ccm_ctl.studio.workspace import Workspace
from tests.contract.dashboard.test_server import Site, served
from tests.support.controller import FakeNode, fleet_on, planned_change

TOKEN = "0123456789abcdef0123456789abcdef"
READER = {hashlib.sha256(TOKEN.encode()).hexdigest(): DashboardUser(name="ann", right=Right.READ)}
LINT = "/api/studio/lint"
FILES = "/api/studio/files"


def genuine(site: Site) -> dict[str, str]:
    """The headers that a page of the dashboard sends."""
    return {"Origin": site.address, FORGERY_HEADER: site.action}


@contextlib.asynccontextmanager
async def studio(folder: Path | None) -> AsyncIterator[Site]:
    """A studio for a user who may only look at the fleet."""
    pages = StudioPages(Workspace.open(folder) if folder else None)
    async with served(pages, **READER) as site:
        await site.sign_in(TOKEN)
        yield site


async def test_a_user_who_may_only_look_checks_a_manifest() -> None:
    text = "ccm:\n  resources:\n    - package: [{zsh: {ensure: 1.10}}]\n"
    async with studio(None) as site:
        status, said = await site.ask("POST", LINT, headers=genuine(site), body={"text": text})
        schema, types = await site.ask("GET", "/api/studio/schema")

    assert status == schema == 200
    assert [(one["rule"], one["place"]["line"]) for one in said["findings"]] == [("unquoted", 3)]
    assert "package_properties" in types["$defs"]


async def test_a_page_of_another_origin_is_refused(tmp_path: Path) -> None:
    body = {"path": "site.yaml", "text": "a: 1\n"}
    async with studio(tmp_path) as site:
        elsewhere = {"Origin": "https://evil.example", FORGERY_HEADER: site.action}
        refused = [
            (await site.ask("PUT", FILES, headers=elsewhere, body=body))[0],
            (await site.ask("PUT", FILES, headers={"Origin": site.address}, body=body))[0],
            (await site.ask("POST", LINT, headers=elsewhere, body={"text": ""}))[0],
        ]

    assert refused == [403, 403, 403]
    assert not (tmp_path / "site.yaml").exists()


async def test_without_a_session_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("password: hunter2\n")
    async with served(StudioPages(Workspace.open(tmp_path))) as site:
        answers = [(await site.ask("GET", path))[0] for path in ("/api/studio", f"{FILES}?path=site.yaml")]

    assert answers == [401, 401]


async def test_a_file_is_opened_saved_and_guarded(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("a: 1\n")
    async with studio(tmp_path) as site:
        _, listed = await site.ask("GET", "/api/studio")
        _, file = await site.ask("GET", f"{FILES}?path=site.yaml")
        body = {"path": "site.yaml", "text": "a: 2\n", "digest": file["digest"]}
        saved, _ = await site.ask("PUT", FILES, headers=genuine(site), body=body)
        conflict, said = await site.ask("PUT", FILES, headers=genuine(site), body=body)
        outside, _ = await site.ask("GET", f"{FILES}?path=../x.yaml")

    assert (listed["files"], saved, conflict, outside) == (["site.yaml"], 200, 409, 400)
    assert "changed on disk" in said["error"]
    assert (tmp_path / "site.yaml").read_text() == "a: 2\n"


GOOD = "ccm:\n  resources: [{exec: [{x: {}}]}]\n"
BAD = "ccm:\n  resources: [{exec: [{x:}]}]\n---\na: 1\n"


async def test_an_edit_that_agents_would_refuse_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(GOOD)
    (tmp_path / "broken.yaml").write_text(BAD)
    async with studio(tmp_path) as site:

        async def save(path: str, text: str, *, is_new: bool = False) -> tuple[int, str]:
            opened = {} if is_new else (await site.ask("GET", f"{FILES}?path={path}"))[1]
            body = {"path": path, "text": text, "digest": opened.get("digest", "")}
            status, said = await site.ask("PUT", FILES, headers=genuine(site), body=body)
            return status, said.get("error", "")

        refused = [await save("site.yaml", BAD), await save("new.yaml", BAD, is_new=True)]
        allowed = [
            await save("site.yaml", f"# edited\n{GOOD}"),
            await save("new.yaml", GOOD, is_new=True),
            await save("broken.yaml", f"# repaired in steps\n{BAD}"),
        ]

    assert [status for status, _ in refused] == [400, 400]
    assert refused[0][1].startswith("not saved, the file is unchanged: agents would refuse it: ")
    assert "2:25" in refused[0][1]
    assert [status for status, _ in allowed] == [200, 200, 200]
    assert (tmp_path / "site.yaml").read_text() == f"# edited\n{GOOD}"
    assert (tmp_path / "new.yaml").read_text() == GOOD


async def test_the_dashboard_has_no_files_to_open() -> None:
    async with studio(None) as site:
        status, said = await site.ask("GET", f"{FILES}?path=site.yaml")

    assert (status, said["error"]) == (404, "no folder is open here; `ccmctl studio FOLDER` opens one")


async def test_a_body_that_is_too_large_or_something_else_is_refused() -> None:
    async with studio(None) as site:
        body = io.BytesIO(b'{"text": "' + b"x" * BODY_BYTES + b'"}')
        async with site.http.post(site.address + LINT, headers=genuine(site), data=body) as answer:
            large = answer.status
        other, _ = await site.ask("POST", LINT, headers=genuine(site), body=["text"])

    assert (large, other) == (400, 400)


PLAN = {"text": "ccm:\n  resources:\n    - package: [{zsh: {ensure: present}}]\n", "name": "shell"}


async def test_a_user_who_may_only_look_evaluates_and_sends_nothing() -> None:
    async with served(**READER) as site:
        await site.sign_in(TOKEN)
        evaluated, said = await site.ask(
            "POST",
            "/api/studio/evaluate",
            headers=genuine(site),
            body={"node": "web1", "expression": "Facts.role"},
        )
        body = {**PLAN, "targets": ["role=web"]}
        planned, _ = await site.ask("POST", "/api/studio/plan", headers=genuine(site), body=body)
        stored, _ = await site.ask("POST", "/api/studio/bundle", headers=genuine(site), body=PLAN)
        none, _ = await site.ask("POST", "/api/studio/evaluate", headers=genuine(site), body={"node": "no"})

    assert (evaluated, said["result"]["value"]) == (200, '"web"')
    assert (planned, stored, none) == (403, 403, 404)


async def test_a_plan_is_recorded_and_sent_to_the_named_nodes() -> None:
    async with served() as site:
        await site.sign_in()
        body = {**PLAN, "targets": ["role=web"]}
        status, said = await site.ask("POST", "/api/studio/plan", headers=genuine(site), body=body)
        recorded = await History(fleet_on(MemoryBus(site.broker, "op"))).load(said["run"])
        nowhere, _ = await site.ask("POST", "/api/studio/plan", headers=genuine(site), body=PLAN)

    assert (status, said["nodes"], nowhere) == (200, 1, 400)
    assert (recorded.record.action, recorded.record.name, recorded.nodes) == ("plan", "shell", ["web1"])


async def test_a_plan_is_not_done_if_a_node_ends_while_the_changes_of_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, may_end, may_read = asyncio.Event(), asyncio.Event(), asyncio.Event()
    read: list[str] = []

    async def read_slowly(*about: Any) -> Any:
        read.append(about[-1])
        events = await read_session_events(*about)
        reading.set()
        await may_read.wait()
        return events

    async with served() as site:
        for name, is_free in (("app1", lambda: True), ("app2", may_end.is_set)):
            node = FakeNode(name, {"role": "app"}, [planned_change("/etc/motd", 2)], may_go_on=is_free)
            await node.begin(site.broker)
        await site.sign_in()
        body = {**PLAN, "targets": ["role=app"]}
        _, said = await site.ask("POST", "/api/studio/plan", headers=genuine(site), body=body)
        address = f"/api/studio/plan/{said['run']}"
        async with asyncio.timeout(10):
            while (await site.ask("GET", address))[1]["counts"].get("changed") != 1:
                pass
            monkeypatch.setattr(fleet_pages, "read_session_events", read_slowly)
            asking = asyncio.create_task(site.ask("GET", address))
            await reading.wait()
            may_end.set()
            await asyncio.sleep(0.5)  # the server follows the run to its end
            may_read.set()
            _, before = await asking
            _, after = await site.ask("GET", address)

    assert (before["counts"], before["is_done"]) == ({"changed": 2}, False)
    assert (after["is_done"], read) == (True, ["app1", "app1", "app2"])


async def test_the_record_of_a_plan_names_the_user() -> None:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    async with served(**{digest: DashboardUser(name="ann", right=Right.ACT)}) as site:
        await site.sign_in(TOKEN)
        body = {**PLAN, "targets": ["role=web"]}
        _, said = await site.ask("POST", "/api/studio/plan", headers=genuine(site), body=body)
        recorded = await History(fleet_on(MemoryBus(site.broker, "op"))).load(said["run"])

    assert (recorded.record.requester, recorded.record.user) == ("op", "ann")


async def test_what_lint_refuses_is_neither_planned_nor_stored() -> None:
    body = {**PLAN, "text": "ccm: {}\n", "targets": ["role=web"]}
    async with served() as site:
        await site.sign_in()
        answers = [
            await site.ask("POST", f"/api/studio/{word}", headers=genuine(site), body=body)
            for word in ("plan", "bundle")
        ]

    assert [status for status, _ in answers] == [400, 400]
    assert all("nothing was sent" in said["error"] for _, said in answers)


async def test_a_bundle_is_stored_under_its_digest() -> None:
    async with served() as site:
        await site.sign_in()
        _, said = await site.ask("POST", "/api/studio/bundle", headers=genuine(site), body=PLAN)
        stored = await fleet_on(MemoryBus(site.broker, "op")).manifests.get(said["digest"], 1 << 20)

    assert hashlib.sha256(stored).hexdigest() == said["digest"]


SECRETS = """\
hierarchy: {order: [], secret: ["tls.key"]}
data:
  port: 8080
  db: {password: planted-one, host: db1}
  tls: {key: planted-two, cert: public}
  list: [{token: planted-three}, plain]
  url: "https://ann:planted-four@example.com/"
  copy: "before planted-one after"
  pin: 123456
"""
PROTECTED = "data: {banner: planted-five, numbers: [98765, {deep: planted-six}]}\n"
"""A document that only its node can read."""


async def put_data(site: Site, **documents: str) -> None:
    """Store documents as an operator does."""
    fleet = fleet_on(MemoryBus(site.broker, "op"))
    for key, text in documents.items():
        await Documents(fleet, fleet.data, "CCM_DATA").change(key, lambda _, text=text: text)  # type: ignore[misc]


async def test_no_expression_or_template_shows_a_secret_of_the_data_or_a_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "all.jet").write_text("[[ data ]] [[ Data.db.password ]]")
    data = "[[ data.db.password[:3] ]]"
    manifest = f"""\
data: {{mine: "visible {{{{ Facts.role }}}}"}}
ccm:
  resources:
    - file:
        - /etc/all: {{content: "{{{{ toJSON(Data) }}}} {{{{ jet('all.jet') }}}} {{{{ jet('{data}') }}}}"}}
        - /etc/part: {{content: "{{{{ Data.db.password[0:8] }}}} {{{{ lookup('data.tls.key') }}}} {{{{ Data.mine }}}}"}}
        - /etc/guess: {{content: "{{{{ Data.db.password == 'planted-one' }}}} {{{{ 'planted-' + 'one' }}}}"}}
"""
    worker = RenderProcess(RenderLimits(cpu_s=3, grace_s=1))
    async with served(StudioPages(None), studio=(worker, Workspace(tmp_path))) as site:
        await site.sign_in()
        await put_data(site, common=SECRETS, **{"node/gone/own": PROTECTED})
        said = {}
        for urls in (["kv://CCM_DATA/common"], ["kv://CCM_DATA/common", "kv://CCM_DATA/node/gone/own"]):
            body = {
                "node": "web1",
                "text": manifest,
                "expression": "toJSON(Data)",
                "path": "m.yaml",
                "data": urls,
            }
            status, said[len(urls)] = await site.ask(
                "POST", "/api/studio/evaluate", headers=genuine(site), body=body
            )
            assert status == 200

    everything = json.dumps(said).replace("'planted-' + 'one'", "")
    # a guess of the user is shown as it was typed: were it masked, the page would say whether it is right
    guess = said[1]["files"][2]["text"]
    assert guess == "false planted-one"
    everything = everything.replace(guess, "")
    assert [word for word in ("planted", "lant", "123456", "98765") if word in everything] == []
    shown = json.loads(json.loads(said[1]["result"]["value"]))
    assert shown == {
        "mine": "visible web",
        "port": 8080,
        "db": {"password": "***", "host": "db1"},
        "tls": {"key": "***", "cert": "public"},
        "list": [{"token": "***"}, "plain"],
        "url": "https://***@example.com/",
        "copy": "before *** after",
        "pin": "***",
    }
    assert said[1]["files"][1]["text"] == "*** *** visible web"
    protected = json.loads(json.loads(said[2]["result"]["value"]))
    assert (protected["banner"], protected["port"], protected["numbers"]) == (
        "***",
        "***",
        ["***", {"deep": "***"}],
    )


async def test_documents_of_the_assignments_of_a_node_are_listed() -> None:
    async with served(**READER) as site:
        await site.sign_in(TOKEN)
        status, said = await site.ask("GET", "/api/studio/data?node=web1")
        unknown, _ = await site.ask("GET", "/api/studio/data?node=none")

    assert (status, said, unknown) == (200, {"sources": {}}, 404)
