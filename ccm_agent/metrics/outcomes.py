"""
The metrics of applies: resources, checks and manifests, with the names and labels of Choria CCM.
"""

from __future__ import annotations

from ccm_agent.metrics.registry import Counter, MetricsRegistry, Summary
from ccm_agent.model.outcome import Outcome, SessionSummary, TransactionEvent
from ccm_agent.model.secret import mask_url

_RESOURCE = ("type", "name")
_CHECK_STATUS = {0: "OK", 1: "WARNING", 2: "CRITICAL"}


class OutcomeMetrics:
    """Counts events and summaries of runs."""

    def __init__(self, registry: MetricsRegistry) -> None:
        def count(word: str, text: str) -> Counter:
            return Counter(f"choria_ccm_resource_state_{word}_count", text, _RESOURCE)

        self._total = count("total", "Resources that were processed")
        self._failed = count("failed", "Resources that failed")
        self._errors = count("error", "Resources with errors")
        self._noop = count("noop", "Resources that a noop run would have changed")
        self._outcomes = {
            Outcome.STABLE: count("stable", "Resources that were in the desired state"),
            Outcome.CHANGED: count("changed", "Resources that were changed"),
            Outcome.REFRESHED: count("refreshed", "Resources that were refreshed"),
            Outcome.SKIPPED: count("skipped", "Resources that were skipped"),
        }
        self._checks = Counter(
            "choria_ccm_healthcheck_status_count",
            "Results of health checks",
            ("type", "name", "status", "check"),
        )
        self._check_s = Summary(
            "choria_ccm_healthcheck_duration_seconds",
            "Time that health checks took, including all tries and pauses",
            ("type", "name", "check"),
        )
        self._data_s = Summary(
            "choria_ccm_agent_data_resolve_duration_seconds", "Time that it took to resolve external data"
        )
        self._data_errors = Counter(
            "choria_ccm_agent_data_resolve_error_count",
            "External data that could not be resolved",
            ("url",),
        )
        self._resource_s = Summary(
            "choria_ccm_resource_apply_duration_seconds",
            "Time that resources took",
            ("type", "provider", "name"),
        )
        self._manifest_s = Summary(
            "choria_ccm_manifest_apply_duration_seconds", "Time that manifests took", ("source",)
        )
        registry.add(self._total, self._failed, self._errors, self._noop, *self._outcomes.values())
        registry.add(self._checks, self._check_s, self._resource_s, self._manifest_s)
        registry.add(self._data_s, self._data_errors)

    def resource(self, event: TransactionEvent) -> None:
        """Count the outcome of a resource, under its alias if it has one; a noop is counted only as noop."""
        name = event.alias or event.name
        key = (event.type, name)
        self._total.add(*key)
        if event.error:
            self._errors.add(*key)
        if event.failed:
            self._failed.add(*key)
        is_skipped = event.outcome in (Outcome.UNMET, Outcome.UNKNOWN)
        outcome = Outcome.SKIPPED if is_skipped else event.outcome
        if event.noop and not event.failed:
            self._noop.add(*key)
        elif outcome in self._outcomes:
            self._outcomes[outcome].add(*key)
        for check in event.health_check:
            self._checks.add(*key, _CHECK_STATUS.get(check.status, "UNKNOWN"), check.name)
        if not event.health_check_only:
            self._resource_s.observe(event.type, event.provider, name, measured=event.duration / 1e9)

    def checked(self, event: TransactionEvent, check: str, seconds: float) -> None:
        """Record how long a health check of a resource took."""
        self._check_s.observe(event.type, event.alias or event.name, check, measured=seconds)

    def data_resolved(self, seconds: float) -> None:
        """Record how long resolving the data of a run took."""
        self._data_s.observe(measured=seconds)

    def data_failed(self, url: str) -> None:
        """Count data that could not be resolved; secrets in its URL are masked."""
        self._data_errors.add(mask_url(url))

    def summary(self, summary: SessionSummary) -> None:
        """Record how long applying a manifest took."""
        if not summary.health_check_only:
            self._manifest_s.observe(summary.manifest, measured=summary.total_duration / 1e9)
