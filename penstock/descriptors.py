"""Raises the limit of open files, and computes how many of them connections may take."""

from __future__ import annotations

import resource

#: a process needs no more, and some tables of the kernel grow with the limit
MOST_DESCRIPTORS = 1 << 16
#: descriptors that connections leave to files
RESERVED = 128


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files as far as this process may; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def compute_room(limit: int, used_by_files: int) -> int:
    """Compute how many connections may be open: the rest is for the files of logs and of new streams."""
    return max(limit - used_by_files - min(RESERVED, limit // 4), 1)
