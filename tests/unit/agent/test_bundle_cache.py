import asyncio
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from ccm_agent.agent.cache.bundle_cache import KEPT, BundleCache
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import BusUnavailableError, NotFoundError, ProtocolError
from ccm_agent.model.ports import Objects
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    Controller,
    FakeClock,
    FakeEngine,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
)

NODE = "web1.example.net"


def packed(text: str) -> tuple[bytes, Bundle]:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        info = tarfile.TarInfo("manifest.yaml")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
    data = raw.getvalue()
    return data, Bundle(digest=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def objects(broker: MemoryBroker) -> Objects:
    return memory_bus(broker, NODE).objects("CCM_MANIFESTS")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read(folder: str) -> str:
    return Path(folder, "manifest.yaml").read_text()


async def test_a_bundle_is_fetched_once_and_stays(
    tmp_path: Path, broker: MemoryBroker, objects: Objects
) -> None:
    data, bundle = packed("ccm: {}")
    await objects.put(bundle.digest, data)
    bundles = BundleCache(objects, tmp_path / "bundles")

    folder = await bundles.unpacked(bundle)
    broker.stop()
    again = await bundles.unpacked(bundle)

    assert again == folder == str(tmp_path / "bundles" / bundle.digest)
    assert await asyncio.to_thread(read, folder) == "ccm: {}"


async def test_a_bundle_that_is_not_what_its_digest_says_is_refused_and_not_kept(
    tmp_path: Path, objects: Objects, broker: MemoryBroker
) -> None:
    data, _ = packed("ccm: {}")
    bundle = Bundle(digest="0" * 64, size_bytes=len(data))
    broker.objects["CCM_MANIFESTS"][bundle.digest] = data

    with pytest.raises(ProtocolError):
        await BundleCache(objects, tmp_path / "bundles").unpacked(bundle)

    assert not (tmp_path / "bundles" / bundle.digest).is_dir()


@pytest.mark.parametrize("digest", ["", "../../etc", "0" * 63, "A" * 64, "0" * 64 + "/.."])
async def test_a_digest_that_is_not_valid_is_refused(tmp_path: Path, objects: Objects, digest: str) -> None:
    with pytest.raises(ProtocolError):
        await BundleCache(objects, tmp_path).unpacked(Bundle(digest=digest, size_bytes=1))


async def test_a_bundle_that_is_missing_and_a_broker_that_is_away_are_errors(
    tmp_path: Path, broker: MemoryBroker, objects: Objects
) -> None:
    bundles = BundleCache(objects, tmp_path)
    with pytest.raises(NotFoundError):
        await bundles.unpacked(Bundle(digest="0" * 64, size_bytes=1))
    broker.stop()

    with pytest.raises(BusUnavailableError):
        await bundles.unpacked(Bundle(digest="0" * 64, size_bytes=1))


async def test_half_an_unpacked_bundle_from_a_kill_does_not_count(tmp_path: Path, objects: Objects) -> None:
    data, bundle = packed("ccm: {}")
    await objects.put(bundle.digest, data)
    half = tmp_path / f"{bundle.digest}.new"
    half.mkdir()
    (half / "manifest.yaml").write_text("ccm: half")

    folder = await BundleCache(objects, tmp_path).unpacked(bundle)

    assert await asyncio.to_thread(read, folder) == "ccm: {}"
    assert names(tmp_path) == [bundle.digest]


async def test_the_last_used_bundles_are_kept_and_no_more(tmp_path: Path, objects: Objects) -> None:
    bundles = BundleCache(objects, tmp_path)
    made = [packed(f"ccm: {{}} # {number}") for number in range(KEPT + 3)]
    for data, bundle in made:
        await objects.put(bundle.digest, data)
        await bundles.unpacked(bundle)
        await bundles.unpacked(made[0][1])

    kept = names(tmp_path)

    assert len(kept) == KEPT
    assert {made[0][1].digest, made[-1][1].digest} <= set(kept)


async def test_a_run_of_a_bundle_applies_the_manifest_in_it(
    tmp_path: Path, broker: MemoryBroker, objects: Objects
) -> None:
    data, bundle = packed("stable /a")
    await objects.put(bundle.digest, data)
    controller = Controller(memory_bus(broker, "op"))
    await controller.listen()
    engine = FakeEngine()
    async with running(
        agent_settings(tmp_path, NODE), agent_ports(memory_bus(broker, NODE), engine, FakeClock())
    ):
        run = await controller.ask(
            ManifestRequest(protocol=MANIFEST_APPLY, name="site", bundle=bundle, digest=bundle.digest)
        )
        await controller.summary(run, NODE)

    source, _ = engine.applied[0]
    folder = str(tmp_path / "bundles" / bundle.digest)
    assert (source.path, source.directory, source.name, source.digest) == (
        f"{folder}/manifest.yaml",
        folder,
        "site",
        bundle.digest,
    )


@pytest.mark.parametrize("manifest", ["/etc/passwd", "../identity", "a/../../x"])
async def test_a_manifest_outside_of_its_bundle_is_refused(
    tmp_path: Path, broker: MemoryBroker, manifest: str
) -> None:
    controller = Controller(memory_bus(broker, "op"))
    await controller.listen()
    engine = FakeEngine()
    ports = agent_ports(memory_bus(broker, NODE), engine, FakeClock())
    async with running(agent_settings(tmp_path, NODE), ports):
        bundle = Bundle(digest="0" * 64, size_bytes=1, manifest=manifest)
        run = await controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, name="site", bundle=bundle))
        summary = await controller.summary(run, NODE)

    assert summary["reason"] == f"site: {manifest!r} leads out of the bundle"
    assert engine.applied == []
