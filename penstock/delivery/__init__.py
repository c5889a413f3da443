"""Delivery: the result log, and how its rows reach the sinks.

An epoch appends the rows of all outputs to the result log before it is committed. Each sink of each output reads the
log at its own pace, with a cursor of its own, so one that is slow or away delays nobody else.
"""
