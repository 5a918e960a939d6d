"""Files that age encrypted, made and opened by the real library."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyrage
import pytest

from ccm_ctl.secret_sources.decrypted import DOCUMENT_LIMIT_BYTES
from tests.support.secret_sources import VALUE, failure_of, read_value

DOCUMENT = json.dumps(
    {
        "db": {"password": VALUE, "port": 5432, "hosts": ["a", VALUE]},
        "tls.key": VALUE,
        "empty": "",
    }
).encode()


@pytest.fixture
def key(tmp_path: Path) -> pyrage.x25519.Identity:
    made = pyrage.x25519.Identity.generate()
    (tmp_path / "key.txt").write_text(f"# created: 2026-11-28\n# public key: x\n{made}\n")
    return made


def encrypt(folder: Path, key: pyrage.x25519.Identity, plain: bytes, *, armored: bool = False) -> str:
    path = folder / "secrets.age"
    path.write_bytes(pyrage.encrypt(plain, [key.to_public()], armored=armored))
    return f"age:{path}"


def ssh_key(folder: Path, passphrase: str) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(folder / "id")]
    subprocess.run(command, check=True)
    return folder / "id"


@pytest.mark.parametrize("field", ["db.password", "db.hosts.1", "tls.key"])
@pytest.mark.parametrize("armored", [False, True])
async def test_one_value_of_a_document(
    tmp_path: Path, key: pyrage.x25519.Identity, field: str, armored: bool
) -> None:
    source = encrypt(tmp_path, key, DOCUMENT, armored=armored)

    assert await read_value(f"{source}#{field}", identity=str(tmp_path / "key.txt")) == VALUE


async def test_document_in_yaml(tmp_path: Path, key: pyrage.x25519.Identity) -> None:
    source = encrypt(tmp_path, key, f"db:\n  password: {VALUE}\n".encode())

    assert await read_value(f"{source}#db.password", identity=str(tmp_path / "key.txt")) == VALUE


async def test_whole_file_is_unchanged(tmp_path: Path, key: pyrage.x25519.Identity) -> None:
    source = encrypt(tmp_path, key, f"{VALUE}\n{VALUE}\n".encode())

    assert await read_value(source, identity=str(tmp_path / "key.txt")) == f"{VALUE}\n{VALUE}\n"


async def test_key_of_ssh_opens_a_file(tmp_path: Path) -> None:
    path = ssh_key(tmp_path, "")
    public = pyrage.ssh.Recipient.from_str(path.with_suffix(".pub").read_text().strip())
    (tmp_path / "secrets.age").write_bytes(pyrage.encrypt(VALUE.encode(), [public]))

    assert await read_value(f"age:{tmp_path / 'secrets.age'}", identity=str(path)) == VALUE


@pytest.mark.parametrize(
    ("plain", "field", "code"),
    [
        pytest.param(DOCUMENT, "db.user", "secret.source_missing", id="no such key"),
        pytest.param(DOCUMENT, "db.hosts.2", "secret.source_missing", id="no such item"),
        pytest.param(DOCUMENT, "db.hosts.\u0661", "secret.source_missing", id="a digit of another script"),
        pytest.param(DOCUMENT, "db.password.x", "secret.source_missing", id="a key of a text"),
        pytest.param(DOCUMENT, "db", "secret.source_invalid", id="a mapping"),
        pytest.param(DOCUMENT, "db.port", "secret.source_invalid", id="a number"),
        pytest.param(b"a: [" + VALUE.encode(), "a", "secret.source_invalid", id="broken YAML"),
        pytest.param(b'{"a": ' + VALUE.encode(), "a", "secret.source_invalid", id="broken JSON"),
        pytest.param(b"[" * 5000, "a", "secret.source_invalid", id="deep nesting"),
        pytest.param(
            b"a: &a [x, x, x, x, x, x, x, x, x]\n"
            + b"".join(
                b"%c: &%c [%s]\n" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9))
                for c in range(ord("b"), ord("l"))
            ),
            "a",
            "secret.source_invalid",
            id="aliases that grow",
        ),
        pytest.param(b"\xff\xfe\x00", "a", "secret.source_invalid", id="not text, in a document"),
        pytest.param(b"\xff\xfe\x00", "", "secret.source_invalid", id="not text"),
        pytest.param(b"", "a", "secret.source_missing", id="nothing"),
    ],
)
async def test_what_was_decrypted_and_has_no_such_value(
    tmp_path: Path, key: pyrage.x25519.Identity, plain: bytes, field: str, code: str
) -> None:
    source = encrypt(tmp_path, key, plain) + (f"#{field}" if field else "")

    error = await failure_of(source, identity=str(tmp_path / "key.txt"))

    assert error.code == code
    assert "secrets.age" in str(error)


async def test_other_key_is_denied(tmp_path: Path, key: pyrage.x25519.Identity) -> None:
    source = encrypt(tmp_path, pyrage.x25519.Identity.generate(), DOCUMENT)

    error = await failure_of(f"{source}#db.password", identity=str(tmp_path / "key.txt"), hidden=[str(key)])

    assert error.code == "secret.source_denied"


@pytest.mark.parametrize("kept", [0, 30, 150, -1])
async def test_damaged_file_has_no_value(tmp_path: Path, key: pyrage.x25519.Identity, kept: int) -> None:
    source = encrypt(tmp_path, key, DOCUMENT)
    path = tmp_path / "secrets.age"
    path.write_bytes(path.read_bytes()[:kept])

    error = await failure_of(f"{source}#db.password", identity=str(tmp_path / "key.txt"))

    assert error.code == "secret.source_invalid"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("# a comment\n", id="a comment alone"),
        pytest.param("AGE-SECRET-KEY-1QQQ\n", id="a broken key"),
        pytest.param("AGE-PLUGIN-YUBIKEY-1QQQ\n", id="a key of a plugin, which would be a program"),
        pytest.param("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n", id="a broken key of SSH"),
    ],
)
async def test_file_without_a_usable_key_is_named_and_not_quoted(
    tmp_path: Path, key: pyrage.x25519.Identity, text: str
) -> None:
    source = encrypt(tmp_path, key, DOCUMENT)
    (tmp_path / "key.txt").write_text(text)

    error = await failure_of(f"{source}#tls.key", identity=str(tmp_path / "key.txt"), hidden=["1QQQ", VALUE])

    assert error.code == "secret.source_invalid"
    assert "key.txt: no usable key" in str(error)


async def test_key_of_ssh_with_a_passphrase_is_refused(tmp_path: Path, key: pyrage.x25519.Identity) -> None:
    source, path = encrypt(tmp_path, key, DOCUMENT), ssh_key(tmp_path, "pass1")

    error = await failure_of(f"{source}#tls.key", identity=str(path))

    assert error.code in ("secret.source_invalid", "secret.source_denied")


async def test_missing_and_large_files_are_refused(tmp_path: Path, key: pyrage.x25519.Identity) -> None:
    identity = str(tmp_path / "key.txt")
    (tmp_path / "large").write_bytes(b"age-encryption.org/v1\n" + bytes(DOCUMENT_LIMIT_BYTES))

    missing = await failure_of(f"age:{tmp_path / 'none'}#a", identity=identity)
    folder = await failure_of(f"age:{tmp_path}#a", identity=identity)
    large = await failure_of(f"age:{tmp_path / 'large'}#a", identity=identity)

    assert [one.code for one in (missing, folder, large)] == [
        "secret.source_missing",
        "secret.source_unreachable",
        "secret.source_invalid",
    ]
