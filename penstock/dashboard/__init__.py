"""The dashboard: pages in the browser that show a running engine, and on which people create and alter jobs."""
