"""Which services lose how many of their healthy instances when a manifest is rolled out."""
