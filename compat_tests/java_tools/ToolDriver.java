// Runs main classes of Kafka's command-line tools one after another in one JVM: starting one for each would take minutes.
// A command is one JSON line {"id", "op": "tool", "main", "args", "stdin"}; the reply holds exit code, output and errors.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

public final class ToolDriver {
    private static final class Exited extends RuntimeException {
        final int code;

        Exited(int code, String message) {
            super(message);
            this.code = code;
        }
    }

    private static Integer firstExit;

    /** Some tools catch what is thrown here and exit again: the first exit is the one that would have ended the process. */
    private static void exit(int code, String message) {
        if (firstExit == null) {
            firstExit = code;
            if (message != null) {
                System.err.println(message);
            }
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Exited(firstExit, message);
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        InputStream stdin = System.in;
        PrintStream stdout = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        // Tools end by Exit.exit; here that must end the tool alone.
        Exit.setExitProcedure(ToolDriver::exit);
        Exit.setHaltProcedure(ToolDriver::exit);
        // Their shutdown hooks would run at the end of this program, long after.
        Exit.setShutdownHookAdder((name, runnable) -> { });
        BufferedReader commands = new BufferedReader(new InputStreamReader(stdin, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = json.readTree(line);
            String[] args = new String[command.get("args").size()];
            for (int i = 0; i < args.length; i++) {
                args[i] = command.get("args").get(i).asText();
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(command.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = 0;
            firstExit = null;
            try {
                Class.forName(command.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) args);
            } catch (InvocationTargetException wrapped) {
                Throwable cause = wrapped.getCause();
                if (cause instanceof Exited) {
                    code = ((Exited) cause).code;
                } else {
                    code = 1;
                    cause.printStackTrace();
                }
            } finally {
                System.out.flush();
                System.err.flush();
            }
            if (firstExit != null) {
                code = firstExit;
            }
            ObjectNode result = json.createObjectNode();
            result.put("exit", code).put("out", out.toString(StandardCharsets.UTF_8)).put("err", err.toString(StandardCharsets.UTF_8));
            ObjectNode reply = json.createObjectNode();
            reply.set("id", command.get("id"));
            reply.set("result", result);
            stdout.println(json.writeValueAsString(reply));
        }
        Runtime.getRuntime().halt(0);
    }
}
