// Kafka's own StandardAuthorizer, asked by lines of tab-separated words:
//   reset <super user> <allow everyone>; add <id> <type> <name> <pattern> <principal> <host> <operation> <permission>;
//   remove <id>; ask <principal> <host> <operation> <type> <name>; any <principal> <host> <operation> <type>
// The last two are answered by a line with ALLOWED or DENIED.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

public class Authorizer {
    record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_SSL; }
        public int requestType() { return 3; }
        public int requestVersion() { return 0; }
        public String clientId() { return "c"; }
        public int correlationId() { return 1; }
    }

    static Asker asker(String principal, String host) throws Exception {
        int colon = principal.indexOf(':');
        KafkaPrincipal who = new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1));
        return new Asker(who, InetAddress.getByName(host));
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        StandardAuthorizer authorizer = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split("\t", -1);
            switch (w[0]) {
                case "reset":
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(
                        Map.of("super.users", w[1], "allow.everyone.if.no.acl.found", w[2], "node.id", "1"));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.completeInitialLoad();
                    break;
                case "add":
                    authorizer.addAcl(new Uuid(1, Long.parseLong(w[1])), new StandardAcl(
                        ResourceType.valueOf(w[2]), w[3], PatternType.valueOf(w[4]), w[5], w[6],
                        AclOperation.valueOf(w[7]), AclPermissionType.valueOf(w[8])));
                    break;
                case "remove":
                    authorizer.removeAcl(new Uuid(1, Long.parseLong(w[1])));
                    break;
                case "ask":
                    ResourcePattern resource = new ResourcePattern(ResourceType.valueOf(w[4]), w[5], PatternType.LITERAL);
                    Action action = new Action(AclOperation.valueOf(w[3]), resource, 1, false, false);
                    out.println(authorizer.authorize(asker(w[1], w[2]), List.of(action)).get(0));
                    break;
                case "any":
                    out.println(authorizer.authorizeByResourceType(
                        asker(w[1], w[2]), AclOperation.valueOf(w[3]), ResourceType.valueOf(w[4])));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }
}
