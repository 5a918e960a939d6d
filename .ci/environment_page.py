"""The environment variables that the programs read, in Markdown."""

from __future__ import annotations

from tables import plain, table

BOTH, CCM, CTL, AGENT = "both", "`ccm`", "`ccmctl`", "`ccm agent`"

VARIABLES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Connection": (
        (
            "CCM_SERVER",
            BOTH,
            "URLs of the broker, separated by commas.",
        ),
        ("NATS_URL", BOTH, "Used if CCM_SERVER is not set. `nats` reads it too."),
        ("CCM_CONTEXT", BOTH, "A context of the `nats` program."),
        ("NATS_CONTEXT", BOTH, "Used if CCM_CONTEXT is not set."),
        ("CCM_CREDS", BOTH, "Credentials file."),
        ("NATS_CREDS", BOTH, "Used if CCM_CREDS is not set."),
        ("CCM_CA", BOTH, "File with the CA certificates for the broker."),
        (
            "CCM_INSECURE",
            BOTH,
            "Accepts a broker without authentication or TLS, unless it is 0, false or no.",
        ),
        ("NATS_PASSWORD", CTL, "The password of `--user`."),
        (
            "HTTPS_PROXY",
            CTL,
            "The proxy for webhooks and Vault, as HTTP_PROXY, except for NO_PROXY.",
        ),
    ),
    "Commands": (
        ("CCM_HIERA_DATA", CCM, "Hiera data for expressions, as `--data`."),
        ("CCM_SESSION_STORE", CCM, "Directory of a session, as `--session`."),
        ("HIERA_INPUT", CCM, "The document of `ccm hiera parse`."),
        ("HTTP_PASSWORD", CCM, "The password of `ccm ensure archive`, as `--password`."),
        ("CCM_OPERATOR", CTL, "The name on requests, as `--operator`."),
        ("CCM_KEYS", CTL, "Directory of the fleet's keys, as `--keys`."),
        ("CCM_NOTIFY", CTL, "The file of notification rules."),
        ("VISUAL", CTL, "The editor of `ccmctl data edit`; if it is not set, EDITOR."),
        ("EDITOR", CTL, "The same."),
        ("SHELL", CCM, "The shell of a plugin's `script`."),
        ("BUILDER_DRY_RUN", CCM, "If set, plugins print their program and do not run it."),
        (
            "SUDO_USER",
            BOTH,
            "The user behind sudo, for the name on requests.",
        ),
        ("LOGNAME", CTL, "The name on requests, if SUDO_USER is not set."),
        ("USER", CTL, "Used if LOGNAME is not set either."),
    ),
    "Vault and OpenBao": (
        ("VAULT_ADDR", CTL, "URL of the server."),
        ("VAULT_CACERT", CTL, "File with the CA certificates for it."),
        ("VAULT_NAMESPACE", CTL, "Its namespace."),
        ("VAULT_TOKEN", CTL, "A token, instead of a login."),
        ("VAULT_ROLE_ID", CTL, "Role of a login with AppRole."),
        ("VAULT_SECRET_ID", CTL, "Its secret."),
        ("VAULT_SECRET_ID_FILE", CTL, "The file with it."),
        ("VAULT_JWT_FILE", CTL, "File with the JWT of a login."),
        ("VAULT_ROLE", CTL, "The role of that login."),
        ("VAULT_AUTH_PATH", CTL, "Where the login is mounted. Default: `approle` or `jwt`."),
    ),
    "Directories and programs": (
        (
            "HOME",
            BOTH,
            "Contains the user's directories, unless an XDG variable names another place.",
        ),
        (
            "XDG_CONFIG_HOME",
            BOTH,
            "Contexts of `nats`, keys, notification rules, facts. Default: `~/.config`.",
        ),
        (
            "XDG_STATE_HOME",
            BOTH,
            "State, in `ccm`. Default: `~/.local/state`; for root `/var/lib`.",
        ),
        (
            "XDG_RUNTIME_DIR",
            BOTH,
            "Lock files of users other than root. Default: `~/.local/state`.",
        ),
        (
            "XDG_CACHE_HOME",
            CTL,
            "Where `ccmctl demo` keeps nats-server. Default: `~/.cache`.",
        ),
        ("UV_DEFAULT_INDEX", CTL, "The index for that download. Default: PyPI."),
        ("PIP_INDEX_URL", CTL, "Used if UV_DEFAULT_INDEX is not set."),
        ("TMPDIR", CCM, "Temporary directory of `post` commands. Default: `/tmp`."),
        ("PATH", BOTH, "Directories that contain programs."),
        ("TZ", BOTH, "The time zone."),
    ),
    "Terminal": (
        ("NO_COLOR", BOTH, "Prints without color."),
        (
            "FORCE_COLOR",
            BOTH,
            "Prints with color into pipes and files too, unless `NO_COLOR` is set.",
        ),
        ("TERM", BOTH, "`dumb` prints without color and without progress."),
        ("COLUMNS", BOTH, "Width of the output. Default: the width of the terminal."),
        ("COMP_LINE", BOTH, "Set by bash during completion."),
        ("COMP_POINT", BOTH, "Set by bash during completion."),
        ("COMP_WORDBREAKS", BOTH, "Set by bash during completion."),
        ("_CCM_COMPLETE", CCM, "Set by the completion script."),
        ("_CCMCTL_COMPLETE", CTL, "Set by the completion script."),
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
"""All variables, by section: name, program, meaning."""


def environment() -> str:
    """Return each section with its table."""
    parts = []
    for title, rows in VARIABLES.items():
        cells = [(f"`{name}`", program, plain(meaning)) for name, program, meaning in rows]
        parts += [f"## {title}", table(["Variable", "Read by", "Meaning"], cells)]
    return "\n\n".join(parts)
