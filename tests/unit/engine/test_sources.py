"""Where manifests come from."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.engine.sources import open_source
from ccm_agent.model.errors import ManifestError
from ccm_agent.model.ports import Transfer, Transferred


def packed(**files: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_", "."))
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


class Web:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[str] = []

    async def fetch(self, transfer: Transfer) -> Transferred:
        self.asked.append(transfer.url)
        return Transferred(content=self.content)

    async def get(self, name: str, limit_bytes: int) -> bytes:
        self.asked.append(name)
        return self.content


async def opened(url: str, content: bytes = b"") -> tuple[Any, str, list[str]]:
    web = Web(content)

    async def objects(bucket: str) -> Any:
        web.asked.append(bucket)
        return web

    async with open_source(url, {"download": web}.__getitem__, objects) as source:
        text = Path(source.path).read_text() if web.asked else ""  # noqa: ASYNC240
    return source, text, web.asked


async def test_a_path_is_taken_as_it_is() -> None:
    assert (await opened("sub/m.yaml"))[0].path == "sub/m.yaml"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        pytest.param("https://host/m.tgz", ["https://host/m.tgz"], id="web"),
        pytest.param("obj://BUCKET/dir/m.tgz", ["BUCKET", "dir/m.tgz"], id="object store"),
    ],
)
async def test_a_packed_directory_is_unpacked_and_gone_afterwards(url: str, asked: list[str]) -> None:
    source, text, found = await opened(url, packed(manifest_yaml="ccm: 1", motd="x"))

    assert (text, found, source.name) == ("ccm: 1", asked, url)
    assert not Path(source.path).exists()  # noqa: ASYNC240


async def test_the_manifest_may_stand_in_the_only_folder() -> None:
    assert (await opened("https://host/m.tgz", packed(site__manifest_yaml="ccm: 1")))[1] == "ccm: 1"


async def test_credentials_are_not_in_the_name() -> None:
    source, _, _ = await opened("https://me:pw@host/m.tgz", packed(manifest_yaml="x"))

    assert source.name == "https://***@host/m.tgz"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param(
            "ftp://host/m",
            "`ftp://` is not supported, only a path, http://, https:// and obj://",
            id="scheme",
        ),
        pytest.param("file:///m.yaml", "`file://` is not supported", id="file scheme"),
        pytest.param("obj://BUCKET", "does not name an object: write obj://BUCKET/KEY", id="no key"),
        pytest.param("https://host/m.tgz", "has no manifest.yaml at its top", id="no manifest"),
    ],
)
async def test_an_invalid_source_is_refused(url: str, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        await opened(url, packed(readme="x"))

    assert message in str(caught.value)
