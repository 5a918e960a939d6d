"""
No secret leaves: planted in each place where one may be written, it stands in nothing that a run tells, however it is written.

The commands of these runs print all that they are given, and the secret in some encoding besides, and then fail.
"""

from __future__ import annotations

import asyncio
import base64
import html
import io
import json
import logging
import shlex
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from ccm_agent.agent.events.run_report import RunFrame, RunReport
from ccm_agent.agent.process.log_setup import JsonFormatter, TextFormatter
from ccm_agent.engine.masking import shorten_for_bus
from ccm_agent.engine.render import render_plan
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.metrics.outcomes import OutcomeMetrics
from ccm_agent.metrics.registry import MetricsRegistry
from ccm_agent.model.errors import CcmError, CommandError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SessionStart, TransactionEvent
from ccm_agent.model.ports import Command, Completed
from ccm_agent.model.secret import Masker
from ccm_agent.resources.archive import TYPE as ARCHIVE
from ccm_agent.resources.exec import TYPE as EXEC
from ccm_agent.resources.file import TYPE as FILE
from ccm_agent.resources.package import TYPE as PACKAGE
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.locks import FakeLocks
from tests.support.engine import Board, bench

ENCODERS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 with a name": lambda text: base64.b64encode(f"me:{text}".encode()).decode(),
    "URL": lambda text: quote(text, safe=""),
    "form": quote_plus,
    "JSON": json.dumps,
    "JSON with letters": lambda text: json.dumps(text, ensure_ascii=False),
    "shell": shlex.quote,
    "Python": repr,
    "HTML": html.escape,
    "hex": lambda text: text.encode().hex(),
}

SECRETS = st.builds(
    lambda begin, text, end: f"Zq{begin}{text}{end}Wx",
    st.text("abcdefgh0123456789", min_size=4, max_size=6),
    st.text("""ab09 '"\\/%+&=<>~!@#:;,?.-_()[]|*^`äß€\U0001f600""", min_size=0, max_size=12),
    st.text("abcdefgh0123456789", min_size=4, max_size=6),
)


class Planted(Struct, kw_only=True):
    """A manifest with a secret in it, and what else the run is given."""

    manifest: dict[str, Any]
    documents: dict[str, dict[str, Any]] = {}
    data: dict[str, Any] | None = None
    environ: dict[str, str] = {}


def one(kind: str, name: str, **properties: Any) -> dict[str, Any]:
    return {kind: [{name: properties}]}


def planted(*resources: dict[str, Any], documents: Any = None, **sections: Any) -> Planted:
    """A manifest of resources and its other sections, with hiera documents over it."""
    return Planted(manifest={"ccm": {"resources": list(resources)}, **sections}, documents=documents or {})


PASSWORD = "{{ lookup('data.db.password') }}"
DECLARED = {
    "order": ["os:{{ lookup('facts.os') }}", "default"],
    "secret": ["db.password", "tls.*"],
    "merge": "deep",
}
NEXT = one("exec", "/bin/next")
TOOL = one("exec", "tool", command=f"/bin/tool -p{PASSWORD}", logoutput=True)


def data(secret: str) -> dict[str, Any]:
    return {"hierarchy": DECLARED, "data": {"db": {"password": secret}}}


def declared(*resources: dict[str, Any]) -> Callable[[str], Planted]:
    """A manifest whose own data holds the secret, under a key that it declares secret."""
    return lambda secret: planted(*resources, **data(secret))


def named_data(secret: str, *resources: dict[str, Any]) -> Planted:
    """A manifest whose own data holds the secret, under a key that nothing declares secret."""
    return planted(*resources, data={"db": {"password": secret}})


def archive(secret: str, url: str = "https://h/x.tar.gz", **fields: Any) -> Planted:
    kept = {"owner": "root", "group": "root", "creates": "/srv/x/done", "extract_parent": "/srv/x", **fields}
    return planted(one("archive", "/srv/x.tar.gz", url=url, ensure="present", **kept), NEXT)


def check(**fields: Any) -> dict[str, Any]:
    return one("note", "n", health_checks=[{"tries": 1, **fields}])


def in_url(secret: str) -> str:
    return quote(secret, safe="")


