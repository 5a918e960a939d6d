"""
The metrics of one process, and their text for Prometheus (exposition format 0.0.4).

The number of series per metric is limited, because resource names come from manifests and requests without a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ccm_agent.model.errors import UsageError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SERIES_LIMIT = 10_000
"""The maximum number of series of one metric; further label values are counted together under OTHER."""

OTHER = "other"

_Values: TypeAlias = tuple[str, ...]


class Counter:
    """A number that only increases, for each set of label values."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self._numbers: dict[_Values, float] = {}

    def add(self, *values: str, by: float = 1) -> None:
        """Increase; `values` are the label values, in order."""
        key = _bounded(self.labels, values, self._numbers)
        self._numbers[key] = self._numbers.get(key, 0) + by

    def lines(self) -> list[str]:
        """Return the series as text."""
        return [_line(self.name, self.labels, key, number) for key, number in list(self._numbers.items())]


class Summary:
    """The count and the sum of measurements, for each set of label values."""

    kind = "summary"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self._measured: dict[_Values, tuple[int, float]] = {}

    def observe(self, *values: str, measured: float) -> None:
        """Record one measurement; `values` are the label values, in order."""
        key = _bounded(self.labels, values, self._measured)
        count, total = self._measured.get(key, (0, 0.0))
        self._measured[key] = (count + 1, total + measured)

    def lines(self) -> list[str]:
        """Return the series as text."""
        found = []
        for key, (count, total) in list(self._measured.items()):
            found.append(_line(f"{self.name}_sum", self.labels, key, total))
            found.append(_line(f"{self.name}_count", self.labels, key, count))
        return found


class CallbackMetric:
    """A number that is read through a callback: a gauge, or a counter that another object keeps."""

    def __init__(self, name: str, text: str, read: Callable[[], float], *, kind: str = "gauge") -> None:
        self.name = name
        self.text = text
        self.kind = kind
        self._read = read

    def lines(self) -> list[str]:
        """Return the value as text."""
        return [_line(self.name, (), (), self._read())]


Metric: TypeAlias = Counter | Summary | CallbackMetric


class MetricsRegistry:
    """The metrics of one process."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, *metrics: Metric) -> None:
        """Register metrics."""
        for metric in metrics:
            if metric.name in self._metrics:
                raise UsageError(f"{metric.name}: a metric with this name already exists")
            self._metrics[metric.name] = metric

    def exposition(self) -> str:
        """Return all metrics as text; may be called in a thread."""
        found: list[str] = []
        for metric in self._metrics.values():
            found.append(f"# HELP {metric.name} {_escaped(metric.text)}")
            found.append(f"# TYPE {metric.name} {metric.kind}")
            found += metric.lines()
        return "\n".join(found) + "\n"


def _bounded(labels: _Values, values: _Values, known: Mapping[_Values, object]) -> _Values:
    if len(values) != len(labels):
        raise UsageError(f"{len(values)} values for the labels {', '.join(labels) or 'none'}")
    if values in known or len(known) < SERIES_LIMIT:
        return values
    return (OTHER,) * len(labels)


def _line(name: str, labels: _Values, values: _Values, number: float) -> str:
    pairs = ",".join(
        f'{label}="{_escaped(value, quoted=True)}"' for label, value in zip(labels, values, strict=True)
    )
    shown = repr(number) if isinstance(number, float) and not number.is_integer() else str(int(number))
    return f"{name}{{{pairs}}} {shown}" if pairs else f"{name} {shown}"


def _escaped(text: str, *, quoted: bool = False) -> str:
    found = text.replace("\\", "\\\\").replace("\n", "\\n")
    return found.replace('"', '\\"') if quoted else found
