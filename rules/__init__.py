"""Rules: every threshold of the folds as data, their files and validation, and the levels that set them.

`rules.py` combines the groups, one file holds each group, `parser.py` parses TOML and JSON and reports faults by line,
`levels.py` resolves the five levels of settings. Imports the standard library, msgspec and `schemas`.
"""
