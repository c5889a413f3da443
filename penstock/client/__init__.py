"""The client: streams, jobs and results of a service, from Python anywhere. It does not depend on Spark."""

from penstock.client.connection import Client, connect
from penstock.client.result import Result
from penstock.client.subscription import Subscription
from penstock.moved import former_names_in

__all__ = ["Client", "Result", "Subscription", "connect"]

__getattr__ = former_names_in(__name__, Told="Result")
