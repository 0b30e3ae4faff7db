// Prints kerberos_names.json: what Apache Kafka makes of random rules and principals, [rules, realm, principal, name].
// java -cp "$KAFKA_HOME/libs/*" tests/facts/KerberosFacts.java > tests/facts/kerberos_names.json   (needs a JDK)
// The name is null where no name comes of them, false where the rules are refused.

import java.util.*;
import org.apache.kafka.common.security.kerberos.*;

public class KerberosFacts {
    static final Random random = new Random(18);

    static String one(String... of) {
        return of[random.nextInt(of.length)];
    }

    static String rule() {
        if (random.nextInt(4) == 0) return one("DEFAULT", "DEFAULT", "DEFAULTX", "default", "RULE", "");
        String text = "RULE:[" + one("1", "2", "1", "2", "0", "3", "01", "") + ":"
            + one("$1", "$1@$0", "$1;$2", "$2", "$1$2", "$0", "$3", "$", "x$1", "$12", "$01", "name", "", "$1/$2") + "]";
        if (random.nextInt(2) == 0)
            text += "(" + one(".*", ".*@ONE", "a.*", "[a-z]+@.*", "kafka;.*", ".*\\.org", "[", "\\w+", "A|alice", "")+ ")";
        if (random.nextInt(2) == 0)
            text += "s/" + one("a", "@.*", "[a-z]", "^(.)(.*)$", "x*", "(?<n>l+)", "\\.", ";.*", "", "(", "\\d", "\\w")
                + "/" + one("", "x", "$1", "$2$1", "${n}", "\\$", "b@c", "$0$0", "\\\\", "/") + "/" + one("", "", "g", "gg");
        return text + one("", "", "", "/L", "/U", "L", "U", "/", "/X", " ");
    }

    static String text(String value) {
        return '"' + value.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    public static void main(String[] arguments) {
        List<String> rows = new ArrayList<>();
        int named = 0, refused = 0;
        while (rows.size() < 900) {
            List<String> rules = new ArrayList<>();
            for (int count = 1 + random.nextInt(3); count > 0; count--) rules.add(rule());
            String realm = one("ONE", "TWO", "");
            String principal = one("alice", "Alice", "kafka", "a.b.org", "al-ice", "x9", "")
                + one("", "", "/node.one.org", "/", "/Host", "/a/b") + one("@ONE", "@ONE", "@TWO", "@", "", "@ONE@TWO", "@A/B");
            String result;
            try {
                KerberosShortNamer namer = KerberosShortNamer.fromUnparsedRules(realm, rules);
                try {
                    result = text(namer.shortName(KerberosName.parse(principal)));
                    named++;
                } catch (Exception error) {
                    result = "null";
                }
            } catch (Exception error) {
                result = "false";
                if (random.nextInt(20) > 0 || refused++ > 90) continue;
            }
            if (result.equals("null") && random.nextInt(3) > 0) continue;
            StringJoiner list = new StringJoiner(", ", "[", "]");
            for (String each : rules) list.add(text(each));
            rows.add("[" + list + ", " + text(realm) + ", " + text(principal) + ", " + result + "]");
        }
        System.out.println("[\n" + String.join(",\n", rows) + "\n]");
        System.err.println(named + " named, " + refused + " refused");
    }
}
