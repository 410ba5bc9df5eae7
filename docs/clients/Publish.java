// Publish one failed call: Publish BROKER trustfold.events SESSION. Java's default partitioner is the one that trustfold expects.
import java.time.Instant;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

class Publish {
    /** A UUIDv7: 48 bits of time, then random bits. */
    static String id() {
        String hex = String.format("%012x", System.currentTimeMillis());
        return hex.substring(0, 8) + "-" + hex.substring(8) + "-7" + UUID.randomUUID().toString().substring(15);
    }

    public static void main(String[] words) throws Exception {
        String topic = words[1], session = words[2], call = id();
        var settings = Map.<String, Object>of("bootstrap.servers", words[0], "acks", "all", "client.id", "platform");
        String event = """
            {"schema_version": "1.0", "id": "%s", "type": "%s", "time": "%s", "session_id": "%s", "workspace_id": "billing",
             "call_id": "%s", "tool_name": "fetch_invoice", %s}""";
        String args = "\"args\": {\"url\": \"https://invoices.example/7\"}";
        String error = "\"status\": \"error\", \"duration_ms\": 120, \"error\": {\"message\": \"503 Service Unavailable\", \"http_status\": 503}";
        String started = event.formatted(id(), "tool_call.started", Instant.now(), session, call, args);
        String finished = event.formatted(id(), "tool_call.finished", Instant.now(), session, call, error);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, session, started));
            producer.send(new ProducerRecord<>(topic, session, finished)).get(); // throws what has kept it from being acknowledged
        }
    }
}
