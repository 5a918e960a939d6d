import hashlib

import pytest

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.ports import Transfer, Transferred
from ccm_agent.testing.download import FakeDownload

URL = "https://host/a"


async def test_stored_content_is_fetched_and_requests_are_recorded() -> None:
    download = FakeDownload()
    download.serve(URL, b"text", etag='"1"')

    assert await download.fetch(Transfer(url=URL)) == Transferred(
        content=b"text", size_bytes=4, sha256=hashlib.sha256(b"text").hexdigest(), etag='"1"'
    )
    assert await download.fetch(Transfer(url=URL, etag='"1"')) == Transferred(is_unchanged=True, etag='"1"')
    assert [transfer.etag for transfer in download.transfers] == ["", '"1"']


async def test_saved_files_are_kept_by_path() -> None:
    download, progress = FakeDownload(), []
    download.serve(URL, b"text")

    done = await download.save(Transfer(url=URL), "/tmp/a", lambda *so_far: progress.append(so_far))

    assert (done.content, done.size_bytes, download.saved, progress) == (
        b"",
        4,
        {"/tmp/a": b"text"},
        [(4, 4)],
    )


@pytest.mark.parametrize(
    ("transfer", "message"),
    [
        (Transfer(url="https://me:pw@host/b"), "https://***@host/b: the server answered 404"),
        (Transfer(url=URL, limit_bytes=3), f"{URL}: is larger than 3 bytes, the limit"),
    ],
)
async def test_failures_are_those_of_the_real_one(transfer: Transfer, message: str) -> None:
    download = FakeDownload()
    download.serve(URL, b"text")

    with pytest.raises(DownloadError) as caught:
        await download.fetch(transfer)

    assert caught.value.message == message
