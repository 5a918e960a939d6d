"""
The agent's metrics other than those of resources: runs, facts, sources, and its own process.

Names that begin with `choria_ccm_` and end in `_count` or `_seconds` are Choria CCM's. Other metrics follow the naming rules
of Prometheus, and those of the process have the standard names of Prometheus clients.
"""

from __future__ import annotations

from ccm_agent.metrics.outcomes import OutcomeMetrics
from ccm_agent.metrics.registry import Counter, MetricsRegistry, Summary
from ccm_agent.model.outcome import SessionSummary


class AgentMetrics(OutcomeMetrics):
    """
    The metrics of one agent.

    Attributes:
        registry: The registry of all metrics.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        super().__init__(registry)
        self.registry = registry
        prefix = "choria_ccm_agent"
        self._apply_s = Summary(
            f"{prefix}_apply_duration_seconds", "Time that the agent's applies took", ("manifest",)
        )
        self._check_run_s = Summary(
            f"{prefix}_healthcheck_duration_seconds", "Time that runs of checks took", ("manifests",)
        )
        self._remediations = Counter(
            f"{prefix}_healthcheck_remediations_count", "Applies that a critical check started", ("manifest",)
        )
        self._facts_s = Summary(f"{prefix}_facts_resolve_duration_seconds", "Time that resolving facts took")
        self._facts_errors = Counter(
            f"{prefix}_facts_resolve_error_count", "Facts that could not be resolved"
        )
        self._gather_s = Summary("choria_ccm_facts_gather_duration_seconds", "Time that gathering facts took")
        self._fetches = Counter(
            f"{prefix}_manifest_fetch_count", "Manifests that were fetched", ("manifest",)
        )
        self._fetch_errors = Counter(
            f"{prefix}_manifest_fetch_error_count", "Manifests that could not be fetched", ("manifest",)
        )
        self._runs = Counter(f"{prefix}_runs_total", "Runs that have ended", ("action", "cause", "state"))
        self._lost = Counter(f"{prefix}_events_lost_total", "Events dropped because the spool was full")
        registry.add(self._apply_s, self._check_run_s, self._remediations)
        registry.add(self._facts_s, self._facts_errors, self._gather_s)
        registry.add(self._fetches, self._fetch_errors, self._runs, self._lost)

    def ran(self, action: str, cause: str, summary: SessionSummary) -> None:
        """Count a run that has ended, by action and source, with its summary."""
        self._runs.add(action, cause, summary.state)
        self.summary(summary)
        seconds = summary.total_duration / 1e9
        if summary.health_check_only:
            self._check_run_s.observe(summary.manifest, measured=seconds)
        else:
            self._apply_s.observe(summary.manifest, measured=seconds)

    def lost(self, events: int) -> None:
        """Count discarded events."""
        self._lost.add(by=events)

    def facts_gathered(self, seconds: float, *, failed: bool) -> None:
        """Record how long gathering facts took, and whether it succeeded."""
        self._facts_s.observe(measured=seconds)
        if failed:
            self._facts_errors.add()
        else:
            self._gather_s.observe(measured=seconds)

    def fetched(self, manifest: str, *, failed: bool) -> None:
        """Count a fetch of a changed manifest, or a failed fetch."""
        (self._fetch_errors if failed else self._fetches).add(manifest)

    def remediated(self, manifest: str) -> None:
        """Count an apply that a critical health check triggered."""
        self._remediations.add(manifest)
