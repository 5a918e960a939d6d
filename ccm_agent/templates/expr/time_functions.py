"""Functions on times."""

from __future__ import annotations

from typing import Any

from ccm_agent.templates.expr.arguments import as_text
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.frame import Frame
from ccm_agent.templates.gotime import (
    LOCAL,
    GoDuration,
    Location,
    Time,
    load_location,
    parse_duration,
)
from ccm_agent.templates.gotime import now as present


def now(_frame: Frame, zone: Any = None) -> Time:
    return present(zone if isinstance(zone, Location) else LOCAL)


def duration(_frame: Frame, text: Any) -> GoDuration:
    try:
        return parse_duration(as_text("duration", text)[:1000])
    except ValueError as err:
        raise EvaluationError(f"duration() cannot read this text: {err}") from None


def timezone(_frame: Frame, name: Any) -> Any:
    try:
        return load_location(as_text("timezone", name))
    except ValueError as err:
        raise EvaluationError(f"timezone() cannot take this: {err}") from None


def date(_frame: Frame, *arguments: Any) -> Time:
    from ccm_agent.templates.golayout import DATE_LAYOUTS, parse_time

    zone = arguments[0] if arguments and isinstance(arguments[0], Location) else None
    texts = [as_text("date", value) for value in (arguments[1:] if zone is not None else arguments)]
    if not texts or max(map(len, texts)) > 1000:
        raise EvaluationError("date() takes a text of at most 1000 characters")
    try:
        if len(texts) == 3:
            zone = load_location(texts[2])
        if len(texts) > 1:
            return parse_time(texts[1], texts[0], zone)
    except ValueError as err:
        raise EvaluationError(f"date() cannot read this text: {err}") from None
    for layout in DATE_LAYOUTS:
        try:
            return parse_time(layout, texts[0], zone)
        except ValueError:
            continue
    raise EvaluationError(
        "date() cannot read this text: it is in none of the usual forms, such as 2006-01-02; give a layout"
    )
