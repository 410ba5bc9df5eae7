// Print what a model or a person should be told: node follow.mjs BROKER GROUP trustfold.nudges trustfold.escalations
import { Kafka } from "kafkajs";

const [broker, groupId, ...topics] = process.argv.slice(2);
const seen = new Set(); // bound it in a program that runs for long

const consumer = new Kafka({ brokers: [broker], clientId: "platform" }).consumer({ groupId });
await consumer.connect();
await consumer.subscribe({ topics, fromBeginning: true });
await consumer.run({
  eachMessage: async ({ message: { key, value } }) => {
    const told = JSON.parse(value.toString());
    const text = told.message ?? told.notification;
    if (!text || told.silent || seen.has(told.id)) return;
    seen.add(told.id);
    console.log(`${key} ${told.type}: ${text}`);
  },
});
