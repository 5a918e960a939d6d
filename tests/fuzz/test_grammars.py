"""Inputs by the grammar of each format: almost right, where random bytes are refused at the first character."""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any

import msgspec
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.fuzzing import feed, in_time
from tests.fuzz.targets import TARGETS

TARGET = {target.name: target for target in TARGETS}
# derandomized: a change of the code makes this fail, not the day; `make fuzz` is for finding more
EXAMPLES = settings(
    max_examples=400, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def read(name: str, data: str | bytes) -> None:
    """Let a target read an input as `make fuzz` does: within its time, and with its own errors only."""
    with in_time():
        feed(TARGET[name], data.encode(errors="surrogateescape") if isinstance(data, str) else data)


def texts(*words: str) -> st.SearchStrategy[str]:
    """One of some words, or any short text."""
    return st.one_of(st.sampled_from(words), st.text(max_size=8))


# -- times

NUMBERS = st.integers(-1, 70).map(str)
CRON_PARTS = st.one_of(
    st.sampled_from(["*", "?", "*/5", "JAN", "fri", "L", "1#2", "", "0x1", "١", "1_0", "9" * 30]),
    st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda part: "{}-{}/{}".format(*part)),
    NUMBERS,
)
CRON_FIELDS = st.lists(CRON_PARTS, min_size=1, max_size=3).map(",".join)


@EXAMPLES
@given(st.lists(CRON_FIELDS, min_size=5, max_size=7).map(" ".join))
def test_a_cron_line(line: str) -> None:
    read("cron", line)
    read("signed schedule", f"{line}\0Europe/Berlin")


PIECES = (
    "2006 06 January Jan 1 01 Monday Mon 2 _2 02 002 __2 15 3 03 4 04 5 05 PM pm MST Z07 Z0700 Z07:00 Z070000 Z07:00:00 -07 "
    "-0700 -07:00 -070000 -07:00:00 .000 ,000000000 .999 .0000000000000 - : / T x é \udcff"
)
WORDS = "2006 9999 0000 January jan Monday AM pm UTC CET GMT+14 +14:00 -2359 +245959 Z .5 ,999999999999 - : / T x é \udcff ١٢"
LAYOUT = st.lists(st.sampled_from([*PIECES.split(), " "]), max_size=12)
VALUE = st.lists(st.one_of(st.sampled_from([*WORDS.split(), " "]), st.integers(0, 400).map(str)), max_size=12)


@EXAMPLES
@given(LAYOUT.map("".join), VALUE.map("".join))
def test_a_go_layout_and_a_value(layout: str, value: str) -> None:
    read("go time", f"{layout}\0{value}")


@EXAMPLES
@given(
    st.integers(0, 9999),
    st.integers(0, 13),
    st.integers(0, 32),
    st.integers(-24, 24),
    texts("Z", "", ".1", "." + "9" * 40),
)
def test_a_time_of_the_broker(year: int, month: int, day: int, offset: int, rest: str) -> None:
    text = f"{year:04}-{month:02}-{day:02}T23:59:59"

    for end in (rest, f"{offset:+03}:00", f"{rest}{offset:+03}:59"):
        read("stored message", f"3\0{text}{end}")
        read("due request", text + end)
        read("signed schedule", f"@at {text}{end}")


@EXAMPLES
@given(st.text("0123456789ABCXYZabcxyz", min_size=27, max_size=27))
def test_an_id(text: str) -> None:
    read("ksuid", text)


# -- archives

NAMES = texts(
    "a",
    "a/b",
    "../x",
    "/x",
    "a/../../x",
    "a//b",
    ".",
    "..",
    "a\0b",
    "a" * 5000,
    "a/" * 600 + "b",
    "d/",
    "\\x",
    "C:/x",
)
ENTRIES = st.lists(
    st.tuples(
        NAMES,
        st.sampled_from([0, 0o100644, 0o104755, 0o120777, 0o040755, 0o020666, 0o010644, 0o177777]),
        st.tuples(*(st.integers(0, top) for top in (15, 31, 31, 63, 31))),
        st.one_of(st.binary(max_size=40), NAMES.map(lambda name: name.encode(errors="replace"))),
        st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]),
    ),
    max_size=4,
)