FILES = {"owner": "root", "group": "root", "mode": "0600", "ensure": "present"}
PLACES: dict[str, Callable[[str], Planted]] = {
    "data in a command": declared(TOOL),
    "data in a shell's command": declared(
        one("exec", "tool", command=f"tool '{PASSWORD}'", provider="shell")
    ),
    "data in a name": declared(
        one("exec", f"/bin/tool {PASSWORD}"),
        one("exec", "/bin/next", require=[f"exec#/bin/tool {PASSWORD}"]),
    ),
    "data in a guard": declared(one("exec", "/bin/tool", onlyif=f"/bin/test {PASSWORD}")),
    "data in a text": declared(one("note", "n", text=f"<{PASSWORD}>")),
    "data in the name of a note that breaks": declared(one("note", f"broken {PASSWORD}")),
    "data in content": declared(one("file", "/nowhere/f", content=f"pw={PASSWORD}\n", **FILES)),
    "data in the name of a package": declared(one("package", f"x{PASSWORD}", ensure="1")),
    "data in an environment": declared(one("exec", "/bin/tool", environment=[f"X={PASSWORD}"])),
    "data in a control that fails": declared(
        one("note", "n", control={"if": "lookup('data.db.password') + 1"})
    ),
    "data in messages": lambda s: Planted(
        manifest={
            "ccm": {
                "pre_message": PASSWORD,
                "post_message": f"-{PASSWORD}-",
                "resources": [one("note", "n")],
            },
            **data(s),
        }
    ),
    "data in a health check": declared(check(command=f"/bin/check {PASSWORD}")),
    "an override": lambda s: planted(
        TOOL, hierarchy=DECLARED, overrides={"os:linux": {"db": {"password": s}}}
    ),
    "a list below a key": lambda s: planted(
        one("exec", "tool", command="/bin/tool {{ lookup('data.tls.keys.1.key') }}"),
        hierarchy=DECLARED,
        data={"tls": {"keys": ["no", {"key": s}]}},
    ),
    "a hiera document": lambda s: planted(TOOL, documents={"/work/common.json": data(s)}),
    "a document that another one declares secret": lambda s: planted(
        TOOL, documents={"/work/a.json": data("usual"), "/work/b.json": {"data": {"db": {"password": s}}}}
    ),
    "data that the caller gives": lambda s: Planted(
        manifest=planted(TOOL, hierarchy=DECLARED).manifest, data={"db": {"password": s}}
    ),
    "a key whose name says it": lambda s: named_data(s, TOOL),
    "a key whose name says it, in a name": lambda s: named_data(
        s,
        one("exec", f"/bin/tool {PASSWORD}"),
        one("exec", "/bin/next", require=[f"exec#/bin/tool {PASSWORD}"]),
    ),
    "a key whose name says it, in a text that breaks": lambda s: named_data(
        s, one("note", "n", text="{{ lookup('data.db.password') + 1 }}")
    ),
    "a key whose name says it, in a control that fails": lambda s: named_data(
        s, one("note", "n", control={"if": "lookup('data.db.password') + 1"})
    ),
    "a key whose name says it, in a property that is refused": lambda s: named_data(
        s, one("file", "/nowhere/f", content="x", **{**FILES, "mode": PASSWORD})
    ),
    "a key whose name says it, in a reference without an outcome": lambda s: named_data(
        s, one("exec", "/bin/next", require=[f"exec#/bin/tool {PASSWORD}"])
    ),
    "a key whose name says it, of a hiera document": lambda s: planted(
        TOOL, documents={"/work/common.json": {"data": {"db": {"password": s}}}}
    ),
    "a key whose name says it, of data that the caller gives": lambda s: Planted(
        manifest=planted(TOOL).manifest, data={"db": {"password": s}}
    ),
    "a list below a key whose name says it": lambda s: planted(
        one("exec", "tool", command="/bin/tool {{ lookup('data.api_tokens.1') }}"),
        data={"api_tokens": ["none", s]},
    ),
    "below a key whose name says it": lambda s: planted(
        one("exec", "tool", command="/bin/tool {{ lookup('data.credentials.db.value') }}"),
        data={"credentials": {"db": {"value": s}}},
    ),
    "the data of a child that is not reached": lambda s: planted(
        one("note", "broken"),
        one("apply", "child.yaml", data={"db": {"password": s}}, require=["note#broken"]),
    ),
    "the data of a child that does not exist": lambda s: planted(
        one("apply", "child.yaml", data={"db": {"password": s}})
    ),
    "a password in a URL of data": lambda s: planted(
        one("exec", "tool", command="/bin/tool {{ lookup('data.dsn') }}"),
        NEXT,
        data={"dsn": f"postgres://me:{in_url(s)}@db/x"},
    ),
    "a variable that expressions see": lambda s: Planted(
        manifest=planted(one("exec", "tool", command="/bin/tool {{ Environ.DB_PASSWORD }}")).manifest,
        environ={"DB_PASSWORD": s},
    ),
    "an option of a command": lambda s: planted(
        one("exec", f"/bin/tool --user me --db-password={shlex.quote(s)}"), NEXT
    ),
    "the next argument of a command": lambda s: planted(
        one("exec", f"/bin/tool --db-password {shlex.quote(s)} --user me"), NEXT
    ),
    "a variable in a command": lambda s: planted(
        one("exec", "tool", command=f"/usr/bin/env PGPASSWORD={shlex.quote(s)} /bin/tool"), NEXT
    ),
    "an environment": lambda s: planted(one("exec", "/bin/tool", environment=[f"ANY={s}"], logoutput=True)),
    "an environment, printed later": lambda s: planted(
        one("exec", "/bin/tool", environment=[f"ANY={s}"]), NEXT
    ),
    "a variable whose name says it": lambda s: planted(
        one("exec", "/bin/tool", environment=[f"DB_PASSWORD={s}"]), one("note", f"about {s}")
    ),
    "a password of an archive": lambda s: archive(s, username="me", password=s),
    "a header of an archive": lambda s: archive(s, headers={"X-Any": s}),
    "a password in a URL": lambda s: archive(s, f"https://me:{in_url(s)}@h/x.tar.gz"),
    "a token in a URL": lambda s: archive(s, f"https://h/x.tar.gz?token={in_url(s)}"),
    "a signature in a URL": lambda s: planted(
        one("file", "/srv/f", source=f"https://h/f?a=1&X-Amz-Signature={in_url(s)}", **FILES), NEXT
    ),
    "a signature in a URL in a command": lambda s: planted(
        one("exec", f"/bin/tool https://h/f?sig={in_url(s)}")
    ),
    "a password of a health check": lambda s: planted(
        check(
            format="goss",
            goss_rules={"http": {"https://h/": {"status": 200, "username": "me", "password": s}}},
        ),
        NEXT,
    ),
}


