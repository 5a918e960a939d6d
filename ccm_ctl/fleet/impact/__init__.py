"""The services that lose healthy instances when a manifest is rolled out, and the number of lost instances."""
