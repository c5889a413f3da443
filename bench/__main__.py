"""`python -m bench NAME`, which is what `./run bench NAME` starts."""

from bench.cli import main

main()
