"""Random rollouts with random faults on a real fleet; what every reader of it reports must agree afterwards."""
