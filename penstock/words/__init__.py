"""The vocabulary of Penstock: errors, durations, identifiers. Imports nothing else of Penstock."""
