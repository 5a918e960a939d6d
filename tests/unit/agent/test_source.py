from pathlib import Path

import pytest
from msgspec.structs import replace

from ccm_agent.agent.desired.origins import SourcePorts, make_origin
from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import CcmError, DownloadError, ManifestError, ProtocolError
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.bundles import digest_of, packed
from tests.support.signing import Keyring, authenticator, now_ms

URL = "https://node:s3cret@config.example.com/web.tar.gz"


def read(source: ManifestSource | None) -> str:
    assert source is not None
    return Path(source.path).read_text()


def is_there(source: ManifestSource) -> bool:
    return Path(source.path).exists()


class World:
    """A source's surroundings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = FakeFiles()
        self.download = FakeDownload()
        self.broker = MemoryBroker()
        self.bus = MemoryBus(self.broker, "web1")
        self.ports = SourcePorts(files=self.files, download=self.download, objects=self.bus.objects)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "cache")


async def test_a_file_is_given_with_its_text_and_digest(world: World) -> None:
    world.files.put("/etc/site/base.yaml", "one")
    source = make_origin("/etc/site/base.yaml", world.ports, world.folder)

    found = await source.current()

    assert found == ManifestSource(
        text=b"one", name="/etc/site/base.yaml", directory="/etc/site", digest=digest_of(b"one")
    )


async def test_a_web_source_is_asked_for_with_its_etag_and_fetched_when_it_is_another(world: World) -> None:
    world.download.serve(URL, packed("one"), etag='"1"')
    source = make_origin(URL, world.ports, world.folder)

    first = await source.current()
    again = await source.current()
    world.download.serve(URL, packed("two"), etag='"2"')
    third = await source.current()

    assert (first, first.digest) == (again, digest_of(packed("one")))
    assert (read(first), read(third)) == ("one", "two")
    assert [transfer.etag for transfer in world.download.transfers] == ["", '"1"', '"1"']


async def test_no_password_is_in_names_or_on_disk(world: World) -> None:
    world.download.serve(URL, packed("one"), etag='"1"')
    source = make_origin(URL, world.ports, world.folder)

    found = await source.current()

    kept = b"".join(path.read_bytes() for path in world.folder.rglob("*") if path.is_file())
    assert "s3cret" not in found.name
    assert b"s3cret" not in kept


async def test_the_last_good_manifest_outlives_the_process_and_the_network(world: World) -> None:
    world.download.serve(URL, packed("one"), etag='"1"')
    await make_origin(URL, world.ports, world.folder).current()
    world.download.serve(URL, status=503)

    after = make_origin(URL, world.ports, world.folder)
    await after.open()
    with pytest.raises(DownloadError):
        await after.current()

    assert read(after.last_good()) == "one"


async def test_a_kept_manifest_that_was_damaged_is_not_used(world: World) -> None:
    world.download.serve(URL, packed("one"))
    await make_origin(URL, world.ports, world.folder).current()
    (kept,) = world.folder.rglob("packed.tar.gz")
    kept.write_bytes(packed("planted"))

    after = make_origin(URL, world.ports, world.folder)
    await after.open()

    assert after.last_good() is None


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(packed("x")[:-20], id="half"),
        pytest.param(b"no archive", id="no archive"),
        pytest.param(packed("x", "../manifest.yaml"), id="leads out"),
        pytest.param(packed("x", "other.yaml"), id="no manifest"),
    ],
)
async def test_a_bad_bundle_leaves_the_last_good_one_and_is_fetched_once(world: World, bad: bytes) -> None:
    objects = world.bus.objects("site")
    await objects.put("web.tar.gz", packed("one"))
    source = make_origin("obj://site/web.tar.gz", world.ports, world.folder)
    await source.current()
    await objects.put("web.tar.gz", bad)

    with pytest.raises(CcmError) as first:
        await source.current()
    with pytest.raises(CcmError) as second:
        await source.current()
    stood = read(source.last_good())
    await objects.put("web.tar.gz", packed("two"))

    assert stood == "one"
    assert first.value is second.value
    assert read(await source.current()) == "two"


async def test_a_bad_web_bundle_is_not_sent_again_until_it_is_another(world: World) -> None:
    world.download.serve(URL, b"no archive", etag='"bad"')
    source = make_origin(URL, world.ports, world.folder)

    with pytest.raises(CcmError) as first:
        await source.current()
    with pytest.raises(CcmError) as second:
        await source.current()
    world.download.serve(URL, packed("one"), etag='"1"')

    assert first.value is second.value
    assert [transfer.etag for transfer in world.download.transfers] == ["", '"bad"']
    assert read(await source.current()) == "one"


async def test_the_manifest_before_the_newest_stays_for_a_run_that_uses_it(world: World) -> None:
    objects = world.bus.objects("site")
    source = make_origin("obj://site/web.tar.gz", world.ports, world.folder)
    found = []
    for text in ("one", "two", "three"):
        await objects.put("web.tar.gz", packed(text))
        found.append(await source.current())

    assert [is_there(one) for one in found] == [False, True, True]


@pytest.fixture
def keys() -> Keyring:
    return Keyring()


def guarded(world: World, keys: Keyring) -> SourcePorts:
    """The ports of a node that demands signatures."""
    node = authenticator(world.folder.parent, keys.trust())
    return replace(world.ports, check_object=node.object)


@pytest.mark.parametrize(
    ("author", "why"),
    [
        pytest.param(None, "not signed", id="nobody"),
        pytest.param(
            {"apply": ("fact.role.web",)}, "may not apply to all nodes", id="an operator of some nodes"
        ),
        pytest.param({"apply": (">",)}, "", id="an operator of all nodes"),
    ],
)
async def test_node_with_keys_takes_an_object_that_an_operator_of_all_nodes_signed(
    world: World, keys: Keyring, author: dict[str, tuple[str, ...]] | None, why: str
) -> None:
    signatory = keys.operator("bob", **author) if author else None
    await MemoryBus(world.broker, "op", signatory).objects("site").put("web.tar.gz", packed("one"))
    source = make_origin("obj://site/web.tar.gz", guarded(world, keys), world.folder)

    if why:
        with pytest.raises(SignatureError, match=why):
            await source.current()
    else:
        assert read(await source.current()) == "one"


async def test_object_under_the_signature_of_another_is_refused(world: World, keys: Keyring) -> None:
    bob = keys.operator("bob", apply=(">",))
    await MemoryBus(world.broker, "op", bob).objects("site").put("web.tar.gz", packed("one"))
    world.broker.objects["site"]["web.tar.gz"] = packed("evil")
    source = make_origin("obj://site/web.tar.gz", guarded(world, keys), world.folder)

    with pytest.raises(SignatureError, match="changed after signing"):
        await source.current()


async def test_object_that_was_signed_before_the_one_at_hand_is_refused(world: World, keys: Keyring) -> None:
    bob = keys.operator("bob", apply=(">",))
    objects = MemoryBus(world.broker, "op", bob).objects("site")
    source = make_origin("obj://site/web.tar.gz", guarded(world, keys), world.folder)
    subject = (await objects.signature("web.tar.gz"))[0]
    await objects.put("web.tar.gz", packed("old"))
    old = world.broker.object_signatures[subject]
    bob._now_ms = lambda: now_ms() + 1000
    await objects.put("web.tar.gz", packed("new"))

    assert read(await source.current()) == "new"
    world.broker.objects["site"]["web.tar.gz"] = packed("old")
    world.broker.object_signatures[subject] = old
    with pytest.raises(ProtocolError, match="signed before"):
        await source.current()


@pytest.mark.parametrize("url", ["ftp://a/b.tar.gz", "obj://bucket", "obj:///key"])
def test_an_invalid_source_is_refused(world: World, url: str) -> None:
    with pytest.raises(ManifestError, match="is not a valid source"):
        make_origin(url, world.ports, world.folder)


async def test_sources_that_look_alike_without_their_passwords_keep_apart(world: World) -> None:
    urls = [URL, URL.replace("s3cret", "other")]
    for place, url in enumerate(urls):
        world.download.serve(url, packed(f"bundle {place}"))
        await make_origin(url, world.ports, world.folder, place).current()

    kept = []
    for place, url in enumerate(urls):
        source = make_origin(url, world.ports, world.folder, place)
        await source.open()
        kept.append(read(source.last_good()))

    assert kept == ["bundle 0", "bundle 1"]
