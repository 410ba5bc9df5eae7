"""Detectors of models that go nowhere: one pattern, one file; `registry` lists them in order of precedence."""
