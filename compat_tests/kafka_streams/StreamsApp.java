import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Scanner;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of the topic "lines" into the topic "counts": a repartition, a store with a changelog.
 * Arguments: name=value settings of Kafka Streams; store=disk has the store in RocksDB, not in memory.
 * Each line of standard input is a command, each line of output an answer: "state", "count WORD", "tasks", "hosts",
 * "close".
 */
public class StreamsApp {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        settings.put("auto.offset.reset", "earliest");
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            settings.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMap((key, line) -> {
                List<KeyValue<String, String>> words = new ArrayList<>();
                for (String word : line.split(" ")) {
                    words.add(KeyValue.pair(word, "1"));
                }
                return words;
            })
            .groupByKey(Grouped.as("words"))
            .count(Materialized.as(
                "disk".equals(settings.get("store"))
                    ? Stores.persistentKeyValueStore("totals")
                    : Stores.inMemoryKeyValueStore("totals")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("error " + error);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                .StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Scanner commands = new Scanner(System.in);
        while (commands.hasNextLine()) {
            String[] command = commands.nextLine().split(" ");
            System.out.println(answer(streams, command));
            if (command[0].equals("close")) {
                break;
            }
        }
        streams.close(Duration.ofSeconds(20));
        System.exit(0);
    }

    private static String answer(KafkaStreams streams, String[] command) {
        switch (command[0]) {
            case "state":
                return streams.state().toString();
            case "count":
                try {
                    Object count = streams.store(StoreQueryParameters.fromNameAndType(
                        "totals", QueryableStoreTypes.<String, Long>keyValueStore())).get(command[1]);
                    return count == null ? "0" : count.toString();
                } catch (RuntimeException error) {
                    return "unavailable";
                }
            case "tasks":
                return streams.metadataForLocalThreads().stream()
                    .flatMap(thread -> thread.activeTasks().stream())
                    .map(task -> task.taskId().toString()).sorted().collect(Collectors.joining(","))
                    + "|" + streams.metadataForLocalThreads().stream()
                    .flatMap(thread -> thread.standbyTasks().stream())
                    .map(task -> task.taskId().toString()).sorted().collect(Collectors.joining(","));
            case "hosts":
                return streams.metadataForAllStreamsClients().stream()
                    .map(host -> host.hostInfo() + "=" + host.topicPartitions().stream()
                        .map(Object::toString).sorted().collect(Collectors.joining(",")))
                    .sorted().collect(Collectors.joining(";"));
            case "close":
                return "closing";
            default:
                return "unknown";
        }
    }
}
