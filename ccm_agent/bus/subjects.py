"""
Builds and parses all subjects; no other module does this.

A message's subject is its protocol ID, followed by its recipient or sender. A node's identity is always last, so that it may
contain dots. Every other user-chosen name is one token, encoded by `encode_token`. Scopes are text in the same form as in a
subject: `all`, `node.<node>`, `fact.<key>.<value>`. Keys of buckets use the same encoding.

This module imports only the standard library and `model`, so that importing it is cheap.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from ccm_agent.model.errors import CcmError, DataError, ProtocolError, UsageError
from ccm_agent.model.ids import is_id
from ccm_agent.model.wire import PROTOCOL

TOKEN_LIMIT_BYTES = 100
"""A longer token is replaced by its digest: subjects have a limit, and a fact's value may be long."""

NODE_LIMIT_BYTES = 253
"""The longest name that DNS allows."""

ALL = "all"
OWNED = "node/"
"""Prefix of the keys of documents that only one node may read."""
REQUEST_PREFIX = f"{PROTOCOL}.*.*.request"
DUE_PREFIX = "choria.ccm.due"
ROLLOUTS = "=rollout"
"""The first token of the keys of rollouts in CCM_RUNS. No encoded operator's name is equal to it."""
STARTS = "=schedule"
"""The first token of the keys of the results of scheduled rollouts, `=schedule.<name>.starts` in CCM_RUNS."""
SERVERS = "=server"
"""The first token of the keys of rollout servers, `=server.<operator@host>` in CCM_RUNS."""

SCHEDULE_PREFIX = "choria.ccm.schedule"
NOTIFICATION_PREFIX = "choria.ccm.poke"
DISCONNECTED = "choria.ccm.disconnected"
"""On this subject, operators receive the broker's notices that connections of nodes have ended (`bus.disconnects`)."""
INBOX = "_INBOX_"
"""The prefix of an inbox; the name of its owner follows as one token."""
REGISTRATION_PREFIX = "choria.ccm.registration.v1"
ROLLOUT_STARTS = (f"{SCHEDULE_PREFIX}.rollout.start.*", f"{DUE_PREFIX}.rollout.start.*")
"""The subjects of scheduled rollouts, and of their due starts."""
_ROLLOUT = "rollout"
_LAYERS = (ALL, "fact", "node")
"""The first tokens of scopes, in order of increasing precedence of assignments."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_DIGEST = re.compile(r"=h[0-9a-f]{64}")
_BUCKET_NAME = re.compile(r"[A-Za-z0-9_-]+")
_ENCODED = re.compile(r"[A-Za-z0-9_=-]+")
_NODE = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_RESERVED = ("node.", "fact.", "request.")
_KEY = re.compile(r"[A-Za-z0-9_=/-]+(?:\.[A-Za-z0-9_=/-]+)*")
_VISIBLE = re.compile(r"[!-)+-\-/-=?-~]+")
"""ASCII without space, `*`, `.` and `>`. Choria CCM does not encode these parts, so they must be accepted here."""
_WORD = re.compile(r"[a-z_]+")
_PLAIN_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_DEPTH = PROTOCOL.count(".") + 1
_EVENT = re.compile(rf"({re.escape(PROTOCOL)}\.([a-z_]+)\.[a-z_]+)\.(.+)")
"""Protocol id, its first word, and the rest with the run and the node."""


def encode_token(text: str) -> str:
    """
    Encode any text as one token of a subject or key; different texts give different tokens.

    Bytes outside `[A-Za-z0-9_-]` become `=XX`, the empty text `=`; a token longer than TOKEN_LIMIT_BYTES becomes `=h` and the
    SHA-256 of the text. A raw `*`, `>`, `.` or space would widen, move or break a subscription.
    """
    if not text:
        return "="
    if len(text) <= TOKEN_LIMIT_BYTES and _PLAIN_TOKEN.fullmatch(text):
        return text
    raw = text.encode("utf-8", "surrogatepass")
    token = "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in raw)
    return token if len(token) <= TOKEN_LIMIT_BYTES else f"=h{hashlib.sha256(raw).hexdigest()}"


def decode_token(token: str) -> str | None:
    """
    Decode a token; None if it contains only a digest.

    Raises:
        ProtocolError: `encode_token` never returns this token.
    """
    if token == "=":
        return ""
    if _DIGEST.fullmatch(token):
        return None
    try:
        raw = bytes.fromhex("".join(_hex_parts(token)))
        text = raw.decode("utf-8", "surrogatepass")
    except ValueError:
        text = ""
    if not text or encode_token(text) != token:
        raise ProtocolError(f"{token!r}: not a valid token of a subject; the sender encoded it incorrectly")
    return text


def _hex_parts(token: str) -> list[str]:
    first, *rest = token.split("=")
    return [first.encode().hex(), *(part[:2] + part[2:].encode().hex() for part in rest)]


def fact_text(value: object) -> str | None:
    """Convert a fact's value to the text used in subjects; None unless it is text, an integer or a boolean."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    return None


