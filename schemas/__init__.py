"""The contract: what may be said on the wire and how it is read.

Input events, output decisions, operator commands, the internal outcomes, the topic catalogue, rules and
settings as data, and the codec that turns bytes into them or says why not. Any Kafka client in any language
can speak it; the JSON Schemas and the AsyncAPI document in `generated/` are made from these modules. Imports
the standard library, orjson and msgspec, and nothing else of trustfold.
"""
