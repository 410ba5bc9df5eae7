// Publish one failed call. Keyed by the session; KafkaJS partitions as Java's client does.
import { randomUUID } from "node:crypto";
import { Kafka, Partitioners } from "kafkajs";

const brokers = (process.env.TRUSTFOLD_BROKER ?? "localhost:9092").split(",");
const topic = `${process.env.TRUSTFOLD_TOPIC_PREFIX ?? "trustfold."}events`;
const session = process.argv[2] ?? "s-1";

// The first 48 bits of a UUIDv7 are the time.
const id = () => {
  const hex = Date.now().toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7${randomUUID().slice(15)}`;
};
const event = (type, more) => ({
  schema_version: "1.0", id: id(), type, time: new Date().toISOString(), session_id: session, workspace_id: "billing", ...more,
});

const call = { call_id: id(), tool_name: "fetch_invoice", args: { url: "https://invoices.example/7" } };
const { args, ...called } = call;
const error = { type: "HTTPError", message: "503 Service Unavailable", http_status: 503 };
const events = [
  event("tool_call.started", { ...called, args }),
  event("tool_call.finished", { ...called, status: "error", duration_ms: 120, error }),
];

const producer = new Kafka({ brokers, clientId: "platform" }).producer({
  createPartitioner: Partitioners.DefaultPartitioner, idempotent: true,
});
await producer.connect();
await producer.send({ topic, acks: -1, messages: events.map((each) => ({ key: session, value: JSON.stringify(each) })) });
await producer.disconnect();
