from ccm_agent.agent.process.main import merge_reloaded
from ccm_agent.agent.state.settings import parse_config


def test_what_can_change_without_a_restart_holds_at_once_and_the_rest_is_named_by_its_key() -> None:
    now = parse_config(
        "watch_interval: 30s\nheartbeat: 60s\nspool_limit_mib: 8\nexternal_data_url: kv://CCM_DATA/a"
    )
    read = parse_config(
        "watch_interval: 10s\nheartbeat: 5s\nspool_limit_mib: 9\nexternal_data_url: kv://CCM_DATA/b"
    )

    settings, keys = merge_reloaded(now, read)

    expected = "watch_interval: 10s\nheartbeat: 60s\nspool_limit_mib: 8\nexternal_data_url: kv://CCM_DATA/b"
    assert settings == parse_config(expected)
    assert keys == ["spool_limit_mib", "heartbeat"]


def test_a_configuration_that_is_the_same_needs_no_restart() -> None:
    now = parse_config("interval: 5m")

    assert merge_reloaded(now, parse_config("interval: 5m")) == (now, [])