class Loud:
    """A runner of commands that print all they are given, and a text, and fail."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def run(self, command: Command, on_line: Callable[[str], None] | None = None) -> Completed:
        lines = [
            f"argv {list(command.argv)}",
            *command.argv,
            *command.env.values(),
            self.text,
            f'{{"x": "{self.text}"}}',
        ]
        for line in lines if on_line else ():
            assert on_line is not None
            on_line(line)
        is_guard = command.argv[0] == "/bin/test"
        said = "\n".join(lines).encode()
        return Completed(code=0 if is_guard else 3, stdout=said, stderr=b"", dropped_bytes=0, timed_out=False)


class Breaking(Board):
    """Notes that cannot be written, by a fault of the program, which says what it was given."""

    async def write(self, wanted: Any) -> None:
        if wanted.name.startswith("broken"):
            raise ZeroDivisionError(f"division by {wanted.name}")
        raise CommandError(f"cannot write {wanted.name}: {wanted.text}", output=wanted.text)


class Sent:
    """What a report gives to the spool."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def append(self, *, body: bytes, **_: object) -> None:
        self.bodies.append(body)

    async def settle(self, *, flush: bool) -> None:
        pass


class Told:
    """Everything that a run tells, as text, each with where it stands."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def add(self, where: str, value: Any) -> None:
        if isinstance(value, (str, bytes)):
            text = value if isinstance(value, str) else value.decode()
            self.texts.append((where, text))
            return
        for leaf in _leaves(msgspec.to_builtins(value)):
            self.texts.append((where, leaf))
        self.texts.append((where, json.dumps(msgspec.to_builtins(value))))

    def leaks(self, secret: str) -> list[tuple[str, str, str]]:
        forms = {name: encode(secret) for name, encode in ENCODERS.items()}
        return [
            (where, name, text[:300])
            for where, text in self.texts
            for name, form in forms.items()
            if form in text
        ]


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield str(value)


async def tell(given: Planted, loud: str, session: str) -> Told:
    """Run it as the agent does and as `ccm apply` does, and keep what is told on the way."""
    told, log = Told(), _Log()
    kinds = (EXEC, FILE, PACKAGE, ARCHIVE)
    ports: dict[str, Any] = {"download": FakeDownload(), "locks": FakeLocks(), "unpack": None}
    on = bench(
        *kinds,
        board=Breaking(),
        runner=Loud(loud),
        secrets=log.masker,
        port=ports.__getitem__,
    )
    for path, document in given.documents.items():
        on.files.put(path, json.dumps(document))
    sent = Sent()
    report = RunReport(
        RunFrame(run=new_id(), node="web1"), sent, FakeClock(), shorten=_shorten(kinds), is_full=True
    )  # type: ignore[arg-type]
    metrics = MetricsRegistry()

    def on_start(start: SessionStart) -> None:
        told.add("start", start)
        report.start(start)

    async def on_event(event: TransactionEvent) -> None:
        told.add("event", msgspec.to_builtins(event))
        await report.resource(event)

    asked = ApplyOptions(
        hiera=tuple(given.documents),
        data=given.data,
        environ=given.environ,
        session=session,
        on_start=on_start,
        on_event=on_event,
        on_resource=report.on_resource,
        on_note=lambda level, message, fields: told.add("note", [level, message, dict(fields)]),
        metrics=OutcomeMetrics(metrics),
    )
    try:
        plan = await on.engine.load(
            ManifestSource(text=json.dumps(given.manifest).encode(), name="m.yaml"), asked
        )
        told.add("message", plan.loaded.pre_message + plan.loaded.post_message)
        if not any("environment" in text for text in map(str, given.manifest["ccm"]["resources"])):
            # a rendered manifest is applied elsewhere, so it keeps the environment
            told.add("render", render_plan(plan.loaded, plan.state.masker))
        summary = await on.engine.execute(plan)
        told.add("summary", summary)
        report.finish(summary)
        told.add("progress", report.progress_now())
    except CcmError as err:
        told.add("error", f"{err} {err.message} {err!r}")
        told.add("traceback", "".join(traceback.format_exception(err)))
        report.finish(reason=str(err), code=err.code)
        log.write(err)
    log.say(loud)
    told.add("log", log.text)
    told.add("metrics", metrics.exposition())
    for body in sent.bodies:
        told.add("spool", body)
        told.add("spool", json.loads(body))
    return told


def _shorten(kinds: tuple[Any, ...]) -> Callable[[TransactionEvent], TransactionEvent]:
    known = {kind.name: kind for kind in kinds}
    return lambda event: shorten_for_bus(event, known[event.type]) if event.type in known else event


class _Log:
    """The log of a process, in both forms, which knows what runs have learned."""

    def __init__(self) -> None:
        self.masker = Masker()
        self._stream = io.StringIO()
        self._logger = logging.Logger("ccm_agent.test")
        for formatter in (TextFormatter(self.masker), JsonFormatter(self.masker)):
            handler = logging.StreamHandler(self._stream)
            handler.setFormatter(formatter)
            self._logger.addHandler(handler)

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def write(self, err: Exception) -> None:
        self._logger.error("it broke: %s", err, exc_info=err, extra={"reason": str(err), "error": err})

    def say(self, text: str) -> None:
        self._logger.warning("heard %s", text, extra={"heard": text, "all": {"of": [text]}})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=15, deadline=None)
@given(secret=SECRETS, encoder=st.sampled_from(sorted(ENCODERS)))
def test_no_secret_leaves_however_a_program_writes_it(place: str, secret: str, encoder: str) -> None:
    with tempfile.TemporaryDirectory() as session:
        told = asyncio.run(tell(PLACES[place](secret), ENCODERS[encoder](secret), session))
        kept = [path.read_text() for path in Path(session).glob("*.event")]

    for text in kept:
        told.add("session", text)
        told.add("session", json.loads(text))
    assert told.leaks(secret) == []
    assert told.texts
