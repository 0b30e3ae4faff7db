import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One record at a time: sent, handed out to a share consumer, accepted, and known to be accepted.
 * Usage: {@code ShareLatency BOOTSTRAP TOPIC GROUP WARM_UP COUNT}. Prints one JSON object.
 */
public final class ShareLatency {
    public static void main(String[] arguments) throws Exception {
        int warmUp = Integer.parseInt(arguments[3]);
        int count = Integer.parseInt(arguments[4]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("linger.ms", "0");
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        properties.put("group.id", arguments[2]);
        properties.put("share.acknowledgement.mode", "implicit");
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        long[] took = new long[count];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
             KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(arguments[1]));
            for (int i = -warmUp; i < count; i++) {
                byte[] value = ByteBuffer.allocate(1000).putInt(i).array();
                long sent = System.nanoTime();
                producer.send(new ProducerRecord<>(arguments[1], value));
                receive(consumer, i, sent);
                consumer.commitSync();
                if (i >= 0) {
                    took[i] = System.nanoTime() - sent;
                }
            }
        }
        Arrays.sort(took);
        System.out.printf("{\"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f}%n",
            took[count / 2] / 1e6, took[count * 99 / 100] / 1e6, took[count - 1] / 1e6);
    }

    private static void receive(KafkaShareConsumer<byte[], byte[]> consumer, int wanted, long since) {
        while (true) {
            ConsumerRecords<byte[], byte[]> got = consumer.poll(Duration.ofSeconds(1));
            for (ConsumerRecord<byte[], byte[]> record : got) {
                if (ByteBuffer.wrap(record.value()).getInt() == wanted) {
                    return;
                }
            }
            if (System.nanoTime() - since > 60_000_000_000L) {
                throw new IllegalStateException("record " + wanted + " does not come");
            }
        }
    }
}
