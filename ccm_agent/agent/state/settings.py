"""
The agent's configuration: all keys of Choria CCM's `config.yaml`, and our own.

`AgentConfig` is the document as written. `Settings` is the form that the agent uses, with durations in seconds and defaults.
Tests create `Settings` directly, with any durations. Configuration files are checked against the minimums in this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import is_public_key
from ccm_agent.bus.signatures.trust import Signer, SignersList, check_signers
from ccm_agent.model.codec import convert_as, decode_document, locate
from ccm_agent.model.errors import DocumentError, FileError, Place, UsageError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.records.slots import HOLD_S, RENEW_S
from ccm_agent.model.secret import Secret

DEFAULT_CONTEXT = "CCM"
"""The NATS context of the `nats` program that Choria CCM's agent uses by default."""

POLICY_FILE = "policy.yaml"
"""The default policy file, next to the agent's configuration."""

MINIMUM_INTERVAL_S = 30.0
"""The minimum interval of convergence, as in Choria CCM."""

MINIMUM_HEARTBEAT_S = 5.0
"""The minimum interval of heartbeats. Each costs the broker a write, and a shorter interval has no benefit."""

SETTLED_INTERVALS = 2
"""After this many intervals, each node has registered again: it has started to converge and had time to finish."""

MISSED_HEARTBEATS = 3
"""The number of heartbeats after which a presence expires."""

Duration = Annotated[str, Meta(extra_json_schema={"format": "duration"})]
"""A duration as `parse_duration` reads it: 30s, 5m, 1h30m."""

_STREAM = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
Refuse = Callable[..., None]  # adds an error; arguments: the message, and the keys that lead to the value


class TlsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The TLS certificates of the connection to the broker."""

    ca: Annotated[str, Meta(description="File with the CA certificates to trust.")] = ""
    cert: Annotated[str, Meta(description="File with the client certificate of this agent.")] = ""
    key: Annotated[str, Meta(description="File with the private key of that certificate.")] = ""


class NatsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The broker's address and our credentials; a context of the `nats` program can provide all of them instead."""

    context: Annotated[str, Meta(description="A context of the `nats` program.")] = ""
    url: Annotated[str, Meta(description="Servers, separated by commas: `nats://a:4222,nats://b:4222`.")] = ""
    creds: Annotated[str, Meta(description="Credentials file: a JWT and its seed.")] = ""
    nkey: Annotated[str, Meta(description="File with an nkey seed.")] = ""
    user: Annotated[str, Meta(description="User name.")] = ""
    password_file: Annotated[str, Meta(description="File that contains only the password.")] = ""
    token_file: Annotated[str, Meta(description="File that contains only a token.")] = ""
    tls: Annotated[TlsConfig | None, Meta(description="Certificates for TLS.")] = None
    insecure: Annotated[
        bool,
        Meta(
            description="Accept a broker that requires no credentials, or a broker on another host without TLS."
        ),
    ] = False


class AgentConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The document. The keys before the comment `ours` are Choria CCM's."""

    interval: Annotated[
        Duration, Meta(description="Time between applies of the manifests, at least 30s.")
    ] = "5m"
    health_check_interval: Annotated[
        Duration,
        Meta(description="Time between health checks without an apply; empty: only applies check health."),
    ] = ""
    manifests: Annotated[
        list[str], Meta(description="Sources: a file, `obj://bucket/key.tar.gz`, `https://host/x.tar.gz`.")
    ] = []
    external_data_url: Annotated[
        str,
        Meta(description="A hiera document that overrides manifest data: `file://`, `kv://`, `https://`."),
    ] = ""
    cache_dir: Annotated[
        str, Meta(description="Directory of fetched manifests. Default: `sources` in `state_dir`.")
    ] = ""
    monitor_port: Annotated[int, Meta(ge=0, le=65535, description="Port of `/metrics`; 0 disables it.")] = 0
    log_level: Annotated[
        Literal["debug", "info", "warn", "error"],
        Meta(description="The lowest severity that is logged."),
    ] = "info"
    nats_context: Annotated[str, Meta(description="A context of the `nats` program: `nats.context`.")] = ""
    registration: Annotated[
        Literal["", "nats", "jetstream"], Meta(description="Where stable services are registered.")
    ] = ""

    # ours
    registration_stream: Annotated[str, Meta(description="The stream that holds registrations.")] = (
        "REGISTRATION"
    )
    registration_settle: Annotated[
        Duration,
        Meta(
            description="How long after an outage of the broker missing services are still treated as registered; 0s disables "
            "this. Default: twice `interval`."
        ),
    ] = ""
    identity: Annotated[str, Meta(description="This node's name on the bus. Default: its FQDN.")] = ""
    nats: Annotated[NatsConfig, Meta(description="The broker.")] = NatsConfig()
    state_dir: Annotated[
        str, Meta(description="Directory of the files that outlive the process: identity, ledger, spool.")
    ] = "/var/lib/ccm"
    routed_facts: Annotated[
        list[str], Meta(description="Dotted paths of the facts that requests can target.")
    ] = []
    facts_file: Annotated[str, Meta(description="A JSON or YAML file with additional facts.")] = ""
    heartbeat: Annotated[
        Duration,
        Meta(
            description="Time between writes of this node's presence, at least 5s. A node is offline after three are missed."
        ),
    ] = "60s"
    connect_spread: Annotated[
        Duration,
        Meta(
            description="The longest random delay before the first attempt to connect, so that nodes do not connect all at once."
        ),
    ] = "2s"
    read_interval: Annotated[
        Duration, Meta(description="How often assigned facts and data are read without a notification.")
    ] = "5m"
    facts_interval: Annotated[Duration, Meta(description="Minimum time between gatherings of facts.")] = "2m"
    watch_interval: Annotated[
        Duration,
        Meta(description="How often sources without notifications are read again: files, URLs, objects."),
    ] = "30s"
    change_pause: Annotated[
        Duration,
        Meta(description="The longest random delay before a changed manifest or document is applied."),
    ] = "5s"
    stamped_data: Annotated[
        bool | None,
        Meta(
            description="Accept only hiera documents that `ccmctl` wrote, which contain their key and an increasing number. "
            "Default: true where signatures are required. False also accepts plain documents, which are unsigned."
        ),
    ] = None
    trusted_root: Annotated[
        str,
        Meta(
            description="Public key that signs the list of trusted operators. Default: the key in the credentials file."
        ),
    ] = ""
    trusted_signers: Annotated[
        list[Signer], Meta(description="Signers that this node trusts in addition to that list.")
    ] = []
    unsigned_objects: Annotated[
        bool,
        Meta(
            description="Accept manifests from `obj://` sources that are not signed, even where signatures are required."
        ),
    ] = False
    policy_file: Annotated[
        str,
        Meta(
            description="The node's policy: which requests this agent accepts, and from whom. Default: `policy.yaml` next to "
            "this file, if it exists."
        ),
    ] = ""
    queue_limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of queued requests.")] = 16
    spool_limit_mib: Annotated[
        int, Meta(ge=1, description="Maximum size of the spool of undelivered events.")
    ] = 256
    undo_keep: Annotated[
        Duration,
        Meta(description="How long a run can be undone; 0s disables undo."),
    ] = "7d"
    undo_max_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="Disk space for the earlier file contents that undo needs; the newest runs are kept. 0 keeps none.",
        ),
    ] = 256
    template_cpu: Annotated[
        Duration, Meta(description="CPU time limit of one template or template directory, in whole seconds.")
    ] = "10s"
    template_memory_mib: Annotated[int, Meta(ge=64, le=65536, description="Memory limit of a template.")] = (
        256
    )
    slot_renew: Annotated[
        Duration, Meta(description="How often held slots are renewed; they expire after 5m.")
    ] = "1m"
    slot_hold: Annotated[Duration, Meta(description="How long a slot is kept after its resource failed.")] = (
        "1h"
    )
    drain: Annotated[
        Duration,
        Meta(description="How long a stopping agent waits for the current resource, which then runs on."),
    ] = "60s"
    log_format: Annotated[
        Literal["text", "json"], Meta(description="Format of log lines on standard error.")
    ] = "text"
    monitor_address: Annotated[str, Meta(description="Address of `/metrics`.")] = "127.0.0.1"


