import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

class KbrokerTest {
    static final DockerImageName IMAGE =
        DockerImageName.parse(Optional.ofNullable(System.getenv("KBROKER_IMAGE")).orElse("kbroker:8.4.0"));

    @Test
    void insteadOfApacheKafka() throws Exception {
        try (var kafka = new KafkaContainer(IMAGE.asCompatibleSubstituteFor("apache/kafka"))) {
            kafka.start();
            writeAndRead(kafka.getBootstrapServers());
        }
    }

    @Test
    void insteadOfConfluents() throws Exception {
        try (var kafka = new ConfluentKafkaContainer(IMAGE.asCompatibleSubstituteFor("confluentinc/cp-kafka"))) {
            kafka.start();
            writeAndRead(kafka.getBootstrapServers());
        }
    }

    @Test
    @SuppressWarnings("deprecation")
    void insteadOfConfluentsByTheOlderClass() throws Exception {
        DockerImageName image = IMAGE.asCompatibleSubstituteFor("confluentinc/cp-kafka");
        try (var kafka = new org.testcontainers.containers.KafkaContainer(image).withKraft()) {
            kafka.start();
            writeAndRead(kafka.getBootstrapServers());
        }
    }

    static void writeAndRead(String bootstrap) throws Exception {
        Map<String, Object> properties = Map.of(
            "bootstrap.servers", bootstrap, "group.id", "readers", "auto.offset.reset", "earliest");
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("greetings", "hello")).get();
        }
        try (var consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("greetings"));
            ConsumerRecords<String, String> records = ConsumerRecords.empty();
            for (int tries = 0; records.isEmpty() && tries < 20; tries++) {
                records = consumer.poll(Duration.ofSeconds(1));
            }
            assertEquals("hello", records.iterator().next().value());
        }
    }
}
