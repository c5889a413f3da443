"""The query language: SQL text to statements, and a SELECT to the same logical plan as the Python API makes."""
