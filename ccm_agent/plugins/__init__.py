"""
CLI plugins of Choria CCM: commands that a YAML file in App Builder's format adds to `ccm`.

`definition.py` reads the files, `rendering.py` renders their texts, `program.py` converts an `exec` to a
program, and `form.py` asks the questions of a `form`. `cli/plugins.py` adds them as commands of `ccm`, and
`cli/plugin_call.py` runs them.
"""
