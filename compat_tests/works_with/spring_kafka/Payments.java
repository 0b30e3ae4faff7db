import java.math.BigInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.retrytopic.RetryTopicHeaders;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** Books payments; one that fails is tried twice again, half a second and a second later, and then put aside. */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration
@EnableKafkaRetryTopic
public class Payments {
    private final KafkaTemplate<String, String> kafka;

    Payments(KafkaTemplate<String, String> kafka) {
        this.kafka = kafka;
    }

    @Bean
    static TaskScheduler scheduler() {
        return new ThreadPoolTaskScheduler();
    }

    @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 500, multiplier = 2), numPartitions = "3")
    @KafkaListener(topics = "payments", groupId = "payments")
    void book(ConsumerRecord<String, String> payment) {
        Header attempts = payment.headers().lastHeader(RetryTopicHeaders.DEFAULT_HEADER_ATTEMPTS);
        int tries = attempts == null ? 1 : new BigInteger(attempts.value()).intValue();
        if (payment.value().equals("never") || payment.value().equals("later") && tries < 3) {
            throw new IllegalStateException("the bank is closed");
        }
        kafka.send("booked", payment.key(), payment.value() + " " + tries);
    }

    @DltHandler
    void putAside(ConsumerRecord<String, String> payment) {
        System.out.println("put aside: " + payment.key());
    }

    public static void main(String[] arguments) {
        new SpringApplicationBuilder(Payments.class).properties(
            "spring.kafka.bootstrap-servers=${KAFKA}",
            "spring.kafka.consumer.auto-offset-reset=earliest"
        ).run(arguments);
    }
}
