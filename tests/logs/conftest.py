"""The log files of these tests are rotated, which needs a real disk."""

from tests.disk import tmp_path

__all__ = ["tmp_path"]  # a fixture
