"""Sources of `ccmctl secret put --from`: one module for each kind of source, imported when it is used."""
