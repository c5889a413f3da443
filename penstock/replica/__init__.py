"""An engine of an HA unit: stands by or follows as the scheme asks, and leads once it has the lease.

`replica` is the state machine. Beside it: what an engine does while it stands by, follows or leads, its registration in
the unit, lag, priority, and the agreement on the copies of replicated logs.
"""
