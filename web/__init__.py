"""What a running `trustfold up` serves beside the engine's own API: the endpoint of agents' hooks."""