class BrokerSettings(Struct, frozen=True, kw_only=True):
    """
    The broker's settings; secrets are still in their files.

    Attributes:
        context: Name of a context of the `nats` program; "" if `url` names the servers.
        is_default_context: Whether the context is only the default. If it does not exist, the agent runs without a broker.
    """

    context: str = ""
    is_default_context: bool = False
    servers: tuple[str, ...] = ()
    creds: str = ""
    nkey: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    tls: TlsConfig | None = None
    insecure: bool = False


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of the agent; durations in seconds, sizes in bytes. Names are those of AgentConfig."""

    state_dir: str
    identity: str = ""
    broker: BrokerSettings = BrokerSettings()
    interval_s: float = 300
    health_check_interval_s: float = 0
    manifests: tuple[str, ...] = ()
    external_data_url: str = ""
    cache_dir: str = ""
    monitor_port: int = 0
    monitor_address: str = "127.0.0.1"
    registration: str = ""
    registration_stream: str = "REGISTRATION"
    registration_settle_s: float = 600
    routed_facts: tuple[str, ...] = ()
    facts_file: str = ""
    heartbeat_s: float = 60
    presence_ttl_s: int = 180
    connect_spread_s: float = 2
    read_interval_s: float = 300
    facts_interval_s: float = 120
    watch_interval_s: float = 30
    change_pause_s: float = 5
    stamped_data: bool | None = None
    trusted_root: str = ""
    trusted_signers: tuple[Signer, ...] = ()
    unsigned_objects: bool = False
    policy_file: str = ""
    is_policy_required: bool = False
    """Whether the policy's file must exist, because the configuration names it."""
    queue_limit: int = 16
    spool_limit_bytes: int = 256 << 20
    spool_segment_bytes: int = 4 << 20
    ledger_keep_s: float = 86_400
    undo_keep_s: float = 7 * 86_400
    undo_limit_bytes: int = 256 << 20
    template_cpu_s: int = 10
    template_memory_bytes: int = 256 << 20
    progress_s: float = 5
    drain_s: float = 60
    slot_renew_s: float = RENEW_S
    slot_hold_s: float = HOLD_S
    retry_s: float = 1
    """Pause after a failed publish; it doubles up to thirty times this value."""
    log_level: str = "info"
    log_format: str = "text"

    @property
    def accepted_unsigned(self) -> tuple[str, ...]:
        """The kinds that are accepted without a signature even if signatures are required: "data", "objects"."""
        data, objects = self.stamped_data is False, self.unsigned_objects
        return tuple(name for name, accepted in (("data", data), ("objects", objects)) if accepted)


