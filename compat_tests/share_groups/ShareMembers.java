// A process that holds members of share groups, by Kafka's own share consumer. It takes one JSON command a line, does
// what it says, and answers with one JSON line: {"result": ...} or {"error": NAME, "message": TEXT}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class ShareMembers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaShareConsumer<String, String>> MEMBERS = new HashMap<>();
    private static final Map<String, ConsumerRecord<String, String>> POLLED = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", perform(JSON.readTree(line)));
            } catch (RuntimeException error) {
                answer.put("error", error.getClass().getSimpleName()).put("message", String.valueOf(error.getMessage()));
            }
            out.println(answer);
            out.flush();
        }
        for (KafkaShareConsumer<String, String> member : MEMBERS.values()) {
            member.close(Duration.ofSeconds(5));
        }
    }

    private static JsonNode perform(JsonNode command) {
        String name = command.get("member").asText();
        switch (command.get("op").asText()) {
            case "join":
                MEMBERS.put(name, join(command));
                return null;
            case "poll":
                return polled(name, command.get("ms").asLong());
            case "acknowledge":
                KafkaShareConsumer<String, String> member = MEMBERS.get(name);
                AcknowledgeType type = AcknowledgeType.valueOf(command.get("type").asText());
                for (JsonNode record : command.get("records")) {
                    member.acknowledge(POLLED.get(name + record), type);
                }
                return null;
            case "commit":
                return committed(MEMBERS.get(name).commitSync(Duration.ofMillis(command.get("ms").asLong())));
            case "close":
                MEMBERS.remove(name).close(Duration.ofSeconds(10));
                return null;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private static KafkaShareConsumer<String, String> join(JsonNode command) {
        Properties properties = new Properties();
        command.get("properties").properties().forEach(each -> properties.put(each.getKey(), each.getValue().asText()));
        KafkaShareConsumer<String, String> member =
            new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        List<String> topics = new ArrayList<>();
        command.get("topics").forEach(topic -> topics.add(topic.asText()));
        member.subscribe(topics);
        return member;
    }

    private static ArrayNode polled(String name, long milliseconds) {
        ArrayNode records = JSON.createArrayNode();
        for (ConsumerRecord<String, String> record : MEMBERS.get(name).poll(Duration.ofMillis(milliseconds))) {
            ArrayNode place = JSON.createArrayNode().add(record.topic()).add(record.partition()).add(record.offset());
            POLLED.put(name + place, record);
            records.addObject()
                .put("topic", record.topic())
                .put("partition", record.partition())
                .put("offset", record.offset())
                .put("value", record.value())
                .put("delivery_count", record.deliveryCount().orElse((short) 0));
        }
        return records;
    }

    private static ObjectNode committed(Map<TopicIdPartition, Optional<KafkaException>> outcomes) {
        ObjectNode answer = JSON.createObjectNode();
        outcomes.forEach((partition, error) ->
            answer.put(partition.topic() + "-" + partition.partition(),
                error.map(each -> each.getClass().getSimpleName()).orElse("")));
        return answer;
    }
}
