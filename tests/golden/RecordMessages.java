// Writes what Kafka's own classes make of every message in every version: one line
// "NAME VERSION VARIANT HEX" each, to the gzip file named by the argument. The values follow the
// filling rules of README.md, so that a reader of the schema can compute them too.

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileOutputStream;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.zip.GZIPOutputStream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public final class RecordMessages {
    private static final ObjectMapper JSON =
        new ObjectMapper().configure(JsonParser.Feature.ALLOW_COMMENTS, true);
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final String[] VARIANTS = {"default", "full", "null", "empty", "large"};
    private static final String LAST = "last-";
    private static final String[] ALL_VARIANTS = {"default", "full", "null", "empty", "large",
        LAST + "full", LAST + "null", LAST + "empty"};

    /** Message name to definition, and to the class that reads its JSON. */
    private static final Map<String, JsonNode> DEFINITIONS = new TreeMap<>();
    private static final Map<String, String> CONVERTERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        for (String path : System.getProperty("java.class.path").split(":")) {
            if (path.contains("/org/apache/kafka/")) {
                readJar(path);
            }
        }
        try (PrintWriter out = new PrintWriter(new OutputStreamWriter(
                new GZIPOutputStream(new FileOutputStream(args[0])), StandardCharsets.UTF_8))) {
            for (Map.Entry<String, JsonNode> entry : DEFINITIONS.entrySet()) {
                record(entry.getKey(), entry.getValue(), out);
            }
        }
    }

    private static void readJar(String path) throws Exception {
        try (JarFile jar = new JarFile(path)) {
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements();) {
                JarEntry entry = entries.nextElement();
                String name = entry.getName();
                String simple = name.substring(name.lastIndexOf('/') + 1);
                if (name.endsWith(".json")) {
                    JsonNode definition = JSON.readTree(jar.getInputStream(entry));
                    DEFINITIONS.put(definition.get("name").asText(), definition);
                } else if (simple.endsWith("JsonConverter.class") && !simple.contains("$")) {
                    String type = name.replace('/', '.').replace(".class", "");
                    CONVERTERS.put(simple.replace("JsonConverter.class", ""), type);
                }
            }
        }
    }

    private static void record(String name, JsonNode definition, PrintWriter out) throws Exception {
        int[] versions = versions(definition.get("validVersions").asText());
        String type = CONVERTERS.containsKey(name + "Data") ? name + "Data" : name;
        if (versions == null) {
            return;
        }
        if (!CONVERTERS.containsKey(type)) {
            throw new IllegalStateException("no class reads the JSON of " + name);
        }
        Class<?> converter = Class.forName(CONVERTERS.get(type));
        Class<?> message = Class.forName(CONVERTERS.get(type).replace("JsonConverter", ""));
        Map<String, JsonNode> structures = new HashMap<>();
        for (JsonNode common : list(definition.get("commonStructs"))) {
            structures.put(common.get("name").asText(), common.get("fields"));
        }
        for (int version = versions[0]; version <= versions[1]; version++) {
            for (String variant : version == versions[1] ? VARIANTS : ALL_VARIANTS) {
                boolean last = variant.startsWith(LAST);
                short filledVersion = (short) (last ? versions[1] : version);
                String shape = last ? variant.substring(LAST.length()) : variant;
                Message filled;
                if (shape.equals("default")) {
                    filled = (Message) message.getConstructor().newInstance();
                } else {
                    Filler filler = new Filler(structures, filledVersion, shape);
                    JsonNode json = filler.structure(definition.get("fields"), name);
                    Method read = converter.getMethod("read", JsonNode.class, short.class);
                    filled = (Message) read.invoke(null, json, filledVersion);
                }
                String written;
                try {
                    written = "=" + HexFormat.of().formatHex(bytes(filled, (short) version));
                } catch (UnsupportedVersionException | NullPointerException refused) {
                    if (!last) {
                        throw refused;
                    }
                    written = "!";
                }
                out.println(name + " " + version + " " + variant + " " + written);
            }
        }
    }

    private static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static int[] versions(String text) {
        if (text.equals("none")) {
            return null;
        }
        if (text.endsWith("+")) {
            return new int[] {Integer.parseInt(text.substring(0, text.length() - 1)), 32767};
        }
        String[] ends = text.split("-");
        return new int[] {Integer.parseInt(ends[0]), Integer.parseInt(ends[ends.length - 1])};
    }

    private static boolean contains(JsonNode versions, int version) {
        int[] range = versions == null ? null : versions(versions.asText());
        return range != null && range[0] <= version && version <= range[1];
    }

    private static List<JsonNode> list(JsonNode array) {
        List<JsonNode> items = new ArrayList<>();
        if (array != null) {
            array.forEach(items::add);
        }
        return items;
    }

    /** Fills one message for one version; see README.md. */
    private record Filler(Map<String, JsonNode> structures, int version, String variant) {
        ObjectNode structure(JsonNode fields, String path) {
            ObjectNode node = NODES.objectNode();
            for (JsonNode field : list(fields)) {
                JsonNode versions = field.has("versions") ? field.get("versions") : field.get("taggedVersions");
                if (contains(versions, version)) {
                    String name = field.get("name").asText();
                    String camel = Character.toLowerCase(name.charAt(0)) + name.substring(1);
                    node.set(camel, value(field, path + "." + name));
                }
            }
            return node;
        }

        private JsonNode value(JsonNode field, String path) {
            boolean nullable = contains(field.get("nullableVersions"), version);
            if (variant.equals("null") && nullable) {
                return NullNode.instance;
            }
            String type = field.get("type").asText();
            if (!type.startsWith("[]")) {
                return scalar(type, field, path);
            }
            int length = switch (variant) {
                case "empty" -> 0;
                case "null" -> 1;
                case "full" -> 2;
                default -> 3;
            };
            ArrayNode array = NODES.arrayNode();
            for (int i = 0; i < length; i++) {
                array.add(scalar(type.substring(2), field, path + "[" + i + "]"));
            }
            return array;
        }

        private JsonNode scalar(String type, JsonNode field, String path) {
            long h = hash(path);
            return switch (type) {
                case "bool" -> NODES.booleanNode((h & 1) == 1);
                case "int8" -> NODES.numberNode((byte) h);
                case "int16" -> NODES.numberNode((short) h);
                case "uint16" -> NODES.numberNode((int) (h & 0xffff));
                case "int32" -> NODES.numberNode((int) h);
                case "uint32" -> NODES.numberNode(h & 0xffffffffL);
                case "int64" -> NODES.numberNode(h);
                case "float64" -> NODES.numberNode(((int) h) / 8.0);
                case "uuid" -> NODES.textNode(new Uuid(h, ~h).toString());
                case "string" -> NODES.textNode(text(h));
                case "bytes", "records" -> NODES.binaryNode(blob(h));
                default -> {
                    JsonNode fields = structures.getOrDefault(type, field.get("fields"));
                    yield structure(fields, path);
                }
            };
        }

        private int length(long h) {
            return switch (variant) {
                case "empty" -> 0;
                case "large" -> 100 + (int) (h & 0x7f);
                default -> (int) (h & 0xf);
            };
        }

        private String text(long h) {
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < length(h); i++) {
                text.append((char) ('a' + ((h & 0xff) + i) % 26));
            }
            return text.toString();
        }

        private byte[] blob(long h) {
            byte[] bytes = new byte[length(h)];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) (h + i);
            }
            return bytes;
        }

        /** FNV-1a, 64 bits. */
        private static long hash(String path) {
            long h = 0xcbf29ce484222325L;
            for (byte b : path.getBytes(StandardCharsets.UTF_8)) {
                h = (h ^ (b & 0xff)) * 0x100000001b3L;
            }
            return h;
        }
    }
}
