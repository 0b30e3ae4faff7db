import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * A real Kafka broker, or a cluster, for the tests of a class: starts the installed command kbroker and asks its control.
 *
 * <p>With {@code @ExtendWith(Kbroker.class)} test methods take it as a parameter. As a static field with
 * {@code @RegisterExtension} it can have options. After each test, all is as at the beginning. This is a file to copy.
 */
public final class Kbroker
        implements AutoCloseable, BeforeAllCallback, BeforeEachCallback, AfterEachCallback, AfterAllCallback, ParameterResolver {
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final List<String> options = new ArrayList<>();
    private int nodes = 1;
    private boolean keepsTopics;
    private int users;
    private Process process;
    private Path directory;
    private String url;
    private String bootstrapServers;

    /** Sets the number of nodes. Of several, each is a process that may be killed. */
    public Kbroker nodes(int number) {
        nodes = number;
        return this;
    }

    /** Adds words to the command line, such as "-o", "num.partitions=6", or "--faults", FILE. */
    public Kbroker options(String... words) {
        options.addAll(List.of(words));
        return this;
    }

    /** Has topics and groups stay from one test to the next. */
    public Kbroker keepTopics() {
        keepsTopics = true;
        return this;
    }

    /** Starts it, and returns once clients are served. */
    public Kbroker start() {
        String command = Optional.ofNullable(System.getenv("KBROKER_COMMAND")).orElse("kbroker");
        try {
            directory = Files.createTempDirectory("kbroker-");
            List<String> words = new ArrayList<>(List.of(command.trim().split("\\s+")));
            words.addAll(nodes == 1
                    ? List.of("start", "--log-level", "warning", "--data-dir", directory.toString())
                    : List.of("up", "-n", String.valueOf(nodes), "--data", directory.toString()));
            words.addAll(List.of("--port", "0", "--control", "0", "--until-eof")); // it ends with this process
            words.addAll(options);
            process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            awaitReady(process.inputReader());
            return this;
        } catch (IOException error) {
            close();
            throw new UncheckedIOException(command + " cannot be run: pip install 'kbroker[metrics]', or set KBROKER_COMMAND", error);
        } catch (RuntimeException error) {
            close();
            throw error;
        }
    }

    private void awaitReady(BufferedReader output) throws IOException {
        for (String line = output.readLine(); line != null; line = output.readLine()) {
            if (line.startsWith("kbroker control: ")) {
                url = line.substring("kbroker control: ".length());
            } else if (line.startsWith("kbroker ready: ")) {
                bootstrapServers = line.substring("kbroker ready: ".length());
                Thread reader = new Thread(() -> {
                    try {
                        output.transferTo(Writer.nullWriter());
                    } catch (IOException ended) {
                        // so it tells nothing more
                    }
                });
                reader.setDaemon(true);
                reader.start();
                return;
            }
        }
        throw new IllegalStateException("kbroker has ended instead of serving: standard error has why");
    }

    /** Stops it, and removes its data. */
    @Override
    public void close() {
        try {
            if (process != null) {
                process.destroy();
                process.waitFor();
                process = null;
            }
            if (directory != null) {
                try (Stream<Path> paths = Files.walk(directory)) {
                    paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
                }
                directory = null;
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Returns what clients have for bootstrap.servers. */
    public String bootstrapServers() {
        return bootstrapServers;
    }

    /** Returns where the control is; /openapi.json there tells all verbs. */
    public String controlUrl() {
        return url;
    }

    // --- verbs

    /** An answer that is not 200: the control's one line, and what a wait has seen last. */
    public static final class Problem extends RuntimeException {
        public final int status;
        public final String code;
        public final transient Object seen;

        Problem(int status, Map<String, Object> answer) {
            super(String.valueOf(answer.get("error")));
            this.status = status;
            code = (String) answer.get("code");
            seen = answer.get("seen");
        }
    }

    /** Asks the control, and returns its answer; a {@link Problem} if it is not 200. */
    public Map<String, Object> ask(String method, String path, Map<String, ?> arguments) {
        boolean inQuery = method.equals("GET") && !arguments.isEmpty();
        String target = inQuery ? path + arguments.entrySet().stream()
                .map(each -> each.getKey() + "=" + URLEncoder.encode(each.getValue().toString(), StandardCharsets.UTF_8))
                .collect(Collectors.joining("&", "?", "")) : path;
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + target))
                .method(method, inQuery ? BodyPublishers.noBody() : BodyPublishers.ofString(Json.write(arguments)))
                .build();
        try {
            HttpResponse<String> response = http.send(request, BodyHandlers.ofString());
            Map<String, Object> answer = new Json(response.body()).object();
            if (response.statusCode() != 200) {
                throw new Problem(response.statusCode(), answer);
            }
            return answer;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(interrupted);
        }
    }

    /** Requests that go wrong, until it is closed. */
    public final class Fault implements AutoCloseable {
        private final String path;

        Fault(Object number) {
            path = "/faults/" + number;
        }

        /** Waits until so many requests have met it. */
        public Fault waitForHits(long hits) {
            ask("POST", path + "/wait", Map.of("hits", hits));
            return this;
        }

        /** Ends it, and returns the number of requests that have met it. */
        public long undo() {
            return (Long) ask("DELETE", path, Map.of()).get("hits");
        }

        @Override
        public void close() {
            undo();
        }
    }

    /** Has requests go wrong: kind is delay, hold, error, drop or stale-latest. */
    public Fault fault(String kind, Map<String, ?> arguments) {
        return new Fault(ask("POST", "/faults/" + kind, arguments).get("number"));
    }

    /** Moves the clocks of all nodes ahead, and returns once what was due is done. */
    public void advance(Duration time) {
        ask("POST", "/clock/advance", Map.of("seconds", time.toMillis() / 1000.0));
    }

    /** Creates a topic that all nodes know. */
    public void createTopic(String topic, int partitions) {
        ask("POST", "/topics/" + topic + "/create", Map.of("partitions", partitions));
    }

    /** Has a node lead a partition. */
    public void moveLeader(String topic, int partition, int node) {
        ask("POST", "/topics/" + topic + "/move-leader", Map.of("partition", partition, "to", node));
    }

    /** Does to a node what an action says: stop, start, kill, pause or resume. */
    public void node(int node, String action) {
        ask("POST", "/nodes/" + node + "/" + action, Map.of());
    }

    /** Adds a node to a cluster, and returns its id. */
    public int addNode() {
        return ((Long) ask("POST", "/nodes", Map.of()).get("node")).intValue();
    }

    /** Waits for a group, committed, end, drained or requests; a {@link Problem} of status 504 out of time. */
    public Map<String, Object> waitFor(String what, Map<String, ?> arguments) {
        return ask("POST", "/wait/" + what, arguments);
    }

    /** Records what clients ask from now on. */
    public void recordRequests() {
        ask("POST", "/requests/record", Map.of());
    }

    /** Returns the requests of that api, topic, group, client_id or error. */
    @SuppressWarnings("unchecked")
    public List<Map<String, Object>> requests(Map<String, ?> wanted) {
        return (List<Map<String, Object>>) ask("GET", "/requests", wanted).get("requests");
    }

    /** Has everything be as at the beginning: no faults, all nodes running, and no topics and groups unless they are kept. */
    public void reset() {
        ask("POST", "/reset", Map.of("topics", !keepsTopics));
    }

    // --- JUnit

    @Override
    public void beforeAll(ExtensionContext context) {
        enter();
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        enter();
    }

    @Override
    public void afterEach(ExtensionContext context) {
        leave();
        if (users > 0) {
            reset();
        }
    }

    @Override
    public void afterAll(ExtensionContext context) {
        leave();
    }

    private synchronized void enter() {
        if (users++ == 0) {
            start();
        }
    }

    private synchronized void leave() {
        if (--users == 0) {
            close();
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Kbroker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return this;
    }

    /** As much of JSON as the control speaks. */
    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        static String write(Object value) {
            if (value instanceof Map<?, ?> map) {
                return map.entrySet().stream()
                        .map(each -> write(each.getKey()) + ":" + write(each.getValue()))
                        .collect(Collectors.joining(",", "{", "}"));
            }
            if (value == null || value instanceof Number || value instanceof Boolean) {
                return String.valueOf(value);
            }
            return value.toString().chars()
                    .mapToObj(each -> each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", each) : String.valueOf((char) each))
                    .collect(Collectors.joining("", "\"", "\""));
        }

        Map<String, Object> object() {
            Map<String, Object> found = new LinkedHashMap<>();
            for (at++; peek() != '}'; ) {
                String name = string();
                peek(); // the colon
                at++;
                found.put(name, value());
            }
            at++;
            return found;
        }

        private char peek() {
            while (text.charAt(at) == ' ' || text.charAt(at) == ',' || text.charAt(at) == '\n') {
                at++;
            }
            return text.charAt(at);
        }

        private Object value() {
            switch (peek()) {
                case '{':
                    return object();
                case '"':
                    return string();
                case '[':
                    List<Object> found = new ArrayList<>();
                    for (at++; peek() != ']'; ) {
                        found.add(value());
                    }
                    at++;
                    return found;
                default:
                    int from = at;
                    while (",]} \n".indexOf(text.charAt(at)) < 0) {
                        at++;
                    }
                    return word(text.substring(from, at));
            }
        }

        private static Object word(String word) {
            return switch (word) {
                case "null" -> null;
                case "true", "false" -> word.equals("true");
                default -> word.matches("-?\\d+") ? (Object) Long.valueOf(word) : (Object) Double.valueOf(word);
            };
        }

        private String string() {
            StringBuilder found = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char each = text.charAt(at);
                if (each == '\\') {
                    each = text.charAt(++at);
                    if (each == 'u') {
                        each = (char) Integer.parseInt(text.substring(at + 1, at + 5), 16);
                        at += 4;
                    } else if ("bfnrt".indexOf(each) >= 0) {
                        each = "\b\f\n\r\t".charAt("bfnrt".indexOf(each));
                    }
                }
                found.append(each);
            }
            at++;
            return found.toString();
        }
    }
}
