"""Who leads: the coordination store, sessions that others can see end, and leases with generations."""
