"""Sealing: who can open a secret, and what a changed, copied or replayed document of it gives."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec
import pytest

from ccm_agent.bus.signatures.node_key import NodeKey
from ccm_agent.bus.signatures.sealing import (
    SECRET_LIMIT_BYTES,
    check_secret_name,
    check_secret_value,
    decrypt,
    encrypt,
    seal,
    unseal,
    value_key,
    wrap_key,
)
from ccm_agent.bus.signatures.secret_reader import SecretReader
from ccm_agent.model.errors import (
    BusDeniedError,
    CcmError,
    ExpressionLimitError,
    ProtocolError,
    SecretNotSealedError,
    UsageError,
)
from ccm_agent.model.ports import KeyReader, KeyValueEntry
from ccm_agent.model.records.sealed import SealedKey, SealedValue
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.secret import Secret
from tests.support.authorship import new_seed
from tests.support.signing import new_key

VALUE = Secret("hunter22-ünïcode")


def test_a_sealed_key_opens_with_its_own_key_only() -> None:
    web1, web2 = new_key(), new_key()
    data_key, ciphertext = encrypt("db", 3, VALUE)
    sealed = seal(data_key, web1.public_key)

    assert decrypt("db", 3, unseal(web1, sealed), ciphertext) == VALUE
    with pytest.raises(ProtocolError, match="sealed to another key"):
        unseal(web2, sealed)
    assert VALUE.reveal() not in sealed + ciphertext


@pytest.mark.parametrize(
    ("name", "revision", "change"),
    [
        pytest.param("mail", 3, "", id="another name"),
        pytest.param("db", 2, "", id="another revision"),
        pytest.param("db", 3, "A", id="changed bytes"),
        pytest.param("db", 3, "!", id="not base64"),
    ],
)
def test_a_copied_or_changed_value_does_not_open(name: str, revision: int, change: str) -> None:
    data_key, ciphertext = encrypt("db", 3, VALUE)
    changed = f"{ciphertext[:30]}{change}{ciphertext[30 + len(change) :]}" if change else ciphertext

    with pytest.raises(ProtocolError, match="does not open") as caught:
        decrypt(name, revision, data_key, changed)

    assert VALUE.reveal() not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["", "Db", "a.b", "-a", "a b", "a/b", "a*", ">", "x" * 65])
def test_a_name_that_is_not_one_of_a_secret_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a secret"):
        check_secret_name(name)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param("x" * (SECRET_LIMIT_BYTES + 1), "at most 65,536", id="too large"),
        pytest.param("abc", "cannot be masked", id="too short"),
        pytest.param("false", "cannot be masked", id="a common word"),
        pytest.param("a\0bcdef", "not text", id="a null byte"),
    ],
)
def test_a_value_that_cannot_be_kept_secret_is_refused(value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        check_secret_value(Secret(value))

    assert len(value) < 7 or value not in str(caught.value)


class Bucket:
    """CCM_SECRETS as a node sees it: what was verified."""

    def __init__(self) -> None:
        self.documents: dict[str, SealedKey | SealedValue] = {}
        self.denied = False

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        if self.denied:
            raise BusDeniedError("permissions violation")
        body = self.documents.get(key)
        if body is None:
            return None
        text = msgspec.json.encode(body).decode()
        stamped = msgspec.json.encode(Stamped(bucket="CCM_SECRETS", key=key, number=7, body=text))
        return KeyValueEntry(key=key, value=stamped, revision=1, created=datetime(2026, 1, 1, tzinfo=UTC))

    def put(self, name: str, revision: int, value: Secret, node: str, public_key: str) -> None:
        data_key, ciphertext = encrypt(name, revision, value)
        self.documents[value_key(name, revision)] = SealedValue(revision=revision, ciphertext=ciphertext)
        self.documents[wrap_key(node, name)] = SealedKey(
            node=node, revision=revision, key=public_key, sealed=seal(data_key, public_key)
        )


class NodeOnTest:
    """A node with a key, and the secrets that it reads."""

    def __init__(self, key: NodeKey, node: str = "web1") -> None:
        self.key = key
        self.bucket = Bucket()
        self.numbers: dict[str, int] = {}
        self.reader = SecretReader(node, self.key, asyncio.get_running_loop())
        self.reader.use(self.open_bucket, self.numbers)

    async def open_bucket(self, _name: str) -> KeyReader:
        return cast("KeyReader", self.bucket)


@pytest.fixture
def node_key(tmp_path: Path) -> NodeKey:
    path = tmp_path / "web1.seed"
    path.write_text(new_seed().reveal())
    key = NodeKey(str(path))
    key.read("web1")
    return key


async def test_a_node_reads_its_secret_and_remembers_its_numbers(node_key: NodeKey) -> None:
    at = NodeOnTest(node_key)
    at.bucket.put("db", 1, VALUE, "web1", at.key.public_key)

    found = await asyncio.to_thread(at.reader.open, "db")

    assert (found.value, found.revision) == (VALUE, 1)
    assert at.numbers == {"CCM_SECRETS/wrap.web1.db": 7, "CCM_SECRETS/value.db.1": 7}


@pytest.mark.parametrize(
    ("case", "kind", "why"),
    [
        ("nothing is stored", SecretNotSealedError, "run `ccmctl secret sync db`"),
        ("it was taken away", SecretNotSealedError, "run `ccmctl secret sync db`"),
        ("sealed to an earlier key", SecretNotSealedError, "an earlier key of this node"),
        ("the key of another secret", ProtocolError, "does not open"),
        ("the value is gone", ProtocolError, "revision 1 is not stored"),
        ("the broker refuses", BusDeniedError, "`ccmctl node add web1`"),
        ("an impossible name", UsageError, "is not the name of a secret"),
    ],
)
async def test_a_secret_that_cannot_be_opened_says_what_mends_it(
    node_key: NodeKey, case: str, kind: type[CcmError], why: str
) -> None:
    at = NodeOnTest(node_key)
    own = at.key.public_key
    if case != "nothing is stored":
        at.bucket.put("db", 1, VALUE, "web1", new_key().public_key if "earlier" in case else own)
    if case == "it was taken away":
        at.bucket.documents[wrap_key("web1", "db")] = SealedKey(node="web1", revision=0, known=1)
    if case == "the key of another secret":
        at.bucket.put("mail", 1, Secret("other-value"), "web1", own)
        at.bucket.documents[wrap_key("web1", "db")] = at.bucket.documents[wrap_key("web1", "mail")]
    if case == "the value is gone":
        del at.bucket.documents[value_key("db", 1)]
    at.bucket.denied = case == "the broker refuses"

    with pytest.raises(kind, match=why) as caught:
        await at.reader.read("Db!" if "impossible" in case else "db")

    assert VALUE.reveal() not in repr(caught.value)


async def test_the_event_loop_is_not_blocked_by_a_secret(node_key: NodeKey) -> None:
    with pytest.raises(ExpressionLimitError):
        NodeOnTest(node_key).reader.open("db")
