"""Analysis of one call from its own events: key, class, fingerprints, severity. Pure functions."""
