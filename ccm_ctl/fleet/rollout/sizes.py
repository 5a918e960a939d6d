"""Sizes of waves and failure budgets: a number of nodes, or a percentage of them."""

from __future__ import annotations

import re

from ccm_agent.model.errors import UsageError
from ccm_agent.model.records.rollout_records import Size

_SIZE = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,3}))?(%?)")


def parse_size(text: str, option: str = "size") -> Size:
    """
    Parse `10` or `25%`.

    Raises:
        UsageError: It is neither, or it is more than 100%.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[2] and not match[3]):
        raise UsageError(f"{option} {text}: write a number of nodes or a percentage, such as 10 or 25%")
    if not match[3]:
        return Size(count=int(match[1]))
    percent = float(f"{match[1]}.{match[2] or 0}")
    if percent > 100:
        raise UsageError(f"{option} {text}: more than 100% of the nodes")
    return Size(percent=percent)


def parse_wave_size(text: str, option: str = "size") -> Size:
    """
    Parse the size of a wave or batch, which has at least one node.

    Raises:
        UsageError: It is not a size, or it is 0.
    """
    size = parse_size(text, option)
    if not (size.count or size.percent):
        raise UsageError(f"{option} {text}: no node would ever run; the minimum is 1")
    return size
