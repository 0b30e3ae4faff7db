import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.KafkaTemplate;

/** Each order becomes an invoice, exactly once: what is read and what is written are one transaction. */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration
public class Invoices {
    private final Set<String> refused = ConcurrentHashMap.newKeySet();
    private final KafkaTemplate<String, String> kafka;

    Invoices(KafkaTemplate<String, String> kafka) {
        this.kafka = kafka;
    }

    @Bean
    static NewTopic invoicesTopic() {
        return TopicBuilder.name("invoices").partitions(3).build();
    }

    @KafkaListener(topics = "orders", groupId = "invoices", concurrency = "3")
    void invoice(ConsumerRecord<String, String> order) {
        kafka.send("invoices", order.key(), "invoice of " + order.value()).join(); // in the topic, not yet committed
        if (order.value().endsWith("7") && refused.add(order.value())) {
            throw new IllegalStateException("refused once: the invoice is rolled back, and the order comes again");
        }
    }

    public static void main(String[] arguments) {
        new SpringApplicationBuilder(Invoices.class).properties(
            "spring.kafka.bootstrap-servers=${KAFKA}",
            "spring.kafka.consumer.auto-offset-reset=earliest",
            "spring.kafka.consumer.isolation-level=read_committed",
            "spring.kafka.consumer.max-poll-records=20",
            "spring.kafka.consumer.properties.session.timeout.ms=6000",
            "spring.kafka.consumer.properties.heartbeat.interval.ms=2000",
            "spring.kafka.producer.properties.transaction.timeout.ms=10000",
            // Turns transactions on; each instance has an id of its own.
            "spring.kafka.producer.transaction-id-prefix=invoices-" + ProcessHandle.current().pid() + "-"
        ).run(arguments);
    }
}
