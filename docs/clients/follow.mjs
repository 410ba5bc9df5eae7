// Print what should be told to a model or to a person. A repeated record has the id of the first.
import { Kafka } from "kafkajs";

const brokers = (process.env.TRUSTFOLD_BROKER ?? "localhost:9092").split(",");
const prefix = process.env.TRUSTFOLD_TOPIC_PREFIX ?? "trustfold.";
const seen = new Set(); // bound it in a program that runs for long

const consumer = new Kafka({ brokers, clientId: "platform" }).consumer({ groupId: process.argv[2] ?? "platform-follower" });
await consumer.connect();
await consumer.subscribe({ topics: [`${prefix}nudges`, `${prefix}escalations`], fromBeginning: true });
await consumer.run({
  eachMessage: async ({ message }) => {
    const decision = JSON.parse(message.value.toString());
    if (seen.has(decision.id)) return;
    seen.add(decision.id);
    if (decision.type === "nudge.issued") {
      console.log(`${decision.session_id} ${decision.lane}: ${decision.message}`);
    } else if (decision.notification && !decision.silent) {
      console.log(`${decision.key} ${decision.to}: ${decision.notification}`);
    }
  },
});
