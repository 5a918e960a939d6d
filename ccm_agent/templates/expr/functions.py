"""
All functions of the language, except those with predicates. The first argument is the frame, which counts
costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ccm_agent.templates.expr import list_functions, text_functions, time_functions, value_functions
from ccm_agent.templates.expr.operators import less, more

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": value_functions.length,
    "type": value_functions.type_of,
    "string": value_functions.to_text,
    "int": value_functions.integer,
    "float": value_functions.floating,
    "abs": value_functions.absolute,
    "ceil": value_functions.rounding("ceil", math.ceil),
    "floor": value_functions.rounding("floor", math.floor),
    "round": value_functions.rounding("round", value_functions.half_away),
    "max": value_functions.extreme("max", more),
    "min": value_functions.extreme("min", less),
    "mean": value_functions.mean,
    "median": value_functions.median,
    "bitand": value_functions.bits("bitand", lambda a, b: a & b),
    "bitor": value_functions.bits("bitor", lambda a, b: a | b),
    "bitxor": value_functions.bits("bitxor", lambda a, b: a ^ b),
    "bitnand": value_functions.bits("bitnand", lambda a, b: a & ~b),
    "bitshl": value_functions.bits("bitshl", lambda a, b: a << b if b < 64 else 0),
    "bitshr": value_functions.bits("bitshr", lambda a, b: a >> min(b, 64)),
    "bitushr": value_functions.bits("bitushr", lambda a, b: (a % 2**64) >> b if b < 64 else 0),
    "bitnot": value_functions.bitnot,
    "trim": text_functions.trim,
    "trimPrefix": text_functions.trim_prefix,
    "trimSuffix": text_functions.trim_suffix,
    "upper": text_functions.upper,
    "lower": text_functions.lower,
    "split": text_functions.splitting("split", keep=False),
    "splitAfter": text_functions.splitting("splitAfter", keep=True),
    "replace": text_functions.replace,
    "repeat": text_functions.repeat,
    "join": text_functions.join,
    "indexOf": text_functions.index("indexOf", str.find),
    "lastIndexOf": text_functions.index("lastIndexOf", text_functions.find_last),
    "hasPrefix": text_functions.has_prefix,
    "hasSuffix": text_functions.has_suffix,
    "toBase64": text_functions.to_base64,
    "fromBase64": text_functions.from_base64,
    "toJSON": text_functions.to_json,
    "fromJSON": text_functions.from_json,
    "first": list_functions.first,
    "last": list_functions.last,
    "get": list_functions.get,
    "take": list_functions.take,
    "reverse": list_functions.reverse,
    "concat": list_functions.concat,
    "flatten": list_functions.flatten,
    "uniq": list_functions.uniq,
    "sort": list_functions.sort,
    "keys": list_functions.keys,
    "values": list_functions.values,
    "toPairs": list_functions.to_pairs,
    "fromPairs": list_functions.from_pairs,
    "now": time_functions.now,
    "duration": time_functions.duration,
    "timezone": time_functions.timezone,
    "date": time_functions.date,
}
