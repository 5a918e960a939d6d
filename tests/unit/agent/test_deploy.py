"""What the project ships for operators is what the agent takes."""

import configparser
import re
from pathlib import Path

import pytest

from ccm_agent.agent.state.settings import BrokerSettings, Settings, TlsConfig, read_config
from ccm_agent.model.errors import DocumentError

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / "ccm-agent.service")
    return parser


def test_the_example_of_a_configuration_is_taken() -> None:
    assert read_config(DEPLOY / "examples" / "agent.yaml") == Settings(
        state_dir="/var/lib/ccm",
        identity="web1.example.net",
        broker=BrokerSettings(
            servers=("tls://nats1.example.net:4222", "tls://nats2.example.net:4222"),
            creds="/etc/choria/ccm/node.creds",
            tls=TlsConfig(ca="/etc/choria/ccm/ca.pem"),
        ),
        cache_dir="/var/lib/ccm/sources",
        routed_facts=("host.info.platformFamily",),
        external_data_url="kv://CCM_DATA/common",
        stamped_data=True,
        policy_file=str(DEPLOY / "examples" / "policy.yaml"),
        registration="jetstream",
    )


def test_the_configuration_of_a_package_is_refused_until_something_is_configured(tmp_path: Path) -> None:
    shipped = (DEPLOY / "packages" / "config.yaml").read_text()
    # prose has one blank after the mark, keys have none or their indentation
    lines = [line[1:] for line in shipped.splitlines() if not re.match(r"# \S", line)]
    config = tmp_path / "config.yaml"
    config.write_text("\n".join(lines))

    with pytest.raises(DocumentError, match="this file contains only comments"):
        read_config(DEPLOY / "packages" / "config.yaml")

    assert read_config(config).broker == BrokerSettings(
        servers=("tls://nats1.example.net:4222",),
        creds="/etc/choria/ccm/node.creds",
        tls=TlsConfig(ca="/etc/choria/ccm/ca.pem"),
    )


def test_the_unit_gives_a_stop_more_time_than_the_agent_drains_and_ends_nothing_but_the_agent() -> None:
    service = unit()["Service"]

    assert (service["Type"], service["KillMode"]) == ("notify", "process")
    assert int(service["TimeoutStopSec"]) > Settings(state_dir="/").drain_s
    assert int(service["WatchdogSec"]) > 0


def test_the_unit_cages_nothing_that_a_manifest_may_have_to_manage() -> None:
    cages = (
        "Protect",
        "Private",
        "Restrict",
        "ReadOnly",
        "Inaccessible",
        "Capability",
        "NoNewPrivileges",
        "SystemCall",
    )

    assert [key for key in unit()["Service"] if key.startswith(cages)] == []
