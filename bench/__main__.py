"""`python -m bench NAME`, which is what `./run bench NAME` starts."""

from bench.guard import guard

guard()

from bench.cli import main  # noqa: E402 - a benchmark is loaded in the process that runs it

main()
