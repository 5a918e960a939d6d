"""What holds for every manifest: loading it fails in our own words only, and a noop says what applying it then does."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import CcmError
from ccm_agent.model.outcome import Outcome, TransactionEvent
from ccm_agent.resources.archive import TYPE as ARCHIVE
from ccm_agent.resources.exec import TYPE as EXEC
from ccm_agent.resources.file import TYPE as FILE
from ccm_agent.resources.package import TYPE as PACKAGE
from ccm_agent.resources.scaffold import TYPE as SCAFFOLD
from ccm_agent.resources.service import TYPE as SERVICE
from ccm_agent.testing.files import FakeFiles
from tests.support.engine import Bench, bench

WORDS_OF_MANIFESTS = """
ccm resources file exec package service apply archive scaffold note defaults name ensure content source owner mode
command creates environment returns timeout url checksum headers post data hierarchy order merge overrides control if
unless require subscribe alias health_checks goss_rules tries try_sleep register_when_stable cluster service ttl
resources_jet_file pre_message fail_on_error provider global host contents type constant /a {{Data.a}} ${x}
"""
KEYS = st.sampled_from(WORDS_OF_MANIFESTS.split())
WORDS = st.sampled_from(
    [
        *(
            "",
            "/a",
            "/tmp/../x",
            "a b",
            "0644",
            "9999",
            "8s",
            "present",
            "absent",
            "latest",
            "first",
            "deep",
            "file#/a",
        ),
        *(
            "{{ Data.a }}",
            "{{",
            "${ 1 / 0 }",
            "{{ lookup('facts.os') }}",
            "{{ readFile('x') }}",
            "{{ [1] | map(#) }}",
        ),
        *("shell", "posix", "true", "http://h/a.tar.gz", "x.jet", "\x00", "\u2028", "-", "~"),
    ]
)
SCALARS = st.one_of(
    WORDS,
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.dates(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | WORDS, inner, max_size=4),
    max_leaves=12,
)
TYPES = st.sampled_from(["file", "exec", "package", "service", "archive", "scaffold", "apply", "note"])
BODIES = VALUES | st.dictionaries(KEYS, VALUES, max_size=6)
NAMED = st.dictionaries(WORDS | st.just("defaults"), BODIES, max_size=2)
MANIFESTS = st.fixed_dictionaries(
    {
        "ccm": st.fixed_dictionaries(
            {"resources": st.lists(st.dictionaries(TYPES, BODIES | st.lists(NAMED))) | VALUES}
        )
    },
    optional={"data": VALUES, "hierarchy": VALUES, "overrides": VALUES},
)
PIECES = st.lists(
    st.one_of(
        KEYS.map(lambda key: f"{key}:"),
        WORDS,
        st.sampled_from(
            [
                "\n",
                "\n  ",
                "\n    ",
                "- ",
                "\t",
                "{",
                "}",
                "[",
                "]",
                "&a ",
                "*a",
                "<<: *a",
                "|",
                "---\n",
                "#",
                "!!",
                "? ",
            ]
        ),
    ),
    max_size=30,
).map(" ".join)


def any_bench() -> Bench:
    """All types, on files that are made up."""
    files = FakeFiles()
    files.put_directory("/work")
    made = bench(FILE, EXEC, PACKAGE, SERVICE, ARCHIVE, SCAFFOLD, files=files)
    made.files = files
    return made


async def load(text: str | bytes, name: str = "m.yaml") -> None:
    """Load a document; what is wrong with it is said in the words of our errors."""
    made = any_bench()
    made.files.put(f"/work/{name}", text)
    try:
        await made.engine.load(ManifestSource(path=name), made.options())
    except CcmError as err:
        assert str(err)  # noqa: PT017 - whether there is an error is not what is asked


@given(MANIFESTS)
@settings(max_examples=80, deadline=None)
async def test_any_tree_is_loaded_or_refused(tree: dict[str, Any]) -> None:
    await load(yaml.safe_dump(tree, allow_unicode=True))


@given(MANIFESTS)
@settings(max_examples=40, deadline=None)
async def test_any_json_is_loaded_or_refused(tree: dict[str, Any]) -> None:
    await load(json.dumps(tree, default=str))


@given(PIECES | st.text(max_size=80))
@settings(max_examples=300, deadline=None)
async def test_any_text_is_loaded_or_refused(text: str) -> None:
    await load(text.encode("utf-8", "surrogatepass"))


@given(
    PIECES
    | st.lists(VALUES, min_size=1, max_size=3).map(lambda many: yaml.safe_dump_all(many, allow_unicode=True))
)
@settings(max_examples=80, deadline=None)
async def test_any_tinycm_manifest_is_loaded_or_refused(text: str) -> None:
    await load(text.encode("utf-8", "surrogatepass"), "site.cm.yml")


FILE_NAMES = ["/srv/a", "/srv/b", "/srv/c", "/srv/d"]
COMMANDS = ["/srv/w", "/srv/x", "/srv/y", "/srv/z"]
ATTRIBUTES = {"owner": "root", "group": "root"}


@st.composite
def manifests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Files and commands that do not stand on one another, except that a command may follow what comes before it."""
    resources: list[dict[str, Any]] = []
    references: list[str] = []
    for name in draw(st.lists(st.sampled_from(FILE_NAMES + COMMANDS), unique=True, min_size=1)):
        wanted: dict[str, Any]
        if name in FILE_NAMES:
            wanted = {
                "name": name,
                "ensure": draw(st.sampled_from(["present", "absent", "directory"])),
            }
            if wanted["ensure"] == "present" and draw(st.booleans()):
                wanted["content"] = draw(st.sampled_from(["", "x", "{{ Data.word }}"]))
            if wanted["ensure"] != "absent":
                wanted |= {**ATTRIBUTES, "mode": draw(st.sampled_from(["0644", "0750"]))}
            kind = "file"
        else:
            wanted = {"name": f"touch {name}"}
            is_guarded: bool = draw(st.booleans())
            if is_guarded:
                wanted["creates"] = name
            if draw(st.booleans()) and references:
                on_change_only: bool = draw(st.booleans())
                wanted |= {"subscribe": [draw(st.sampled_from(references))], "refreshonly": on_change_only}
            kind = "exec"
        if draw(st.integers(0, 5)) == 0:
            wanted["control"] = {"if": "false"}
        if draw(st.integers(0, 4)) == 0 and references:
            wanted["require"] = [draw(st.sampled_from(references))]
        references.append(f"{kind}#{wanted['name']}")
        resources.append({kind: wanted})
    return resources


