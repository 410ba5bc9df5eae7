"""Engines: they run the topology and provide time, transport and durability.

`kafka` runs it as a Faust worker in a consumer group; `embedded` runs it on one machine without Kafka. They are
independent of each other, and both give the same outputs for the same log.
"""
