"""What a bundle holds, said without a node; and what cannot be read holds nothing."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from ccm_ctl.fleet.assignments.bundles import TEXT_LIMIT, Inside, look_into, resources_in
from ccm_ctl.fleet.content import as_bundle, read_content

SITE = """\
ccm:
  resources:
    - package: {name: nginx, ensure: latest}
    - file:
        - defaults: {owner: root}
        - /etc/motd: {ensure: present}
        - "{{ lookup('facts.home') }}/x": {ensure: present}
    - exec: {command: "true"}
    - apply
"""


def test_files_and_resources_of_a_directory_are_reported(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(SITE)
    (tmp_path / "motd").write_text("hello")
    (tmp_path / "link").symlink_to("motd")
    content = read_content(tmp_path)

    inside = look_into(content.packed, "manifest.yaml")

    assert inside == Inside(
        files={
            "link": hashlib.sha256(b"motd").hexdigest(),
            "manifest.yaml": hashlib.sha256(SITE.encode()).hexdigest(),
            "motd": hashlib.sha256(b"hello").hexdigest(),
        },
        texts={"link": "motd", "manifest.yaml": SITE.rstrip(), "motd": "hello"},
        resources=("package#nginx", "file#/etc/motd", "file#{{ lookup('facts.home') }}/x"),
    )
    assert inside.certain == {"package#nginx", "file#/etc/motd"}


def test_a_single_manifest_is_a_bundle_of_one_file_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    path = tmp_path / "motd.yaml"
    path.write_text(SITE)

    first, second = as_bundle(read_content(path)), as_bundle(read_content(path))

    assert first == second == as_bundle(first)
    assert (first.name, first.text, first.files) == ("motd", "", ("manifest.yaml",))
    assert look_into(first.packed, "manifest.yaml").files == {
        "manifest.yaml": hashlib.sha256(SITE.encode()).hexdigest()
    }


def test_texts_are_without_secrets_and_only_of_text_files(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(
        "ccm:\n  data:\n    db_password: hunter2\n    port: 80\n    x: {token: t0k, \"secret\": 's p'}\n"
    )
    (tmp_path / "app.ini").write_text("api_key = abc\nurl = https://ann:secret@x/y\n")
    (tmp_path / "image").write_bytes(b"\x00\xff")
    (tmp_path / "large").write_text("x" * (TEXT_LIMIT + 1))

    inside = look_into(read_content(tmp_path).packed, "manifest.yaml")

    assert inside.texts == {
        "manifest.yaml": 'ccm:\n  data:\n    db_password: ***\n    port: 80\n    x: {token: ***, "secret": ***}',
        "app.ini": "api_key = ***\nurl = https://***@x/y",
    }
    assert set(inside.files) == {"manifest.yaml", "app.ini", "image", "large"}


def test_secret_blocks_are_masked_to_their_end(tmp_path: Path) -> None:
    text = "- private_key: |-  # of web\n    BEGIN\n\n      abc\n  user: ann\n- motd: |\n    hello\n"
    (tmp_path / "manifest.yaml").write_text(text)

    inside = look_into(read_content(tmp_path).packed, "manifest.yaml")

    assert inside.texts["manifest.yaml"] == (
        "- private_key: ***\n    ***\n\n      ***\n  user: ann\n- motd: |\n    hello"
    )


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "- a",
        "ccm: []",
        "ccm: {resources: {}}",
        "ccm: {resources_jet_file: x.jet}",
        "ccm: {resources: [1, [2], {file: 3}, {file: {name: [4]}}]}",
        "a: [",
    ],
)
def test_a_manifest_without_resources_names_none(manifest: str) -> None:
    assert resources_in(manifest) == ()


def test_an_invalid_bundle_is_refused() -> None:
    assert [look_into(packed, "manifest.yaml") for packed in (b"", b"x" * 100, gzip.compress(b"x"))] == [
        Inside(),
        Inside(),
        Inside(),
    ]


def test_a_bundle_that_grows_beyond_bounds_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("manifest.yaml"))
    packed = gzip.compress(raw.getvalue(), mtime=0)
    monkeypatch.setattr("ccm_ctl.fleet.assignments.bundles._UNPACKED_LIMIT_BYTES", 100)

    assert look_into(packed, "manifest.yaml") == Inside()


def test_a_sparse_file_is_not_read_to_its_end() -> None:
    header = tarfile.TarInfo("sparse")
    header.size, header.type = 512, tarfile.GNUTYPE_SPARSE
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[386:398], block[398:410] = (
        b"00000000000\0",
        b"00000001000\0",
    )  # where its only piece is, and how long
    block[483:495] = b"77777777777\0"  # how large the file says that it is
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    raw = bytes(block) + b"x" * 512 + bytes(1024)

    assert look_into(gzip.compress(raw, mtime=0), "manifest.yaml") == Inside()