def check_node(identity: str) -> str:
    """
    Check a node's identity and return it.

    Raises:
        UsageError: The identity cannot be the end of a subject, or could be confused with a scope.
    """
    if len(identity) > NODE_LIMIT_BYTES or not _NODE.fullmatch(identity):
        raise UsageError(
            f"{identity!r}: not a valid node name: use lowercase letters, digits, `.`, `_` and `-`, "
            "without a leading, trailing or double dot; set `identity` in the agent's configuration"
        )
    if identity == ALL or identity.startswith(_RESERVED):
        raise UsageError(
            f"{identity}: not a valid node name: `all` and names that begin with `node.`, `fact.` or `request.` "
            "are reserved; set `identity` in the agent's configuration"
        )
    return identity


def is_node(identity: str) -> bool:
    """Whether a text is a valid node identity."""
    try:
        check_node(identity)
    except UsageError:
        return False
    return True


def node_scope(node: str) -> str:
    """Return the scope of one node."""
    return f"node.{check_node(node)}"


def fact_scope(key: str, value: str) -> str:
    """Return the scope of every node with this routed fact; `value` is in the form of `fact_text`."""
    return f"fact.{encode_token(key)}.{encode_token(value)}"


def scopes_of(node: str, facts: Mapping[str, object]) -> list[str]:
    """Return all scopes of a node: `all`, its own, and one for each routed fact."""
    texts = ((key, fact_text(value)) for key, value in sorted(facts.items()))
    return [ALL, node_scope(node), *(fact_scope(key, text) for key, text in texts if text is not None)]


def check_scope(scope: str) -> str:
    """
    Check a scope and return it.

    Raises:
        ProtocolError: The text is not a scope.
    """
    kind, _, rest = scope.partition(".")
    if scope == ALL or (kind == "node" and is_node(rest)):
        return scope
    key, _, value = rest.partition(".")
    if kind == "fact" and _ENCODED.fullmatch(key) and _ENCODED.fullmatch(value):
        decode_token(key), decode_token(value)
        return scope
    raise ProtocolError(f"{scope!r}: not a valid scope; use `all`, `node.<node>` or `fact.<key>.<value>`")


def format_scope(scope: str) -> str:
    """Return a scope in readable form: `all`, `node=web1`, `role=web`."""
    kind, _, rest = scope.partition(".")
    if kind == ALL:
        return ALL
    if kind == "node":
        return f"node={rest}"
    key, _, value = rest.partition(".")
    return "=".join(text if (text := decode_token(token)) is not None else token for token in (key, value))


def request_subject(protocol: str, scope: str) -> str:
    """Return the subject of a request; `protocol` is one of the ids in `model.wire` that end in `.request`."""
    return f"{protocol}.{check_scope(scope)}"


def request_pattern(scope: str) -> str:
    """Return the pattern that an agent subscribes to for a scope: every kind of request."""
    return f"{REQUEST_PREFIX}.{check_scope(scope)}"


def parse_request(subject: str) -> tuple[str, str]:
    """
    Return protocol id and scope of a request's subject.

    Raises:
        ProtocolError: The text is not the subject of a request.
    """
    tokens = subject.split(".")
    words = tokens[_DEPTH : _DEPTH + 2]
    if (
        subject.startswith(f"{PROTOCOL}.")
        and tokens[_DEPTH + 2 : _DEPTH + 3] == ["request"]
        and all(_WORD.fullmatch(word) for word in words)
    ):
        return ".".join(tokens[: _DEPTH + 3]), check_scope(".".join(tokens[_DEPTH + 3 :]))
    raise ProtocolError(f"{subject!r}: not the subject of a request")


class EventAddress(Struct, frozen=True, kw_only=True):
    """
    The parts of an event's subject.

    Attributes:
        protocol: Protocol id.
        node: The node that sent it.
        run: KSUID of the run; "" for events of the agent itself.
    """

    protocol: str
    node: str
    run: str = ""


def event_subject(protocol: str, node: str, run: str = "") -> str:
    """Return the subject of a node's event, answer or progress in a run. Without a run, it is for events of the agent itself."""
    check_node(node)
    if run and not is_id(run):
        raise ProtocolError(f"{run!r}: not a valid run id")
    if bool(run) == protocol.startswith(f"{PROTOCOL}.agent."):
        raise ProtocolError(f"{protocol}: events of agents have no run id, all others have one")
    return f"{protocol}.{run}.{node}" if run else f"{protocol}.{node}"


