"""The peers' programs: each runs by itself, in its own environment, with nothing but its engine and `program.py`."""
