"""A plain document under a key that held one of `ccmctl`: what a node obeys, and the way out that `ccmctl why` names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from tests.support.fleet import Fleet, a_file, fleet, manifest
from tests.support.secured import secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


async def put_plain(url: str, creds: str, text: str) -> None:
    """Write a document as the `nats` program does: its text alone, without a header."""
    client = await nats.connect(
        url, **({"user_credentials": creds, "inbox_prefix": b"_INBOX_tester"} if creds else {})
    )
    bucket = await client.jetstream().key_value("CCM_DATA")
    await bucket.put("common", text.encode())
    await client.close()


@pytest.fixture(params=["unsigned", "signed"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Fleet, str]]:
    if request.param == "signed":
        with secured_fleet(tmp_path) as one:
            yield one.fleet, str(one.keys / "tester.creds")
    else:
        with fleet(tmp_path) as one:
            one.add("web1")
            yield one, ""


def apply(on: Fleet) -> str:
    """Apply the file whose content is data; its content on the node."""
    path = on.write("motd.yaml", manifest(a_file("motd", "{{ lookup('data.word') }}")))
    done = on.ctl(
        "apply", path, "--targets", "node=web1", "--yes", "--data", "kv://CCM_DATA/common", "--json"
    )
    assert done.code == 0, done.err + done.out
    return (on.agents["web1"].files / "motd").read_text()


def test_the_last_good_document_stays_until_ccmctl_writes_again(site: tuple[Fleet, str]) -> None:
    on, creds = site
    assert on.ctl("data", "put", "common", on.write("d.yaml", "data: {word: first}\n"), "--yes").code == 0
    assert apply(on) == "first"

    asyncio.run(put_plain(on.environ.get("NATS_URL", on.url), creds, "data: {word: plain}\n"))

    assert apply(on) == "first"
    on.wait_for(lambda: "refused" in on.ctl("why", "web1").out, "the refusal to be shown")
    shown = on.ctl("why", "web1").out
    assert "`ccmctl data put common`" in " ".join(shown.split())
    put = on.ctl("data", "put", "common", on.write("d.yaml", "data: {word: second}\n"), "--yes")
    assert put.code == 0, put.err
    assert apply(on) == "second"
