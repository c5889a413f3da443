"""Elects leaders: the coordination store, sessions kept alive by heartbeats, and leases with generations."""
