"""HTTP endpoints of `trustfold up` besides the engine's API: dashboard, hooks, checks, OTLP, metrics."""
