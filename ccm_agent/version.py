"""The version of both programs, where reading it costs no import; `pyproject.toml` says the same."""

VERSION = "0.1.0"
