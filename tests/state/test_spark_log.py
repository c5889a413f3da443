"""Each generation's Spark has files of its own, which begin as those of the one before."""

from __future__ import annotations

from pathlib import Path

from penstock.state.spark_log import spark_log, spark_log_of


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def written(folder: Path, *epochs: int) -> None:
    for epoch in epochs:
        for part in ("offsets", "commits"):
            (folder / part).mkdir(parents=True, exist_ok=True)
            (folder / part / str(epoch)).write_text(f"{part} of {epoch}")


def test_a_new_state_begins_with_nothing(tmp_path: Path) -> None:
    assert files(spark_log_of(tmp_path, 1)) == {}
    assert spark_log(tmp_path) == spark_log_of(tmp_path, 1)


def test_what_the_one_before_had_is_there_and_what_it_writes_later_is_not(tmp_path: Path) -> None:
    first = spark_log_of(tmp_path, 1)
    written(first, 0, 1)
    (first / "metadata").write_text("id")
    (first / "offsets" / ".2.tmp").write_text("half")
    second = spark_log_of(tmp_path, 5)
    kept = {f"{part}/{epoch}": f"{part} of {epoch}" for part in ("offsets", "commits") for epoch in (0, 1)}
    assert files(second) == {**kept, "metadata": "id"}
    written(first, 2)  # a paused Spark that wakes makes its directories again
    assert files(second) == {**kept, "metadata": "id"}
    assert spark_log(tmp_path) == second
    third = spark_log_of(tmp_path, 6)
    assert files(third) == {**kept, "metadata": "id"}
    assert [path.name for path in (tmp_path / "spark").iterdir()] == [third.name]


def test_files_from_before_there_were_generations_are_taken_along(tmp_path: Path) -> None:
    written(tmp_path / "spark", 0, 1, 2)
    assert spark_log(tmp_path) == tmp_path / "spark"
    assert sorted(files(spark_log_of(tmp_path, 1))) == sorted(
        f"{part}/{epoch}" for part in ("offsets", "commits") for epoch in range(3)
    )


def test_one_killed_while_it_took_them_leaves_the_old_ones_in_force(tmp_path: Path) -> None:
    written(spark_log_of(tmp_path, 1), 0)
    half = tmp_path / "spark" / ".generation-000000000002"
    (half / "offsets").mkdir(parents=True)
    assert sorted(files(spark_log_of(tmp_path, 3))) == ["commits/0", "offsets/0"]
    assert sorted(files(spark_log_of(tmp_path, 4))) == ["commits/0", "offsets/0"]
