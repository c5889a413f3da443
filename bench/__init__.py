"""Benchmarks of Penstock, alone and beside its peers: `./run bench NAME` in a checkout. Not part of the package."""
