"""OpenTelemetry in: a platform that already traces its tools in the GenAI conventions needs no new code (extra `otel`).

`processor.GuardSpanProcessor` listens in the same process; `receiver.otlp_app` takes OTLP over HTTP from others.
"""
