"""Estimates the cost of three strategies to distribute a query over a cluster, by the cost model of StreamCloud.

A strategy's cost is `alpha * fan-out + beta * rate * hops`: connections to keep open, and rows to write and read on
their way from one node to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import UserError
from penstock.query.compile import compile_forms
from penstock.query.logical import App, Branch, Stateful, StatelessNode, Union, nodes_of


@dataclass(frozen=True)
class Strategy:
    """One way to distribute a query."""

    name: str
    unit: str
    subclusters: int
    fan_out: float
    hops: int
    cost: float


@dataclass(frozen=True)
class Cluster:
    """A cluster of `nodes` instances, `rate` events a second, and the two weights of the model."""

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
    operators, stateful = count_operators(app)
    nodes = cluster.nodes

    def strategy(name: str, unit: str, subclusters: int, fan_out: float, hops: int) -> Strategy:
        cost = cluster.alpha * fan_out + cluster.beta * cluster.rate * hops
        return Strategy(name, unit, subclusters, fan_out, hops, cost)

    # a query without state is one unit in every strategy but operator-cloud
    whole_fan_out = nodes * (nodes - 1.0) if stateful else 0.0
    operator_fan_out = nodes / operators * (operators - 1)
    set_unit = "each stateful operator with the stateless ones after it"
    options = [
        strategy("query-cloud", "the whole query on every node", 1, whole_fan_out, stateful),
        strategy(
            "operator-cloud", "each operator on nodes of its own", operators, operator_fan_out, operators - 1
        ),
        strategy("operator-set-cloud", set_unit, stateful + 1, nodes / (stateful + 1) * stateful, stateful),
    ]
    return sorted(options, key=lambda option: option.cost)


def count_operators(app: App) -> tuple[int, int]:
    """How many operators a query has after optimisation, and how many of them need an exchange.

    A top-k at the end needs none: the driver ranks the few best rows of all slices.
    """
    optimised = compile_forms(app).optimised
    nodes = [
        node
        for node in nodes_of(optimised)
        if isinstance(node, StatelessNode | Union | Stateful) and not isinstance(node, Branch)
    ]
    stateful = sum(isinstance(node, Stateful) for node in nodes)
    return max(1, len(nodes)), stateful


def compare_strategies(app: App, cluster: Cluster) -> str:
    """The strategies as a table."""
    operators, stateful = count_operators(app)
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
    edges = compile_forms(app).plan.edges
    exchanged = len({edge.target for edge in edges if edge.target.stage is not None and not edge.forward})
    if exchanged < stateful:
        lines += [
            "",
            f"of the {stateful} hops {stateful - exchanged} are saved: the rows are partitioned by the key already",
        ]
    return "\n".join(lines)
