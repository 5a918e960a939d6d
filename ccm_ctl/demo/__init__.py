"""A fleet on one machine, for `ccmctl demo`: a broker, three agents and a dashboard, started, shown and stopped."""