def touch(files: FakeFiles, path: str) -> None:
    """What the command does to a file."""
    if path not in files.nodes:
        files.put(path)


@st.composite
def hosts(draw: st.DrawFn) -> Bench:
    """A host with some of the files that the manifests are about."""
    made = any_bench()
    files = made.files
    files.put_directory("/srv")
    for path in draw(st.lists(st.sampled_from(FILE_NAMES + COMMANDS), unique=True)):
        if draw(st.booleans()):
            files.put(path, draw(st.sampled_from(["", "x"])), mode=draw(st.sampled_from([0o600, 0o644])))
        else:
            files.put_directory(path)
    for path in COMMANDS:
        made.runner.when("touch", path, effect=partial(touch, files, path))
    return made


def shape(files: FakeFiles) -> dict[str, Any]:
    return {path: (n.kind, n.content, n.mode, n.uid, n.gid) for path, n in files.nodes.items()}


async def apply(made: Bench, **options: Any) -> list[TransactionEvent]:
    """The events of one run, in order."""
    made.events.clear()
    await made.engine.apply(ManifestSource(path="m.yaml"), made.options(**options))
    return list(made.events)


@given(hosts(), manifests())
@settings(max_examples=300, deadline=None)
async def test_noop_changes_nothing_and_predicts_apply_and_a_second_apply_is_stable(
    made: Bench, resources: list[dict[str, Any]]
) -> None:
    made.files.put("/work/m.yaml", json.dumps({"data": {"word": "w"}, "ccm": {"resources": resources}}))
    before = shape(made.files)

    told = await apply(made, noop=True)
    assert shape(made.files) == before
    assert made.runner.commands == []
    done = await apply(made)
    after = shape(made.files)
    again = await apply(made)

    assert [event.name for event in told] == [event.name for event in done] == [event.name for event in again]
    for said, did in zip(told, done, strict=True):
        if did.outcome in (Outcome.FAILED, Outcome.UNMET):
            break  # what only a change finds out noop cannot know, nor what follows from it
        assert (said.outcome, bool(said.noop_message)) == (did.outcome, did.changed or did.refreshed)
    assert shape(made.files) == after
    for did, repeated in zip(done, again, strict=True):
        if did.type == "file" and did.outcome not in (Outcome.FAILED, Outcome.UNMET):
            assert not repeated.changed
