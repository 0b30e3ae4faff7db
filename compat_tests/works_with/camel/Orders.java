import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;
import org.apache.camel.processor.idempotent.kafka.KafkaIdempotentRepository;

/** Takes orders from topic "orders" to topic "checked", each once, however often it was sent. */
public class Orders {
    public static void main(String[] arguments) throws Exception {
        String brokers = System.getenv("KAFKA");
        Main camel = new Main();
        camel.bind("seen", new KafkaIdempotentRepository("orders-seen", brokers));
        camel.configure().addRoutesBuilder(new RouteBuilder() {
            @Override
            public void configure() {
                from("kafka:orders?groupId=orders&autoOffsetReset=earliest&consumersCount=3&brokers=" + brokers)
                    .idempotentConsumer(body()).idempotentRepository("seen")
                    .setBody(simple("checked ${body}"))
                    .to("kafka:checked?brokers=" + brokers);
            }
        });
        camel.run();
    }
}
