"""The engine: composes an epoch loop, Spark, the role in an HA unit and elasticity into one running application.

`Engine` is the entry. Beside it: the role (leader or follower), the state it continues with, the turns of
the elastic loop, and the local sockets on which status and commands are served.
"""
