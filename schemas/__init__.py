"""Wire contract: schemas of all records, and the codec.

Input events, output decisions, operator commands, internal outcomes, the topic catalogue, settings as data, and the
codec that decodes bytes or reports why they are invalid. Any Kafka client in any language can use it; the JSON Schemas
and the AsyncAPI document in `generated/` are generated from these modules. Imports the standard library, orjson and
msgspec, and no other package of trustfold.
"""
