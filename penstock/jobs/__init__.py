"""Jobs: many queries on shared streams in one epoch, changed by commands while they run."""
