"""The functions with a predicate, such as `filter`, `map` and `reduce`, as closures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ccm_agent.templates.expr.collections import AnyMap, NilList, as_key
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.frame import MAP_BYTES, Frame
from ccm_agent.templates.expr.list_functions import descends, sorted_by
from ccm_agent.templates.expr.operators import add, describe
from ccm_agent.templates.values import to_bytes

Run = Callable[[Frame], Any]


class PredicateCall:
    """
    The parts of a call with a predicate.

    Attributes:
        source: The list to iterate over.
        body: The predicate; None if an optional predicate is omitted.
        extra: The third argument, if any.
    """

    __slots__ = ("body", "extra", "name", "offset", "source")

    def __init__(self, name: str, offset: int, source: Run, body: Run | None, extra: Run | None) -> None:
        self.name = name
        self.offset = offset
        self.source = source
        self.body = body
        self.extra = extra

    def items(self, frame: Frame) -> Sequence[Any]:
        """Return the elements to iterate over."""
        value = self.source(frame)
        if isinstance(value, (list, bytes)):
            return value
        if isinstance(value, str):
            return to_bytes(value)
        if isinstance(value, dict):  # an empty map is accepted, as in the reference
            if not value:
                return []
            raise EvaluationError(
                f"{self.name}() goes over a list, not over a map; use keys() or values()", self.offset
            )
        raise EvaluationError(f"{self.name}() goes over a list, not over {describe(value)}", self.offset)

    def compiled(self) -> Run:
        """Return the closure that runs the call and restores the outer `#` afterwards."""
        loop = _LOOPS[self.name](self)

        def run(frame: Frame) -> Any:
            items = self.items(frame)
            frame_item, frame_index, frame_acc = frame.item, frame.index, frame.acc
            try:
                return loop(frame, items)
            except EvaluationError as fault:
                raise fault.at(self.offset) from None
            finally:
                frame.item, frame.index, frame.acc = frame_item, frame_index, frame_acc

        return run

    def test(self) -> Run:
        """Return the predicate as a condition."""
        body = self.body
        if body is None:
            body = _element
        name = self.name

        def run(frame: Frame) -> bool:
            frame.steps -= 1
            if frame.steps < 0:
                frame.spend(0)
            value = body(frame)
            if value is True or value is False:
                return bool(value)
            raise EvaluationError(f"{name}() needs a condition, not {describe(value)}")

        return run

    def value(self) -> Run:
        """Return the predicate as a value."""
        body = self.body
        if body is None:
            body = _element

        def run(frame: Frame) -> Any:
            frame.steps -= 1
            if frame.steps < 0:
                frame.spend(0)
            return body(frame)

        return run


def _element(frame: Frame) -> Any:
    return frame.item


_Body = Callable[[Frame, Sequence[Any]], Any]


def _some(stop_at: bool, answer: bool) -> Callable[[PredicateCall], _Body]:
    """Implement `all`, `any` and `none`: the first element that decides determines the result."""

    def make(loop: PredicateCall) -> _Body:
        test = loop.test()

        def run(frame: Frame, items: Sequence[Any]) -> bool:
            for frame.index, frame.item in enumerate(items):
                if test(frame) is stop_at:
                    return answer
            return not answer

        return run

    return make


def _one(loop: PredicateCall) -> _Body:
    test = loop.test()

    def run(frame: Frame, items: Sequence[Any]) -> bool:
        found = 0
        for frame.index, frame.item in enumerate(items):
            found += test(frame)
        return found == 1

    return run


def _count(loop: PredicateCall) -> _Body:
    test = loop.test()

    def run(frame: Frame, items: Sequence[Any]) -> int:
        found = 0
        for frame.index, frame.item in enumerate(items):
            found += test(frame)
        return found

    return run


def _filter(loop: PredicateCall) -> _Body:
    test = loop.test()

    def run(frame: Frame, items: Sequence[Any]) -> list[Any]:
        kept = []
        for frame.index, frame.item in enumerate(items):
            if test(frame):
                kept.append(frame.item)
        frame.grow(len(kept))
        return kept

    return run


def _map(loop: PredicateCall) -> _Body:
    value = loop.value()

    def run(frame: Frame, items: Sequence[Any]) -> list[Any]:
        made = []
        for frame.index, frame.item in enumerate(items):
            made.append(value(frame))
        frame.grow(len(made))
        return made

    return run


def _find(*, backwards: bool, gives_index: bool) -> Callable[[PredicateCall], _Body]:
    def make(loop: PredicateCall) -> _Body:
        test = loop.test()

        def run(frame: Frame, items: Sequence[Any]) -> Any:
            for index in range(len(items) - 1, -1, -1) if backwards else range(len(items)):
                frame.index, frame.item = index, items[index]
                if test(frame):
                    return index if gives_index else frame.item
            return None

        return run

    return make


def _sum(loop: PredicateCall) -> _Body:
    value = loop.value()

    def run(frame: Frame, items: Sequence[Any]) -> Any:
        total: Any = 0
        for frame.index, frame.item in enumerate(items):
            total = add(value(frame), total)
        return total

    return run


def _reduce(loop: PredicateCall) -> _Body:
    value = loop.value()
    extra = loop.extra

    def run(frame: Frame, items: Sequence[Any]) -> Any:
        start = 0
        if extra is not None:
            total = extra(frame)
        elif items:
            total, start = items[0], 1
        else:
            raise EvaluationError("reduce() of an empty list needs a third argument to begin with")
        for index in range(start, len(items)):
            frame.index, frame.item, frame.acc = index, items[index], total
            total = value(frame)
        return total

    return run


def _group_by(loop: PredicateCall) -> _Body:
    value = loop.value()

    def run(frame: Frame, items: Sequence[Any]) -> AnyMap:
        groups = AnyMap(NilList())
        for frame.index, frame.item in enumerate(items):
            found = value(frame)
            try:
                key = as_key(found)
            except TypeError:
                raise EvaluationError(f"groupBy() cannot group by {describe(found)}") from None
            groups.setdefault(key, []).append(frame.item)
        frame.grow(len(items))
        frame.hold(len(groups) * MAP_BYTES)
        return groups

    return run


def _sort_by(loop: PredicateCall) -> _Body:
    value = loop.value()
    extra = loop.extra

    def run(frame: Frame, items: Sequence[Any]) -> list[Any]:
        downwards = extra is not None and descends("sortBy", extra(frame))
        pairs = []
        for frame.index, frame.item in enumerate(items):
            pairs.append((value(frame), frame.item))
        frame.grow(len(pairs))
        return [item for _, item in sorted_by(frame, pairs, downwards)]

    return run


_LOOPS: dict[str, Callable[[PredicateCall], _Body]] = {
    "all": _some(stop_at=False, answer=False),
    "any": _some(stop_at=True, answer=True),
    "none": _some(stop_at=True, answer=False),
    "one": _one,
    "filter": _filter,
    "map": _map,
    "count": _count,
    "sum": _sum,
    "find": _find(backwards=False, gives_index=False),
    "findIndex": _find(backwards=False, gives_index=True),
    "findLast": _find(backwards=True, gives_index=False),
    "findLastIndex": _find(backwards=True, gives_index=True),
    "groupBy": _group_by,
    "sortBy": _sort_by,
    "reduce": _reduce,
}
