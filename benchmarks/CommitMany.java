import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer committing transactions of one record for each partition, one transaction after another.
 * Usage: {@code CommitMany BOOTSTRAP TOPIC PARTITIONS WARM_UP COUNT}.
 * Prints one JSON object: the seconds of each transaction that counts, from its beginning to its commit.
 */
public final class CommitMany {
    public static void main(String[] arguments) {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int warmUp = Integer.parseInt(arguments[3]);
        int count = Integer.parseInt(arguments[4]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        properties.put("transactional.id", "commit-many-" + System.nanoTime());
        properties.put("linger.ms", "0");
        byte[] value = new byte[100];
        List<String> seconds = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            long limit = System.nanoTime() + 120_000_000_000L;
            for (int i = 0; i < warmUp + count; i++) {
                long start = System.nanoTime();
                producer.beginTransaction();
                for (int partition = 0; partition < partitions; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, value));
                }
                producer.commitTransaction();
                if (i >= warmUp) {
                    seconds.add(String.format(Locale.ROOT, "%.6f", (System.nanoTime() - start) / 1e9));
                }
                if (System.nanoTime() > limit) {
                    throw new IllegalStateException("only " + i + " transactions within the time limit");
                }
            }
        }
        System.out.println("{\"seconds\": [" + String.join(", ", seconds) + "]}");
    }
}
