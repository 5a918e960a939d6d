"""
Resolve one hiera document and a node's facts to the node's data.

The document's `data` is the base. `hierarchy.order` selects the `overrides` that are merged over the base. The
entries of the order can contain expressions with facts. With `merge: first` only the first existing override
applies, with `merge: deep` all of them. Expressions here can use facts and `lookup`, but no function that could
read a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from ccm_agent.model import codec, merge
from ccm_agent.model.data import DEFAULT_ORDER, Hierarchy, Merge, Resolved
from ccm_agent.model.errors import DataError, ExpressionError, Place

if TYPE_CHECKING:
    from ccm_agent.templates.env import Environment

DATA_KEY = "data"


class TextRenderer:
    """
    Renders the expressions in a document's texts for one node.

    The expressions can use facts and `lookup`, and a missing value renders as "".
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    @cached_property
    def _environment(self) -> Environment:
        # created for the first expression, because most documents have none
        from ccm_agent.templates.env import Environment

        known = self._facts if isinstance(self._facts, dict) else dict(self._facts)
        return Environment(facts=known, is_lenient=True, is_restricted=True)

    def typed(self, text: str) -> object:
        """Render the expressions in a text. A text that is a single expression returns the value itself."""
        from ccm_agent.templates.resolve import render_value

        return render_value(text, self._environment)

    def entry(self, text: str) -> str | None:
        """
        Render an entry of the order. Return None if every expression is empty, so the entry does not select an
        override.
        """
        if text and "{" not in text:
            return text
        from ccm_agent.templates.resolve import render_matching

        name, has_something = render_matching(text, self._environment)
        return name if has_something else None


class Layer(Struct, frozen=True, kw_only=True):
    """
    One layer of a document, for one node.

    Attributes:
        entry: The entry of the order for this layer, as written; "" for the base data.
        name: The name of the override; None if the entry does not select one, and for the base data.
        path: The path of the layer in the document.
        data: The rendered data; None if the override does not exist.
    """

    entry: str = ""
    name: str | None = None
    path: tuple[str, ...]
    data: dict[str, Any] | None = None


def resolve_document(
    document: bytes | str,
    facts: Mapping[str, Any],
    source: str = "",
    *,
    data_key: str = DATA_KEY,
    expressions: TextRenderer | None = None,
) -> Resolved:
    """
    Return the data of a JSON or YAML document, and the document's validation rules.

    The rules are not checked here: `rules.check` applies them after all other data has been merged.

    Args:
        document: The text. A text that begins with `{` or `[` is JSON. JSON has no comments and therefore no rules.
        facts: The value of `Facts` in expressions.
        source: The document's name, for errors.
        data_key: The key of the base data.
        expressions: Renders expressions; None uses the default renderer with these facts.

    Raises:
        DocumentError: The document cannot be decoded.
        DataError: Its hierarchy or overrides are not valid.
        ExpressionError: An expression in it fails.
    """
    text = codec.as_text(document, source)
    root = codec.decode_document(text, source)
    return resolve_values(root, facts, source, text, data_key=data_key, expressions=expressions)


def resolve_values(
    root: object,
    facts: Mapping[str, Any],
    source: str = "",
    text: str | None = None,
    *,
    data_key: str = DATA_KEY,
    expressions: TextRenderer | None = None,
) -> Resolved:
    """
    Resolve a decoded document; see `resolve_document`.

    Args:
        root: The result of `codec.decode_document`, which is not changed.
        text: The source text. Without it there are no rules, and errors have no line.
    """
    if not isinstance(root, Mapping):
        raise not_hiera(root, data_key, source)
    resolver = _Resolver(root, source, text, expressions or TextRenderer(facts))
    data = resolver.resolve(data_key)
    secret = resolver.hierarchy().secret
    if text is None:
        return Resolved(data=data, secret=secret)
    from ccm_agent.hiera.rules import read_rules

    rules, warnings = read_rules(text, source, data_key)
    return Resolved(data=data, rules=rules, warnings=warnings, secret=secret)


def read_layers(
    root: object,
    facts: Mapping[str, Any],
    source: str = "",
    text: str | None = None,
    *,
    data_key: str = DATA_KEY,
) -> tuple[Hierarchy, Iterator[Layer]]:
    """
    Return the hierarchy of a document, and its layers in the order in which they are merged.

    Each layer is rendered when the iterator reaches it. With `merge: first`, layers after the first existing override are not
    used. This function and its iterator raise the same errors as `resolve_values`.
    """
    if not isinstance(root, Mapping):
        raise not_hiera(root, data_key, source)
    resolver = _Resolver(root, source, text, TextRenderer(facts))
    hierarchy = resolver.hierarchy()
    return hierarchy, resolver.layers(hierarchy, data_key)


def not_hiera(root: object, data_key: str, source: str) -> DataError:
    """Return the error for a document that is not a mapping."""
    return DataError(
        f"expected a mapping with `{data_key}` and optionally `hierarchy` and `overrides`, not {_kind(root)}",
        place=Place(source),
    )


