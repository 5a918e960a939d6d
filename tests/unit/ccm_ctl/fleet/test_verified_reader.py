"""What a controller accepts of what operators signed: schedules, objects, deletions and histories."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.verified import DAY_MS, Unverified, Verified
from ccm_agent.bus.streams import Stored
from ccm_agent.bus.subjects import request_subject
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import MANIFEST_APPLY
from ccm_agent.testing.clock import FakeClock
from ccm_ctl.fleet.trust.snapshot import _verified
from ccm_ctl.fleet.trust.verified_reader import AHEAD, VerifiedReader, number_of
from tests.support.signing import Keyring, OwnSignatory

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
TARGET = request_subject(MANIFEST_APPLY, "all")


class Desk:
    """Ann has every right on documents, schedules and nodes; bob has none of them."""

    def __init__(self) -> None:
        keys = Keyring(lambda: NOW_MS)
        self.ann = keys.operator("ann", facts=True, schedules=True, apply=("all",))
        self.bob = keys.operator("bob", plan=("all",))
        self.reader = VerifiedReader(keys.listed(), FakeClock(NOW), is_demanded=True)

    def schedule(
        self, by: OwnSignatory, **changes: str
    ) -> Verified[Stored | None] | Unverified[Stored | None]:
        """A schedule that an operator signed, of which something was changed on the broker."""
        said = {"name": "night", "when": "0 0 2 * * *", "zone": "UTC"}
        headers = by.schedule(TARGET, b"request", **said, expires_ms=NOW_MS + DAY_MS)
        headers = {"other": "header"} | {key.lower(): value for key, value in headers.items()}
        stored = Stored(
            subject="schedules.night",
            sequence=1,
            time=NOW,
            headers=headers,
            body=changes.get("body", "request").encode(),
        )
        shown = said | changes
        return self.reader.schedule(stored, TARGET, shown["name"], (shown["when"], shown["zone"]))

    def facts(self, number: int, by: OwnSignatory | None = None, key: str = "web1") -> KeyValueEntry:
        """Assigned facts with a number."""
        body = msgspec.json.encode(Stamped(bucket="CCM_FACTS", key="web1", number=number, body={}))
        signature = (by or self.ann).document("CCM_FACTS", key, body)[SIGNATURE_HEADER]
        return KeyValueEntry(key=key, value=body, revision=1, created=NOW, signature=signature)

    def deletion(self, number: int) -> KeyValueEntry:
        """Their removal."""
        signature = self.ann.deletion("CCM_FACTS", "web1", number)[SIGNATURE_HEADER]
        return KeyValueEntry(key="web1", value=b"", revision=2, created=NOW, signature=signature)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_schedule_counts_with_the_name_and_the_times_that_were_signed(desk: Desk) -> None:
    genuine = desk.schedule(desk.ann)

    assert isinstance(genuine, Verified)
    assert genuine.signer == "ann"
    assert desk.schedule(desk.bob).reason == "bob signed it, but may not add schedules"
    for changed in ({"when": "0 0 3 * * *"}, {"zone": "Europe/Berlin"}, {"name": "day"}):
        assert desk.schedule(desk.ann, **changed).reason == "its name or its times were changed after signing"
    assert "content was changed" in desk.schedule(desk.ann, body="another").reason
    assert desk.reader.schedule(None, TARGET, "night", None).reason == "it is not signed"


def test_an_object_counts_if_its_signer_may_apply_to_all_nodes(desk: Desk) -> None:
    def judged(by: OwnSignatory, digest: str = "d" * 64) -> str:
        signature = by.object("object", "d" * 64)[SIGNATURE_HEADER]
        return desk.reader.object("object", digest, signature).reason

    assert judged(desk.ann) == ""
    assert judged(desk.bob) == "bob may not apply to all nodes"
    assert "content was changed" in judged(desk.ann, "e" * 64)


def test_a_document_counts_at_its_key_with_a_number_of_now(desk: Desk) -> None:
    def reason(entry: KeyValueEntry) -> str:
        return desk.reader.document("CCM_FACTS", entry).reason

    assert reason(desk.facts(NOW_MS + DAY_MS)) == ""
    assert reason(desk.facts(NOW_MS + DAY_MS + 1)) == AHEAD
    assert reason(desk.facts(5, desk.bob)) == "bob signed it, but may not write there"
    assert reason(desk.facts(5, key="web2")) == "it belongs to CCM_FACTS/web1 and was copied here"
    assert reason(desk.deletion(NOW_MS + DAY_MS)) == ""
    assert reason(desk.deletion(NOW_MS + DAY_MS + 1)) == AHEAD
    plain = msgspec.structs.replace(desk.facts(5), value=b"{}")
    signed = desk.ann.document("CCM_FACTS", "web1", b"{}")[SIGNATURE_HEADER]
    assert (
        reason(msgspec.structs.replace(plain, signature=signed)) == "it is not a document that `ccmctl` wrote"
    )


def test_a_revision_below_a_verified_one_is_not_verified(desk: Desk) -> None:
    entries = [
        desk.facts(5),
        desk.facts(9),
        desk.facts(7),
        desk.facts(99, desk.bob),
        desk.facts(9),
        desk.facts(10),
    ]

    reasons = [one.reason for one in desk.reader.history("CCM_FACTS", entries)]

    assert reasons == [
        "",
        "",
        "an older revision that was written again",
        "bob signed it, but may not write there",
        "",
        "",
    ]
    unsigned = VerifiedReader(None, FakeClock(NOW), is_demanded=False)
    assert {one.reason for one in unsigned.history("CCM_FACTS", entries)} == {""}


def test_number_of_an_entry_is_that_of_its_stamp_or_of_its_signed_deletion(desk: Desk) -> None:
    assert [number_of(one) for one in (desk.facts(5), desk.deletion(6))] == [5, 6]
    broken = msgspec.structs.replace(desk.deletion(6), signature="v1.x.y")
    assert [number_of(one) for one in (broken, msgspec.structs.replace(broken, signature=""))] == [0, 0]


def test_the_snapshot_names_only_documents_that_an_operator_signed_who_may(desk: Desk) -> None:
    entries = [desk.facts(5), desk.facts(9, desk.bob), msgspec.structs.replace(desk.facts(7), signature="")]

    assert [number_of(one.value) for one in _verified(desk.reader, "CCM_FACTS", entries)] == [5]
