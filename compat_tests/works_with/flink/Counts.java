import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Counts the orders of each customer: topic "orders" (a name) into topic "counts" (name -> count so far). */
public class Counts {
    public static void main(String[] arguments) throws Exception {
        String kafka = System.getenv("KAFKA");
        Path checkpoints = Path.of(System.getenv("CHECKPOINTS")).toAbsolutePath();

        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofSeconds(1));
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, checkpoints.toUri().toString());
        settings.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
            ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        settings.set(RestOptions.BIND_ADDRESS, "localhost");
        newest(checkpoints).ifPresent(found -> {
            System.out.println("goes on from " + found.getFileName());
            settings.set(StateRecoveryOptions.SAVEPOINT_PATH, found.toUri().toString());
        });

        KafkaSource<String> orders = KafkaSource.<String>builder()
            .setBootstrapServers(kafka)
            .setTopics("orders")
            .setGroupId("counts")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<Tuple2<String, Long>> counts = KafkaSink.<Tuple2<String, Long>>builder()
            .setBootstrapServers(kafka)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("counts")
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(
                System.getenv().getOrDefault("NAMING", "INCREMENTING")))
            .setProperty("transaction.timeout.ms", "600000")
            .setRecordSerializer(KafkaRecordSerializationSchema.<Tuple2<String, Long>>builder()
                .setTopic("counts")
                .setKeySerializationSchema((Tuple2<String, Long> count) -> count.f0.getBytes(UTF_8))
                .setValueSerializationSchema(new CountSoFar())
                .build())
            .build();

        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flink.setParallelism(2);
        flink.fromSource(orders, WatermarkStrategy.noWatermarks(), "orders").uid("orders")
            .map(customer -> Tuple2.of(customer, 1L)).returns(Types.TUPLE(Types.STRING, Types.LONG)).uid("ones")
            .keyBy(one -> one.f0)
            .sum(1).uid("sums")
            .sinkTo(counts).uid("counts");
        flink.execute("counts");
    }

    /** The value of a result. A class of its own, since Flink asks for its type, which a lambda has not. */
    private static class CountSoFar implements SerializationSchema<Tuple2<String, Long>> {
        @Override
        public byte[] serialize(Tuple2<String, Long> count) {
            return count.f1.toString().getBytes(UTF_8);
        }
    }

    /** The last checkpoint that is whole. */
    private static Optional<Path> newest(Path checkpoints) throws IOException {
        Files.createDirectories(checkpoints);
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(file -> file.endsWith("_metadata"))
                .max(Comparator.comparingLong(file -> file.toFile().lastModified()))
                .map(Path::getParent);
        }
    }
}
