// Takes one JSON command a line on standard input, runs it with Kafka's Java clients, and answers with one JSON line.
// The commands are those of compat_tests/line_driver.py; the cases themselves are written there, in Python.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);
    private static final Map<String, Admin> ADMINS = new ConcurrentHashMap<>();
    private static final Map<String, KafkaProducer<byte[], byte[]>> KEPT = new ConcurrentHashMap<>();

    private static final Map<String, KafkaConsumer<byte[], byte[]>> KEPT_CONSUMERS = new ConcurrentHashMap<>();

    private static final class ReadTimeout extends RuntimeException {
        final ArrayNode records;

        ReadTimeout(ArrayNode records) {
            super("records did not come in time");
            this.records = records;
        }
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            workers.submit(() -> answer(command));
        }
        workers.shutdownNow();
        System.exit(0);
    }

    private static void answer(JsonNode command) {
        ObjectNode reply = JSON.createObjectNode();
        reply.set("id", command.get("id"));
        try {
            reply.set("result", run(command));
        } catch (ReadTimeout timeout) {
            reply.put("error", "READ_TIMEOUT");
            reply.set("records", timeout.records);
        } catch (Throwable problem) {
            Throwable cause = problem;
            while (cause instanceof ExecutionException && cause.getCause() != null) {
                cause = cause.getCause();
            }
            String name = cause.getClass().getSimpleName();
            if (cause instanceof OffsetOutOfRangeException) {
                name = Errors.OFFSET_OUT_OF_RANGE.name(); // the consumer's own class, not the protocol's
            } else if (cause instanceof KafkaException) {
                Errors error = Errors.forException(cause);
                name = error == Errors.UNKNOWN_SERVER_ERROR ? name : error.name();
            }
            reply.put("error", name);
            reply.put("message", String.valueOf(cause.getMessage()));
        }
        synchronized (OUT) {
            OUT.println(reply);
            OUT.flush();
        }
    }

    private static JsonNode run(JsonNode command) throws Exception {
        String op = command.get("op").asText();
        String topic = command.path("topic").asText();
        switch (op) {
            case "produce":
                return produce(command, topic);
            case "kept_produce":
                return JSON.getNodeFactory().numberNode(keptProduce(command, topic));
            case "kept_consume":
                return JSON.getNodeFactory().textNode(keptConsume(command, topic));
            case "end_kept_consumer":
                KEPT_CONSUMERS.remove(keyOf(command)).close(Duration.ofSeconds(5));
                return null;
            case "authorized_operations":
                return authorizedOperations(command, topic);
            case "create_acl":
                admin(command).createAcls(List.of(binding(command.get("acl")))).all().get();
                return null;
            case "describe_acls":
                return JSON.getNodeFactory().numberNode(
                    admin(command).describeAcls(binding(command.get("acl")).toFilter()).values().get().size());
            case "delete_acls":
                return JSON.getNodeFactory().numberNode(
                    admin(command).deleteAcls(List.of(binding(command.get("acl")).toFilter())).all().get().size());
            case "alter_scram":
                alterScram(command);
                return null;
            case "describe_scram":
                return describeScram(command);
            case "produce_steps":
                produceSteps(command);
                return null;
            case "read":
                return read(command, topic);
            case "read_to_end":
                return readToEnd(command, topic);
            case "consume":
                return consume(command, topic);
            case "create_topic": {
                Map<String, String> configs = new HashMap<>();
                command.get("configs").fields().forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
                NewTopic created = new NewTopic(topic, command.get("partitions").asInt(),
                    (short) command.get("replication_factor").asInt()).configs(configs);
                admin(command).createTopics(List.of(created)).all().get();
                return null;
            }
            case "delete_topic":
                admin(command).deleteTopics(List.of(topic)).all().get();
                return null;
            case "create_partitions":
                admin(command).createPartitions(Map.of(topic, NewPartitions.increaseTo(command.get("total").asInt())))
                    .all().get();
                return null;
            case "list_topics": {
                ArrayNode names = JSON.createArrayNode();
                admin(command).listTopics().names().get().forEach(names::add);
                return names;
            }
            case "partition_count":
                return JSON.getNodeFactory().numberNode(
                    admin(command).describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            case "describe_cluster":
                return describeCluster(command);
            case "describe_configs": {
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                ObjectNode values = JSON.createObjectNode();
                for (ConfigEntry entry
                        : admin(command).describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
                    values.put(entry.name(), entry.value());
                }
                return values;
            }
            case "alter_configs": {
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                Collection<AlterConfigOp> changes = new ArrayList<>();
                command.get("configs").fields().forEachRemaining(e -> changes.add(new AlterConfigOp(
                    new ConfigEntry(e.getKey(), e.getValue().isNull() ? null : e.getValue().asText()),
                    e.getValue().isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
                admin(command).incrementalAlterConfigs(Map.of(resource, changes)).all().get();
                return null;
            }
            case "delete_records":
                admin(command).deleteRecords(Map.of(partition(command, topic),
                    RecordsToDelete.beforeOffset(command.get("offset").asLong()))).all().get();
                return null;
            case "list_offset": {
                JsonNode spec = command.get("spec");
                OffsetSpec wanted = spec.isNumber() ? OffsetSpec.forTimestamp(spec.asLong())
                    : spec.asText().equals("earliest") ? OffsetSpec.earliest()
                    : spec.asText().equals("latest") ? OffsetSpec.latest() : OffsetSpec.maxTimestamp();
                TopicPartition where = partition(command, topic);
                return JSON.getNodeFactory().numberNode(
                    admin(command).listOffsets(Map.of(where, wanted)).partitionResult(where).get().offset());
            }
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    private static TopicPartition partition(JsonNode command, String topic) {
        return new TopicPartition(topic, command.get("partition").asInt());
    }

    private static String keyOf(JsonNode command) {
        return command.get("bootstrap").asText() + command.path("security");
    }

    /** Sends a record, and tells the longest throttle time of late, in milliseconds. */
    private static double keptProduce(JsonNode command, String topic) throws Exception {
        var producer = KEPT.computeIfAbsent(keyOf(command), each -> {
            Properties properties = connection(command);
            properties.put("max.block.ms", 60000);
            properties.put("request.timeout.ms", 29000);
            properties.put("delivery.timeout.ms", 30000);
            return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        });
        producer.send(new ProducerRecord<>(topic, bytes(command.get("value")))).get();
        for (var metric : producer.metrics().entrySet()) {
            if (metric.getKey().name().equals("produce-throttle-time-max")) {
                return (double) metric.getValue().metricValue();
            }
        }
        throw new IllegalStateException("there is no metric of the throttle time");
    }

    private static String keptConsume(JsonNode command, String topic) {
        var consumer = KEPT_CONSUMERS.computeIfAbsent(keyOf(command), each -> {
            Properties properties = connection(command);
            properties.put("auto.offset.reset", "earliest");
            properties.put("max.poll.records", 1);
            properties.put("metadata.max.age.ms", 500);
            var made = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            made.assign(List.of(new TopicPartition(topic, 0)));
            return made;
        });
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
            return text(record.value());
        }
        return null;
    }

    private static JsonNode authorizedOperations(JsonNode command, String topic) throws Exception {
        ObjectNode result = JSON.createObjectNode();
        var ofTopic = admin(command).describeTopics(List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true));
        names(result.putArray("topic"), ofTopic.allTopicNames().get().get(topic).authorizedOperations());
        var ofCluster = admin(command).describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        names(result.putArray("cluster"), ofCluster.authorizedOperations().get());
        String group = command.get("group").asText();
        var ofGroup = admin(command).describeConsumerGroups(
            List.of(group), new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true));
        names(result.putArray("group"), ofGroup.all().get().get(group).authorizedOperations());
        return result;
    }

    private static void names(ArrayNode result, Collection<AclOperation> operations) {
        operations.stream().map(AclOperation::name).sorted().forEach(result::add);
    }

    private static AclBinding binding(JsonNode acl) {
        return new AclBinding(
            new ResourcePattern(ResourceType.valueOf(acl.get("type").asText()), acl.get("name").asText(),
                PatternType.valueOf(acl.get("pattern").asText())),
            new AccessControlEntry(acl.get("principal").asText(), acl.get("host").asText(),
                AclOperation.valueOf(acl.get("operation").asText()),
                AclPermissionType.valueOf(acl.get("permission").asText())));
    }

    private static void alterScram(JsonNode command) throws Exception {
        String user = command.get("user").asText();
        ScramMechanism mechanism = ScramMechanism.fromMechanismName(command.get("mechanism").asText());
        UserScramCredentialAlteration change = command.get("password").isNull()
            ? new UserScramCredentialDeletion(user, mechanism)
            : new UserScramCredentialUpsertion(
                user, new ScramCredentialInfo(mechanism, 4096), command.get("password").asText());
        admin(command).alterUserScramCredentials(List.of(change)).all().get();
    }

    private static JsonNode describeScram(JsonNode command) throws Exception {
        ArrayNode result = JSON.createArrayNode();
        String user = command.get("user").asText();
        for (ScramCredentialInfo each : admin(command).describeUserScramCredentials(List.of(user)).description(user).get()
                .credentialInfos()) {
            result.add(each.mechanism().mechanismName() + "=" + each.iterations());
        }
        return result;
    }

    private static Properties connection(JsonNode command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.get("bootstrap").asText());
        command.path("security").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
        return properties;
    }

    private static Admin admin(JsonNode command) {
        return ADMINS.computeIfAbsent(keyOf(command), each -> Admin.create(connection(command)));
    }

    private static JsonNode describeCluster(JsonNode command) throws Exception {
        var told = admin(command).describeCluster();
        ObjectNode result = JSON.createObjectNode();
        result.put("cluster_id", told.clusterId().get());
        result.put("controller_id", told.controller().get().id());
        ArrayNode brokers = result.putArray("brokers");
        for (Node node : told.nodes().get()) {
            brokers.addObject().put("id", node.id()).put("host", node.host()).put("port", node.port());
        }
        return result;
    }

    private static byte[] bytes(JsonNode value) {
        return value == null || value.isNull() ? null : Base64.getDecoder().decode(value.asText());
    }

    private static String text(byte[] value) {
        return value == null ? null : Base64.getEncoder().encodeToString(value);
    }

    private static JsonNode produce(JsonNode command, String topic) throws Exception {
        int timeout = command.get("timeout_ms").asInt();
        int linger = command.get("linger_ms").asInt();
        Properties properties = connection(command);
        properties.put("acks", command.get("acks").asInt() == -1 ? "all" : command.get("acks").asText());
        properties.put("compression.type", command.get("compression").asText());
        properties.put("enable.idempotence", command.get("idempotent").asBoolean());
        properties.put("linger.ms", linger);
        properties.put("delivery.timeout.ms", timeout);
        properties.put("request.timeout.ms", Math.max(1000, timeout - linger - 1000));
        properties.put("max.block.ms", timeout);
        if (!command.get("max_request_size").isNull()) {
            properties.put("max.request.size", command.get("max_request_size").asInt());
        }
        ArrayNode offsets = JSON.createArrayNode();
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : command.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
                sent.add(producer.send(new ProducerRecord<>(topic, record.get("partition").asInt(), timestamp,
                    bytes(record.get("key")), bytes(record.get("value")), headers)));
            }
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata told = future.get();
                offsets.add(told.hasOffset() ? told.offset() : -1L);
            }
        }
        return offsets;
    }

    private static void produceSteps(JsonNode command) throws Exception {
        int timeout = command.get("timeout_ms").asInt();
        boolean transactional = !command.get("transactional_id").isNull();
        Properties properties = connection(command);
        properties.put("acks", "all");
        properties.put("enable.idempotence", transactional || command.get("idempotent").asBoolean());
        properties.put("max.in.flight.requests.per.connection", 5);
        properties.put("batch.size", command.get("batch_bytes").asInt());
        properties.put("linger.ms", 5);
        properties.put("delivery.timeout.ms", timeout);
        properties.put("request.timeout.ms", timeout - 1000);
        properties.put("max.block.ms", timeout);
        if (transactional) {
            properties.put("transactional.id", command.get("transactional_id").asText());
        }
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional) {
                producer.initTransactions();
            }
            boolean begun = false;
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode step : command.get("steps")) {
                if (transactional && !begun) {
                    producer.beginTransaction();
                    begun = true;
                }
                for (JsonNode record : step.get("records")) {
                    sent.add(producer.send(new ProducerRecord<>(
                        step.get("topic").asText(), bytes(record.get(0)), bytes(record.get(1)))));
                }
                String then = step.get("then").asText();
                if (then.equals("abort")) {
                    producer.abortTransaction();
                    sent.clear(); // what it has not sent yet it drops, and says so
                } else if (then.equals("commit")) {
                    producer.commitTransaction();
                }
                if (!then.isEmpty()) {
                    settle(producer, sent);
                }
                begun = begun && !then.equals("abort") && !then.equals("commit");
            }
            settle(producer, sent);
        }
    }

    private static void settle(KafkaProducer<byte[], byte[]> producer, List<Future<RecordMetadata>> sent) throws Exception {
        producer.flush();
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
        sent.clear();
    }

    private static JsonNode readToEnd(JsonNode command, String topic) throws Exception {
        Properties properties = connection(command);
        properties.put("isolation.level", command.get("isolation").asText());
        properties.put("auto.offset.reset", "none");
        if (!command.get("fetch_bytes").isNull()) {
            properties.put("fetch.max.bytes", command.get("fetch_bytes").asInt());
        }
        long deadline = System.nanoTime() + command.get("timeout_ms").asLong() * 1_000_000L;
        ArrayNode records = JSON.createArrayNode();
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> everywhere = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(each -> everywhere.add(new TopicPartition(topic, each.partition())));
            consumer.assign(everywhere);
            consumer.seekToBeginning(everywhere);
            Map<TopicPartition, Long> ends = consumer.endOffsets(everywhere);
            while (everywhere.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                if (System.nanoTime() > deadline) {
                    throw new ReadTimeout(records);
                }
                consumer.poll(Duration.ofMillis(500)).forEach(record -> add(records, record));
            }
        }
        return records;
    }

    private static JsonNode consume(JsonNode command, String topic) {
        int count = command.get("count").asInt();
        Properties properties = connection(command);
        properties.put("group.id", command.get("group").asText());
        properties.put("isolation.level", command.get("isolation").asText());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", false);
        long deadline = System.nanoTime() + command.get("timeout_ms").asLong() * 1_000_000L;
        ArrayNode records = JSON.createArrayNode();
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            consumer.subscribe(List.of(topic));
            while (records.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new ReadTimeout(records);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (records.size() == count) {
                        break;
                    }
                    add(records, record);
                    next.put(new TopicPartition(topic, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
            }
            consumer.commitSync(next);
        }
        return records;
    }

    private static void add(ArrayNode records, ConsumerRecord<byte[], byte[]> record) {
        ObjectNode item = records.addObject();
        item.put("value", text(record.value())).put("key", text(record.key()));
        item.put("timestamp", record.timestamp()).put("timestamp_type", record.timestampType().name);
        item.put("partition", record.partition()).put("offset", record.offset());
        ArrayNode headers = item.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
    }

    private static JsonNode read(JsonNode command, String topic) {
        long deadline = System.nanoTime() + command.get("timeout_ms").asLong() * 1_000_000L;
        int count = command.get("count").asInt();
        Properties properties = connection(command);
        properties.put("auto.offset.reset", "none");
        properties.put("allow.auto.create.topics", "false");
        properties.put("fetch.max.wait.ms", command.get("max_wait_ms").asInt());
        properties.put("fetch.min.bytes", command.get("min_bytes").asInt());
        properties.put("request.timeout.ms", command.get("max_wait_ms").asInt() + 30000);
        properties.put("max.poll.records", count);
        if (!command.get("max_bytes").isNull()) {
            properties.put("fetch.max.bytes", command.get("max_bytes").asInt());
        }
        if (!command.get("max_partition_bytes").isNull()) {
            properties.put("max.partition.fetch.bytes", command.get("max_partition_bytes").asInt());
        }
        ArrayNode records = JSON.createArrayNode();
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            // A consumer with an assigned unknown topic only logs; its metadata call tells.
            if (Optional.ofNullable(consumer.partitionsFor(topic, Duration.ofSeconds(60))).map(List::isEmpty).orElse(true)) {
                throw new UnknownTopicOrPartitionException(topic);
            }
            TopicPartition where = partition(command, topic);
            consumer.assign(List.of(where));
            JsonNode start = command.get("start");
            if (start.isNumber()) {
                consumer.seek(where, start.asLong());
            } else if (start.asText().equals("latest")) {
                consumer.seekToEnd(List.of(where));
            } else {
                consumer.seekToBeginning(List.of(where));
            }
            while (records.size() < count) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new ReadTimeout(records);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofNanos(left))) {
                    if (records.size() == count) {
                        break;
                    }
                    add(records, record);
                }
            }
        }
        return records;
    }
}
