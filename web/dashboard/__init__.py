"""The dashboard: pages for people, served by `trustfold up` and `trustfold web`; their data comes from a `Source`."""
