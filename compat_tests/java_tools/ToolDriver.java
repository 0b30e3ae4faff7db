// Runs main classes of Kafka's command-line tools one after another in one JVM: starting one for each would take minutes.
// It also keeps members of consumer groups alive, for the tools to show. A command is one JSON line, and so is its reply:
//   {"id", "op": "tool", "main", "args", "stdin"}                       -> {"exit", "out", "err"}
//   {"id", "op": "join", "group", "topics" or "pattern", "commit", "configs"} -> {} when partitions are assigned and committed
//   {"id", "op": "leave"}                                               -> {} when all members have left their groups

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class ToolDriver {
    /** What one run of a tool has: its output, how it ended, and what it wants done at its end. */
    private static final class Run {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final List<Runnable> hooks = new ArrayList<>();
        Integer exit;
        boolean ended;
    }

    /** Unwinds the thread that called Exit.exit. */
    private static final class Exited extends RuntimeException { }

    /** The run that a thread belongs to: threads that a tool starts inherit it, and members of groups have none. */
    private static final InheritableThreadLocal<Run> RUN = new InheritableThreadLocal<>();

    /** Standard output or error of whichever run the writing thread belongs to. */
    private static final class RunStream extends OutputStream {
        private final boolean error;

        RunStream(boolean error) {
            this.error = error;
        }

        @Override
        public void write(int b) {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) {
            Run run = RUN.get();
            if (run != null && !run.ended) {
                (error ? run.err : run.out).write(bytes, offset, length);
            }
        }
    }

    /** Some tools catch what is thrown here and exit again: the first exit is the one that would have ended the process. */
    private static void exit(int code, String message) {
        Run run = RUN.get();
        if (run.exit == null) {
            run.exit = code;
            runHooks(run);
            run.ended = true;
        }
        throw new Exited();
    }

    private static void runHooks(Run run) {
        List<Runnable> hooks = new ArrayList<>(run.hooks);
        run.hooks.clear();
        hooks.forEach(Runnable::run);
    }

    private static ObjectNode tool(JsonNode command, ObjectMapper json) throws Exception {
        String[] args = new String[command.get("args").size()];
        for (int i = 0; i < args.length; i++) {
            args[i] = command.get("args").get(i).asText();
        }
        Run run = new Run();
        System.setIn(new ByteArrayInputStream(command.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
        Thread thread = new Thread(() -> {
            RUN.set(run);
            int code = 0;
            try {
                Class.forName(command.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) args);
            } catch (InvocationTargetException wrapped) {
                if (!(wrapped.getCause() instanceof Exited)) {
                    code = 1;
                    wrapped.getCause().printStackTrace();
                }
            } catch (ReflectiveOperationException wrong) {
                throw new IllegalStateException(wrong);
            }
            if (run.exit == null) {
                run.exit = code;
                runHooks(run);
            }
        }, "main");
        thread.start();
        thread.join();
        System.out.flush();
        System.err.flush();
        run.ended = true;
        ObjectNode result = json.createObjectNode();
        result.put("exit", run.exit);
        result.put("out", run.out.toString(StandardCharsets.UTF_8));
        result.put("err", run.err.toString(StandardCharsets.UTF_8));
        return result;
    }

    /** A consumer that polls in a thread of its own until it is told to leave. */
    private static final class Member {
        private static final List<Member> ALL = new ArrayList<>();

        private final KafkaConsumer<byte[], byte[]> consumer;
        private final CountDownLatch assigned = new CountDownLatch(1);
        private final Thread thread;
        private volatile String failure;

        Member(JsonNode command) {
            Properties properties = new Properties();
            command.get("configs").fields().forEachRemaining(field -> properties.put(field.getKey(), field.getValue().asText()));
            properties.put("group.id", command.get("group").asText());
            properties.put("enable.auto.commit", "false");
            properties.put("auto.offset.reset", "earliest");
            consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            if (command.has("pattern")) {
                consumer.subscribe(Pattern.compile(command.get("pattern").asText()));
            } else {
                List<String> topics = new ArrayList<>();
                command.get("topics").forEach(topic -> topics.add(topic.asText()));
                consumer.subscribe(topics);
            }
            long commit = command.path("commit").asLong(-1);
            thread = new Thread(() -> poll(commit), "member");
            thread.setDaemon(true);
            ALL.add(this);
        }

        void join(long seconds) throws InterruptedException {
            thread.start();
            if (!assigned.await(seconds, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no partition assigned in " + seconds + " s: " + failure);
            }
        }

        private void poll(long commit) {
            try {
                while (true) {
                    consumer.poll(Duration.ofMillis(100));
                    if (assigned.getCount() > 0 && !consumer.assignment().isEmpty()) {
                        if (commit < 0 || committed(commit)) {
                            assigned.countDown();
                        }
                    }
                }
            } catch (WakeupException leaving) {
                consumer.close();
            } catch (RuntimeException broken) {
                failure = broken.toString();
            }
        }

        /** False where the group has begun to share the partitions out anew: the next poll is part of that. */
        private boolean committed(long offset) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            consumer.assignment().forEach(tp -> offsets.put(tp, new OffsetAndMetadata(offset)));
            try {
                consumer.commitSync(offsets);
                return true;
            } catch (CommitFailedException | RebalanceInProgressException early) {
                return false;
            }
        }

        static void leaveAll() throws InterruptedException {
            for (Member member : ALL) {
                member.consumer.wakeup();
            }
            for (Member member : ALL) {
                member.thread.join();
            }
            ALL.clear();
        }
    }

    /** Calls a method of Kafka's class Exit, which Kafka 4.4 has moved, with what does for one of its interfaces. */
    private static void setExit(String method, String kind, InvocationHandler handler) throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException older) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        Class<?> type = Class.forName(exit.getName() + "$" + kind);
        Object value = Proxy.newProxyInstance(ToolDriver.class.getClassLoader(), new Class<?>[] {type}, handler);
        exit.getMethod(method, type).invoke(null, value);
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        InputStream stdin = System.in;
        PrintStream replies = System.out;
        // Set once and for all: loggers keep the stream that they find when they are made.
        System.setOut(new PrintStream(new RunStream(false), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new RunStream(true), true, StandardCharsets.UTF_8));
        // Tools end by Exit.exit; here that must end the tool alone.
        InvocationHandler exits = (proxy, method, values) -> {
            exit((Integer) values[0], (String) values[1]);
            return null;
        };
        InvocationHandler hooks = (proxy, method, values) -> {
            Run run = RUN.get();
            // The console consumer's hook waits for a latch that is static: its first run would be its last.
            if (run != null && !"consumer-shutdown-hook".equals(values[0])) {
                run.hooks.add((Runnable) values[1]);
            }
            return null;
        };
        setExit("setExitProcedure", "Procedure", exits);
        setExit("setHaltProcedure", "Procedure", exits);
        setExit("setShutdownHookAdder", "ShutdownHookAdder", hooks);
        BufferedReader commands = new BufferedReader(new InputStreamReader(stdin, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = json.readTree(line);
            ObjectNode reply = json.createObjectNode();
            reply.set("id", command.get("id"));
            try {
                switch (command.get("op").asText()) {
                    case "tool" -> reply.set("result", tool(command, json));
                    case "join" -> {
                        new Member(command).join(command.path("seconds").asLong(180));
                        reply.set("result", json.createObjectNode());
                    }
                    case "leave" -> {
                        Member.leaveAll();
                        reply.set("result", json.createObjectNode());
                    }
                    default -> throw new IllegalArgumentException("no op " + command.get("op"));
                }
            } catch (Exception failed) {
                reply.put("error", failed.getClass().getSimpleName()).put("message", String.valueOf(failed.getMessage()));
            }
            replies.println(json.writeValueAsString(reply));
            replies.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
