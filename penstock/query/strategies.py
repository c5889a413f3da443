"""What the three ways to spread a query over a cluster would cost, by StreamCloud's cost model (seed 003, XI). Pure.

Receives an app and the size of the cluster; hands a line for each strategy. A strategy's cost is
`alpha * fan-out + beta * rate * hops`: connections that must be kept, and rows that are written and read on their
way from one place to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import UserError
from penstock.query.compile import forms
from penstock.query.logical import App, Branch, Stateful, StatelessNode, Union, nodes_of


@dataclass(frozen=True)
class Strategy:
    """One way to spread a query."""

    name: str
    unit: str
    subclusters: int
    fan_out: float
    hops: int
    cost: float


@dataclass(frozen=True)
class Cluster:
    """Where the query would run: `nodes` instances, `rate` events a second, and the model's two weights."""

    nodes: int
    rate: float
    alpha: float = 1.0
    beta: float = 1.0


def strategies(app: App, cluster: Cluster) -> list[Strategy]:
    """The three strategies, cheapest first. Penstock cuts by operator-set-cloud."""
    if cluster.nodes < 1 or cluster.rate < 0:
        raise UserError(
            "BAD_OPTION", "a cluster has at least one node and no negative rate", hint="As in --nodes 4."
        )
    operators, stateful = counted(app)
    nodes = cluster.nodes
    # a query without state is one unit in every strategy but operator-cloud
    shapes = [
        (
            "query-cloud",
            "the whole query on every node",
            1,
            nodes * (nodes - 1.0) if stateful else 0.0,
            stateful,
        ),
        (
            "operator-cloud",
            "each operator on nodes of its own",
            operators,
            nodes / operators * (operators - 1),
            operators - 1,
        ),
        (
            "operator-set-cloud",
            "each stateful operator with the stateless ones after it",
            stateful + 1,
            nodes / (stateful + 1) * stateful,
            stateful,
        ),
    ]
    found = [
        Strategy(
            name, unit, parts, fan_out, hops, cluster.alpha * fan_out + cluster.beta * cluster.rate * hops
        )
        for name, unit, parts, fan_out, hops in shapes
    ]
    return sorted(found, key=lambda strategy: strategy.cost)


def counted(app: App) -> tuple[int, int]:
    """How many operators a query has once it is optimised, and how many of them need their rows brought together.

    A top-k at the end does not: the driver ranks the slices' few best rows.
    """
    optimised = forms(app).optimised
    nodes = [
        node
        for node in nodes_of(optimised)
        if isinstance(node, StatelessNode | Union | Stateful) and not isinstance(node, Branch)
    ]
    stateful = sum(isinstance(node, Stateful) for node in nodes)
    return max(1, len(nodes)), stateful


def told(app: App, cluster: Cluster) -> str:
    """The strategies as a table."""
    operators, stateful = counted(app)
    lines = [
        f"{operators} operators, {stateful} of them stateful, on {cluster.nodes} nodes at {cluster.rate:,.0f} events/s",
        f"cost = {cluster.alpha:g} x fan-out + {cluster.beta:g} x rate x hops",
        "",
        f"{'strategy':20}{'subclusters':>12}{'fan-out':>10}{'hops':>6}{'cost':>14}  unit",
    ]
    for strategy in strategies(app, cluster):
        used = "  <- Penstock's" if strategy.name == "operator-set-cloud" else ""
        lines.append(
            f"{strategy.name:20}{strategy.subclusters:>12}{strategy.fan_out:>10,.0f}{strategy.hops:>6}"
            f"{strategy.cost:>14,.0f}  {strategy.unit}{used}"
        )
    made = forms(app).plan
    exchanged = len(
        {edge.target for edge in made.edges if edge.target.stage is not None and not edge.forward}
    )
    if exchanged < stateful:
        lines += [
            "",
            f"of the {stateful} hops {stateful - exchanged} are saved: the rows lie by the key already",
        ]
    return "\n".join(lines)
