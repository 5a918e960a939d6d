"""The KeyValue and KeyHistory ports."""

from __future__ import annotations

import pytest

from ccm_agent.bus.subjects import encode_token
from ccm_agent.model.errors import (
    BusUnavailableError,
    DataError,
    ProtocolError,
    RevisionError,
    RevisionGoneError,
    UsageError,
)
from tests.support.nats_server import Heard

BUCKET = "CCM_DATA"


async def test_a_stored_value_is_read_with_its_revision(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    first = await bucket.put("common", b"one")
    second = await bucket.put("common", b"two")
    entry = await bucket.get("common")

    assert (entry.key, entry.value, entry.revision) == ("common", b"two", second)
    assert second > first
    assert entry.created.utcoffset() is not None


async def test_a_key_that_was_never_written_is_absent(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    assert await bucket.get("nothing.here") is None


async def test_an_empty_value_is_an_absent_key(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    await bucket.put("common", b"one")

    await bucket.put("common", b"")

    assert await bucket.get("common") is None
    assert await bucket.keys() == []


async def test_a_deleted_key_is_absent_and_stays_in_its_history(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    await bucket.put("common", b"one")
    await bucket.put("common", b"two")

    await bucket.delete("common")

    assert await bucket.get("common") is None
    assert [(entry.value, entry.revision) for entry in await bucket.history("common")] == [
        (b"one", 1),
        (b"two", 2),
        (b"", 3),
    ]


async def test_a_deletion_keeps_its_note_and_stays_a_deletion(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    await bucket.put("common", b"one")

    await bucket.delete("common", note='{"message": "é\\n"}')

    assert await bucket.get("common") is None
    (deleted,) = await bucket.matching(["common"], deletions=True)
    assert (deleted.value, deleted.note) == (b"", '{"message": "é\\n"}')
    assert [entry.note for entry in await bucket.history("common")] == ["", deleted.note]


async def test_a_bucket_has_the_revision_of_its_newest_write_removals_too(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    empty = await bucket.revision()

    await bucket.put("common", b"one")
    await bucket.put("other", b"two")
    await bucket.delete("common")

    assert (empty, await bucket.revision()) == (0, 3)


async def test_the_brokers_time_is_the_time_of_the_stored_message(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    before = await bucket.now()
    await bucket.put("common", b"one")
    after = await bucket.now()

    assert before <= (await bucket.get("common")).created <= after


async def test_the_last_twenty_revisions_are_kept(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    for number in range(23):
        await bucket.put("common", str(number).encode())

    assert [int(entry.value) for entry in await bucket.history("common")] == list(range(3, 23))


async def test_nodes_keep_no_history(broker) -> None:
    bucket = (await broker.connect("web1")).bucket("CCM_NODES")

    await bucket.put("node.web1", b"one")
    await bucket.put("node.web1", b"two")

    assert [entry.value for entry in await bucket.history("node.web1")] == [b"two"]


async def test_an_update_of_the_newest_revision_is_taken(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    revision = await bucket.put("common", b"one")

    newer = await bucket.update("common", b"two", revision)

    assert (await bucket.get("common")).revision == newer


async def test_an_update_of_an_older_revision_is_refused(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    revision = await bucket.put("common", b"one")
    await bucket.put("common", b"two")

    with pytest.raises(RevisionError):
        await bucket.update("common", b"three", revision)
    assert (await bucket.get("common")).value == b"two"


async def test_revision_zero_creates_only_an_absent_key(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    await bucket.update("common", b"one", 0)

    with pytest.raises(RevisionError):
        await bucket.update("common", b"two", 0)


async def test_revision_zero_creates_a_deleted_key(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    await bucket.put("common", b"one")
    await bucket.delete("common")

    await bucket.update("common", b"two", 0)

    assert (await bucket.get("common")).value == b"two"


async def test_an_update_of_an_absent_key_by_a_revision_is_refused(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    with pytest.raises(RevisionError):
        await bucket.update("common", b"one", 7)


@pytest.mark.parametrize("key", ["", "a b", "*", "a.>", ".a", "a."])
async def test_an_invalid_key_is_refused_before_it_is_sent(broker, key) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    with pytest.raises(DataError):
        await bucket.get(key)
    with pytest.raises(DataError):
        await bucket.put(key, b"one")


async def test_patterns_find_the_newest_of_each_key(broker) -> None:
    bucket = (await broker.connect("web1")).bucket("CCM_ASSIGNMENTS")
    for key in ["all.motd", "all.ssh", "node.web1.motd", "node.web2.motd", "fact.role.web.app"]:
        await bucket.put(key, b"old")
        await bucket.put(key, b"new")
    await bucket.delete("all.ssh")

    found = await bucket.matching(["all.*", "node.web1.*", "fact.role.web.*", "node.nobody.*"])

    assert [(entry.key, entry.value) for entry in found] == [
        ("all.motd", b"new"),
        ("fact.role.web.app", b"new"),
        ("node.web1.motd", b"new"),
    ]


async def test_an_empty_bucket_has_no_entries(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    assert await bucket.entries() == []
    assert await bucket.matching(["all.*"]) == []
    assert await bucket.history("common") == []


async def test_keys_and_entries_begin_with_a_prefix(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    for key in ["role.web", "role.db", "roles", "node.web1.example.com"]:
        await bucket.put(key, key.encode())

    assert await bucket.keys("role") == ["role.db", "role.web", "roles"]
    assert await bucket.keys("role.w") == ["role.web"]
    assert [entry.value for entry in await bucket.entries("node.")] == [b"node.web1.example.com"]


async def test_a_write_notifies_only_watchers_of_that_key(broker) -> None:
    writer, reader = await broker.connect("op"), await broker.connect("web1")
    mine, all_of_them = Heard(), Heard()
    await reader.bucket("CCM_FACTS").watch_changes("web1.example.com", mine)
    await reader.bucket("CCM_FACTS").watch_changes(">", all_of_them)

    await writer.bucket("CCM_FACTS").put("web2", b"one")
    revision = await writer.bucket("CCM_FACTS").put("web1.example.com", b"two")

    assert await all_of_them.wait(2) == [("web2", revision - 1), ("web1.example.com", revision)]
    assert mine.items == [("web1.example.com", revision)]


async def test_a_deletion_notices_too(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    heard = Heard()
    await bucket.watch_changes("common", heard)

    await bucket.put("common", b"one")
    await bucket.delete("common")

    assert await heard.wait(2) == [("common", 1), ("common", 2)]


async def test_notices_end_when_they_are_stopped(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    stopped, going = Heard(), Heard()
    stop = await bucket.watch_changes("common", stopped)
    await bucket.watch_changes("common", going)

    await stop()
    await bucket.put("common", b"one")
    await going.wait(1)

    assert stopped.items == []


async def test_a_notified_watcher_reads_at_least_that_revision(broker) -> None:
    writer, reader = await broker.connect("op"), await broker.connect("web1")
    heard = Heard()
    await reader.bucket(BUCKET).watch_changes("common", heard)

    await writer.bucket(BUCKET).put("common", b"one")
    [(key, revision)] = await heard.wait(1)
    entry = await reader.bucket(BUCKET).get(key, at_least=revision)

    assert entry.revision == revision


async def test_a_key_with_a_lifetime_is_there_until_it_ends(broker) -> None:
    bucket = (await broker.connect("web1")).bucket("CCM_NODES")

    await bucket.put("presence.web1", b"here", ttl_s=60)

    assert (await bucket.get("presence.web1")).value == b"here"
    with pytest.raises(UsageError):
        await bucket.put("presence.web1", b"here", ttl_s=0)


async def test_any_text_can_be_part_of_a_key(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    texts = ["", "a b", "a.b", "*", ">", "é", "=", "x" * 300]

    for text in texts:
        await bucket.put(f"role.{encode_token(text)}", text.encode() or b"empty")

    assert sorted(entry.value for entry in await bucket.entries("role.")) == sorted(
        text.encode() or b"empty" for text in texts
    )


async def test_a_value_larger_than_a_message_is_refused_and_the_connection_lives(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)

    with pytest.raises(ProtocolError):
        await bucket.put("common", b"x" * (1 << 20) + b"x")

    assert await bucket.put("common", b"small") == 1


async def test_without_a_broker_every_call_raises(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    await broker.stop()

    for call in (
        bucket.get("common"),
        bucket.put("common", b"one"),
        bucket.update("common", b"one", 0),
        bucket.delete("common"),
        bucket.matching(["common"]),
        bucket.history("common"),
    ):
        with pytest.raises(BusUnavailableError):
            await call


async def test_stored_values_survive_a_broker_restart(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    revision = await bucket.put("common", b"one")

    await broker.stop()
    await broker.start()

    assert (await bucket.get("common")).revision == revision


async def test_a_document_copied_onto_another_key_is_refused_until_that_is_written_again(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    facts = operator.bucket("CCM_FACTS")
    await facts.put("web1", b"web1 is a db")
    await facts.put("web2", b"web2 is a web")
    await broker.put_plain("CCM_DATA", "common", b"plain")

    await broker.copy_to("$KV.CCM_FACTS.web1", "KV_CCM_DATA", "$KV.CCM_DATA.common")
    with pytest.raises(ProtocolError, match="copied"):
        await node.bucket("CCM_FACTS").get("web1")
    with pytest.raises(ProtocolError, match="copied"):
        await node.bucket("CCM_FACTS").matching(["*"], obeyed=True)
    seen = await facts.matching(["*"])
    listed = await facts.keys()
    history = await facts.history("web1")
    await facts.delete("web1")
    await facts.update("web1", b"web1 is a db again", 0)

    assert [entry.key for entry in seen] == listed == ["web2"]
    assert [entry.value for entry in history] == [b"web1 is a db"]
    assert (await node.bucket("CCM_FACTS").get("web1")).value == b"web1 is a db again"


async def test_an_update_that_expires_is_there_until_it_does(broker) -> None:
    bucket = (await broker.connect("web1")).bucket("CCM_NODES")

    first = await bucket.put("presence.web1", b"one", ttl_s=60)
    second = await bucket.update("presence.web1", b"two", first, ttl_s=60)

    assert (await bucket.get("presence.web1")).revision == second
    with pytest.raises(UsageError):
        await bucket.update("presence.web1", b"three", second, ttl_s=0)


async def test_a_key_is_read_as_of_a_revision_of_the_bucket(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    first = await bucket.put("common", b"one")
    between = await bucket.put("other", b"x")
    second = await bucket.put("common", b"two")
    deleted = await bucket.put("last", b"y")
    await bucket.delete("common")
    gone = await bucket.revision()

    found = [await bucket.as_of("common", each) for each in (first, between, second, deleted)]

    assert [(one.value, one.revision) for one in found] == [
        (b"one", first),
        (b"one", first),
        (b"two", second),
        (b"two", second),
    ]
    assert await bucket.as_of("common", gone) is None


async def test_a_discarded_revision_raises_revision_gone(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    first = await bucket.put("common", b"first")
    for number in range(20):
        await bucket.put("common", b"%d" % number)

    with pytest.raises(RevisionGoneError, match="no revision up to"):
        await bucket.as_of("common", first)


async def test_a_copy_on_a_key_is_not_part_of_its_history(broker) -> None:
    operator = await broker.connect("op")
    bucket = operator.bucket(BUCKET)
    await bucket.put("other", b"planted")
    first = await bucket.put("common", b"true")
    await broker.copy_to("$KV.CCM_DATA.common", "KV_CCM_DATA", "$KV.CCM_DATA.other")
    later = await bucket.put("other", b"later")

    found = [await bucket.as_of("common", each) for each in (first, later)]

    assert [one.value for one in found] == [b"true", b"true"]


async def test_a_notified_watcher_finds_at_least_that_revision(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    await bucket.put("all.a", b"one")
    revision = await bucket.put("all.b", b"two")
    await bucket.delete("all.a")

    found = await bucket.matching(["all.*"], obeyed=True, at_least=revision + 1)

    assert [(one.key, one.revision) for one in found] == [("all.b", revision)]


async def test_watcher_sees_at_least_the_revision_that_was_written(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    revision = await bucket.put("all.a", b"one")
    await bucket.put("all.b", b"two")

    found = await bucket.matching(["all.a"], obeyed=True, at_least=revision)
    await bucket.delete("all.a")
    gone = await bucket.matching(["all.a"], obeyed=True, at_least=revision + 2)

    assert ([(one.key, one.value, one.revision) for one in found], gone) == (
        [("all.a", b"one", revision)],
        [],
    )


async def test_a_copy_under_the_one_key_that_is_read_is_refused(broker) -> None:
    bucket = (await broker.connect("op")).bucket(BUCKET)
    await bucket.put("all.a", b"one")
    await bucket.put("all.b", b"two")
    await broker.copy_to("$KV.CCM_DATA.all.a", "KV_CCM_DATA", "$KV.CCM_DATA.all.b")

    with pytest.raises(ProtocolError, match="copied"):
        await bucket.matching(["all.a"], obeyed=True)

    assert [one.key for one in await bucket.matching(["all.b"], obeyed=True)] == ["all.b"]


async def test_update_among_keys_is_taken_once_nothing_among_them_is_newer(broker) -> None:
    first = (await broker.connect("web1")).bucket("CCM_SLOTS")
    second = (await broker.connect("web2")).bucket("CCM_SLOTS")

    one = await first.update_among("pg.web1", b"one", "pg.>", 0)
    with pytest.raises(RevisionError):
        await second.update_among("pg.web2", b"two", "pg.>", 0)
    await first.update_among("other.web1", b"else", "other.>", 0)
    two = await second.update_among("pg.web2", b"two", "pg.>", one)
    with pytest.raises(RevisionError):
        await first.update_among("pg.web1", b"three", "pg.>", one)
    await second.put("pg.web2", b"")
    found = await first.matching(["pg.>"], deletions=True)
    await first.update_among("pg.web1", b"four", "pg.>", max(entry.revision for entry in found))

    assert two > one
    assert [entry.value for entry in await first.matching(["pg.>"])] == [b"four"]
