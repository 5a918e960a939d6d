"""Measurements of the budgets. Each is compared with a reference in the same run, with medians."""
