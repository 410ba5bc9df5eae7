"""Recorded days to look at: written by us, event by event, and replayed by `trustfold demo`."""
