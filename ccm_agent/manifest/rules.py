"""The rules of `ccm lint`: their codes, and what each finds."""

from __future__ import annotations

RULES = {
    "syntax": "The document is not YAML or JSON.",
    "form": "A section, a list or an entry has the wrong shape.",
    "unknown-key": "A key outside of resources means nothing.",
    "no-resources": "The manifest has no resources.",
    "unknown-type": "There is no resource type of this name.",
    "unknown-property": "The type has no such property.",
    "value": "A value has the wrong type, or is missing.",
    "ensure": "`ensure` is missing or is not one of the type's values.",
    "property": "The type refuses the value of a property.",
    "unquoted": "A number without quotes reads as another text than written.",
    "reference": "`require` or `subscribe` names a resource that is not declared before it.",
    "expression": "An expression does not parse, has an unknown name, or its types do not go together.",
    "fact": "An expression reads a field that no gathered fact has.",
    "unclosed": "A `{{` or `${` has no end, so it is text and not an expression.",
    "duplicate": "Two resources have the same type and name.",
    "order": "The order of the hierarchy lets a general value replace a specific one.",
    "annotation": "A comment looks like a rule for data and is not one.",
    "strict-ccm": "Choria CCM does not support it. Only with `--strict-ccm`.",
    "silence": "A comment that silences a rule names a code that does not exist.",
}
"""Every code, in the order of the documentation. Codes are part of the interface: they are added, not renamed."""

ALWAYS = frozenset({"syntax"})
"""Rules that cannot be silenced, because nothing else can be checked after they fail."""
