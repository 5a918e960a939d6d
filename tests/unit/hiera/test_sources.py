"""Documents by URL, and whose word is taken."""

import errno
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from ccm_agent.hiera.sources import THREAD_FROM_BYTES, FetchedDocument, Sources
from ccm_agent.model.errors import CcmError, DataError, FileError, ProtocolError
from ccm_agent.model.ports import KeyValueEntry, Transfer, Transferred
from ccm_agent.model.records.stamped import Stamped

PLAIN = b"data: {a: '${ Facts.n }'}\n"


class Files:
    """Reads files that the test made up."""

    def __init__(self, **contents: bytes) -> None:
        self.contents = contents

    async def read(self, path: str, limit_bytes: int) -> bytes:
        if path not in self.contents:
            raise FileError(f"{path}: there is no such file", errno=errno.ENOENT)
        return self.contents[path]


class Web:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def fetch(self, transfer: Transfer) -> Transferred:
        self.asked.append(transfer.url)
        return Transferred(content=b"" if "empty" in transfer.url else PLAIN)


class Bucket:
    def __init__(self, **values: bytes) -> None:
        self.values = values

    async def get(self, key: str) -> KeyValueEntry | None:
        value = self.values.get(key, b"")
        if not value:
            return None
        return KeyValueEntry(key=key, value=value, revision=7, created=datetime(2030, 1, 1, tzinfo=UTC))

    async def as_of(self, key: str, revision: int) -> KeyValueEntry | None:
        return await self.get(f"{key}_at_{revision}")


def sources(
    files: dict[str, bytes] | None = None, bucket: dict[str, bytes] | None = None, **more: Any
) -> Sources:
    async def open_bucket(name: str) -> Any:
        return Bucket(**(bucket or {})) if name == "CCM_DATA" else Bucket()

    ports: Any = Files(**(files or {}))
    return Sources(ports, open_bucket=open_bucket, directory="/etc/site", **more)


def stamped(number: int, key: str = "common", bucket: str = "CCM_DATA") -> bytes:
    return msgspec.json.encode(Stamped(bucket=bucket, key=key, number=number, body=PLAIN.decode()))


@pytest.mark.parametrize(
    "url", ["a b.yaml", "/etc/site/a b.yaml", "file:///etc/site/a%20b.yaml", "x/../a b.yaml"]
)
async def test_a_file_is_found_by_path_or_url(url: str) -> None:
    fetched = await sources({"/etc/site/a b.yaml": PLAIN}).fetch(url)

    assert fetched.content == PLAIN


async def test_a_missing_file_has_the_errno_enoent() -> None:
    with pytest.raises(FileError) as caught:
        await sources().fetch("nope.yaml")

    assert caught.value.errno == errno.ENOENT


async def test_a_web_server_is_asked_with_the_credentials_and_named_without() -> None:
    web: Any = Web()

    fetched = await sources(download=web).fetch("https://u:hunter2@example.net/site.yaml")

    assert web.asked == ["https://u:hunter2@example.net/site.yaml"]
    assert fetched == FetchedDocument(content=PLAIN, name="https://***@example.net/site.yaml")


async def test_a_key_is_read_with_its_revision() -> None:
    fetched = await sources(bucket={"role/web": PLAIN}).fetch("kv://CCM_DATA/role/web")

    assert fetched == FetchedDocument(content=PLAIN, name="kv://CCM_DATA/role/web", revision=7)


async def test_a_stamped_document_is_taken_out_of_its_stamp() -> None:
    numbers = {"CCM_DATA/common": 4}

    resolved, fetched = await sources(bucket={"common": stamped(5)}, numbers=numbers).resolve(
        "kv://CCM_DATA/common", {"n": 3}
    )

    assert (resolved.data, fetched.content) == ({"a": 3}, PLAIN)
    assert numbers == {"CCM_DATA/common": 5}