def pack(entries: Any) -> bytes:
    """A zip of any names, modes, dates and methods."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")  # a name that is there twice
        for name, mode, (month, day, hour, minute, second), content, method in entries:
            info = zipfile.ZipInfo("x")
            info.filename, info.external_attr, info.compress_type = name, mode << 16, method
            info.date_time = (1980, month, day, hour, minute, second)
            archive.writestr(info, content)
    return out.getvalue()


@settings(EXAMPLES, max_examples=200)
@given(ENTRIES, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2))
def test_a_zip_of_any_entries(entries: Any, changes: list[tuple[int, int]]) -> None:
    try:
        data = bytearray(pack(entries))
    except (ValueError, UnicodeError):
        return  # Python writes no such zip

    for place, byte in changes:
        data[-1 - place % len(data)] = byte

    read("zip", bytes(data))


# -- certificates, claims, lists

DER = st.recursive(
    st.tuples(st.sampled_from([1, 2, 3, 4, 5, 6, 0x0C, 0x17, 0x18, 0x82, 0x87]), st.one_of(
        st.binary(max_size=20), st.sampled_from([b"991231235959Z", b"20600101000000Z", b"\x55\x1d\x11"])
    )),
    lambda inner: st.tuples(st.sampled_from([0x30, 0x31, 0xA0, 0xA3, 4]), st.lists(inner, max_size=8)),
    max_leaves=40,
)  # fmt: skip


def der(value: Any) -> bytes:
    """A value of DER, its length written short or long."""
    tag, content = value
    raw = content if isinstance(content, bytes) else b"".join(map(der, content))
    size = len(raw).to_bytes(4, "big") if len(raw) % 3 else bytes([len(raw) & 0x7F])
    return bytes([tag]) + (b"\x84" if len(size) == 4 else b"") + size + raw


@EXAMPLES
@given(DER, DER, st.lists(DER, max_size=8))
def test_a_certificate_of_any_der(first: Any, second: Any, fields: list[Any]) -> None:
    read("x509", der((0x30, [(0x30, fields), first, second])))
    read("x509", der(first))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False),
    texts("KEY", ">", "fact.a.b"),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(texts("name", "key", "when"), inner, max_size=4)
    ),
    max_leaves=8,
)


def document(*keys: str) -> st.SearchStrategy[bytes]:
    """A JSON object with some keys of a kind, and any values."""
    return st.dictionaries(texts(*keys), JSON, max_size=8).map(_json)


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b"{}"


@EXAMPLES
@given(document("kind", "key", "subject", "digest", "issued", "expires", "number", "run", "details"))
def test_claims(data: bytes) -> None:
    read("signed claims", data)


@EXAMPLES
@given(document("number", "issued", "signers", "revoked_nodes", "allow_unsigned_until"))
def test_a_signers_list(data: bytes) -> None:
    read("signers list", data)


@EXAMPLES
@given(document("root", "signers", "certificate", "floors"))
def test_a_trust_block(data: bytes) -> None:
    read("trust block", data)
    read("trust block in a file", b"-----BEGIN CCM TRUST-----\n" + data + b"\n------END CCM TRUST------\n")


@EXAMPLES
@given(
    document("protocol", "run", "deadline", "deadline_s", "named", "manifest", "data", "properties", "stop")
)
def test_a_request(data: bytes) -> None:
    read("request", data.replace(b"{", b'{"protocol":"PROTOCOL",', 1).replace(b",}", b"}", 1))


# -- policy

RULE = st.fixed_dictionaries(
    {"name": texts("a", "b")},
    optional={
        "signers": st.lists(texts("alice", "*", "local"), max_size=2),
        "roles": st.lists(texts("web"), max_size=2),
        "allow": st.lists(texts("all", "apply", "ping"), max_size=2),
        "deny": st.lists(texts("all", "plan"), max_size=2),
        "hours": st.lists(texts("Mon-Fri 08:00-18:00", "Sun-Mon 23:00-01:00", "00:00-24:00", "Sat"), max_size=2),
        "max_mode": texts("plan", "apply"),
        "only": st.dictionaries(texts("types", "paths", "sources", "packages", "services"), st.lists(
            texts("file", "/srv/**", "/a/[", "https://h:99999/**", "https://[::1/**", "nginx*", "**", "{a,b}"), max_size=3
        ), max_size=3),
    },
)  # fmt: skip
POLICY = st.fixed_dictionaries(
    {"default": texts("allow", "deny")},
    optional={
        "time_zone": texts("Europe/Berlin", "../../etc/passwd", "/etc", "UTC\0"),
        "max_mode": texts("plan"),
        "forbid": st.dictionaries(texts("types", "paths"), st.lists(texts("exec", "/etc/**"), max_size=2)),
        "rules": st.lists(RULE, max_size=3),
    },
)


@EXAMPLES
@given(POLICY)
def test_a_policy(policy: dict[str, Any]) -> None:
    read("policy", yaml.safe_dump(policy, allow_unicode=True))


# -- what the kernel prints

FIELDS = texts(
    "36",
    "98:0",
    "/",
    "/home\\040x",
    "/\\777",
    "rw,ro",
    "master:1",
    "-",
    "ext4",
    "/dev/sda1",
    "rw,subvol=/@",
    "",
)
MOUNT = st.lists(FIELDS, max_size=12).map(" ".join)


@EXAMPLES
@given(st.lists(MOUNT, max_size=4).map("\n".join))
def test_a_mount_table(table: str) -> None:
    read("mountinfo", table)
