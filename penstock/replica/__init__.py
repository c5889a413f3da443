"""An engine of an HA unit: stands by or follows as the scheme says, and leads once it has the lease.

`member` is the state machine; the rest is what it needs: standing by, lag, rejoining after a lost session, sparing the
machine while another leads, and the checks that replicas run the same code and read the same copies.
"""
