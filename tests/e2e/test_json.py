"""`--json`: each command of `ccmctl` is run with it, on a fleet with credentials, and its records fit their schemas."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ccm_ctl.__main__ import VERBS
from ccm_ctl.commands.command_tree import CtlProgram
from tests.support.fleet import Done, a_file, manifest
from tests.support.secured import Secured, secured_fleet
from tests.support.warm_ccm import warm_programs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

LEFT_OUT = {
    "completion",
    "dashboard",
    "demo",
    "help",
    "join list",
    "join reset",
    "join serve",
    "node accept",
    "node add",
    "operator add",
    "rollout serve",
    "secret history",
    "secret init",
    "secret list",
    "secret put",
    "secret remove",
    "secret rotate",
    "secret sync",
    "secret who",
    "studio",
    "token create",
    "token list",
    "token revoke",
    "top",
}
"""
They print a script, help or credentials, or run until they are stopped. Commands about joining and secrets need keys of their
own: `tests/nats/test_joining.py`, `tests/e2e/test_secrets.py` and `tests/e2e/test_secret_rotation.py` run them.
"""

COMMANDS = """\
init --security
node list                                    # node
node show web1                               # node
ping                                         # reply
import --all --types group,host --out imported        # import
signers list                                 # signer
signers allow-unsigned 1d                    # made
signers allow-unsigned --end                 # made
signers max-age 3d                           # made
signers publish                              # made
signers renew                                # made
audit                                        # audit
facts set web1 env=prod                      # facts
facts unset web1 env                         # facts
facts show web1                              # facts
facts history web1                           # document
data put common common.yaml                  # document
data edit common --yes                       # document
data get common                              # document
data list                                    # document
data history common                          # document
data diff common --file common.yaml          # document
data rollback common                         # document
data put role/old common.yaml                # document
data rm role/old --yes                       # document
data protect --noop
data explain port --node web1                # explained
plan site.yaml --all                         # run event result end
apply site.yaml --all --yes                  # run event result end
undo last --yes --diff                       # run event result end
apply broken.yaml --all --yes                # error
ensure exec true --all --yes                 # run result end
ensure mount /srv mounted --unchecked --all --yes    # run result end
exec --all --yes --json -- true              # run result end
run list                                     # run
run show last                                # run result
run diff last last
history web1                                 # session event
state web1                                   # state
report last --html run.html                  # made
run watch last                               # run result end
run stop last --yes                          # run
apply fails.yaml --all --yes                 # run event result end
run retry last fails.yaml --yes              # run event result end
apply site.yaml --all --batch 1 --detach --yes                    # run
run pause last                               # rollout
rollout list                                 # rollout
run resume last --detach                     # rollout
run abort last                               # rollout
apply site.yaml --all --batch 1 --detach --yes                    # run
run promote last                             # rollout
events --no-follow --node web1               # event
events --since 1h --until 0s -t node=web1 --type resource         # event
events --verify --since 1h                   # verification
events --verify                              # verification
assign web site.yaml --all --data kv://CCM_DATA/common --yes      # assignment
assignment status web --wait 30s             # assignment standing
assign web site.yaml --all --interval 1h --yes                    # assignment
assignment history web                       # assignment
assignment list                              # assignment
rollback web --yes                           # assignment
bundle list                                  # bundle
bundle get {bundle} --out site-of-before     # bundle
bundle gc --dry-run
why web1                                     # why
unassign web --yes                           # assignment
schedule add nightly site.yaml --cron "0 2 * * *" --all --yes     # schedule
schedule list                                # schedule
schedule status nightly                      # error
schedule run nightly --yes                   # run result end
group set canary -t node=web*                 # group
group list                                    # group
group rm canary
schedule rm nightly --yes                       # schedule
notify add log --on drift --exec true --file rules.yaml           # made
notify list --file rules.yaml                # notification_rule
notify test log --file rules.yaml            # made
notify rm log --file rules.yaml              # made
doctor                                       # check checks
disable --all --for 1h --why "new disk" --yes                     # reply
enable --all --yes                           # reply
lock web1 --resource 'service#web' --for 1h --why x --yes         # reply
lock list                                    # lock
unlock web1 --yes                            # reply
run-now --all --yes                          # reply
slots
slots release pg-restart web1 --yes          # error
operator revoke bob                          # made
node revoke web1                             # made
node reset web1 --force --yes                # node
node rm web1 --force --yes                   # node
facts set web1 role=web --new                # facts
node rm web1 --force --yes                   # node
"""
"""Command lines in order, each with the kinds of records that it prints at least."""

FAILING = {
    "apply broken.yaml --all --yes",
    "apply fails.yaml --all --yes",
    "ensure mount /srv mounted --unchecked --all --yes",
    "run retry last fails.yaml --yes",
    "schedule status nightly",
    "slots release pg-restart web1 --yes",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_fleet(tmp_path_factory.mktemp("json")) as one:
        yield one


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that does something itself."""
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                yield from leaves(child, (*path, name))
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path)


def test_every_command_is_run() -> None:
    lines = COMMANDS.splitlines()

    missing = {
        name
        for name in leaves(CtlProgram(VERBS))
        if name and not any(line.startswith(f"{name} ") for line in lines)
    }

    assert missing == LEFT_OUT


def test_records_of_every_command_fit_their_schemas(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(manifest(a_file("motd")))
    (tmp_path / "broken.yaml").write_text("ccm: [")
    (tmp_path / "fails.yaml").write_text(manifest(("exec", "fails", {"command": "false"})))
    (tmp_path / "common.yaml").write_text("data: {port: 80}\n")
    found: dict[str, int] = {}
    bundle = ""

    with warm_programs("ccmctl") as folder:
        environ = {
            **secured.fleet.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "EDITOR": "sed -i s/80/81/",
        }
        for line in COMMANDS.splitlines():
            words = shlex.split(line.replace("{bundle}", bundle), comments=True)
            done = subprocess.run(
                ["ccmctl", *words, *([] if "--json" in words else ["--json"])],
                cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
            said = Done(done.returncode, done.stdout, done.stderr)
            kinds = {record["record"] for record in said.records}
            bundle = next((record["digest"] for record in said.named("bundle")), bundle)
            assert set(line.partition(" #")[2].split()) <= kinds, f"{line}\n{done.stdout}{done.stderr}"
            found[line] = done.returncode

    assert {line.partition("  ")[0] for line, code in found.items() if code} == FAILING