@pytest.mark.parametrize(
    ("value", "numbers", "demand", "said"),
    [
        pytest.param(
            stamped(5, key="other"),
            {},
            False,
            "kv://CCM_DATA/common was refused: it contains a document that was written for kv://CCM_DATA/other",
            id="another key's document",
        ),
        pytest.param(
            stamped(5, bucket="B"),
            {},
            False,
            "kv://CCM_DATA/common was refused: it contains a document that was written for kv://B/common",
            id="another bucket's document",
        ),
        pytest.param(
            stamped(5),
            {"CCM_DATA/common": 6},
            False,
            "kv://CCM_DATA/common was refused: its number 5 is lower than 6, which was seen before",
            id="an older document",
        ),
        pytest.param(
            PLAIN,
            {},
            True,
            "kv://CCM_DATA/common was not written by `ccmctl`, and this node accepts only documents from `ccmctl`: "
            "write it with `ccmctl data put common`, or set `stamped_data: false` in the node's configuration",
            id="no stamp where one is demanded",
        ),
    ],
)
async def test_a_stamp_that_is_wrong_is_refused(
    value: bytes, numbers: dict[str, int], demand: bool, said: str
) -> None:
    before = dict(numbers)
    room = sources(bucket={"common": value}, numbers=numbers, demand_stamps=demand)

    with pytest.raises(ProtocolError) as caught:
        await room.fetch("kv://CCM_DATA/common")

    assert (str(caught.value), numbers) == (said, before)


async def test_a_value_from_before_stamping_can_be_pinned() -> None:
    numbers = {"CCM_DATA/common": 6}
    room = sources(bucket={"common": stamped(6), "common_at_3": PLAIN}, numbers=numbers, pins={"CCM_DATA": 3})

    assert (await room.fetch("kv://CCM_DATA/common")).content == PLAIN


async def test_a_plain_json_document_is_not_a_stamp() -> None:
    document = b'{"data": {"bucket": 1}, "bucket": "x", "key": "y", "number": 3}'

    assert (await sources(bucket={"common": document}).fetch("kv://CCM_DATA/common")).content == document


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "a hiera source is empty: name a file, or a URL with kv://, http:// or https://"),
        (
            "ftp://u:p@h/x",
            "ftp://***@h/x is not a hiera source; use a path, file://, kv://, http:// or https://",
        ),
        ("kv://CCM_DATA", "kv://CCM_DATA has no key; write kv://BUCKET/KEY"),
        ("kv:///x", "kv:///x has no key; write kv://BUCKET/KEY"),
        (
            "kv://CCM_DATA/nope",
            "kv://CCM_DATA/nope: the bucket CCM_DATA has no key nope; store the document there first",
        ),
        ("file://host/x", "file://host/x is on another host; write file:///path for a file of this host"),
        ("http://h/x", "http://h/x cannot be fetched: this program does not support downloads"),
        ("empty.yaml", "empty.yaml is empty; it must be a hiera document"),
    ],
)
async def test_an_invalid_source_is_reported(url: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        await sources({"/etc/site/empty.yaml": b""}).fetch(url)

    assert str(caught.value) == said


async def test_without_a_connection_a_key_cannot_be_read() -> None:
    files: Any = Files()

    with pytest.raises(CcmError, match="without a connection to a broker"):
        await Sources(files).fetch("kv://CCM_DATA/common")


async def test_a_large_document_is_read_too() -> None:
    large = b"data:\n" + b"".join(b"  key%d: value\n" % number for number in range(THREAD_FROM_BYTES // 10))

    resolved, _ = await sources({"/etc/site/large.yaml": large}).resolve("large.yaml", {})

    assert len(resolved.data) == THREAD_FROM_BYTES // 10


async def test_a_pinned_bucket_is_read_as_it_was_whichever_number_was_seen_since() -> None:
    numbers = {"CCM_DATA/common": 9}
    room = sources(bucket={"common": stamped(9), "common_at_3": stamped(2)}, numbers=numbers)

    fetched = await room.pinned({"CCM_DATA": 3}).fetch("kv://CCM_DATA/common")

    assert (fetched.content, numbers) == (PLAIN, {"CCM_DATA/common": 9})


async def test_a_pinned_document_of_another_key_is_refused_anyway() -> None:
    room = sources(bucket={"common_at_3": stamped(2, key="other")})

    with pytest.raises(ProtocolError, match="was written for"):
        await room.pinned({"CCM_DATA": 3}).fetch("kv://CCM_DATA/common")


async def test_a_document_absent_at_the_pinned_revision_is_reported() -> None:
    with pytest.raises(DataError, match="had no key common at revision 3"):
        await sources().pinned({"CCM_DATA": 3}).fetch("kv://CCM_DATA/common")
