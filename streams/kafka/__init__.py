"""The Kafka engine: the topology as a Faust worker.

Faust provides group membership, assignment, commits, recovery and timers. The batch lane replaces its one asyncio step
per record by one step per poll of a partition, and writes state once per touched key and checkpoint. Needs the extra
`kafka`; agents are imported by name, never discovered.
"""