@lru_cache(maxsize=256)
def parse_event(subject: str) -> EventAddress:
    """
    Return protocol id, run and node of an event's subject; cached, because each subject is parsed several times.

    Raises:
        ProtocolError: The text is not the subject of an event.
    """
    if found := _EVENT.fullmatch(subject):
        protocol, kind, rest = found.groups()
        run, _, node = ("", "", rest) if kind == "agent" else rest.partition(".")
        if is_node(node) and (kind == "agent" or is_id(run)):
            return EventAddress(protocol=protocol, node=node, run=run)
    raise ProtocolError(f"{subject!r}: not the subject of an event")


def run_pattern(run: str, node: str = ">") -> str:
    """Return the pattern for all messages about a run (events, answers, progress), of all nodes or of one."""
    if not is_id(run):
        raise ProtocolError(f"{run!r}: not a valid run id")
    return f"{PROTOCOL}.*.*.{run}.{node if node == '>' else check_node(node)}"


def stored_patterns() -> list[str]:
    """Return the subjects of the stream of events; answers and progress are not stored."""
    return [
        f"{PROTOCOL}.session.start.*.>",
        f"{PROTOCOL}.session.summary.*.>",
        f"{PROTOCOL}.transaction.event.*.>",
        f"{PROTOCOL}.agent.*.>",
    ]


def own_subject(schedule: str) -> str:
    """
    Return the request subject of a schedule that does not use the common one; `schedule` is the subject on which it is stored.

    The name follows the verb: `manifest.apply-nightly.request.all`. Nodes' subscriptions and permissions include this subject.

    Raises:
        ProtocolError: The text is not the subject of a schedule.
    """
    stored, _, token = schedule.removeprefix(f"{SCHEDULE_PREFIX}.").rpartition(".")
    protocol, scope = parse_request(f"{PROTOCOL}.{stored}")
    decode_token(token)
    return f"{protocol.removesuffix('.request')}-{token}.request.{scope}"


def parse_scheduled(subject: str) -> tuple[str, str, str]:
    """
    Return protocol id and scope of a scheduled request's subject, and the token of the schedule's name; "" for the common
    subject.

    Raises:
        ProtocolError: The text is not the subject of a request.
    """
    tokens = subject.split(".")
    verb, dash, token = ".".join(tokens[_DEPTH + 1 : _DEPTH + 2]).partition("-")
    if dash:
        decode_token(token)
        tokens[_DEPTH + 1] = verb
    protocol, scope = parse_request(".".join(tokens))
    return protocol, scope, token


def due_subject(subject: str) -> str:
    """Return the subject on which the broker stores a due request before it republishes it to `subject`."""
    parse_scheduled(subject)
    return f"{DUE_PREFIX}.{subject.removeprefix(f'{PROTOCOL}.')}"


def schedule_subject(protocol: str, scope: str, name: str) -> str:
    """Return the subject on which a schedule is stored. It contains the action, so that permissions can restrict it."""
    return f"{SCHEDULE_PREFIX}.{request_subject(protocol, scope).removeprefix(f'{PROTOCOL}.')}.{encode_token(name)}"


def parse_schedule(subject: str) -> tuple[str, str, str]:
    """
    Return protocol id, scope and name of a stored schedule. Instead of a long name, it returns the token; the document has the
    name.
    """
    stored, _, name = subject.removeprefix(f"{SCHEDULE_PREFIX}.").rpartition(".")
    protocol, scope = parse_request(f"{PROTOCOL}.{stored}")
    return protocol, scope, decode_token(name) or name


def rollout_start_subject(name: str) -> str:
    """
    Return the subject for which the schedule of a rollout is signed. The broker publishes on it, but no program subscribes to it.

    It has fewer tokens than any request, so it matches no subscription of a node or an operator.
    """
    return f"{PROTOCOL}.{_ROLLOUT}.start.{encode_token(name)}"


def rollout_schedule_subject(name: str) -> str:
    """Return the subject on which the schedule of a rollout is stored."""
    return f"{SCHEDULE_PREFIX}.{_ROLLOUT}.start.{encode_token(name)}"


def rollout_due_subject(name: str) -> str:
    """Return the subject on which the broker stores the due start of a scheduled rollout, for rollout servers."""
    return f"{DUE_PREFIX}.{_ROLLOUT}.start.{encode_token(name)}"


def scheduled_rollout(subject: str) -> str:
    """Return the name of a rollout's schedule from the subject of the schedule or of its due start; "" for another subject."""
    for prefix in (SCHEDULE_PREFIX, DUE_PREFIX):
        stored, _, token = subject.rpartition(".")
        if stored == f"{prefix}.{_ROLLOUT}.start":
            try:
                return decode_token(token) or ""
            except ProtocolError:
                return ""
    return ""


