"""
CLI plugins of Choria CCM: commands that a YAML file in App Builder's format adds to `ccm`.

`definition.py` reads the files, `rendering.py` renders their texts, `program.py` turns an `exec` into a program, and `form.py`
asks the questions of a `form`. `cli/plugins.py` makes commands of `ccm` from them, and `cli/plugin_call.py` runs them.
"""
