"""Manifests and data that are gone, broken or late: the last good ones stand, and the stream tells all of it, once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import pytest

from ccm_agent.model.wire import AGENT_REFUSED
from tests.support.buckets import purge_data, put_data, put_object, put_spoiled
from tests.support.bundles import packed
from tests.support.faults import (
    MINUTES_5,
    add_faulty,
    assert_converges,
    corrected,
    said,
)
from tests.support.fleet import Fleet, a_file, manifest
from tests.support.web import HALF, SLOW, Web

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SITE = "obj://CCM_MANIFESTS/{}.tar.gz"


def test_the_key_of_the_data_is_deleted(site: Fleet, name: str) -> None:
    agent = add_faulty(site, name, interval="5m", external_data_url=f"kv://CCM_DATA/{name}")
    put_data(site, name, "data: {greeting: hello}")
    agent.wants("{{ lookup('data.greeting') }}")
    agent.start()
    assert_converges(site, agent, "hello")

    put_data(site, name, "")
    site.wait_for(lambda: said(site, name, AGENT_REFUSED), "the node to say so")
    corrected(site, agent, "hello")
    corrected(site, agent, "hello")
    agent.kill()
    (agent.files / "file").unlink()
    agent.start()
    assert_converges(site, agent, "hello")
    site.wait_for(lambda: len(said(site, name, AGENT_REFUSED)) > 1, "the next process to say so too")
    put_data(site, name, "data: {greeting: goodbye}")

    assert_converges(site, agent, "goodbye")
    refused = [event["details"]["refused"] for event in said(site, name, AGENT_REFUSED)]
    assert refused == [f"CCM_DATA/{name}"] * 2, "once for each process"


GOOD = packed(manifest(a_file("object", "2")))


def test_the_key_of_the_data_is_purged_and_put_again(site: Fleet, name: str) -> None:
    agent = add_faulty(site, name, interval="5m", external_data_url=f"kv://CCM_DATA/{name}")
    for greeting in ("hi", "hello"):
        put = site.ctl("data", "put", name, "-", stdin=f"data: {{greeting: {greeting}}}\n")
        assert put.code == 0, put.err
    agent.wants("{{ lookup('data.greeting') }}")
    agent.start()
    assert_converges(site, agent, "hello")

    purge_data(site, name)
    corrected(site, agent, "hello")
    site.ctl("data", "put", name, "-", stdin="data: {greeting: goodbye}\n")

    # its number goes on, or nodes that remember it would take it for an old one
    assert_converges(site, agent, "goodbye")


def half_an_archive(fleet: Fleet, key: str) -> None:
    put_object(fleet, key, GOOD[: len(GOOD) // 2])


def another_digest(fleet: Fleet, key: str) -> None:
    put_spoiled(fleet, key, len(GOOD), hashlib.sha256(b"another").digest(), [GOOD])


def a_chunk_is_missing(fleet: Fleet, key: str) -> None:
    put_spoiled(fleet, key, len(GOOD), hashlib.sha256(GOOD).digest(), [GOOD[:100]])


@pytest.mark.parametrize("spoil", [half_an_archive, another_digest, a_chunk_is_missing])
def test_the_bundle_is_corrupt(site: Fleet, name: str, spoil: Callable[[Fleet, str], None]) -> None:
    key = f"{name}.tar.gz"
    put_object(site, key, packed(manifest(a_file("object", "1"))))
    agent = add_faulty(site, name, interval="5m", manifests=[SITE.format(name)])
    agent.start()
    assert_converges(site, agent, "1", "object")

    spoil(site, key)
    site.wait_for(lambda: agent.logged("a manifest cannot be fetched"), "the node to see it")
    corrected(site, agent, "1", "object")
    put_object(site, key, packed(manifest(a_file("object", "3"))))

    assert_converges(site, agent, "3", "object")
    assert len(said(site, name, AGENT_REFUSED)) == 1


def test_the_kept_bundle_is_damaged_on_disk(site: Fleet, name: str) -> None:
    put_object(site, f"{name}.tar.gz", packed(manifest(a_file("object", "1"))))
    agent = add_faulty(site, name, manifests=[SITE.format(name)])
    agent.start()
    assert_converges(site, agent, "1", "object")
    agent.kill()
    site.broker.stop()
    (kept,) = (agent.directory / "state/sources").glob("*/packed.tar.gz")
    kept.write_bytes(kept.read_bytes()[:-20])
    (agent.files / "object").unlink()

    agent.start()
    site.wait_for(lambda: agent.logged("a stored manifest is skipped"), "the damage to be seen")
    site.broker.start()

    assert_converges(site, agent, "1", "object")


# -- the web


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as one:
        yield one


@pytest.mark.parametrize(
    ("trouble", "of_manifest", "of_data"),
    [
        pytest.param(500, "answered 500", "answered 500", id="500"),
        pytest.param(SLOW, "not fetched in 300 s", "not fetched in 60 s", id="slow"),
        pytest.param(HALF, "the transfer was interrupted", "the transfer was interrupted", id="half"),
    ],
)
def test_the_web_server_fails(
    site: Fleet, name: str, web: Web, trouble: int | str, of_manifest: str, of_data: str
) -> None:
    web.pages["/site.tar.gz"] = packed(manifest(a_file("web", "{{ lookup('data.greeting') }} 1")))
    web.pages["/data.yaml"] = b"data: {greeting: hello}"
    agent = add_faulty(
        site,
        name,
        interval="5m",
        manifests=[f"{web.url}/site.tar.gz"],
        external_data_url=f"{web.url}/data.yaml",
    )
    agent.start()
    assert_converges(site, agent, "hello 1", "web")

    web.pages["/site.tar.gz"] = packed(manifest(a_file("web", "{{ lookup('data.greeting') }} 2")))
    web.pages["/data.yaml"] = b"data: {greeting: goodbye}"
    web.trouble = trouble
    (agent.files / "web").unlink()

    reasons = {"a manifest cannot be fetched": of_manifest, "the last good document is used": of_data}

    def stands() -> bool:
        agent.pass_time(MINUTES_5)
        is_told = all(
            any(reason in line["reason"] for line in agent.logged(message))
            for message, reason in reasons.items()
        )
        return is_told and agent.has("hello 1", "web")

    site.wait_for(stands, "the last good manifest and data to stand")
    web.heal()
    site.wait_for(lambda: agent.pass_time(MINUTES_5) or agent.has("goodbye 2", "web"), "the new ones")

    assert_converges(site, agent, "goodbye 2", "web")
