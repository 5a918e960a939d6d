import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from ccm_agent.agent.state.settings import (
    BrokerSettings,
    Settings,
    TlsConfig,
    parse_config,
    read_config,
    with_context,
)
from ccm_agent.app_agent import bus_settings
from ccm_agent.model.errors import DocumentError, FileError, NotFoundError
from ccm_agent.model.secret import Secret
from tests.support.public_configuration import PUBLIC_EXAMPLE
from tests.support.signing import new_key


def test_a_configuration_of_choria_ccm_is_taken_unchanged() -> None:
    assert parse_config(PUBLIC_EXAMPLE.replace("# registration", "registration")) == Settings(
        state_dir="/var/lib/ccm",
        broker=BrokerSettings(context="CCM"),
        interval_s=300,
        health_check_interval_s=60,
        manifests=(
            "/etc/choria/ccm/manifests/base.yaml",
            "obj://ccm-manifests/app.tar.gz",
            "https://config.example.com/manifests/web.tar.gz",
        ),
        external_data_url="kv://ccm-data/common",
        cache_dir="/etc/choria/ccm/source",
        monitor_port=9100,
        registration="jetstream",
    )


@pytest.mark.parametrize(
    ("text", "settle_s"),
    [
        pytest.param("", 600, id="two intervals of five minutes"),
        pytest.param("interval: 1h", 7200, id="two intervals"),
        pytest.param("registration_settle: 90s", 90, id="as it says"),
        pytest.param("registration_settle: 0s", 0, id="at once"),
    ],
)
def test_missing_services_are_doubted_for_two_intervals_unless_it_says_otherwise(
    text: str, settle_s: float
) -> None:
    assert parse_config(text).registration_settle_s == settle_s


def test_the_example_of_the_documentation_is_right() -> None:
    page = Path(__file__).parents[3] / "docs" / "concepts" / "convergence.md"
    example = page.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]

    assert parse_config(example) == Settings(
        state_dir="/var/lib/ccm",
        broker=BrokerSettings(context="CCM", is_default_context=True),
        manifests=(
            "/etc/choria/ccm/manifests/base.yaml",
            "obj://CCM_MANIFESTS/app.tar.gz",
            "https://user:password@config.example.com/web.tar.gz",
        ),
        external_data_url="kv://CCM_DATA/common",
        health_check_interval_s=60,
        cache_dir="/var/lib/ccm/sources",
    )


def test_an_empty_file_is_a_configuration() -> None:
    assert parse_config("") == Settings(
        state_dir="/var/lib/ccm",
        cache_dir="/var/lib/ccm/sources",
        broker=BrokerSettings(context="CCM", is_default_context=True),
    )


def test_settings_of_this_project_are_read() -> None:
    text = """
identity: web1.example.net
state_dir: /srv/ccm
nats:
  url: nats://a:4222, nats://b:4222
  creds: /etc/ccm/node.creds
  tls: {ca: /etc/ccm/ca.pem}
routed_facts: [host.info.platformFamily]
facts_file: /etc/ccm/facts.yaml
heartbeat: 30s
connect_spread: 0s
read_interval: 1m
facts_interval: 10m
watch_interval: 10s
change_pause: 0s
stamped_data: true
queue_limit: 4
spool_limit_mib: 8
drain: 5s
log_level: debug
log_format: json
monitor_address: 0.0.0.0
"""

    assert parse_config(text) == Settings(
        state_dir="/srv/ccm",
        identity="web1.example.net",
        broker=BrokerSettings(
            servers=("nats://a:4222", "nats://b:4222"),
            creds="/etc/ccm/node.creds",
            tls=TlsConfig(ca="/etc/ccm/ca.pem"),
        ),
        cache_dir="/srv/ccm/sources",
        routed_facts=("host.info.platformFamily",),
        facts_file="/etc/ccm/facts.yaml",
        heartbeat_s=30,
        presence_ttl_s=90,
        connect_spread_s=0,
        read_interval_s=60,
        facts_interval_s=600,
        watch_interval_s=10,
        change_pause_s=0,
        stamped_data=True,
        queue_limit=4,
        spool_limit_bytes=8 << 20,
        drain_s=5,
        log_level="debug",
        log_format="json",
        monitor_address="0.0.0.0",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "intervall: 5m\n",
            "c.yaml:1:1: unknown key `intervall`, did you mean `interval`?",
            id="a typo",
        ),
        pytest.param(
            "identity: a\nnats:\n  ulr: x\n",
            "c.yaml:3:3: unknown key `ulr`, did you mean `url`?",
            id="a typo further in",
        ),
        pytest.param(
            "interval: 10s\n",
            "c.yaml:1:1: `interval` is 10s, but must be at least 30s",
            id="too often",
        ),
        pytest.param(
            "drain: soon\n",
            "c.yaml:1:1: `drain`: `soon` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m",
            id="no duration",
        ),
        pytest.param(
            "state_dir: var/lib\n",
            "c.yaml:1:1: `state_dir` is `var/lib`, but must be an absolute path",
            id="a relative path",
        ),
        pytest.param(
            "nats: {url: 'nats://a', context: b}\n",
            "c.yaml:1:8: `url` and `context` both select the broker; remove one of them",
            id="two brokers",
        ),
        pytest.param(
            "nats: {tls: {cert: /a}}\n",
            "c.yaml:1:8: `cert` and `key` must be set together",
            id="half a certificate",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_place_and_the_remedy(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_config(text, "c.yaml")

    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "log_level: loud",
        "monitor_port: 70000",
        "queue_limit: 0",
        "registration: redis",
        "registration_stream: a.b",
        "registration_settle: soon",
        "manifests: /a",
        "[]",
    ],
)
def test_a_value_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(DocumentError):
        parse_config(text, "c.yaml")


