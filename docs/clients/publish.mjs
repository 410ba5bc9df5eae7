// Publish one failed call: node publish.mjs BROKER trustfold.events SESSION. KafkaJS partitions as Java's client does.
import { randomUUID } from "node:crypto";
import { Kafka, Partitioners } from "kafkajs";

const [broker, topic, session] = process.argv.slice(2);
// The first 48 bits of a UUIDv7 are the time.
const id = () => {
  const hex = Date.now().toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7${randomUUID().slice(15)}`;
};
const call_id = id();
const event = (type, more) => ({
  schema_version: "1.0", id: id(), type, time: new Date().toISOString(),
  session_id: session, workspace_id: "billing", call_id, tool_name: "fetch_invoice", ...more,
});
const error = { message: "503 Service Unavailable", http_status: 503 };
const events = [
  event("tool_call.started", { args: { url: "https://invoices.example/7" } }),
  event("tool_call.finished", { status: "error", duration_ms: 120, error }),
];

const producer = new Kafka({ brokers: [broker], clientId: "platform" }).producer({
  createPartitioner: Partitioners.DefaultPartitioner, idempotent: true,
});
await producer.connect();
await producer.send({ topic, acks: -1, messages: events.map((each) => ({ key: session, value: JSON.stringify(each) })) });
await producer.disconnect();
