"""What every test can use: a Kafka broker (tests/support/broker_kit)."""

pytest_plugins = ["broker_kit.plugin"]
