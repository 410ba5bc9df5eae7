"""Recording: daemons and commands that write what happens into the history, from Kafka, an engine's store or files."""
