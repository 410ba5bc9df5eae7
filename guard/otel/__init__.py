"""OpenTelemetry input for platforms that trace tools in the GenAI conventions (extra `otel`).

`processor.GuardSpanProcessor` reads spans in the same process; `receiver.otlp_app` receives OTLP over HTTP.
"""
