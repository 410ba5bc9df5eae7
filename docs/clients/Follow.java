// Print what a model or a person should be told: Follow BROKER GROUP trustfold.nudges trustfold.escalations
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

class Follow {
    public static void main(String[] words) throws Exception {
        var settings = Map.<String, Object>of("bootstrap.servers", words[0], "group.id", words[1], "auto.offset.reset", "earliest");
        var json = new ObjectMapper();
        var seen = new HashSet<String>(); // bound it in a program that runs for long
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(words).subList(2, words.length));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    var told = json.readTree(record.value());
                    var text = told.path("message").asText() + told.path("notification").asText();
                    if (text.isEmpty() || told.path("silent").asBoolean() || !seen.add(told.path("id").asText())) continue;
                    System.out.printf("%s %s: %s%n", record.key(), told.path("type").asText(), text);
                }
            }
        }
    }
}
