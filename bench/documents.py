"""Documents: decoding a manifest's YAML, and gathering all facts of this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from bench.measure import ROUNDS, Line, ratio, seconds, side_by_side


def manifest_text(files: int) -> str:
    """Return a manifest of this many files, each with a content of two lines."""
    return "ccm:\n  resources:\n" + "".join(
        f"    - file:\n        - /srv/file{number}:\n            ensure: present\n            owner: root\n"
        f'            group: root\n            mode: "0644"\n            content: |\n'
        f"              file {number}\n              of a benchmark\n"
        for number in range(files)
    )


def measure() -> list[Line]:
    """Compare 1,000 files with PyYAML's own loader, 10,000 with 1,000, and gathering facts with starting Python."""
    import yaml

    from ccm_agent.model.codec import decode_yaml

    small, large = manifest_text(1_000), manifest_text(10_000)
    ours, theirs, ten_times = side_by_side(
        ROUNDS,
        _timed(lambda: decode_yaml(small)),
        _timed(lambda: yaml.load(small, Loader=yaml.CSafeLoader)),
        _timed(lambda: decode_yaml(large)),
    )
    bare, facts = side_by_side(
        ROUNDS,
        lambda: seconds([sys.executable, "-c", "pass"]),
        _timed(_gather),
    )
    return [
        ratio("YAML of 1,000 files", ours, theirs, 0.7, "PyYAML's C loader"),
        ratio("YAML of 10,000 files", ten_times, ours, 12, "1,000 files"),
        ratio("all facts", facts, bare, 1.0, "python -c pass"),
    ]


def _gather() -> None:
    from ccm_agent.facts.gather import gather

    gather({}).load()


def _timed(run: Callable[[], object]) -> Callable[[], float]:
    def timed() -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    return timed
