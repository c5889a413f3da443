"""The client: a service's streams, jobs and answers from Python, anywhere. Knows nothing of Spark."""

from penstock.client.connection import Client, connect
from penstock.client.subscription import Subscription
from penstock.client.told import Told

__all__ = ["Client", "Subscription", "Told", "connect"]
