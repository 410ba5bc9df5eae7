"""Scripted scenarios, as recorded events, that `trustfold demo` replays."""
