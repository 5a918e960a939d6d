"""
Targets whose input is packed before it is read: in base64, a signature, a PEM file, a message, an archive on disk.

Random bytes rarely survive the outer layer. Here the outer layer is always valid, so the reader behind it sees every input.
"""

from __future__ import annotations

import base64
import functools
import gzip
import io
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import nats.errors
import nkeys

from ccm_agent.agent.requests.request_handler import KINDS, decode_request
from ccm_agent.agent.runs.run_queue import find_deadline
from ccm_agent.agent.trust.schedule_times import scheduled_run_id
from ccm_agent.bus.access.credentials import check_seed, name_in_jwt, only_inboxes_in_credentials
from ccm_agent.bus.connection.messages import Message
from ccm_agent.bus.connection.parser import Parser
from ccm_agent.bus.requests import validate_request
from ccm_agent.bus.signatures.ed25519 import Ed25519Key
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey, read_claims
from ccm_agent.bus.signatures.trust import SIGNERS_SUBJECT, read_signers, trust_in_credentials
from ccm_agent.bus.streams import Stored, _stored, decode_answer
from ccm_agent.bus.subjects import request_subject
from ccm_agent.engine.bundle import BundleLimits, unpack_bundle
from ccm_agent.facts.partitions import parse_mountinfo
from ccm_agent.health.goss.kernel import mount_in
from ccm_agent.health.nagios import attempt
from ccm_agent.model import ids
from ccm_agent.model.errors import CcmError
from ccm_agent.model.formats.cron import Cron
from ccm_agent.model.health import HealthCheck
from ccm_agent.model.ports import Command, Completed, IncomingRequest, Packed
from ccm_agent.model.secret import Secret
from ccm_agent.plugins.definition import PluginReader
from ccm_agent.policy.document import parse_policy
from ccm_agent.registration.entries import read_stored
from ccm_agent.sessions.creation_ledger import replay
from ccm_agent.system.archives.unpack import unpack
from ccm_agent.system.threads import CancelFlag
from ccm_agent.templates.golayout import parse_time
from ccm_agent.templates.gotime import format_time
from ccm_ctl.fleet.keys.x509 import authority, private_key, read_certificate, read_private_key, server
from tests.fuzz.target import Target

T = TypeVar("T")

MOMENT = datetime(2026, 3, 29, 0, 59, 58, tzinfo=UTC)
"""Two seconds before the clocks of Berlin go forward."""
BROKER_ERRORS = (nats.errors.ProtocolError,)
"""What ends the connection to something that is not a NATS server."""
TYPES = ("apply", "archive", "exec", "file", "package", "scaffold", "service")


LAST_FOLLOWED = "aWgEPLxxrZOFaOlDVFHTB3ZiQOO"
"""Ids from here on are of the last second that KSUIDs can tell."""


class EscapedError(Exception):
    """A reader did what it must never do."""


@functools.cache
def _root() -> SigningKey:
    return SigningKey(Secret(nkeys.encode_seed(b"r" * 32, nkeys.PREFIX_BYTE_USER).decode()))


def text_of(data: bytes) -> str:
    """Input as text, every byte kept."""
    return data.decode(errors="surrogateescape")


def _pair_of(data: bytes) -> tuple[bytes, bytes]:
    """Two inputs in one, divided at the first NUL."""
    first, _, second = data.partition(b"\0")
    return first, second


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise EscapedError("it waits for something")


# -- archives


def unpack_archive(kind: str, data: bytes) -> None:
    """Unpack in a folder of its own and see that nothing was written beside it."""
    with tempfile.TemporaryDirectory(prefix="ccm-fuzz-") as top:
        packed, into = Path(top, "packed"), Path(top, "into")
        packed.write_bytes(data)
        try:
            unpack(Packed(path=str(packed), kind=kind, limit_bytes=1 << 20), str(into), CancelFlag())
        finally:
            _refuse_escape(Path(top), {"packed", "into"})


def unpack_a_bundle(data: bytes) -> None:
    """Unpack a gzipped tar as a bundle."""
    with tempfile.TemporaryDirectory(prefix="ccm-fuzz-") as top:
        limits = BundleLimits(size_bytes=1 << 20, entries=100)
        try:
            unpack_bundle(gzip.compress(data, 1), Path(top, "into"), limits, "bundle")
        finally:
            _refuse_escape(Path(top), {"into"})


def _refuse_escape(top: Path, expected: set[str]) -> None:
    if beside := set(os.listdir(top)) - expected:
        raise EscapedError(f"written beside the folder: {beside}")
    for path in (top / "into").rglob("*"):
        # realpath takes a symlink that leads to itself; Path.resolve raises
        if not Path(os.path.realpath(path)).is_relative_to(top / "into"):
            raise EscapedError(f"{path} leads out")


