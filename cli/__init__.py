"""The commands of `trustfold`, one file per group, and their output.

Only `render` writes: data on standard output, everything else on standard error. A command's module is imported when
the command runs, so `trustfold --help` loads no engine.
"""
