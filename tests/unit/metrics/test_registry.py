import pytest

from ccm_agent.metrics import registry
from ccm_agent.metrics.registry import CallbackMetric, Counter, MetricsRegistry, Summary
from ccm_agent.model.errors import UsageError


def test_metrics_are_reported_as_prometheus_reads_them() -> None:
    one = MetricsRegistry()
    changed, took = Counter("changed", "What\nchanged", ["name"]), Summary("took_seconds", "How long")
    one.add(changed, took, CallbackMetric("waiting", "How many wait", lambda: 3))
    changed.add('a"b\\c\n')
    changed.add('a"b\\c\n', by=2)
    took.observe(measured=0.25)
    took.observe(measured=1)

    assert one.exposition() == (
        "# HELP changed What\\nchanged\n"
        "# TYPE changed counter\n"
        'changed{name="a\\"b\\\\c\\n"} 3\n'
        "# HELP took_seconds How long\n"
        "# TYPE took_seconds summary\n"
        "took_seconds_sum 1.25\n"
        "took_seconds_count 2\n"
        "# HELP waiting How many wait\n"
        "# TYPE waiting gauge\n"
        "waiting 3\n"
    )


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SERIES_LIMIT", 2)
    counter = Counter("changed", "", ["name"])
    for name in ("a", "b", "c", "d", "a"):
        counter.add(name)

    assert counter.lines() == ['changed{name="a"} 2', 'changed{name="b"} 1', 'changed{name="other"} 2']


def test_two_metrics_of_one_name_are_refused() -> None:
    one = MetricsRegistry()

    with pytest.raises(UsageError, match="already"):
        one.add(Counter("a", ""), Counter("a", ""))


def test_values_must_fit_the_labels() -> None:
    with pytest.raises(UsageError, match="1 values for the labels type, name"):
        Counter("a", "", ["type", "name"]).add("file")