def starts_key(name: str) -> str:
    """Return the key of the results of a scheduled rollout's starts."""
    return f"{STARTS}.{encode_token(name)}.starts"


def registration_subject(cluster: str, protocol: str, service: str, address: str, instance: str) -> str:
    """Return the subject of a service entry, as in CCM: `_` replaces the dots of the address."""
    tokens = (cluster, protocol, service, address.replace(".", "_"), instance)
    return ".".join((REGISTRATION_PREFIX, *(_registration_token(token) for token in tokens)))


def registration_pattern(cluster: str = "", protocol: str = "", service: str = "", address: str = "") -> str:
    """Return the pattern of matching entries; "" or `*` matches any value."""
    tokens = (cluster, protocol, service, address.replace(".", "_"))
    fits = ("*" if token in ("", "*") else _registration_token(token) for token in tokens)
    return ".".join((REGISTRATION_PREFIX, *fits, "*"))


def parse_registration(subject: str) -> tuple[str, str, str, str]:
    """Return cluster, protocol, service and address of an entry's subject. Underscores in the address become dots."""
    tokens = subject.removeprefix(f"{REGISTRATION_PREFIX}.").split(".")
    if not subject.startswith(f"{REGISTRATION_PREFIX}.") or len(tokens) != 5:
        raise ProtocolError(f"{subject!r}: not the subject of a registration")
    return tokens[0], tokens[1], tokens[2], tokens[3].replace("_", ".")


def _registration_token(text: str) -> str:
    if not _VISIBLE.fullmatch(text):
        raise DataError(
            f"{text!r}: not valid in a registration: it must not contain a space, `.`, `*` or `>`"
        )
    return text


def check_key(key: str) -> str:
    """
    Check a key of a bucket and return it.

    Raises:
        DataError: The text is not a valid key.
    """
    if not _KEY.fullmatch(key):
        raise DataError(
            f"{key!r}: not a valid key of a bucket: use letters, digits, `-`, `_`, `=`, `/` and `.`, "
            "without a leading, trailing or double dot"
        )
    return key


def owner_of(key: str) -> str:
    """Return the only node that may read a document of CCM_DATA; "" if its key does not name one."""
    name = key.removeprefix(OWNED).partition("/")[0]
    return name if key.startswith(OWNED) and is_node(name) else ""


def key_subject(bucket: str, key: str) -> str:
    """Return the subject of a key in a bucket; wildcards are allowed."""
    return f"$KV.{bucket}.{key}"


def notification_subject(bucket: str, key: str) -> str:
    """Return the subject of the broker's notification about a key; wildcards are allowed."""
    return f"{NOTIFICATION_PREFIX}.{bucket}.{key}"


def assignment_key(scope: str, name: str) -> str:
    """Return the key of an assignment; its scope is everything before the last token."""
    return f"{check_scope(scope)}.{encode_token(name)}"


def parse_assignment_key(key: str) -> tuple[str, str]:
    """Return scope and name of an assignment's key. Instead of a long name, it returns the token; the document has the name."""
    scope, _, name = key.rpartition(".")
    return check_scope(scope), decode_token(name) or name


def assignment_rank(scope: str, sequence: int) -> tuple[int, int]:
    """
    Return the rank of an assignment. If several have the same name, the one with the highest rank applies to a node.

    A node's scope outranks a fact's, which outranks `all`. For equal scopes, the latest write takes precedence.

    Args:
        scope: The assignment's scope.
        sequence: The bucket's revision of the assignment's key.
    """
    return _LAYERS.index(scope.partition(".")[0]), sequence


def inbox_prefix(identity: str) -> str:
    """
    Return the prefix of the inbox of a node or operator.

    The name is encoded as one token: with the plain name, the permissions of node `b` would include the inbox of `b.x`.
    """
    return f"{INBOX}{encode_token(identity)}"


def subject_matches(pattern: str, subject: str) -> bool:
    """Whether a subscription to a pattern receives a subject."""
    wanted, given = pattern.split("."), subject.split(".")
    for place, token in enumerate(wanted):
        if token == ">":
            return len(given) > place
        if place >= len(given) or token not in ("*", given[place]):
            return False
    return len(wanted) == len(given)


def parse_kv_url(url: str) -> tuple[str, str] | None:
    """Return bucket and key of a `kv://` URL; None for any other URL."""
    bucket, _, key = url.removeprefix("kv://").partition("/")
    if not url.startswith("kv://") or not _BUCKET_NAME.fullmatch(bucket) or not key:
        return None
    try:
        return bucket, check_key(key)
    except CcmError:
        return None
