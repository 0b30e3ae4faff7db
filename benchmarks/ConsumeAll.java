import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The Java consumer reading a topic from its beginning, partitions assigned by hand.
 * Usage: {@code ConsumeAll BOOTSTRAP TOPIC PARTITIONS RECORDS}.
 * Prints one JSON object. kafka-consumer-perf-test measures the same loop, but only as a member of a group.
 */
public final class ConsumeAll {
    public static void main(String[] arguments) {
        int partitions = Integer.parseInt(arguments[2]);
        long wanted = Long.parseLong(arguments[3]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        // What kafka-consumer-perf-test sets, apart from the group.
        properties.put("receive.buffer.bytes", String.valueOf(2 * 1024 * 1024));
        properties.put("max.partition.fetch.bytes", String.valueOf(1024 * 1024));
        properties.put("check.crcs", "false");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            List<TopicPartition> assigned = new ArrayList<>();
            for (int i = 0; i < partitions; i++) {
                assigned.add(new TopicPartition(arguments[1], i));
            }
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long records = 0;
            long bytes = 0;
            long start = 0;
            long limit = System.nanoTime() + 120_000_000_000L;
            while (records < wanted) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    if (start == 0) {
                        start = System.nanoTime();
                    }
                    records++;
                    bytes += record.value().length;
                }
                if (System.nanoTime() > limit) {
                    throw new IllegalStateException("only " + records + " records within the time limit");
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.printf("{\"records\": %d, \"bytes\": %d, \"seconds\": %.6f}%n", records, bytes, seconds);
        }
    }
}
