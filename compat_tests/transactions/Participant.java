// A process that holds transactional producers of Kafka's own client; the commands are those of participant.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
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
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Participant {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true);

    private final String bootstrap;
    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    private Participant(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Participant participant = new Participant(arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            ObjectNode reply = JSON.createObjectNode().put("id", command.get("id").asInt());
            try {
                reply.set("result", JSON.valueToTree(participant.run(command)));
            } catch (Throwable problem) {
                Throwable cause = problem instanceof java.util.concurrent.ExecutionException ? problem.getCause() : problem;
                reply.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            OUT.println(JSON.writeValueAsString(reply));
        }
        System.exit(0);
    }

    private Object run(JsonNode command) throws Exception {
        String name = command.path("producer").asText();
        KafkaProducer<String, String> producer = producers.get(name);
        switch (command.get("op").asText()) {
            case "open" -> producers.put(name, open(command));
            case "begin" -> producer.beginTransaction();
            case "send" -> send(producer, command);
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "send_offsets" -> {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (JsonNode each : command.get("offsets"))
                    offsets.put(new TopicPartition(each.get(0).asText(), each.get(1).asInt()),
                        new OffsetAndMetadata(each.get(2).asLong()));
                producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(command.get("group").asText()));
            }
            case "copy" -> {
                return copy(producer, command);
            }
            case "read" -> {
                return read(command);
            }
            case "close" -> producers.remove(name).close(Duration.ofSeconds(1));
            default -> throw new IllegalArgumentException(command.toString());
        }
        return null;
    }

    private KafkaProducer<String, String> open(JsonNode command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", command.get("transactional_id").asText());
        properties.put("transaction.timeout.ms", command.get("timeout_ms").asText());
        properties.put("max.block.ms", "120000");
        KafkaProducer<String, String> made =
            new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    private static void send(KafkaProducer<String, String> producer, JsonNode command) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (JsonNode value : command.get("values"))
            sent.add(producer.send(new ProducerRecord<>(
                command.get("topic").asText(), command.get("partition").asInt(), null, value.asText())));
        producer.flush();
        for (Future<?> each : sent) each.get();
    }

    private KafkaConsumer<String, String> consumer(String group, String isolation, JsonNode command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        if (group != null) {
            properties.put("group.id", group);
            properties.put("group.protocol", command.path("protocol").asText("classic"));
            if (command.has("instance")) properties.put("group.instance.id", command.get("instance").asText());
        }
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", isolation);
        properties.put("max.poll.records", command.path("batch").asText("500"));
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private int copy(KafkaProducer<String, String> producer, JsonNode command) {
        int count = 0;
        try (KafkaConsumer<String, String> consumer =
                 consumer(command.get("group").asText(), "read_committed", command)) {
            consumer.subscribe(List.of(command.get("source").asText()));
            long deadline = System.nanoTime() + command.path("seconds").asLong(180) * 1_000_000_000L;
            while (count < command.get("count").asInt() && System.nanoTime() < deadline) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(500));
                if (found.isEmpty()) continue;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> each : found) {
                    producer.send(new ProducerRecord<>(
                        command.get("target").asText(), each.partition(), null, each.value()));
                    offsets.put(new TopicPartition(each.topic(), each.partition()),
                        new OffsetAndMetadata(each.offset() + 1));
                    count++;
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
            }
        }
        return count;
    }

    private List<String> read(JsonNode command) {
        List<String> values = new ArrayList<>();
        TopicPartition partition = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
        try (KafkaConsumer<String, String> consumer = consumer(null, command.get("isolation").asText(), command)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long deadline = System.nanoTime() + 120_000_000_000L;
            while (consumer.position(partition) < end && System.nanoTime() < deadline)
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) values.add(each.value());
        }
        return values;
    }
}
