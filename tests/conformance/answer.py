"""
Answers conformance questions: one JSON object a line on standard input, one answer a line on standard output.

An answer is `{"value": …}` or `{"error": "text"}`. The operations and their fields are told in README.md beside this file.
To add one, write a function here that imports what it needs inside itself, and put it into OPERATIONS.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
GATHERED = Path(__file__).with_name("answers") / "gathered.json"
if str(ROOT) not in sys.path:  # as a script it is started from anywhere
    sys.path.insert(0, str(ROOT))

from ccm_agent.model.errors import CcmError  # noqa: E402 needs the path above
from ccm_agent.templates.goprint import go_print  # noqa: E402
from ccm_agent.templates.values import GoValue, clean_text  # noqa: E402

if TYPE_CHECKING:
    from ccm_agent.templates.env import Environment

Question = dict[str, Any]


def shown(value: Any) -> Any:
    """A value as the cases write it: `$float`, `$time`, `$duration` and `$bytes` for what JSON has no word for."""
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        return {"$float": go_print(value)}
    if isinstance(value, datetime):
        text = re.sub(r"(\.\d*?)0+(?!\d)", r"\1", value.isoformat())  # as short as Go prints it
        return {"$time": text.replace("+00:00", "Z")}
    if isinstance(value, bytes):
        return {"$bytes": value.decode("utf-8", "replace")}
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {go_print(key): shown(item) for key, item in value.items()}
    if isinstance(value, GoValue):
        return _go_value(value)
    return value


def _go_value(value: Any) -> Any:
    if value.go_type == "time.Time":
        return {"$time": value.rfc3339()}
    if value.go_type == "time.Duration":
        return {"$duration": value.go_text()}
    return value.number if hasattr(value, "number") else value.go_text()


def _with_environment(question: Question, ask: Callable[[Environment], Any]) -> Any:
    from ccm_agent.templates.env import Environment

    with tempfile.TemporaryDirectory() as folder:
        for name, content in (question.get("files") or {}).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode())
        return ask(
            Environment(
                facts=_facts(question),
                data=question.get("data"),
                environ=question.get("environ"),
                working_dir=folder,
                is_lenient=bool(question.get("lenient")),
            )
        )


def _facts(question: Question) -> dict[str, Any] | None:
    """The question's facts, over the gathered ones where it asks for them."""
    custom: dict[str, Any] | None = question.get("facts")
    if not question.get("gathered"):
        return custom
    from ccm_agent.facts.gather import LazyFacts

    families: dict[str, Any] = json.loads(GATHERED.read_text())
    return LazyFacts([custom or {}], {key: lambda family=family: family for key, family in families.items()})


def answer_expr(question: Question) -> Any:
    from ccm_agent.templates.resolve import evaluate

    return _with_environment(question, lambda env: evaluate(question["input"], env))


def answer_template(question: Question) -> Any:
    from ccm_agent.templates.resolve import render_text

    return _with_environment(question, lambda env: render_text(question["input"], env))


def answer_typed(question: Question) -> Any:
    from ccm_agent.templates.resolve import render_value

    return _with_environment(question, lambda env: render_value(question["input"], env))


def answer_jet(question: Question) -> Any:
    delimiters = [question[side] for side in ("left", "right") if question.get(side)]
    return _with_environment(question, lambda env: env.jet(question["input"], *delimiters))


def answer_go(question: Question) -> Any:
    left, right = question.get("left") or "", question.get("right") or ""
    return _with_environment(
        question, lambda env: env.render("go", question["input"], left=left, right=right)
    )


def answer_gjson(question: Question) -> Any:
    from ccm_agent.templates.gjson import get

    found = get(question["json"], question["input"])
    if not found.exists:
        return {"exists": False}
    is_whole = found.raw.removeprefix("-").isdecimal()
    return {"exists": True, "value": int(found.raw) if is_whole else found.value()}


def answer_yaml(question: Question) -> Any:
    from ccm_agent.model.codec import decode_yaml

    return decode_yaml(question["input"], "input")


def answer_hiera(question: Question) -> Any:
    from ccm_agent.hiera.resolve import resolve_values
    from ccm_agent.hiera.rules import check
    from ccm_agent.model import codec, merge

    decode = codec.decode_yaml if question.get("format") == "yaml" else codec.decode_document
    text = question["input"]
    resolved = resolve_values(decode(text, "input"), _facts(question) or {}, "input", text)
    data = merge.deep(resolved.data, question.get("overrides") or {})
    check(data, resolved.rules)
    return data


def answer_vercmp_apt(question: Question) -> int:
    from ccm_agent.model.formats.versions import compare_debian

    return compare_debian(question["a"], question["b"])


def answer_vercmp(question: Question) -> int:
    from ccm_agent.model.formats.versions import compare_plain

    return compare_plain(question["a"], question["b"], lenient=bool(question.get("lenient")))


OPERATIONS: dict[str, Callable[[Question], Any]] = {
    "expr": answer_expr,
    "template": answer_template,
    "typed": answer_typed,
    "jet": answer_jet,
    "go": answer_go,
    "gjson": answer_gjson,
    "yaml": answer_yaml,
    "hiera": answer_hiera,
    "vercmp_apt": answer_vercmp_apt,
    "vercmp": answer_vercmp,
}


def read_question(line: str) -> Question:
    """A line's question. The JSON that a `gjson` question asks about stays the text that it is."""
    question: Question = json.loads(line)
    if "json" in question:
        import msgspec

        question["json"] = bytes(msgspec.json.decode(line, type=dict[str, msgspec.Raw])["json"]).decode()
    return question


def answer(question: Question) -> dict[str, Any]:
    """The answer to one question."""
    operation = OPERATIONS.get(question["op"])
    if operation is None:
        return {"error": f"the operation {question['op']!r} is not known"}
    try:
        return {"value": shown(operation(question))}
    except CcmError as err:
        return {"error": str(err)}


def reply(line: str) -> str:
    """The answer to one line, as a line. A failure of our own is `{"crash": …}`: wrong, and no harm to the other answers."""
    try:
        return json.dumps(answer(read_question(line)), allow_nan=False)
    except Exception as err:  # noqa: BLE001 whatever it is, the questions behind it are to be answered
        traceback.print_exc()
        return json.dumps({"crash": repr(err)})


def main() -> None:
    for line in sys.stdin:
        if line.strip():
            sys.stdout.write(reply(line) + "\n")


if __name__ == "__main__":
    main()
