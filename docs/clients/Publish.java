// Publish one failed call. Java's default partitioner is the one that trustfold expects.
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

    static String event(String session, String type, String more) {
        return """
            {"schema_version": "1.0", "id": "%s", "type": "%s", "time": "%s", "session_id": "%s", "workspace_id": "billing", %s}
            """.formatted(id(), type, Instant.now(), session, more).strip();
    }

    public static void main(String[] words) {
        String broker = System.getenv().getOrDefault("TRUSTFOLD_BROKER", "localhost:9092");
        String topic = System.getenv().getOrDefault("TRUSTFOLD_TOPIC_PREFIX", "trustfold.") + "events";
        String session = words.length > 0 ? words[0] : "s-1";
        String call = "\"call_id\": \"%s\", \"tool_name\": \"fetch_invoice\"".formatted(id());
        String failed = ", \"status\": \"error\", \"duration_ms\": 120, \"error\": {\"message\": \"503 Service Unavailable\", \"http_status\": 503}";
        var settings = Map.<String, Object>of("bootstrap.servers", broker, "acks", "all", "client.id", "platform");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            var started = event(session, "tool_call.started", call + ", \"args\": {\"url\": \"https://invoices.example/7\"}");
            producer.send(new ProducerRecord<>(topic, session, started));
            producer.send(new ProducerRecord<>(topic, session, event(session, "tool_call.finished", call + failed)));
        }
    }
}
