import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ShareKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultShareConsumerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties.ShareAckMode;
import org.springframework.kafka.support.ShareAcknowledgment;

/** Three workers share the jobs of one partition: a job that is done is acknowledged, one for later released. */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration
public class Jobs {
    private final KafkaTemplate<String, String> kafka;

    Jobs(KafkaTemplate<String, String> kafka) {
        this.kafka = kafka;
    }

    @Bean
    static ShareKafkaListenerContainerFactory<String, String> queue(
            @Value("${spring.kafka.bootstrap-servers}") String servers) {
        var factory = new ShareKafkaListenerContainerFactory<String, String>(new DefaultShareConsumerFactory<>(Map.of(
            "bootstrap.servers", servers,
            "max.poll.records", 5,
            "share.acquire.mode", "record_limit",
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class)));
        factory.getContainerProperties().setShareAckMode(ShareAckMode.MANUAL);
        factory.setConcurrency(3);
        return factory;
    }

    @KafkaListener(topics = "jobs", groupId = "workers", containerFactory = "queue")
    void work(ConsumerRecord<String, String> job, ShareAcknowledgment acknowledgment) throws Exception {
        short attempt = job.deliveryCount().orElse((short) 0);
        if (job.value().equals("impossible")) {
            acknowledgment.reject();
        } else if (job.value().equals("later") && attempt < 2) {
            acknowledgment.release();
        } else {
            String worker = Thread.currentThread().getName();
            kafka.send("done", job.key(), job.value() + " " + attempt + " " + worker).get();
            acknowledgment.acknowledge();
        }
    }

    public static void main(String[] arguments) throws Exception {
        // A share group begins at the end of a topic if it is not told otherwise.
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", System.getenv("KAFKA")))) {
            var earliest = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            var group = new ConfigResource(ConfigResource.Type.GROUP, "workers");
            admin.incrementalAlterConfigs(Map.<ConfigResource, Collection<AlterConfigOp>>of(group, List.of(earliest)))
                .all().get();
        }
        new SpringApplicationBuilder(Jobs.class).properties("spring.kafka.bootstrap-servers=${KAFKA}").run(arguments);
    }
}