def read_config(path: Path) -> Settings:
    """
    Read the settings from a configuration file.

    Raises:
        FileError: The file cannot be read.
        DocumentError: The configuration is invalid. The error has the file, the line and the nearest valid key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        why = (err.strerror if isinstance(err, OSError) else "") or str(err)
        raise FileError(
            f"{path}: cannot read the agent's configuration: {why}; see `ccm agent --help`"
        ) from err
    settings = parse_config(text, str(path))
    if settings.policy_file:
        return settings
    return replace(settings, policy_file=str(path.absolute().with_name(POLICY_FILE)))


def parse_config(text: str, source: str = "") -> Settings:
    """
    Parse the settings in a configuration document.

    Raises:
        DocumentError: See `read_config`.
    """
    if text.strip() and all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        # This is the file as a package installs it: the administrator has not configured the agent yet.
        message = "this file contains only comments; set nats.url, or write {} to run without a broker"
        raise DocumentError(message, place=Place(source))
    document = decode_document(text if text.strip() else "{}", source)
    errors: list[DocumentError] = []
    config = _convert(document, text, source, errors)
    if config is None:
        raise _all_of(errors)

    def refuse(message: str, *path: str) -> None:
        errors.append(DocumentError(message, place=locate(text, path, source)))

    def seconds(key: str, minimum_s: float) -> float:
        written: str = getattr(config, key)
        try:
            value = parse_duration(written)
        except DocumentError as err:
            refuse(f"`{key}`: {err.message}", key)
            return minimum_s
        if value < minimum_s:
            refuse(f"`{key}` is {written}, but must be at least {minimum_s:g}s", key)
        return value

    def absolute(key: str) -> str:
        written: str = getattr(config, key)
        if written and not written.startswith("/"):
            refuse(f"`{key}` is `{written}`, but must be an absolute path", key)
        return written

    def stream(key: str) -> str:
        written: str = getattr(config, key)
        if not _STREAM.fullmatch(written):
            refuse(f"`{key}` is `{written}`: a stream's name can contain only letters, digits, - and _", key)
        return written

    heartbeat_s = seconds("heartbeat", MINIMUM_HEARTBEAT_S)
    interval_s = seconds("interval", MINIMUM_INTERVAL_S)
    state_dir = absolute("state_dir")
    settings = Settings(
        state_dir=state_dir,
        identity=config.identity,
        broker=_broker(config, refuse),
        interval_s=interval_s,
        health_check_interval_s=seconds("health_check_interval", 1) if config.health_check_interval else 0,
        manifests=tuple(config.manifests),
        external_data_url=config.external_data_url,
        cache_dir=absolute("cache_dir") or f"{state_dir}/sources",
        monitor_port=config.monitor_port,
        # An empty address would mean every address of the host.
        monitor_address=config.monitor_address or "127.0.0.1",
        registration=config.registration,
        registration_stream=stream("registration_stream"),
        registration_settle_s=seconds("registration_settle", 0)
        if config.registration_settle
        else interval_s * SETTLED_INTERVALS,
        routed_facts=tuple(config.routed_facts),
        facts_file=absolute("facts_file"),
        heartbeat_s=heartbeat_s,
        presence_ttl_s=int(heartbeat_s * MISSED_HEARTBEATS),
        connect_spread_s=seconds("connect_spread", 0),
        read_interval_s=seconds("read_interval", 1),
        facts_interval_s=seconds("facts_interval", 1),
        watch_interval_s=seconds("watch_interval", 1),
        change_pause_s=seconds("change_pause", 0),
        stamped_data=config.stamped_data,
        trusted_root=_public_key(config.trusted_root, refuse),
        trusted_signers=_signers(config.trusted_signers, refuse),
        unsigned_objects=config.unsigned_objects,
        policy_file=absolute("policy_file"),
        is_policy_required=bool(config.policy_file),
        queue_limit=config.queue_limit,
        spool_limit_bytes=config.spool_limit_mib << 20,
        undo_keep_s=seconds("undo_keep", 0),
        undo_limit_bytes=config.undo_max_mib << 20,
        template_cpu_s=int(seconds("template_cpu", 1)),
        template_memory_bytes=config.template_memory_mib << 20,
        drain_s=seconds("drain", 0),
        slot_renew_s=seconds("slot_renew", 1),
        slot_hold_s=seconds("slot_hold", 0),
        log_level=config.log_level,
        log_format=config.log_format,
    )
    if errors:
        raise _all_of(errors)
    return settings


def _convert(document: object, text: str, source: str, errors: list[DocumentError]) -> AgentConfig | None:
    """Return the configuration; None if a key is unknown or has an invalid value. Each such error is added to `errors`."""
    try:
        return convert_as(document, AgentConfig, source, text)
    except DocumentError as err:
        if not isinstance(document, dict):
            errors.append(err)
            return None
    nats = document.get("nats")
    inside = nats if isinstance(nats, dict) else {}
    parts = [{key: value} for key, value in document.items() if key != "nats" or not inside]
    parts += [{"nats": {key: value}} for key, value in inside.items()]
    for part in parts:
        try:
            convert_as(part, AgentConfig, source, text)
        except DocumentError as err:
            errors.append(err)
    return None


def _all_of(errors: list[DocumentError]) -> DocumentError:
    """Return the first error of the file, which contains the others."""
    first, *others = sorted(errors, key=lambda one: one.place.line if one.place is not None else 0)
    first.others = tuple(others)
    return first


def with_context(settings: Settings, context: str) -> Settings:
    """Return the settings with the context of the `nats` program that the command line names, if it names one."""
    return (
        replace(settings, broker=replace(settings.broker, context=context, servers=()))
        if context
        else settings
    )


def read_secret(path: str) -> Secret:
    """
    Read a password or token from its file, without the final newline.

    Raises:
        FileError: The file cannot be read, or is empty.
    """
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise FileError(f"{path}: cannot read the secret: {err}") from err
    if not text:
        raise FileError(f"{path}: is empty; it must contain only the secret")
    return Secret(text)


def _public_key(key: str, refuse: Refuse) -> str:
    if key and not is_public_key(key):
        refuse(
            f"`trusted_root` is `{key}`: not a public key; `ccmctl signers` shows the fleet's",
            "trusted_root",
        )
    return key


def _signers(signers: list[Signer], refuse: Refuse) -> tuple[Signer, ...]:
    try:
        check_signers(SignersList(number=0, issued=0, signers=tuple(signers)))
    except UsageError as err:
        refuse(err.message, "trusted_signers")
    return tuple(signers)


def _broker(config: AgentConfig, refuse: Refuse) -> BrokerSettings:
    nats = config.nats
    context = nats.context or config.nats_context
    if nats.url and nats.context:
        refuse("`url` and `context` both select the broker; remove one of them", "nats", "url")
    if nats.tls and bool(nats.tls.cert) != bool(nats.tls.key):
        refuse("`cert` and `key` must be set together", "nats", "tls")
    servers = tuple(url.strip() for url in nats.url.split(",") if url.strip())
    return BrokerSettings(
        context="" if servers else context or DEFAULT_CONTEXT,
        is_default_context=not servers and not context,
        servers=servers,
        creds=nats.creds,
        nkey=nats.nkey,
        user=nats.user,
        password_file=nats.password_file,
        token_file=nats.token_file,
        tls=nats.tls,
        insecure=nats.insecure,
    )
