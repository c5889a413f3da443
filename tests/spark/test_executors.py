"""An engine on a cluster begins with the executors asked for; what each kind of master needs for it is set."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.errors import UserError
from penstock.settings import Settings, on_one_host
from penstock.spark.executors import Executor, Executors, initial_settings


def test_standalone_begins_by_the_initial_number_of_dynamic_allocation() -> None:
    chosen = initial_settings(Settings(master="spark://host:7077", executors=2))
    assert chosen["spark.dynamicAllocation.initialExecutors"] == "2"
    assert chosen["spark.executor.cores"] == "1"
    assert "spark.executor.instances" not in chosen


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:6443"])
def test_others_begin_by_the_number_of_instances(master: str) -> None:
    chosen = initial_settings(Settings(master=master, executors=3, executor_cores=2))
    assert (chosen["spark.executor.instances"], chosen["spark.executor.cores"]) == ("3", "2")
    assert "spark.dynamicAllocation.enabled" not in chosen


def test_without_a_requested_number_the_cluster_decides() -> None:
    assert set(initial_settings(Settings(master="spark://host:7077"))) == {"spark.decommission.enabled"}


def test_no_executor_at_all_is_refused() -> None:
    with pytest.raises(UserError) as failure:
        initial_settings(Settings(master="yarn", executors=0))
    assert failure.value.condition == "BAD_SETTING"


@pytest.mark.parametrize(
    ("master", "one"),
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
def test_which_masters_are_on_this_host(master: str, one: bool) -> None:
    assert on_one_host(master) is one


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
