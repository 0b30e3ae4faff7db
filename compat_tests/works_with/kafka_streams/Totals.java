import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Adds up what customers have paid: topic "payments" (name -> cents) into topic "totals" (name -> cents so far). */
public class Totals {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("KAFKA"));
        settings.put("application.id", "totals");
        settings.put("state.dir", System.getenv("STATE"));
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("statestore.cache.max.bytes", "0"); // each step is written
        settings.put("auto.offset.reset", "earliest");
        settings.put("producer.transaction.timeout.ms", "10000"); // what a killed instance leaves open is aborted then

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("payments", Consumed.with(Serdes.String(), Serdes.String()))
            .mapValues(cents -> Long.valueOf(cents))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
            .reduce(Long::sum, Materialized.as("sums"))
            .toStream()
            .mapValues(cents -> cents.toString())
            .to("totals", Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.setStateListener((now, before) -> System.out.println("state: " + now));
        streams.start();
    }
}
