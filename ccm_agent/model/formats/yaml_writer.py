"""Write YAML for people: block style, sorted keys, long texts unwrapped."""

from __future__ import annotations

import functools
import re
from typing import Any

from ccm_agent.model.formats.scalars import SPECIAL_FIRST, float_text, plain_value


def write_yaml(value: object) -> str:
    """
    Encode plain values as YAML; `read_yaml` returns the same values.

    Keys are sorted, texts of several lines are block scalars, and texts that would be decoded as another type are quoted.
    """
    import yaml

    text: str = yaml.dump(
        value,
        Dumper=_dumper(),
        sort_keys=True,
        default_flow_style=False,
        allow_unicode=True,
        width=1 << 30,
    )
    # libyaml writes a document end marker after some texts; the text itself may also end in dots
    return text[:-4] if text.endswith("\n...\n") else text


_QUOTED_FIRST = frozenset("{[&*!|>%@`#,}]'\" ")
_QUOTED_WITHIN = re.compile(r"[#\\]|[:-] ")
_LINE_BREAK = re.compile("[\x85\u2028\u2029]")  # libyaml escapes them only in double quotes
_OLD_BOOLEANS = frozenset(
    form for word in ("y", "yes", "n", "no", "on", "off") for form in (word, word.title(), word.upper())
)
_TIME = re.compile(
    r"(?:\d{4}-\d\d-\d\d(?: \d\d?:\d\d:\d\d(?:\.\d+)?|[Tt]\d\d?:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))?"
    r"|(?:[01]?\d|2[0-3]):[0-5]?\d)"
)


def _is_quoted(text: str) -> bool:
    """
    Whether Choria CCM's writer quotes a text, because it or a YAML 1.1 reader could decode it as another type.

    Source: IsNeedQuoted of goccy/go-yaml 1.19.2.
    """
    return (
        not text
        or text in _OLD_BOOLEANS
        or (text[0] in SPECIAL_FIRST and plain_value(text) is not text)
        or text == "-"
        or text[0] in _QUOTED_FIRST
        or text[-1] in ": "
        or _QUOTED_WITHIN.search(text) is not None
        or _TIME.fullmatch(text) is not None
    )


@functools.lru_cache(maxsize=1)
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.CSafeDumper):
        """PyYAML's dumper with this project's rule for plain texts."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        style = '"' if _is_quoted(text) else None
        if "\n" in text and not any(line != line.rstrip() for line in text.split("\n")):
            style = "|"
        if _LINE_BREAK.search(text):
            style = '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    def represent_float(dumper: Any, number: float) -> Any:
        text = float_text(number)
        if number != number or number in (float("inf"), float("-inf")):
            text = {"NaN": ".nan", "+Inf": ".inf", "-Inf": "-.inf"}[text]
        elif "e" in text and "." not in text:
            text = text.replace("e", ".0e")
        elif "." not in text:
            text += ".0"
        return dumper.represent_scalar("tag:yaml.org,2002:float", text)

    Dumper.add_representer(str, represent_text)
    Dumper.add_representer(float, represent_float)
    return Dumper
