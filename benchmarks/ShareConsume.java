import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of one share group that read a topic together, each in a thread of its own, and accept what they get by their
 * next poll. Usage: {@code ShareConsume BOOTSTRAP TOPIC GROUP MEMBERS RECORDS}.
 * Prints one JSON object; the time is from the first record to the last.
 */
public final class ShareConsume {
    private static final AtomicLong RECORDS = new AtomicLong();
    private static final AtomicLong START = new AtomicLong();
    private static final AtomicLong END = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        int members = Integer.parseInt(arguments[3]);
        long wanted = Long.parseLong(arguments[4]);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < members; i++) {
            Thread thread = new Thread(() -> read(arguments[0], arguments[1], arguments[2], wanted));
            thread.setUncaughtExceptionHandler((failed, error) -> {
                error.printStackTrace();
                System.exit(1);
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (END.get() - START.get()) / 1e9;
        System.out.printf("{\"records\": %d, \"seconds\": %.6f}%n", RECORDS.get(), seconds);
    }

    private static void read(String bootstrap, String topic, String group, long wanted) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("check.crcs", "false");
        long limit = System.nanoTime() + 120_000_000_000L;
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(topic));
            while (RECORDS.get() < wanted) {
                ConsumerRecords<byte[], byte[]> got = consumer.poll(Duration.ofMillis(100));
                if (!got.isEmpty()) {
                    long now = System.nanoTime();
                    START.compareAndSet(0, now);
                    if (RECORDS.addAndGet(got.count()) >= wanted) {
                        END.compareAndSet(0, now);
                    }
                }
                if (System.nanoTime() > limit) {
                    throw new IllegalStateException("only " + RECORDS.get() + " records within the time limit");
                }
            }
            consumer.commitSync();
        }
    }
}
