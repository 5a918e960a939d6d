"""Where `ccmctl secret put --from` reads values: one module for each kind of source, imported when it is used."""
