"""Rules: every threshold of the folds as data, their files and validation, and the levels that set them.

`rules.py` puts the groups together, one file holds each group, `parser.py` reads TOML and JSON and names faults by
line, `levels.py` resolves the five levels of settings. Imports the standard library, msgspec and `schemas`.
"""
