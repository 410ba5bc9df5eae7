// Print what should be told to a model or to a person. A repeated record has the id of the first.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

class Follow {
    public static void main(String[] words) throws Exception {
        String broker = System.getenv().getOrDefault("TRUSTFOLD_BROKER", "localhost:9092");
        String prefix = System.getenv().getOrDefault("TRUSTFOLD_TOPIC_PREFIX", "trustfold.");
        String group = words.length > 0 ? words[0] : "platform-follower";
        var settings = Map.<String, Object>of("bootstrap.servers", broker, "group.id", group, "auto.offset.reset", "earliest");
        var seen = new HashSet<String>(); // bound it in a program that runs for long
        var reader = new ObjectMapper();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(prefix + "nudges", prefix + "escalations"));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    JsonNode decision = reader.readTree(record.value());
                    if (!seen.add(decision.path("id").asText())) continue;
                    if (decision.path("type").asText().equals("nudge.issued")) {
                        System.out.printf("%s %s: %s%n", decision.path("session_id").asText(), decision.path("lane").asText(), decision.path("message").asText());
                    } else if (decision.has("notification") && !decision.path("silent").asBoolean()) {
                        System.out.printf("%s %s: %s%n", decision.path("key").asText(), decision.path("to").asText(), decision.path("notification").asText());
                    }
                }
            }
        }
    }
}
