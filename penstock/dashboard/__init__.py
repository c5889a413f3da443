"""The dashboard: pages that show a running engine and let people create, alter and pause jobs."""
