"""What other rules would have decided about the recorded past, and which thresholds do best by it."""
