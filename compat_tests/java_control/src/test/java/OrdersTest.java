import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Kbroker.class)
class OrdersTest {
    static KafkaProducer<String, String> producer(Kbroker kafka) {
        Map<String, Object> config = Map.of("bootstrap.servers", kafka.bootstrapServers(), "client.id", "shop");
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Kbroker kafka, String group) {
        Map<String, Object> config = Map.of("bootstrap.servers", kafka.bootstrapServers(), "group.id", group,
                "auto.offset.reset", "earliest", "enable.auto.commit", false);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static List<String> read(KafkaConsumer<String, String> consumer, int count) {
        List<String> values = new ArrayList<>();
        for (long end = System.nanoTime() + 60_000_000_000L; values.size() < count && System.nanoTime() < end; ) {
            consumer.poll(Duration.ofMillis(200)).forEach(record -> values.add(record.value()));
        }
        return values;
    }

    @Test
    void whatIsRefusedForAMomentIsSentAgain(Kbroker kafka) throws Exception {
        kafka.createTopic("orders", 1);
        try (var producer = producer(kafka)) {
            var fault = kafka.fault("error", Map.of("api", "Produce", "code", "NOT_LEADER_OR_FOLLOWER", "times", 2));
            producer.send(new ProducerRecord<>("orders", "two pizzas")).get();
            assertEquals(2, fault.undo());
        }
    }

    @Test
    void whatIsForbiddenIsToldToTheProgram(Kbroker kafka) throws Exception {
        try (var producer = producer(kafka)) {
            try (var fault = kafka.fault("error", Map.of("api", "Produce", "code", "POLICY_VIOLATION"))) {
                var sent = producer.send(new ProducerRecord<>("orders", "refused"));
                var error = assertThrows(ExecutionException.class, sent::get);
                assertInstanceOf(PolicyViolationException.class, error.getCause());
                fault.waitForHits(1);
            }
            assertEquals(0, producer.send(new ProducerRecord<>("orders", "taken")).get().offset());
        }
    }

    @Test
    void theProgramReadsAllAndCommits(Kbroker kafka) throws Exception {
        kafka.recordRequests();
        try (var producer = producer(kafka); var consumer = consumer(kafka, "billing")) {
            producer.send(new ProducerRecord<>("orders", "two pizzas \"\u00e9\" \\ \n")).get();
            consumer.subscribe(List.of("orders"));
            assertEquals(List.of("two pizzas \"\u00e9\" \\ \n"), read(consumer, 1));
            kafka.waitFor("group", Map.of("group", "billing", "state", "Stable", "members", 1));
            consumer.commitSync();
            kafka.waitFor("drained", Map.of("topic", "orders", "group", "billing"));
            assertEquals(1, kafka.requests(Map.of("api", "OffsetCommit", "group", "billing")).size());
        }
    }

    @Test
    void recordsAreGoneAfterAWeek(Kbroker kafka) throws Exception {
        try (var producer = producer(kafka)) {
            producer.send(new ProducerRecord<>("orders", "old")).get();
            kafka.advance(Duration.ofDays(8));
            assertEquals(Map.of("partitions", Map.of("0", 1L)), kafka.ask("POST", "/topics/orders/apply-retention", Map.of()));
        }
    }

    @Test
    void whatIsWrongIsToldInOneLine(Kbroker kafka) {
        var unknown = assertThrows(Kbroker.Problem.class, () -> kafka.fault("error", Map.of("api", "Produce", "code", "NONE\"")));
        assertEquals("400 Kafka has no error 'NONE\"'", unknown.status + " " + unknown.getMessage());
        kafka.waitFor("group", Map.of("group", "billing", "state", "Dead")); // its coordinator is there
        var late = assertThrows(Kbroker.Problem.class,
                () -> kafka.waitFor("group", Map.of("group", "billing", "members", 2, "timeout", 0)));
        assertEquals(504, late.status);
        assertEquals(List.of(), ((Map<?, ?>) late.seen).get("members"));
        assertEquals(409, assertThrows(Kbroker.Problem.class, () -> kafka.node(1, "kill")).status);
    }

    @Nested
    class InsideAnother {
        @Test
        void itIsTheSameBroker(Kbroker kafka) {
            assertEquals(Map.of(), kafka.ask("POST", "/topics/orders/create", Map.of())); // the tests before have left none
        }
    }
}
