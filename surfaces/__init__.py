"""What people and scripts touch: the commands of `trustfold`, one file per group, and how they print.

Only `output` writes: data on standard output, everything else on standard error. A command module is imported when its
command runs, so `trustfold --help` loads no engine.
"""
