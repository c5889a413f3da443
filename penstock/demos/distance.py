"""The distance between two places."""

from __future__ import annotations

import polars as pl

EARTH_KM = 6371.0


def kilometres(lat: pl.Expr, lon: pl.Expr, to_lat: pl.Expr, to_lon: pl.Expr) -> pl.Expr:
    """The great-circle distance."""
    lat, lon, to_lat, to_lon = (degrees.radians() for degrees in (lat, lon, to_lat, to_lon))
    half = ((to_lat - lat) / 2).sin() ** 2 + lat.cos() * to_lat.cos() * ((to_lon - lon) / 2).sin() ** 2
    return 2 * EARTH_KM * half.sqrt().arcsin()
