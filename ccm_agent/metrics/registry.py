"""
Numbers of one process, and their text for Prometheus (exposition format 0.0.4).

A metric has a bounded number of series: names of resources come from manifests and requests, and nobody bounds those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ccm_agent.model.errors import UsageError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SERIES_LIMIT = 10_000
"""Of one metric; further label values are counted together under OTHER."""

OTHER = "other"

_Values: TypeAlias = tuple[str, ...]


class Counter:
    """A number that only grows, for each set of label values."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self._numbers: dict[_Values, float] = {}

    def add(self, *values: str, by: float = 1) -> None:
        """Grow; `values` are those of the labels, in order."""
        key = _bounded(self.labels, values, self._numbers)
        self._numbers[key] = self._numbers.get(key, 0) + by

    def lines(self) -> list[str]:
        """Its series as text."""
        return [_line(self.name, self.labels, key, number) for key, number in list(self._numbers.items())]


class Summary:
    """How often something was measured, and the sum of it, for each set of label values."""

    kind = "summary"

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self._measured: dict[_Values, tuple[int, float]] = {}

    def observe(self, *values: str, measured: float) -> None:
        """Take one measurement in; `values` are those of the labels, in order."""
        key = _bounded(self.labels, values, self._measured)
        count, total = self._measured.get(key, (0, 0.0))
        self._measured[key] = (count + 1, total + measured)

    def lines(self) -> list[str]:
        """Its series as text."""
        found = []
        for key, (count, total) in list(self._measured.items()):
            found.append(_line(f"{self.name}_sum", self.labels, key, total))
            found.append(_line(f"{self.name}_count", self.labels, key, count))
        return found


class CallbackMetric:
    """A number that is asked for when somebody reads it: a gauge, or a counter that somebody else keeps."""

    def __init__(self, name: str, text: str, read: Callable[[], float], *, kind: str = "gauge") -> None:
        self.name = name
        self.text = text
        self.kind = kind
        self._read = read

    def lines(self) -> list[str]:
        """Its value as text."""
        return [_line(self.name, (), (), self._read())]


Metric: TypeAlias = Counter | Summary | CallbackMetric


class MetricsRegistry:
    """The metrics of one process."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, *metrics: Metric) -> None:
        """Take metrics in."""
        for metric in metrics:
            if metric.name in self._metrics:
                raise UsageError(f"{metric.name}: there is a metric of this name already")
            self._metrics[metric.name] = metric

    def exposition(self) -> str:
        """All of them as text; it may be asked for in a thread."""
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
