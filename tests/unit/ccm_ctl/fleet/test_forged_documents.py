"""No document that is stored on the broker without a valid signature is the base of another one, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.ports import DocumentBucket, Fleet
from ccm_ctl.fleet.trust.verified_reader import open_reader
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN, Keyring, OwnSignatory, new_key

NOW_MS = int(NOW.timestamp() * 1000)
KEYS = {
    "CCM_FACTS": "web1",
    "CCM_DATA": "common",
    "CCM_ASSIGNMENTS": "all.web",
    "CCM_TRUST": "group.edge",
}
FORGERIES = {
    "unsigned": "it is not signed",
    "a stranger": "not in the signers list",
    "a revoked signer": "not in the signers list",
    "a signer without the right": "may not write there",
    "changed": "content was changed",
    "another key": "the signature is for",
    "an older revision": "an older revision that was written again",
    "a number ahead": "more than a day ahead",
}
OF_BUCKET: dict[str, Callable[[Fleet], DocumentBucket]] = {
    "CCM_FACTS": lambda fleet: fleet.facts,
    "CCM_DATA": lambda fleet: fleet.data,
    "CCM_ASSIGNMENTS": lambda fleet: fleet.assignments,
    "CCM_TRUST": lambda fleet: fleet.signers,  # type: ignore[dict-item,return-value]
}


class Scene:
    """A bucket with two genuine revisions."""

    def __init__(self, bucket: str) -> None:
        self.keys = Keyring(lambda: NOW_MS)
        rights = {"apply": (">",), "data": True, "facts": True, "admin": True}
        self.anna, self.lou = self.keys.operator("anna", **rights), self.keys.operator("lou", plan=(">",))
        self.stranger, self.gone = (
            OwnSignatory(new_key(), lambda: NOW_MS),
            self.keys.operator("old", **rights),
        )
        self.keys.signers.pop()  # revoked
        self.bucket, self.key, self.broker = bucket, KEYS[bucket], MemoryBroker(lambda: NOW)
        self.fleet = fleet_on(MemoryBus(self.broker, "anna", self.anna), self.keys.trust())
        self.documents = Documents(self.fleet, OF_BUCKET[bucket](self.fleet), bucket)

    async def fill(self) -> None:
        for body in ("one", "two"):
            await self.documents.change(self.key, lambda _, body=body: body, base=OWN)

    async def forge(self, kind: str) -> None:
        stored = MemoryBus(self.broker, "broker").bucket(self.bucket)
        first, second = await stored.history(self.key)
        number = NOW_MS + 90_000_000 if kind == "a number ahead" else NOW_MS + 50
        body = msgspec.json.encode(Stamped(bucket=self.bucket, key=self.key, number=number, body="evil"))
        signers = {
            "a stranger": self.stranger,
            "a revoked signer": self.gone,
            "a signer without the right": self.lou,
        }
        signer = signers.get(kind, self.anna)
        name = f"{self.key}x" if kind == "another key" else self.key
        signature = signer.document(self.bucket, name, body)[SIGNATURE_HEADER]
        if kind == "unsigned":
            signature = ""
        if kind == "changed":
            signature = second.signature
        if kind == "an older revision":
            body, signature = first.value, first.signature
        await stored.store_signed(self.key, body, second.revision, signature)


@pytest.mark.parametrize("bucket", KEYS)
@pytest.mark.parametrize(("kind", "reason"), FORGERIES.items())
async def test_forged_document_is_no_base_and_is_shown_with_the_reason(
    bucket: str, kind: str, reason: str
) -> None:
    scene = Scene(bucket)
    await scene.fill()
    _, control = await scene.documents.change(scene.key, lambda old: f"{old} and more")
    forged = Scene(bucket)
    await forged.fill()
    await forged.forge(kind)
    entries = await OF_BUCKET[bucket](forged.fleet).history(forged.key)

    with pytest.raises(SignatureError, match=reason):
        await forged.documents.change(forged.key, lambda old: f"{old} and more")
    judged = (await open_reader(forged.fleet)).history(bucket, entries)
    _, replaced = await forged.documents.change(forged.key, lambda _: "own", base=OWN)

    assert control.body == "two and more"
    assert [bool(one.reason) for one in judged] == [False, False, True]
    assert (replaced.body, replaced.number < NOW_MS + 1000) == ("own", True)
