from pathlib import Path

import pytest

from ccm_agent.agent.cache.document_cache import CachedDownload
from ccm_agent.model.errors import DownloadError
from ccm_agent.model.ports import Transfer
from ccm_agent.testing.download import FakeDownload

URL = "https://node:s3cret@config.example.com/data.yaml"


@pytest.fixture
def web() -> FakeDownload:
    return FakeDownload()


async def fetched(web: FakeDownload, folder: Path) -> bytes:
    return (await CachedDownload(web, folder).fetch(Transfer(url=URL))).content


def kept_text(folder: Path) -> str:
    (kept,) = folder.iterdir()
    return kept.read_text()


def damage(folder: Path) -> None:
    (kept,) = folder.iterdir()
    kept.write_text(kept.read_text().replace("b25l", "dHdv"))


async def test_a_document_is_fetched_again_only_when_it_has_changed(
    tmp_path: Path, web: FakeDownload
) -> None:
    web.serve(URL, b"one", etag='"1"')
    found = [await fetched(web, tmp_path), await fetched(web, tmp_path)]
    web.serve(URL, b"two", etag='"2"')
    found.append(await fetched(web, tmp_path))

    assert found == [b"one", b"one", b"two"]
    assert [transfer.etag for transfer in web.transfers] == ["", '"1"', '"1"']


async def test_last_good_download_is_used_while_the_server_fails(tmp_path: Path, web: FakeDownload) -> None:
    web.serve(URL, b"one")
    await fetched(web, tmp_path)
    web.serve(URL, status=500)

    assert await fetched(web, tmp_path) == b"one"


async def test_without_a_last_good_document_the_error_is_reported(tmp_path: Path, web: FakeDownload) -> None:
    web.serve(URL, status=500)

    with pytest.raises(DownloadError, match="500"):
        await fetched(web, tmp_path)


async def test_a_kept_document_that_was_damaged_is_fetched_again(tmp_path: Path, web: FakeDownload) -> None:
    web.serve(URL, b"one", etag='"1"')
    await fetched(web, tmp_path)
    damage(tmp_path)

    assert await fetched(web, tmp_path) == b"one"


async def test_no_password_is_kept(tmp_path: Path, web: FakeDownload) -> None:
    web.serve(URL, b"one", etag='"1"')
    await fetched(web, tmp_path)

    assert "s3cret" not in kept_text(tmp_path)
