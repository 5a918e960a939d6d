from ccm_agent.metrics.outcomes import OutcomeMetrics
from ccm_agent.metrics.registry import MetricsRegistry
from ccm_agent.model.health import HealthResult
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from tests.support.agent import FakeClock, resource_event


def series(registry: MetricsRegistry) -> list[str]:
    return [line for line in registry.exposition().splitlines() if not line.startswith("#")]


def test_resources_are_counted_by_outcome_with_the_names_of_choria_ccm() -> None:
    registry = MetricsRegistry()
    metrics = OutcomeMetrics(registry)
    metrics.resource(resource_event("/a", changed=True, duration=2_500_000_000))
    metrics.resource(resource_event("/a", failed=True, error=["no"], duration=0))
    metrics.resource(resource_event("/a", skipped=True, unmet_requirements=["file#/b"], duration=0))

    labels = '{type="file",name="/a"}'
    assert series(registry) == [
        f"choria_ccm_resource_state_total_count{labels} 3",
        f"choria_ccm_resource_state_failed_count{labels} 1",
        f"choria_ccm_resource_state_error_count{labels} 1",
        f"choria_ccm_resource_state_changed_count{labels} 1",
        f"choria_ccm_resource_state_skipped_count{labels} 1",
        'choria_ccm_resource_apply_duration_seconds_sum{type="file",provider="posix",name="/a"} 2.5',
        'choria_ccm_resource_apply_duration_seconds_count{type="file",provider="posix",name="/a"} 3',
    ]


def test_noop_changes_are_counted_only_as_noop_and_by_alias() -> None:
    registry = MetricsRegistry()
    OutcomeMetrics(registry).resource(resource_event("/a", alias="motd", noop=True, changed=True))

    assert series(registry)[:2] == [
        'choria_ccm_resource_state_total_count{type="file",name="motd"} 1',
        'choria_ccm_resource_state_noop_count{type="file",name="motd"} 1',
    ]
    assert not any("changed" in line for line in series(registry))


def test_checks_are_counted_by_status() -> None:
    registry = MetricsRegistry()
    checks = [HealthResult(status=2, name="up"), HealthResult(status=9, name="odd")]
    OutcomeMetrics(registry).resource(resource_event("/a", health_check=checks, health_check_only=True))

    assert series(registry)[2:] == [
        'choria_ccm_healthcheck_status_count{type="file",name="/a",status="CRITICAL",check="up"} 1',
        'choria_ccm_healthcheck_status_count{type="file",name="/a",status="UNKNOWN",check="odd"} 1',
    ]


def test_manifests_are_measured_and_runs_of_checks_are_not() -> None:
    registry = MetricsRegistry()
    metrics = OutcomeMetrics(registry)
    for is_check in (False, True):
        metrics.summary(
            SessionSummary(
                protocol=SESSION_SUMMARY,
                event_id="1",
                timestamp=FakeClock().now(),
                manifest="site",
                total_duration=1_500_000_000,
                health_check_only=is_check,
            )
        )

    assert series(registry) == [
        'choria_ccm_manifest_apply_duration_seconds_sum{source="site"} 1.5',
        'choria_ccm_manifest_apply_duration_seconds_count{source="site"} 1',
    ]
