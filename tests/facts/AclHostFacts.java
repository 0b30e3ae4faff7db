import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.server.authorizer.internals.CidrUtils;

/**
 * Reads lines of an address, a tab and the host of an ACL; says for each whether Apache Kafka 4.4 finds the address in
 * the range. {@code tests/security/acl_host_samples.py} makes the lines, and tells how to run it.
 */
public class AclHostFacts {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = lines.readLine()) != null;) {
            String[] fields = line.split("\t", -1);
            answers.append(CidrUtils.isInRange(fields[0], fields[1]) ? "1" : "0");
        }
        System.out.println(answers);
    }
}
