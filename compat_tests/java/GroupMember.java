// A process that holds members of consumer groups, by Kafka's own consumer and either group protocol. It takes one JSON
// command a line, and writes one JSON line for each reply and for each thing that happens to a member, with the time on
// the machine's monotonic clock: the lines of compat_tests/groups/member.py.

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
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class GroupMember implements ConsumerRebalanceListener, Runnable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);
    private static final Map<String, GroupMember> MEMBERS = new ConcurrentHashMap<>();
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "cooperative", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final String name;
    private final boolean autoCommit;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Set<TopicPartition> owned = new HashSet<>();
    private final BlockingQueue<JsonNode> commands = new LinkedBlockingQueue<>();
    private boolean closed = false;
    private boolean fenced = false;

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            String name = command.get("member").asText();
            if (command.get("op").asText().equals("join")) {
                try {
                    GroupMember member = new GroupMember(command);
                    MEMBERS.put(name, member);
                    Thread thread = new Thread(member);
                    thread.setDaemon(true);
                    thread.start();
                    say(reply(command));
                } catch (Throwable problem) {
                    say(reply(command).put("error", problem.toString() + " " + problem.getCause()));
                }
            } else {
                MEMBERS.get(name).commands.add(command);
            }
        }
        System.exit(0);
    }

    private static ObjectNode reply(JsonNode command) {
        ObjectNode reply = JSON.createObjectNode();
        reply.set("id", command.get("id"));
        return reply;
    }

    private static void say(ObjectNode line) {
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    private static String option(JsonNode options, String name) {
        JsonNode value = options.path(name);
        return value.isMissingNode() || value.isNull() ? null : value.asText();
    }

    private GroupMember(JsonNode options) {
        name = option(options, "member");
        autoCommit = options.path("auto_commit").asBoolean();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", option(options, "bootstrap"));
        properties.put("group.id", option(options, "group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("metadata.max.age.ms", "500");
        properties.put("fetch.max.wait.ms", "100");
        boolean modern = option(options, "protocol").equals("consumer");
        if (modern) {
            properties.put("group.protocol", "consumer");
        } else {
            properties.put("heartbeat.interval.ms", "300");
            properties.put("session.timeout.ms", option(options, "session_timeout_ms"));
            if (option(options, "assignor") != null) {
                properties.put("partition.assignment.strategy", ASSIGNORS.get(option(options, "assignor")));
            }
        }
        if (option(options, "instance") != null) {
            properties.put("group.instance.id", option(options, "instance"));
        }
        if (option(options, "client_id") != null) {
            properties.put("client.id", option(options, "client_id"));
        }
        consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        String pattern = option(options, "pattern");
        if (pattern == null) {
            List<String> topics = new ArrayList<>();
            options.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics, this);
        } else if (modern) {
            consumer.subscribe(new SubscriptionPattern(pattern), this);
        } else {
            consumer.subscribe(Pattern.compile(pattern), this);
        }
    }

    private ObjectNode event(String what) {
        ObjectNode line = JSON.createObjectNode();
        line.put("event", what).put("member", name).put("at", System.nanoTime() / 1e9);
        return line;
    }

    private void tell(String what, Collection<TopicPartition> partitions) {
        ObjectNode line = event(what);
        ArrayNode list = line.putArray("partitions");
        for (TopicPartition each : partitions) {
            list.addArray().add(each.topic()).add(each.partition());
        }
        if (what.equals("assigned")) {
            int generation = consumer.groupMetadata().generationId();
            line.put("generation", generation);
        }
        say(line);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        owned.addAll(partitions);
        tell("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (autoCommit && !partitions.isEmpty()) {
            consumer.commitSync();
        }
        partitions.forEach(owned::remove);
        tell("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        partitions.forEach(owned::remove);
        tell("lost", partitions);
    }

    @Override
    public void run() {
        while (!closed) {
            if (fenced) { // a poll would say so again and again; commands are answered still
                try {
                    answer(commands.take());
                } catch (InterruptedException ending) {
                    return;
                }
            } else {
                for (JsonNode command = commands.poll(); command != null; command = commands.poll()) {
                    answer(command);
                }
                if (!closed) {
                    poll();
                }
            }
        }
    }

    private void answer(JsonNode command) {
        ObjectNode reply = reply(command);
        try {
            carryOut(command, reply);
        } catch (Throwable problem) {
            reply.put("error", problem.toString());
        }
        say(reply);
    }

    private void poll() {
        try {
            ArrayNode read = JSON.createArrayNode();
            ArrayNode astray = JSON.createArrayNode();
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100))) {
                ArrayNode record = JSON.createArrayNode().add(each.topic()).add(each.partition()).add(each.offset());
                read.add(record);
                if (!owned.contains(new TopicPartition(each.topic(), each.partition()))) {
                    astray.add(record);
                }
            }
            if (!read.isEmpty()) {
                ObjectNode line = event("records");
                line.set("records", read);
                line.set("astray", astray);
                say(line);
            }
        } catch (Throwable problem) {
            ObjectNode line = event("error");
            line.put("text", problem.toString());
            say(line);
            if (problem instanceof org.apache.kafka.common.errors.FencedInstanceIdException) {
                fenced = true;
                consumer.close(Duration.ofSeconds(1));
            }
        }
    }

    private void carryOut(JsonNode command, ObjectNode reply) {
        TopicPartition where = new TopicPartition(command.path("topic").asText(), command.path("partition").asInt());
        switch (command.get("op").asText()) {
            case "commit":
                consumer.commitSync();
                break;
            case "commit_offset":
                consumer.commitSync(Map.of(where, new OffsetAndMetadata(command.get("offset").asLong())));
                break;
            case "seek":
                consumer.seek(where, command.get("offset").asLong());
                break;
            case "rewind":
                consumer.seekToBeginning(consumer.assignment());
                break;
            case "member_id":
                reply.put("result", consumer.groupMetadata().memberId());
                break;
            case "close":
                // What a member does while it leaves is no longer owning; the callback commits, where that is wanted.
                tell("revoked", new HashSet<>(owned));
                closed = true;
                consumer.close();
                break;
            default:
                throw new IllegalArgumentException("unknown op " + command.get("op"));
        }
    }
}
