"""Detectors of unproductive behaviour, one pattern per file; `registry` lists them in order of precedence."""
