"""Applications that are small enough to read in one sitting; each file runs with `penstock run`."""
