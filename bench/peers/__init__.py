"""Penstock beside its peers: the same input, the same answers, one report."""
