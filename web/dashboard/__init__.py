"""The dashboard: pages for people, served by `trustfold up` and `trustfold web` from a `DashboardSource`."""
