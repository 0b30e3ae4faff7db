// Prints the table of kafka_configs.json: names, types, defaults, limits and synonyms of Apache Kafka's properties.
// java -cp "$KAFKA_HOME/libs/*" tests/facts/ConfigFacts.java > tests/facts/kafka_configs.json   (needs a JDK)

import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigFacts {
    static final List<String> rows = new ArrayList<>();

    static String text(Object value) {
        if (value == null || value.toString().isEmpty() && !(value instanceof String)) return "null";
        return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    static void add(String scope, ConfigDef definition, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            String fallback = key.hasDefault()
                ? text(ConfigDef.convertToString(key.defaultValue, key.type)) : "\"<required>\"";
            String valid = key.validator == null || key.validator.toString().isEmpty() ? "null" : text(key.validator);
            String mode = modes == null ? "null" : text(modes.getOrDefault(key.name, "read-only"));
            rows.add("[" + String.join(", ", text(scope), text(key.name), text(key.type), fallback,
                text(key.importance), valid, String.valueOf(key.internalConfig), mode) + "]");
        }
    }

    public static void main(String[] args) throws Exception {
        add("broker", AbstractKafkaConfig.CONFIG_DEF, DynamicBrokerConfig.dynamicConfigUpdateModes());
        add("topic", LogConfig.configDefCopy(), null);
        add("group", GroupConfig.CONFIG_DEF, null);
        add("client metrics", ClientMetricsConfigs.configDef(), null);
        List<String> synonyms = new ArrayList<>();
        for (var entry : new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).entrySet()) {
            StringJoiner pairs = new StringJoiner(", ", "[", "]");
            for (ConfigSynonym synonym : entry.getValue())
                pairs.add("[" + text(synonym.name()) + ", " + synonym.converter().apply("1") + "]");
            synonyms.add(text(entry.getKey()) + ": " + pairs);
        }
        System.out.println("{\"kafka\": " + text(AppInfoParser.getVersion()) + ", \"columns\": [\"scope\", \"name\", "
            + "\"type\", \"default\", \"importance\", \"valid\", \"internal\", \"update_mode\"],\n\"configs\": [\n"
            + String.join(",\n", rows) + "\n],\n\"topic_synonyms\": {" + String.join(",\n", synonyms) + "}}");
    }
}
