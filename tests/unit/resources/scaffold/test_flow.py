"""A scaffold in the flow that manages every resource: what is written, purged, removed, counted and said."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.engine.masking import shorten_for_bus
from ccm_agent.model.errors import FileError
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.resources.scaffold import TYPE
from ccm_agent.resources.scaffold.model import ScaffoldMetadata, ScaffoldState
from ccm_agent.resources.scaffold.providers.choria import Choria
from tests.support.scaffold import TARGET, Host, wish

TWO = {"a.conf": "name = [[ data.name ]]\n", "sub/b.conf": "nested [[ data.name ]]\n"}
RENDERED = {"a.conf": "name = world\n", "sub/b.conf": "nested world\n"}


def said(event: TransactionEvent) -> tuple[str, str, str]:
    """Outcome, final ensure and noop message; the error instead when it failed."""
    return (event.outcome.value, event.final_ensure, event.noop_message or "".join(event.error))


def lists(event: TransactionEvent) -> dict[str, list[str]]:
    metadata = event.status.metadata
    found = {"changed": metadata.changed, "stable": metadata.stable, "purged": metadata.purged}
    return {
        name: [path.removeprefix(f"{TARGET}/") for path in paths] for name, paths in found.items() if paths
    }


class TestPresent:
    async def test_files_are_rendered_and_then_right(self) -> None:
        host = Host(TWO)

        events = [
            await host.apply(noop=True),
            await host.apply(),
            await host.apply(),
            await host.apply(noop=True),
        ]

        assert host.target == RENDERED
        assert [said(event) for event in events] == [
            ("changed", "present", "Would have changed 2 scaffold files"),
            ("changed", "present", ""),
            ("stable", "present", ""),
            ("stable", "present", ""),
        ]
        assert [event.status.stable for event in events] == [False, True, True, True]

    async def test_noop_changes_nothing(self) -> None:
        host = Host(TWO)
        before = dict(host.files.nodes)

        await host.apply(noop=True)

        assert (host.files.nodes, host.port("records").documents) == (before, {})

    async def test_a_state_is_written_as_choria_ccm_writes_it(self) -> None:
        event = await Host(TWO).apply()

        assert isinstance(event.status, ScaffoldState)
        assert event.status.metadata == ScaffoldMetadata(
            name="/out",
            provider="choria",
            target_exists=True,
            stable=["/out/a.conf", "/out/sub/b.conf"],
            engine="jet",
        )
        assert "failing" not in msgspec.to_builtins(event.status)["metadata"]

    async def test_files_are_0644_and_directories_0755_whatever_the_source_has(self) -> None:
        host = Host()
        host.files.put("/site/src/d/run.sh", "x", mode=0o755)
        host.files.put("/site/src/secret", "x", mode=0o600)

        await host.apply()

        modes = {path: host.files.nodes[f"/out{path}"].mode for path in ("", "/d", "/d/run.sh", "/secret")}
        assert modes == {"": 0o755, "/d": 0o755, "/d/run.sh": 0o644, "/secret": 0o644}

    async def test_only_differing_files_are_written(self) -> None:
        host = Host({"new": "1\n", "changed": "2\n", "same": "3\n"})
        host.put("changed", "x\n", mode=0o600)
        host.put("same", "3\n", mode=0o600)

        event = await host.apply()

        assert host.port("trees").written == [(TARGET, ("changed", "new"))]
        assert lists(event) == {"stable": ["changed", "new", "same"]}
        assert [host.files.nodes[f"{TARGET}/{name}"].mode for name in ("changed", "same")] == [0o644, 0o600]

    async def test_failing_template_changes_no_file(self) -> None:
        host = Host(TWO)
        await host.apply()
        host.source("a.conf", "changed\n")
        host.source("sub/b.conf", "[[ nothing() ]]")

        event = await host.apply(purge=True)

        assert (event.outcome.value, event.code, host.target) == ("failed", "input.template", RENDERED)

    async def test_symlink_in_the_source_changes_no_file(self) -> None:
        host = Host(TWO)
        host.files.put_symlink("/site/src/link", "a.conf")

        event = await host.apply()

        assert said(event) == (
            "failed",
            "",
            "src: link is a symlink, but a source may contain only files and directories",
        )
        assert host.target == {}

    async def test_after_a_change_its_files_are_listed_as_stable(self) -> None:
        assert lists(await Host(TWO).apply()) == {"stable": ["a.conf", "sub/b.conf"]}

    async def test_data_that_change_change_the_files(self) -> None:
        host = Host(TWO)
        await host.apply()
        host.data["name"] = "moon"

        event = await host.apply()

        assert (event.outcome.value, host.target["a.conf"]) == ("changed", "name = moon\n")

    async def test_a_template_with_changing_output_changes_each_time(self) -> None:
        host = Host({"a": "{{ randAlphaNum 20 }}"})

        events = [await host.apply(engine="go") for _ in range(2)]

        assert [(event.outcome.value, lists(event)) for event in events] == [
            ("changed", {"changed": ["a"]})
        ] * 2

    @pytest.mark.parametrize(
        ("shown", "source", "property_after"),
        [
            ("", "src", "src"),
            ("site", "src", "site/src"),
            ("/site", "src", "/site/src"),
            ("site", "/site/./src", "/site/src"),
            ("", "./x/../src", "src"),
        ],
    )
    async def test_the_source_is_shown_from_where_the_manifest_was_named(
        self, shown: str, source: str, property_after: str
    ) -> None:
        host = Host(TWO)
        host.shown_directory = shown

        event = await host.apply(source=source)

        assert (event.outcome.value, event.properties.source) == ("changed", property_after)

    async def test_two_scaffolds_of_one_manifest_have_each_their_own_source(self) -> None:
        host = Host(TWO)
        host.files.put("/site/other/c", "c")
        provider, one, other = Choria(host), wish(), wish(name="/out2", source="other")

        for wanted in (one, other):
            await provider.status(wanted)
        await provider.render(one)
        await provider.render(other)

        assert host.target == RENDERED
        assert host.files.nodes["/out2/c"].content == b"c"

    async def test_names_that_are_not_utf_8_are_reported(self) -> None:
        host = Host({"caf\udce9": "x"})

        first, second = await host.apply(), await host.apply()

        assert [said(event)[0] for event in (first, second)] == ["changed", "stable"]
        assert msgspec.json.encode(second.status.metadata.stable) == '["/out/caf\ufffd"]'.encode()


class TestNothingRendered:
    @pytest.mark.parametrize(
        ("sources", "properties", "reason"),
        [
            pytest.param({"d/": ""}, {}, "the source src has no templates", id="no file"),
            pytest.param({"_partials/p": "p"}, {}, "the source src has no templates", id="partials only"),
            pytest.param(
                {"a": " \n"},
                {"skip_empty": True},
                "the source src has no templates except ones that render to nothing",
                id="empty files only",
            ),
        ],
    )
    async def test_is_a_failure_each_time(
        self, sources: dict[str, str], properties: dict[str, Any], reason: str
    ) -> None:
        host = Host(sources)
        host.put("mine", "kept")

        events = [await host.apply(noop=noop, purge=True, **properties) for noop in (True, False, False)]

        message = f"failed to reach desired state present: {reason}"
        assert [said(event) for event in events] == [("failed", "", message)] * 3
        assert host.target == {"mine": "kept"}

    async def test_the_directory_is_made_anyway(self) -> None:
        host = Host({"d/": ""})

        await host.apply()

        assert host.files.nodes[TARGET].kind == "directory"

    async def test_a_source_that_is_a_file_or_a_symlink_holds_nothing(self) -> None:
        host = Host({"a": "x"})
        host.files.put("/site/file", "x")
        host.files.put_symlink("/site/link", "src")

        reasons = [
            (await host.apply(source=source)).error[0].partition("present: ")[2]
            for source in ("file", "link")
        ]

        assert reasons == [
            "the source file is not a directory",
            "the source link is a symlink: name the directory itself, or end an absolute path with a slash",
        ]

    async def test_a_source_that_is_missing_is_a_failure_and_nothing_is_made(self) -> None:
        host = Host()

        events = [await host.apply(noop=noop) for noop in (True, False)]

        assert [event.error for event in events] == [
            ["/site/src: cannot be read: No such file or directory"]
        ] * 2
        assert TARGET not in host.files.nodes


class TestPurge:
    EXTRA = {".dot": "x", "extra": "x", "own/deep/x": "x", "sub/extra": "x"}

    async def test_others_are_listed_and_stay(self) -> None:
        host = Host(TWO)
        for path in self.EXTRA:
            host.put(path, "x")

        events = [await host.apply(noop=True), await host.apply(), await host.apply()]

        assert [said(event)[::2] for event in events] == [
            ("changed", "Would have changed 2 scaffold files"),
            ("changed", ""),
            ("stable", ""),
        ]
        assert lists(events[2]) == {"stable": list(RENDERED), "purged": list(self.EXTRA)}
        assert host.target == {**RENDERED, **self.EXTRA}

    async def test_with_purge_they_go_and_directories_stay(self) -> None:
        host = Host(TWO)
        for path in self.EXTRA:
            host.put(path, "x")

        events = [await host.apply(noop=noop, purge=True) for noop in (True, False, False)]

        assert [said(event)[::2] for event in events] == [
            ("changed", "Would have changed 6 scaffold files"),
            ("changed", ""),
            ("stable", ""),
        ]
        assert (host.target, host.files.nodes["/out/own/deep"].kind) == (RENDERED, "directory")

    async def test_others_alone_are_a_change(self) -> None:
        host = Host(TWO)
        await host.apply(purge=True)
        host.put("extra", "x")

        events = [await host.apply(noop=noop, purge=True) for noop in (True, False)]

        assert [said(event)[::2] for event in events] == [
            ("changed", "Would have changed 1 scaffold files"),
            ("changed", ""),
        ]
        assert host.target == RENDERED

    async def test_the_link_that_is_the_target_stays(self) -> None:
        host = Host(TWO)
        host.files.put("/real/mine", "kept")
        host.files.put_symlink(TARGET, "/real")

        events = [await host.apply(noop=noop, purge=True) for noop in (True, False, False)]

        assert [said(event)[::2] for event in events] == [
            ("changed", "Would have changed 2 scaffold files"),
            ("changed", ""),
            ("stable", ""),
        ]
        assert (host.files.nodes[TARGET].link, host.files.nodes["/real/mine"].content) == ("/real", b"kept")

    async def test_a_link_in_a_directorys_place_gives_way_in_one_run(self) -> None:
        host = Host(TWO)
        host.files.put("/real/mine", "kept")
        host.files.put_symlink("/out/sub", "/real")

        events = [await host.apply(purge=True), await host.apply(purge=True)]

        assert [event.outcome.value for event in events] == ["changed", "stable"]
        assert (host.target, "/real/b.conf" in host.files.nodes) == (RENDERED, False)

    async def test_a_failure_to_purge_fails_the_resource(self) -> None:
        host = Host(TWO)
        host.put("extra", "x")
        host.files.refuses["/out/extra"] = "cannot be removed: Operation not permitted"

        event = await host.apply(purge=True)

        assert said(event) == ("failed", "", "/out/extra: cannot be removed: Operation not permitted")


class TestAbsent:
    async def test_all_files_of_the_scaffold_are_removed(self) -> None:
        host = Host(TWO)
        await host.apply()

        events = [await host.apply(ensure="absent", noop=noop) for noop in (True, False, False)]

        assert [said(event) for event in events] == [
            ("changed", "present", "Would have removed 2 scaffold files"),
            ("changed", "absent", ""),
            ("stable", "absent", ""),
        ]
        assert TARGET not in host.files.nodes
        assert host.port("records").documents == {}

    async def test_unmanaged_files_stay(self) -> None:
        host = Host(TWO)
        await host.apply()
        host.put("mine", "x")
        host.put("sub/mine", "x")

        events = [await host.apply(ensure="absent", purge=True, noop=noop) for noop in (True, False, False)]

        assert [said(event) for event in events] == [
            ("changed", "present", "Would have removed 2 scaffold files"),
            ("changed", "present", ""),
            ("stable", "present", ""),
        ]
        assert host.target == {"mine": "x", "sub/mine": "x"}

    async def test_altered_files_go_too(self) -> None:
        host = Host(TWO)
        host.put("a.conf", "altered")

        event = await host.apply(ensure="absent")

        assert (event.outcome.value, TARGET in host.files.nodes) == ("changed", False)

    async def test_a_directory_that_held_no_file_stays(self) -> None:
        host = Host({"a": "a", "empty/": ""})
        await host.apply()

        events = [await host.apply(ensure="absent"), await host.apply(ensure="absent")]

        assert [event.outcome.value for event in events] == ["changed", "stable"]
        assert host.files.nodes["/out/empty"].kind == "directory"

    async def test_a_template_that_fails_keeps_everything(self) -> None:
        host = Host(TWO)
        await host.apply()
        host.source("a.conf", "[[ nothing() ]]")

        event = await host.apply(ensure="absent")

        assert (event.outcome.value, host.target) == ("failed", RENDERED)

    async def test_removal_works_without_the_source(self) -> None:
        host = Host({**TWO, "c": '[[ write("written", "x") ]]c'})
        await host.apply()
        host.put("mine", "x")
        host.remove_source()

        events = [await host.apply(ensure="absent", noop=noop) for noop in (True, False, False)]

        assert [said(event) for event in events] == [
            ("changed", "present", "Would have removed 4 scaffold files"),
            ("changed", "present", ""),
            ("stable", "present", ""),
        ]
        assert host.target == {"mine": "x"}

    async def test_removal_works_with_an_emptied_source(self) -> None:
        host = Host(TWO)
        await host.apply()
        host.remove_source()
        host.source("d/", "")

        await host.apply(ensure="absent")

        assert TARGET not in host.files.nodes

    async def test_without_source_and_record_removal_reports_an_error(self) -> None:
        host = Host()
        host.put("mine", "x")

        event = await host.apply(ensure="absent")

        assert said(event) == (
            "failed",
            "",
            "/out: the source src no longer exists, and there is no record of its rendered files: restore the source, or remove "
            "the directory with a `file` resource",
        )

    async def test_without_source_and_target_nothing_changes(self) -> None:
        assert said(await Host().apply(ensure="absent")) == ("stable", "absent", "")

    async def test_a_file_in_the_targets_place_is_an_error(self) -> None:
        host = Host(TWO)
        host.files.put(TARGET, "x")

        for ensure in ("present", "absent"):
            event = await host.apply(ensure=ensure)

            assert event.error == ["/out: is not a directory, but must be one"]

    async def test_a_file_that_cannot_be_removed_fails_the_resource(self) -> None:
        host = Host(TWO)
        await host.apply()
        host.files.refuses["/out/a.conf"] = "cannot be removed: Operation not permitted"

        event = await host.apply(ensure="absent")

        assert said(event) == ("failed", "", "/out/a.conf: cannot be removed: Operation not permitted")
        assert host.target == {"a.conf": "name = world\n"}


class TestTrouble:
    @pytest.mark.parametrize("kind", ["directory", "fifo"])
    async def test_something_else_in_a_files_place_is_an_error_not_a_hang(self, kind: str) -> None:
        host = Host(TWO)
        if kind == "fifo":
            host.files.put_fifo("/out/a.conf")
        else:
            host.files.put_directory("/out/a.conf")

        event = await host.apply()

        assert (event.outcome.value, event.code) == ("failed", "host.file")

    async def test_a_memory_that_cannot_be_kept_fails_the_resource(self) -> None:
        host = Host(TWO)

        class Full:
            async def recall(self, kind: str, key: str) -> bytes | None:
                return b"not JSON"  # as good as none

            async def keep(self, kind: str, key: str, document: bytes | None) -> None:
                raise FileError("/var/lib/ccm/records: cannot be written: No space left on device")

        host.ports["records"] = Full()

        event = await host.apply()

        assert said(event) == (
            "failed",
            "",
            "/var/lib/ccm/records: cannot be written: No space left on device",
        )

    async def test_nothing_rendered_is_in_an_event(self) -> None:
        host = Host({"a": "password = [[ data.password ]]\n"}, data={"password": "s3cret-word"})

        events = [await host.apply(noop=True), await host.apply(), await host.apply()]

        assert all(b"s3cret-word" not in msgspec.json.encode(event) for event in events)


PATHS = ["a", "b", "d/a", "d/b", "d/e/a", "f"]
TEMPLATES = ["x", "[[ data.name ]]", " ", '[[ write("w", "w") ]]y', "[[ fails() ]]"]


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    """Templates, and in the target files, directories, symlinks and a FIFO, in places that both are about."""
    host = Host({"d/e/": ""})
    for path in draw(st.lists(st.sampled_from(PATHS), unique=True)):
        host.source(path, draw(st.sampled_from(TEMPLATES)))
    host.files.put("/real/a", draw(st.sampled_from(["x", "mine"])))
    for path in draw(st.lists(st.sampled_from([*PATHS, "w", "d/more", "g/more"]), unique=True)):
        host.put(path, draw(st.sampled_from(["x", "world", "mine"])))
    place = draw(st.sampled_from(["", "/a", "/f", "/g", "/w"]))
    if not any(path.startswith(f"{TARGET}{place}") for path in host.files.nodes):
        draw(
            st.sampled_from(
                [
                    lambda path: host.files.put_symlink(path, "/real"),
                    lambda path: host.files.put_symlink(path, "/real/a"),
                    lambda path: host.files.put_symlink(path, "nowhere"),
                    host.files.put_directory,
                    host.files.put_fifo,
                ]
            )
        )(f"{TARGET}{place}")
    return host


def shape(host: Host) -> dict[str, tuple[str, bytes, str]]:
    return {
        path: (node.kind, node.content, node.link)
        for path, node in host.files.nodes.items()
        if path.startswith((TARGET, "/real"))
    }


@given(hosts(), st.booleans(), st.booleans(), st.sampled_from(["present", "absent"]))
@settings(max_examples=300, deadline=None)
async def test_an_applied_file_is_stable(host: Host, purge: bool, skip_empty: bool, ensure: str) -> None:
    properties = {"purge": purge, "skip_empty": skip_empty, "ensure": ensure}
    before = shape(host)

    planned = await host.apply(noop=True, **properties)
    assert shape(host) == before
    first = await host.apply(**properties)
    after = shape(host)
    second = await host.apply(**properties)

    assert shape(host) == after
    if first.failed:
        assert second.failed
        assert {path: seen for path, seen in after.items() if seen[0] != "directory"} == {
            path: seen for path, seen in before.items() if seen[0] != "directory"
        }
    else:
        assert (second.outcome.value, planned.changed, planned.failed) == ("stable", first.changed, False)
        if purge and ensure == "present":
            listed = {one.removeprefix(f"{TARGET}/") for one in second.status.metadata.stable}
            assert set(host.target) in (listed, set())  # set(): the target is a symlink


async def test_of_data_only_a_digest_leaves_over_the_bus() -> None:
    event = await Host(TWO).apply(data={"name": "s3cret-word"})

    told = shorten_for_bus(event, TYPE)

    assert b"s3cret-word" not in msgspec.json.encode(told)
    assert told.properties["data"].startswith("sha256:")
