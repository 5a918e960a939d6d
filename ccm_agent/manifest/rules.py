"""The rules of `ccm lint`: their codes and descriptions."""

from __future__ import annotations

RULES = {
    "syntax": "The document is not YAML or JSON.",
    "form": "A section, a list or an entry has the wrong shape.",
    "unknown-key": "A key outside of resources is unknown.",
    "no-resources": "The manifest has no resources.",
    "unknown-type": "The resource type is unknown.",
    "unknown-property": "The type has no such property.",
    "value": "A value has the wrong type, or is missing.",
    "ensure": "`ensure` is missing or is not one of the type's values.",
    "property": "The type does not accept the value of a property.",
    "unquoted": "An unquoted number is read as text that differs from the text as written.",
    "reference": (
        "A resource in `require` or `subscribe` is not declared earlier, or a resource in `before` or `notify` is not "
        "declared later."
    ),
    "expression": "An expression does not parse, uses an unknown name, or mixes incompatible types.",
    "fact": "An expression uses a fact that nodes do not gather.",
    "unclosed": "A `{{` or `${` is not closed, so it is text and not an expression.",
    "duplicate": "Two resources have the same type and name.",
    "order": "The order of the hierarchy lets a general value replace a specific one.",
    "annotation": "A comment resembles a data rule but is not one.",
    "strict-ccm": "Choria CCM does not support this feature. Checked only with `--strict-ccm`.",
    "silence": "A comment that disables a rule names an unknown code.",
}
"""
All codes, in the order of the documentation. Codes are part of the interface: they are added but not
renamed.
"""

ALWAYS = frozenset({"syntax"})
"""Rules that cannot be silenced, because a violation prevents all other checks."""
