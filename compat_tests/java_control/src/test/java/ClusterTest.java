import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class ClusterTest {
    @RegisterExtension
    static final Kbroker kafka = new Kbroker().nodes(3).options("-o", "num.partitions=2").keepTopics();

    @Test
    void aNodeDies() throws Exception {
        kafka.createTopic("orders", 1);
        kafka.moveLeader("orders", 0, 2);
        try (var producer = OrdersTest.producer(kafka); var consumer = OrdersTest.consumer(kafka, "billing")) {
            producer.send(new ProducerRecord<>("orders", "before")).get();
            kafka.node(2, "kill");
            producer.send(new ProducerRecord<>("orders", "without node 2")).get();
            kafka.node(2, "start");
            consumer.subscribe(List.of("orders"));
            assertEquals(List.of("before", "without node 2"), OrdersTest.read(consumer, 2));
        }
        assertEquals(2L, kafka.waitFor("end", Map.of("topic", "orders", "offset", 2)).get("offset"));
    }

    @Test
    void aNodeIsAdded() {
        assertEquals(4, kafka.addNode());
    }
}
