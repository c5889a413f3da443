"""Logs are files that are rotated: on a disk."""

from tests.disk import tmp_path

__all__ = ["tmp_path"]  # a fixture
