"""
Everything that reads what others wrote, each with samples to begin from.

`test_every_decoder_is_run_by_a_target` finds the decoders of the programs, and fails for one that no sample here reaches.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import importlib
import inspect
import io
import tarfile
import zipfile
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from ccm_agent.app_expressions import make_environment
from ccm_agent.bus.kv import decode_note
from ccm_agent.bus.object_descriptions import decode_meta
from ccm_agent.bus.signatures.sealing import decrypt, unseal
from ccm_agent.bus.streams import Stored
from ccm_agent.model import outcome, wire
from ccm_agent.model.errors import PropertyError
from ccm_agent.model.formats.tar_reader import TAR_ERRORS, Tar, members
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records import host_import, stamped
from ccm_agent.resources.container.quadlet import parse as parse_quadlet
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.storage.spool_segment import decoder as segment_decoder
from ccm_agent.templates.engines import engine
from ccm_agent.templates.expr.program import ExpressionNames, compile_expression
from ccm_agent.templates.gjson import get
from ccm_ctl.dashboard.access import Right
from ccm_ctl.dashboard.id_token import SignInError, check_claims, user_of, verified_claims
from ccm_ctl.dashboard.oidc_settings import OidcSettings
from ccm_ctl.fleet.data.documents import decode_removal
from ccm_ctl.fleet.trust.verified_reader import number_of
from tests.fuzz import edited, stored, wrapped
from tests.fuzz.target import Read, Target
from tests.support.openpgp_keys import KEY, KEY_V6
from tests.support.signing import new_key

_KEY = new_key()
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _function(name: str, *samples: str, raises: tuple[type[Exception], ...] = ()) -> Target:
    """A function of one text, or of bytes; what else it needs has defaults."""
    module, _, function = name.partition(":")
    call = getattr(importlib.import_module(module), function)
    wants = next(iter(inspect.signature(call).parameters.values())).annotation
    read = call if wants == "bytes" else (lambda data: call(_text(data)))
    return Target(name, read, [sample.encode() for sample in samples], raises)


_JSON = '{"protocol": "io.choria.ccm.v1.x", "node": "web1", "number": 3, "at": "2026-01-01T00:00:00Z", "l": [1.5, null, true]}'
_YAML = 'a: &x {b: [1, 0x1f, "t\\n"]}\nc: *x\ns: !!binary YQ==\nt: !!timestamp 2026-01-01\nd: |\n  more\n? e\n: - 1e3\n  - ~\n'
_MANIFEST = (
    "ccm:\n  resources:\n    - file:\n        - /a: {ensure: present, content: '{{ lookup(\"facts.x\") }}'}\n"
)
_EXPR = (
    'let x = filter([1, 2, 3], # > 1); x[0] ?? "a" matches "^a+$" ? map(1..3, {# * 2}) : {"k": Facts.a?.b}'
)

_APT = (
    "# Managed by ccm\nX-Repolib-Name: a\nTypes: deb\nURIs: https://a/ https://b/\nSuites: ./\nTrusted: yes\n"
)
_DNF = "# Managed by ccm\n[a]\nname=a\nbaseurl=https://a/\nenabled=1\npriority=9\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file:///k\n"


def _repositories(data: bytes) -> object:
    """Files of repositories, which other tools may have written."""
    return [form.parse("a", _text(data)) for form in FORMATS.values()]


FUNCTIONS = [
    _function("ccm_agent.model.codec:decode_document", _JSON, _YAML),
    _function("ccm_agent.model.codec:decode_manifest", _MANIFEST),
    _function("ccm_agent.model.codec:decode_yaml", _YAML),
    _function("ccm_agent.model.codec:decode_json", _JSON),
    _function("ccm_agent.bus.object_descriptions:decode_name", "YWJj", "%%%"),
    _function("ccm_agent.resources.repository.openpgp:parse_public_key", KEY, KEY_V6, raises=(ValueError,)),
    _function(
        "ccm_agent.bus.access.audit_entry:_decode", _JSON, '{"run": "a", "name": "site", "digest": "x"}'
    ),
    _function("ccm_agent.bus.kv:decode_note", "eyJhIjogMX0=", "%%%"),
    _function("ccm_agent.model.records.registration:decode_entry", _JSON),
    _function(
        "ccm_agent.model.records.slots:decode_entry",
        '{"is_held": true, "count": 1, "since": "2026-01-01T00:00:00Z"}',
    ),
    _function("ccm_agent.model.records.slots:parse_slot", "pg-restart/1", raises=(PropertyError,)),
    _function("ccm_agent.manifest.document:parse_path", '$.require[0]["a"]'),
    _function("ccm_agent.model.resource:parse_reference", "file#/etc/x"),
    _function("ccm_agent.model.formats.sizes:parse_size", "500MiB", "1.5G", "12B"),
    _function("ccm_agent.model.formats.durations:parse_duration", "1h30m", "1.5d", "10ms"),
    _function("ccm_agent.model.formats.scalars:parse_number", "0x1f", "-1_000", ".inf", "1e10"),
    _function(
        "ccm_agent.bus.disconnects:decode_disconnect",
        '{"timestamp": "2026-01-01T00:00:00.1Z", "client": {"jwt": "e30.eyJuYW1lIjogIndlYjEifQ.e30"}}',
    ),
    _function(
        "ccm_agent.bus.connection.headers:parse_headers",
        "NATS/1.0 503 No\r\nA: b\r\nNats-Sequence: 4\r\n\r\n",
    ),
    _function("ccm_agent.bus.connection.headers:broker_headers", "NATS/1.0 503 No\r\nA: b\r\n\r\n"),
    _function("ccm_agent.bus.streams:parse_time", "2026-01-01T00:00:00.123456789Z", raises=(ValueError,)),
    _function("ccm_agent.bus.chain:parse_place", "12.0123456789abcdef"),
    _function("ccm_agent.bus.subjects:decode_token", "a=2Fb", "="),
    _function("ccm_agent.bus.subjects:parse_request", "choria.ccm.due.manifest.apply.request.fact.role.web"),
    _function("ccm_agent.bus.subjects:parse_event", "choria.ccm.agent.refused.web1"),
    _function(
        "ccm_agent.bus.subjects:parse_scheduled",
        "io.choria.ccm.v1.manifest.apply-nightly.request.fact.role.web",
    ),
    _function("ccm_agent.bus.subjects:parse_schedule", "choria.ccm.schedule.manifest.apply.request.all.x"),
    _function("ccm_agent.bus.subjects:parse_registration", "choria.ccm.registration.v1.a.b.c.d_e.f"),
    _function("ccm_agent.bus.subjects:parse_kv_url", "kv://CCM_DATA/role/web"),
    _function("ccm_agent.bus.subjects:parse_assignment_key", "fact.role.web.site"),
    _function(
        "ccm_agent.agent.state.settings:parse_config",
        "identity: web1\ninterval: 5m\nsources: [{manifest: /a.yaml}]\n",
    ),
    _function("ccm_agent.policy.hours:parse_hours", "Mon-Fri 08:00-17:00 Europe/Berlin"),
    _function("ccm_agent.templates.selector:parse_selector", 'role=web,env!="dev",node=web*'),
    _function("ccm_agent.templates.selector:parse_where", _EXPR, "Facts.cores > 3"),
    _function("ccm_agent.templates.gotime:parse_duration", "1h2m3.5s", raises=(ValueError,)),
    _function("ccm_agent.templates.engines.literals:parse_integer", "0x1f", "0b1", "1_0"),
    _function("ccm_agent.templates.engines.literals:parse_float", "0x1p-2", "1e5"),
    _function("ccm_agent.templates.engines.go.semver:parse_version", "v1.2.3-rc.1+b", raises=(ValueError,)),
    _function("ccm_agent.templates.engines.go.numbers:parse_number", "0x1f", "1i", "'a'"),
    _function("ccm_agent.cli.inputs:parse_env", "A=1\nexport B='x'\n# c\n"),
    _function("ccm_agent.health.goss.semver:parse_version", "1.2.3-a", raises=(ValueError,)),
    _function("ccm_agent.health.goss.semver:parse_range", ">=1.2 <2 || 3.x", raises=(ValueError,)),
    _function("ccm_agent.resources.file.model:parse_mode", "0644", "7xx", raises=(ValueError,)),
    _function("ccm_agent.resources.package.providers.dnf:parse_query", "zsh\t0\t5.9\t1\tx86_64\n"),
    _function("ccm_agent.resources.package.providers.apt:parse_query", "zsh\t5.9-8\tinstall ok installed\n"),
    _function("ccm_agent.resources.package.providers.apt:parse_candidate", "zsh:\n  Candidate: 5.9-8\n"),
    _function("ccm_agent.resources.package.providers.existing:parse_added", "nginx no optional installed\n"),
    _function("ccm_agent.resources.packaged:parse_owners", "a, b:amd64: /etc/x\n"),
    _function("ccm_agent.resources.packaged:parse_conffiles", " /etc/x 0123 obsolete\n"),
    _function("ccm_agent.resources.packaged:parse_md5sums", "0123  usr/bin/x\n"),
    _function("ccm_agent.resources.packaged:parse_verify", "S.5......  c /etc/x\n"),
    _function("ccm_agent.resources.service.providers.existing:parse_changed", "a.service enabled disabled\n"),
    _function(
        "ccm_agent.resources.service.providers.systemd:parse_show", "Id=a.service\nActiveState=active\n"
    ),
    _function("ccm_agent.facts.partitions:parse_filesystems", "nodev\tsysfs\n\text4\n"),
    _function("ccm_agent.facts.host:parse_assignments", 'NAME="Debian"\nID=debian\n'),
    _function("ccm_agent.facts.cpu:parse_cpuinfo", "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\n"),
    _function("ccm_agent.facts.memory:parse_meminfo", "MemTotal: 1 kB\nMemAvailable: 1 kB\n"),
    _function(
        "ccm_agent.facts.memory:parse_swaps", "Filename Type Size Used Priority\n/a partition 1 2 -2\n"
    ),
    _function(
        "ccm_ctl.secret_sources.vault:_token_in",
        '{"auth": {"client_token": "hvs.a", "lease_duration": 1200}}',
        raises=(msgspec.MsgspecError,),
    ),
    _function(
        "ccm_ctl.secret_sources.vault:_data_in",
        '{"data": {"data": {"a": "b"}, "metadata": {"deletion_time": "", "destroyed": false}}}',
        raises=(msgspec.MsgspecError,),
    ),
    _function(
        "ccm_ctl.secret_sources.vault:_is_deleted",
        '{"data": {"data": null, "metadata": {"deletion_time": "2026-01-01T00:00:00Z", "destroyed": false}}}',
    ),
    _function("ccm_ctl.dashboard.stored_pages:parse_revision", "12", "\u0663"),
    _function("ccm_ctl.fleet.assignments.assignments:parse_scope", "role=web"),
    _function("ccm_ctl.fleet.runs.history:_parse_key", "T5Q1.state", "T5Q1.targets.0"),
    _function("ccm_ctl.fleet.runs.history:_decode_operator", "ann", "a=2Fb"),
    _function("ccm_ctl.fleet.rollout.gate:parse_gate", "failed == 0", "health.critical == 0 && changed > 2"),
    _function("ccm_ctl.fleet.rollout.sizes:parse_size", "10", "2.5%"),
    _function("ccm_ctl.fleet.rollout.sizes:parse_wave_size", "10", "25%"),
    _function("ccm_agent.storage.journal:read_records", "\x00"),
    _function("ccm_agent.bus.signatures.signing:read_claims", "v1.eyJraW5kIjoicmVxdWVzdCJ9.AAAA"),
    _function(
        "ccm_agent.bus.access.credentials:name_in_credentials",
        "-----BEGIN NATS USER JWT-----\na.e30.b\n-----END",
    ),
    _function("ccm_agent.cli.ensure.ensure_api:read_request", _JSON, _YAML),
    _function("ccm_agent.hiera.sources:read_stamp", _JSON),
    _function(
        "ccm_agent.sessions.refresh_log:replay",
        '{"version":1,"scope":"a","change":{"id":"1","trigger":["f",["k"]],"since":"2026-01-01T00:00:00Z","waiting":[["g",["l"]]]}}\n'
        '{"refreshed":{"keys":["l"],"changes":["1"]}}\n{"dropped":["1"]}\n',
    ),
    _function("ccm_agent.templates.scan:find_spans", "a {{ b }} ${ c } {{ '}}' }}"),
]


def _tar(data: bytes) -> object:
    with Tar(io.BytesIO(data), 1000) as archive:
        return [member.name for member in members(archive)]


def _packed(kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("a/b", "content")
        return out.getvalue()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as packed:
        for name in ("a/b", "n" * 300):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 3, 1.5
            packed.addfile(info, io.BytesIO(b"abc"))
    return out.getvalue()


def _compile(data: bytes) -> object:
    names = ExpressionNames({"Facts": "map", "Data": "map"}, frozenset({"lookup"}))
    return compile_expression(_text(data), names)


def _render(name: str) -> Read:
    variables: dict[str, Any] = {"facts": {"a": 1}, "data": {"b": [1, 2]}, "environ": {}}
    return lambda data: engine(name).render(_text(data), variables, name="x")


def _rules(data: bytes) -> object:
    from ccm_agent.health.goss.rules import parse_rules
    from ccm_agent.model.codec import decode_yaml

    return parse_rules(decode_yaml(data))


def _wire() -> list[Target]:
    kinds = [
        kind
        for module in (wire, stamped, outcome, host_import)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
    ]
    return [
        Target(
            f"wire:{kind.__name__}",
            partial(_decode_foreign, kind),
            [_JSON.encode()],
            (msgspec.DecodeError,),
        )
        for kind in kinds
    ]


def _decode_foreign(kind: type[Any], data: bytes) -> object:
    return decode_foreign(data, kind)


_OIDC = OidcSettings(issuer="https://a.example", client_id="b", rights_claim="g", rights={Right.READ: ["x"]})

_CLAIMS = {
    "iss": "https://a.example",
    "aud": ["b"],
    "azp": "b",
    "exp": 3e9,
    "iat": 1,
    "sub": "7",
    "nonce": "n",
    "g": ["x"],
}


class _Said(msgspec.Struct):
    header: dict[str, Any]
    claims: dict[str, Any]
    keys: list[dict[str, Any]]


def _id_token(data: bytes) -> object:
    """A token that is not signed, and the claims of one that is."""
    said = decode_foreign(data, _Said)
    parts = [
        base64.urlsafe_b64encode(msgspec.json.encode(one)).rstrip(b"=") for one in (said.header, said.claims)
    ]
    token = b".".join([*parts, b"A" * 86]).decode()
    with contextlib.suppress(SignInError):
        verified_claims(token, said.keys, _OIDC, "n", 2e9)
    check_claims(said.claims, _OIDC, "n", 2e9)
    return user_of(said.claims, _OIDC)


OTHERS = [
    Target("quadlet", lambda data: parse_quadlet("web", data, b"A=1\n"), [
        b"[Container]\nImage=a/b\nExec=\"a\" \"\\\\x22$$ %%\"\nLabel=\"a=b\"\nHealthCmd=[\"a\"]\nUser=1\nGroup=2\n",
    ]),
    Target("tar", _tar, [_packed("tar")], (*TAR_ERRORS, OSError)),
    Target("expression", _compile, [_EXPR.encode(), b"a in [1..2] and not b"]),
    Target("go", _render("go"), [
        b'{{ range $i, $x := .data.b }}{{ printf "%05d" $x | quote }}{{ end }}',
        b'{{ b64dec "YQ==" }}{{ b32dec "ME======" }}{{ fromJson "{}" }}{{ semverCompare "^1.2" "1.3" }}',
        b'{{ urlParse "http://a:1/b?c" }}',
        b'{{ toDate "2006-01-02" "2026-01-01" | date "Jan 2" }}{{ regexMatch "^a" "a" }}{{ mustFromJson "[1" }}',
    ]),
    Target("jet", _render("jet"), [b'[[ x := 1 ]][[ if x > 0 ]][[ data.b[0] | upper ]][[ else ]][[ end ]]']),
    Target("jinja", _render("jinja"), [b"{% for x in data.b %}{{ x * 2 | int }}{% endfor %}"]),
    Target("gjson", lambda data: get('{"a":[{"b":1},{"b":"x"}]}', _text(data)), [b'a.#(b=="x").b|@reverse', b"a.#.b"]),
    Target("gjson document", lambda data: get(_text(data), "a.#(b>0)#.b"), [b'{"a":[{"b":1},{"b":"x"}]}']),
    Target(
        "ccm_agent.bus.object_descriptions:decode_meta",
        lambda data: decode_meta("a", "CCM_MANIFESTS", Stored(subject="s", body=data, sequence=1, time=_NOW, headers={})),
        [b'{"name": "a", "nuid": "Ab1", "size": 3, "chunks": 1, "digest": "SHA-256=YQ==", "options": {}}'],
    ),
    Target(
        "ccm_ctl.fleet.trust.verified_reader:number_of",
        lambda data: number_of(KeyValueEntry(key="a", value=data, revision=1, created=_NOW)),
        [b'{"bucket": "CCM_FACTS", "key": "a", "number": 3, "body": {}}'],
    ),
    Target(
        "ccm_ctl.fleet.data.documents:decode_removal",
        lambda data: decode_removal(
            KeyValueEntry(
                key="a",
                value=b"",
                revision=1,
                created=_NOW,
                note=decode_note(base64.urlsafe_b64encode(data).decode()),
            )
        ),
        [b'{"written_by": "anna", "message": "gone"}'],
    ),
    _function("ccm_agent.bus.signatures.join:read_token", "ccm1-eJyrVipKLVayUoiOBQAWlANU"),
    Target(
        "ccm_agent.bus.signatures.sealing:decrypt",
        lambda data: decrypt("a", 1, bytes(32), _text(data)),
        [base64.b64encode(bytes(48))],
    ),
    Target(
        "ccm_agent.bus.signatures.sealing:unseal",
        lambda data: unseal(_KEY, _text(data)),
        [base64.b64encode(bytes(80))],
    ),
    Target("goss rules", _rules, [b"file:\n  /a:\n    exists: true\n    mode: {or: ['0644', '0600']}\n    contents: [/x/]\n"]),
    Target(
        "spool",
        segment_decoder.decode,
        [msgspec.msgpack.encode(["e", 1, "s", "i", b"x"])],
        (msgspec.DecodeError, UnicodeDecodeError, RecursionError),
    ),
    Target("template", lambda data: make_environment({}, {}, {}, "/").template("{{ " + _text(data) + " }}"), [
        _EXPR.encode(),
        b'fromBase64("YQ==") + string(fromJSON("[1]")) + string(float("0x1p-2")) + date("2026-01-01").Format("2006")',
        b'int("0x1f") + duration("1h").Hours()',
    ]),
    Target("id token", _id_token, [
        msgspec.json.encode({"header": {"alg": key["alg"], "kid": "a"}, "claims": _CLAIMS, "keys": [key]})
        for key in (
            {"alg": "ES256", "kty": "EC", "kid": "a", "crv": "P-256", "x": "AA", "y": "AA", "use": "sig"},
            {"alg": "RS256", "kty": "RSA", "kid": "a", "n": "_" * 342, "e": "AQAB"},
            {"alg": "EdDSA", "kty": "OKP", "kid": "a", "crv": "Ed25519", "x": "A" * 43},
        )
    ], (msgspec.MsgspecError,)),
    Target("gzip of a tar", lambda data: _tar(gzip.compress(data)), [_packed("tar")], (*TAR_ERRORS, OSError)),
]  # fmt: skip

TARGETS: list[Target] = [
    *FUNCTIONS,
    Target("repository files", _repositories, [_APT.encode(), _DNF.encode()]),
    *_wire(),
    *OTHERS,
    *wrapped.WRAPPED,
    *stored.STORED,
    *edited.EDITED,
]