def a_zip() -> bytes:
    """A zip of a file, a folder, a symlink and a deflated file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/b", "content")
        archive.writestr("d/", "")
        link = zipfile.ZipInfo("a/l")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "b")
        archive.writestr("z", "z" * 300, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def a_tar() -> bytes:
    """A tar of a file, a folder and links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as packed:
        for name, kind, link in (
            ("d", tarfile.DIRTYPE, ""),
            ("d/f", tarfile.REGTYPE, ""),
            ("d/l", tarfile.SYMTYPE, "f"),
            ("h", tarfile.LNKTYPE, "d/f"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, 0o755
            info.size = 3 if kind == tarfile.REGTYPE else 0
            packed.addfile(info, io.BytesIO(b"abc"))
    return out.getvalue()


# -- times


def cron(data: bytes) -> object:
    """When a cron line is due next, where clocks change."""
    return Cron(text_of(data)).next_after(MOMENT, ZoneInfo("Europe/Berlin"))


def go_time(data: bytes) -> object:
    """A time by a layout, written again by the same one."""
    layout, value = map(text_of, _pair_of(data))
    return format_time(parse_time(layout, value), layout)


def due(data: bytes) -> object:
    """The run of a due request, by the stamp that the broker gave it."""
    headers = {"Nats-Stream": "CCM_SCHEDULES", "Nats-Sequence": "4", "Nats-Time-Stamp": text_of(data)}
    run, _ = scheduled_run_id(
        IncomingRequest(subject="s", protocol="p", scope="all", body=b"", headers=headers)
    )
    if not ids.is_id(run):
        raise EscapedError(f"the run id {run!r} is not a KSUID")
    return run


def ksuid(data: bytes) -> object:
    """An id that another process made: the next ones of this process come after it."""
    text, before = text_of(data), ids._last
    if not ids.is_id(text):
        return None
    try:
        ids.follow(text)
        made = ids.new_id()
        if not ids.is_id(made) or not (made > text or text > LAST_FOLLOWED):
            raise EscapedError(f"{made} does not come after {text}")
        return made
    finally:
        ids._last = before


# -- what programs and the kernel print


class _Printed:
    """A runner whose program prints the input."""

    def __init__(self, data: bytes) -> None:
        self.runner = self
        self._data = data

    async def run(self, _command: Command, _on_line: Callable[[str], None] | None = None) -> Completed:
        return Completed(code=self._data[0] if self._data else 0, stdout=self._data)


def nagios_output(data: bytes) -> object:
    """What a Nagios plugin prints, as it is told over the bus."""
    check: Any = HealthCheck(command="check_disk -w 10%", name="disk")
    host: Any = _Printed(data)
    return msgspec.json.encode(run_now(attempt(check, host)))


def nagios_command(data: bytes) -> object:
    """The command line of a Nagios check."""
    check: Any = HealthCheck(command=text_of(data), name="disk")
    host: Any = _Printed(b"OK")
    return run_now(attempt(check, host))


def mountinfo(data: bytes) -> object:
    """The mount table, as facts and as a health check see it."""
    text = data.decode(errors="surrogateescape")
    return parse_mountinfo(text, frozenset(("ext4", "xfs", "btrfs"))), mount_in(text, "/")


# -- what is signed, and who may sign


def signed_claims(data: bytes) -> object:
    """Claims that their key has signed, whatever they say."""
    pair = nkeys.from_seed(nkeys.encode_seed(b"r" * 32, nkeys.PREFIX_BYTE_USER))
    data = data.replace(b"KEY", pair.public_key)
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    signature = pair.sign(b"ccm-signature-v1." + text.encode())
    return read_claims(f"v1.{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}")


def signers_list(data: bytes) -> object:
    """A signers list that the root has signed."""
    data, root = data.replace(b"KEY", _root().public_key.encode()), _root()
    signature = root.sign(SignatureKind.SIGNERS, SIGNERS_SUBJECT, data, issued_ms=1, number=3)
    return read_signers(data, signature, root.public_key, now_ms=2)


def trust_block(data: bytes) -> object:
    """The trust block of a credentials file."""
    text = base64.b64encode(data.replace(b"KEY", _root().public_key.encode())).decode()
    return trust_in_credentials(f"-----BEGIN CCM TRUST-----\n{text}\n------END CCM TRUST------\n")


def jwt(data: bytes) -> object:
    """The claims of a user's JWT."""
    token = f"e30.{base64.urlsafe_b64encode(data).decode().rstrip('=')}.c2ln"
    file = f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n"
    return name_in_jwt(token), only_inboxes_in_credentials(file)


def seed(data: bytes) -> object:
    """An account's seed with any bytes behind its prefix."""
    return check_seed(Secret("SA" + base64.b32encode(data).decode().rstrip("=")), "A", "seed")


def trust_file(trust: bytes) -> bytes:
    """A credentials file with a trust block."""
    text = base64.b64encode(trust.replace(b"KEY", _root().public_key.encode()))
    return b"-----BEGIN CCM TRUST-----\n" + text + b"\n------END CCM TRUST------\n"


def trust_in_file(data: bytes) -> object:
    """A credentials file."""
    return trust_in_credentials(text_of(data))


def certificates() -> list[bytes]:
    """Certificates in DER: an authority's, and a server's with names and addresses."""
    begins, ends, key = MOMENT, MOMENT.replace(year=2060), Ed25519Key(b"k" * 32)
    names = ["nats1.example", "10.0.0.1", "::1"]
    made = [authority(key, "fleet", begins, ends), server(key, "fleet", b"p" * 32, names, begins, ends)]
    return [base64.b64decode("".join(pem.splitlines()[1:-1])) for pem in made]


def certificate_file() -> bytes:
    """A certificate as a PEM file."""
    key = Ed25519Key(b"k" * 32)
    return authority(key, "fleet", MOMENT, MOMENT.replace(year=2060)).encode()


def key_file() -> bytes:
    """A private key as a PEM file."""
    return private_key(Ed25519Key(b"k" * 32)).encode()


def certificate(data: bytes) -> object:
    """A certificate in DER."""
    text = base64.b64encode(data).decode()
    return read_certificate(f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n", "ca.pem")


def pem(data: bytes) -> object:
    """A PEM file, as a certificate and as a private key."""
    text = text_of(data)
    return [_or_refused(read, text) for read in (read_certificate, read_private_key)]


def _or_refused(read: Callable[[str, str], object], text: str) -> object:
    try:
        return read(text, "ca.pem")
    except CcmError as err:
        return err


def policy(data: bytes) -> object:
    """A node's policy."""
    return parse_policy(data, "policy.yaml", TYPES)


def plugin(data: bytes) -> object:
    """A CLI plugin, without what it includes."""
    return PluginReader().definition(data, "/nonexistent/x-plugin.yaml")


# -- messages of the broker


def answer(data: bytes) -> object:
    """What JetStream answers to a write."""
    return decode_answer("s", Message(subject="s", body=data))


def _stored_with(sequence: str, time: str, body: bytes = b"") -> Stored:
    headers = {"Nats-Subject": "choria.ccm.registration.v1.a.b.c.d_e.f", "Nats-Stream": "S"}
    headers |= {"Nats-Sequence": sequence, "Nats-Time-Stamp": time}
    return _stored("s", Message(subject="s", body=body, headers=headers))


def stored(data: bytes) -> object:
    """The headers of a direct get's answer."""
    return _stored_with(*map(text_of, _pair_of(data)))


def registration(data: bytes) -> object:
    """A registration as a stream holds it."""
    return read_stored(_stored_with("1", "2026-01-01T00:00:00Z", data))


def request(data: bytes) -> object:
    """A request of every kind, from the broker to the agent's queue."""
    found = []
    for protocol in KINDS:
        body = data.replace(b"PROTOCOL", protocol.encode())
        incoming = validate_request(request_subject(protocol, "all"), body, {"Ccm-Sent": "1"})
        found.append(find_deadline(decode_request(incoming), MOMENT))
    return found


class _Client:
    """In the place of a NATS client: takes whatever the parser says."""

    def deliver(self, *_message: object) -> None:
        pass

    def __getattr__(self, _name: str) -> Callable[..., Coroutine[Any, Any, None]]:
        async def take(*_arguments: object) -> None:
            return None

        return take


def broker_stream(data: bytes) -> None:
    """What a broker sends, in two pieces."""
    client: Any = _Client()
    parser = Parser(client)
    for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
        run_now(parser.parse(piece))


_CLAIMS = b'{"kind":"request","key":"KEY","subject":"s","digest":"d","issued":1,"expires":2,"number":3,"details":{"when":"x"}}'
_SIGNERS = b'{"number":3,"issued":1,"signers":[{"name":"alice","key":"KEY","apply":[">"],"plan":["fact.role.web"],"expires":9}]}'
_TRUST = b'{"root":"KEY","signers":{"body":"{}","signature":"v1.a.b"},"certificate":"v1.a.b","floors":{"CCM_DATA/common":3}}'
_REQUEST = (
    b'{"protocol":"PROTOCOL","run":"3MQfrJPuO0jgbX8OLS0ivd4F6Ch","requester":"alice","named":["web1"],"targets":["role=web"],'
    b'"deadline":"2026-01-01T00:00:00Z","deadline_s":3,"manifest":"a","data":{"a":[1]},"stop":"x","type":"file","properties":{}}'
)
_PLUGIN = b"""\
name: deploy
commands:
- {name: web, type: exec, aliases: [w], command: x, flags: [{name: f, bool: true}], backoff: {max_attempts: 3}}
- {name: db, type: parent, commands: [{name: a, type: kv}, {name: b, type: exec, script: x, arguments: [{name: c}]}]}
- {name: ask, type: form, properties: [{name: a, type: array, properties: [{name: b, type: integer, empty: absent}]}]}
"""
_POLICY = b"""\
default: deny
time_zone: Europe/Berlin
forbid: {types: [exec]}
rules:
  - name: a
    signers: ['ops-*']
    allow: [all]
    hours: [Mon-Fri 08:00-18:00]
    only: {paths: [/srv/**], sources: [https://h/**], packages: [a*], services: [b]}
"""
_MOUNTS = (
    b"36 35 98:0 / / rw,noatime master:1 - ext4 /dev/sda1 rw\n"
    b"37 36 0:25 /@home /home\\040x ro - btrfs /dev/sdb rw,subvol=/@home\n"
)
_PROPERTIES = (
    b'{"cluster":"a","protocol":"b","service":"c","address":"d","port":1,"ttl":"1h","annotations":{"a":"b"}}'
)


def _ledger(data: bytes) -> object:
    return replay(b"".join(b"%08x %s\n" % (zlib.crc32(line), line) for line in data.split(b"\n")))


WRAPPED = [
    Target("zip", partial(unpack_archive, "zip"), [a_zip()]),
    Target("tar that is unpacked", partial(unpack_archive, "tar"), [a_tar()]),
    Target("bundle", unpack_a_bundle, [a_tar()]),
    Target("lines of a ledger", _ledger, [
        b'{"version":1,"scope":"manifest /m"}\n'
        b'{"put":{"type":"file","name":"/a","owners":["file#/a"],"run":"r","removal":{"ensure":"absent"},"left":{"content":"d"}}}\n'
        b'{"drop":["file","/a"]}',
    ]),
    Target("cron", cron, [b"0 30 2 * * *", b"*/5 0-10/2 3,4 29 FEB SUN-TUE", b"0 0 0 ? 1 1"]),
    Target("go time", go_time, [
        b"2006-01-02T15:04:05.999Z07:00\x002026-03-29T02:30:00.5+01:00",
        b"Mon, _2 Jan 06 03:04PM MST\x00Sun,  1 Mar 26 11:59PM CET",
        b"2006 __2 15:04:05,000 -070000\x002026 366 23:59:59,123 -235959",
    ], (ValueError,)),
    Target("due request", due, [b"2026-01-01T00:00:00.123456789Z", b"9999-12-31T23:59:59Z"]),
    Target("ksuid", ksuid, [b"3MQfrJPuO0jgbX8OLS0ivd4F6Ch", b"aWgEPTl1tmebfsQzFP4bxwgy80V", b"z" * 27]),
    Target("nagios output", nagios_output, [b"DISK OK - free space: / 3326 MB (56%); | /=2643MB;5948;5958;0;5968\n"]),
    Target("nagios command", nagios_command, [b"/usr/lib/check_x -H 'a b' \"c\\\"d\" e\\ f # g"]),
    Target("mountinfo", mountinfo, [_MOUNTS]),
    Target("policy", policy, [_POLICY]),
    Target("plugin", plugin, [_PLUGIN]),
    Target("signed claims", signed_claims, [_CLAIMS]),
    Target("signers list", signers_list, [_SIGNERS]),
    Target("trust block", trust_block, [_TRUST]),
    Target("trust block in a file", trust_in_file, [trust_file(_TRUST)]),
    Target("claims of a JWT", jwt, [b'{"name":"web1","nats":{"sub":{"allow":["_INBOX_a.>"]}}}', b"[" * 5000]),
    Target("seed", seed, [b"s" * 35]),
    Target("x509", certificate, certificates()),
    Target("pem", pem, [certificate_file(), key_file()]),
    Target("answer of a stream", answer, [
        b'{"stream":"S","seq":3,"duplicate":true}',
        b'{"error":{"code":503,"err_code":10059,"description":"x"}}',
    ]),
    Target("stored message", stored, [b"3\x002026-01-01T00:00:00.123456789Z", b"3\x000001-01-01T00:00:00+01:00"]),
    Target("registration", registration, [_PROPERTIES]),
    Target("request", request, [_REQUEST]),
    Target("stream of a broker", broker_stream, [
        b'INFO {"server_id":"x"}\r\nPING\r\nMSG a.b 1 2\r\nhi\r\nHMSG a 1 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n-ERR x\r\n',
    ], BROKER_ERRORS),
]  # fmt: skip