def test_a_file_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=str(tmp_path / "none.yaml")):
        read_config(tmp_path / "none.yaml")


def test_a_context_on_the_command_line_wins_over_the_file() -> None:
    settings = parse_config("nats: {url: 'nats://a'}")

    assert with_context(settings, "other").broker == BrokerSettings(context="other")
    assert with_context(settings, "") == settings


# -- from there to the connection


def test_secrets_come_from_their_files_and_do_not_show(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    broker = BrokerSettings(
        servers=("nats://a:4222",), user="web1", password_file=str(tmp_path / "password"), insecure=True
    )

    bus = bus_settings(broker, "web1.example.net", first_spread_s=1)

    assert bus is not None
    assert (bus.servers, bus.user, bus.password, bus.insecure) == (
        ("nats://a:4222",),
        "web1",
        Secret("s3cret"),
        True,
    )
    assert (bus.identity, bus.program, bus.first_spread_s) == (
        "web1.example.net",
        "ccm agent web1.example.net",
        1,
    )
    assert "s3cret" not in repr(bus)


@pytest.mark.parametrize("content", [None, "", "\n"], ids=["no file", "empty", "blank"])
def test_a_secret_that_is_missing_is_an_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    broker = BrokerSettings(servers=("nats://a:4222",), token_file=str(tmp_path / "token"))

    with pytest.raises(FileError, match="token"):
        bus_settings(broker, "web1", first_spread_s=0)


def test_a_context_of_the_nats_program_says_the_server_and_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    (folder / "CCM.json").write_text('{"url": "nats://broker:4222", "creds": "/etc/node.creds"}')

    bus = bus_settings(BrokerSettings(context="CCM"), "web1", first_spread_s=0)

    assert bus is not None
    assert (bus.servers, bus.creds, bus.identity) == (("nats://broker:4222",), "/etc/node.creds", "web1")


def test_without_a_broker_configured_a_node_is_on_its_own_and_a_named_context_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    broker = BrokerSettings(context="CCM", is_default_context=True)

    assert bus_settings(broker, "web1", first_spread_s=0) is None
    with pytest.raises(NotFoundError):
        bus_settings(replace(broker, is_default_context=False), "web1", first_spread_s=0)


def test_empty_address_does_not_serve_metrics_to_other_hosts() -> None:
    assert parse_config("monitor_port: 9100\nmonitor_address: ''\n").monitor_address == "127.0.0.1"


def test_an_empty_cache_directory_is_the_default() -> None:
    assert parse_config('cache_dir: ""\n').cache_dir == "/var/lib/ccm/sources"
    assert parse_config('cache_dir: ""\nstate_dir: /srv/ccm\n').cache_dir == "/srv/ccm/sources"


def test_a_key_is_trusted_for_one_signer() -> None:
    key, other = new_key().public_key, new_key().public_key

    def parsed(*keys: str) -> Settings:
        signers = [{"name": f"s{number}", "key": one} for number, one in enumerate(keys)]
        return parse_config(f"trusted_signers: {json.dumps(signers)}")

    assert [one.key for one in parsed(key, other).trusted_signers] == [key, other]
    with pytest.raises(DocumentError, match="is in the list twice"):
        parsed(key, key)
    with pytest.raises(DocumentError, match="is not a public nkey"):
        parsed("bob")
