"""Start, show and stop a fleet on one machine for `ccmctl demo`: a broker, three agents and a dashboard."""