class _Resolver:
    def __init__(
        self, root: Mapping[str, Any], source: str, text: str | None, expressions: TextRenderer
    ) -> None:
        self.root = root
        self.source = source
        self.text = text
        self.expressions = expressions

    def resolve(self, data_key: str) -> dict[str, Any]:
        hierarchy = self.hierarchy()
        data: dict[str, Any] = {}
        for layer in self.layers(hierarchy, data_key):
            if layer.data is None:
                continue
            if layer.name is None:
                data = layer.data
            elif hierarchy.merge == Merge.FIRST:
                return merge.shallow(data, layer.data)
            else:
                self.check_merge(hierarchy)
                data = merge.deep(data, layer.data)
        return data

    def layers(self, hierarchy: Hierarchy, data_key: str) -> Iterator[Layer]:
        overrides = self.overrides()
        written = self.root.get(data_key)
        has_data = isinstance(written, Mapping)
        if isinstance(written, Mapping):
            yield Layer(path=(data_key,), data=self.layer(written, data_key))
        for number, entry in enumerate(hierarchy.order):
            name = self.name(entry, number)
            if name is not None and has_data and name == data_key:
                continue
            override = overrides.get(name) if name is not None else None
            data = self.layer(override, "overrides", name or "") if isinstance(override, Mapping) else None
            yield Layer(entry=entry, name=name, path=("overrides", name or ""), data=data)

    def check_merge(self, hierarchy: Hierarchy) -> None:
        if hierarchy.merge not in (Merge.FIRST, Merge.DEEP):
            self.fail(f"unknown merge `{hierarchy.merge}`: write `first` or `deep`", "hierarchy", "merge")

    def hierarchy(self) -> Hierarchy:
        if "hierarchy" not in self.root:
            return Hierarchy()
        written = self.root["hierarchy"]
        if not isinstance(written, Mapping):
            self.fail(f"`hierarchy` must be a mapping with `order`, not {_kind(written)}", "hierarchy")
        secret = self.secret_keys(written)
        order = written.get("order", list(DEFAULT_ORDER) if secret else None)
        if not isinstance(order, list):
            what = "is missing" if "order" not in written else f"must be a list, not {_kind(order)}"
            self.fail(
                f"`hierarchy.order` {what}; list the names of overrides, one per line", "hierarchy", "order"
            )
        for number, entry in enumerate(order):
            if not isinstance(entry, str):
                message = (
                    f"the entries of `hierarchy.order` must be text, not {_kind(entry)}; put it in quotes"
                )
                self.fail(message, "hierarchy", "order", number)
        word = written.get("merge")
        return Hierarchy(
            order=tuple(order),
            merge=(word.lower() if isinstance(word, str) else "") or Merge.FIRST,
            secret=secret,
        )

    def secret_keys(self, written: Mapping[str, Any]) -> tuple[str, ...]:
        keys = written.get("secret")
        if keys is None:
            return ()
        if not isinstance(keys, list) or not all(isinstance(key, str) and key.strip(".") for key in keys):
            self.fail(
                "`hierarchy.secret` must be a list of keys such as `db.password` or `tls.*`, each in quotes",
                "hierarchy",
                "secret",
            )
        return tuple(keys)

    def overrides(self) -> Mapping[str, Any]:
        written = self.root.get("overrides", {})
        if not isinstance(written, Mapping):
            self.fail(
                f"`overrides` must be a mapping, not {_kind(written)}; remove the key or add entries",
                "overrides",
            )
        return written

    def name(self, entry: str, number: int) -> str | None:
        try:
            return self.expressions.entry(entry)
        except ExpressionError as err:
            self.fail_expression(err, "hierarchy", "order", number)

    def layer(self, data: Mapping[str, Any], *path: str) -> dict[str, Any]:
        """Render the data of the document or of an override."""
        trail: list[str | int] = []
        try:
            return self.rendered(data, trail)
        except ExpressionError as err:
            self.fail_expression(err, *path, *reversed(trail))

    def rendered(self, data: Mapping[str, Any], trail: list[str | int]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in data.items():
            try:
                result[key] = self.rendered_value(value, trail)
            except ExpressionError:
                trail.append(key)
                raise
        return result

    def rendered_value(self, value: Any, trail: list[str | int]) -> Any:
        if isinstance(value, str):
            return self.expressions.typed(value) if "{" in value else value
        if isinstance(value, float):
            # as in Choria CCM: `port: 80.0` and numbers from JSON become integers
            return int(value) if value.is_integer() and -(2.0**63) <= value < 2.0**63 else value
        if isinstance(value, Mapping):
            return self.rendered(value, trail)
        if isinstance(value, list):
            items: list[Any] = []
            for number, one in enumerate(value):
                try:
                    items.append(self.rendered_value(one, trail))
                except ExpressionError:
                    trail.append(number)
                    raise
            return items
        return value

    def place(self, path: tuple[str | int, ...]) -> Place:
        if self.text is None:
            return Place(self.source, path=codec.path_text(path))
        return codec.locate(self.text, path, self.source)

    def fail(self, message: str, *path: str | int) -> NoReturn:
        raise DataError(message, place=self.place(path))

    def fail_expression(self, err: ExpressionError, *path: str | int) -> NoReturn:
        if err.place is not None:
            raise err
        raise type(err)(
            err.message, expression=err.expression, offset=err.offset, place=self.place(path)
        ) from err


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "a mapping"
