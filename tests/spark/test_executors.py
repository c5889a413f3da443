"""An engine on a cluster starts with the requested number of executors, by the settings of each kind of master."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.errors import UserError
from penstock.settings import Settings, on_one_host
from penstock.spark.executors import Executor, Executors, initial_settings


def test_on_standalone_the_initial_number_of_dynamic_allocation_is_set() -> None:
    chosen = initial_settings(Settings(master="spark://host:7077", executors=2))
    assert chosen["spark.dynamicAllocation.initialExecutors"] == "2"
    assert chosen["spark.executor.cores"] == "1"
    assert "spark.executor.instances" not in chosen


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:6443"])
def test_on_other_masters_the_number_of_instances_is_set(master: str) -> None:
    chosen = initial_settings(Settings(master=master, executors=3, executor_cores=2))
    assert (chosen["spark.executor.instances"], chosen["spark.executor.cores"]) == ("3", "2")
    assert "spark.dynamicAllocation.enabled" not in chosen


def test_without_a_requested_number_the_cluster_decides() -> None:
    assert set(initial_settings(Settings(master="spark://host:7077"))) == {"spark.decommission.enabled"}


def test_zero_executors_are_refused() -> None:
    with pytest.raises(UserError) as failure:
        initial_settings(Settings(master="yarn", executors=0))
    assert failure.value.condition == "BAD_SETTING"


@pytest.mark.parametrize(
    ("master", "is_one_host"),
    [
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://127.example.org:7077", False),
        ("spark://node7:7077", False),
        ("yarn", False),
    ],
)
def test_which_masters_are_on_this_host(master: str, is_one_host: bool) -> None:
    assert on_one_host(master) is is_one_host


def test_a_task_prefers_an_executor_by_its_location() -> None:
    assert Executor("3", "10.0.0.7", 1, 0.0, 0).location == "executor_10.0.0.7_3"


@pytest.mark.spark
def test_a_local_master_has_no_executors_and_takes_no_requests(spark: SparkSession) -> None:
    executors = Executors(spark.sparkContext)
    executors.wait_for_first(3, 1.0)
    assert executors.list() == ()
    assert not executors.request(2)
    assert executors.retire(["driver"]) == ()
    assert not executors.wait_for(1, 0.0)
