// Kafka's own serializers and deserializers, asked line by line: form, encoding, "write" or "read",
// and a value or bytes, with tabs between. Each answer is a line: what came out, null, or ! when it
// was refused. Text is written as its UTF-16 units, floats as their bits, bytes in hexadecimal.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import org.apache.kafka.common.serialization.*;

public class SerializerJudge {
    static final HexFormat HEX = HexFormat.of();

    record Form<T>(Serde<T> serde, Function<String, T> parse, Function<T, String> show) {
        String answer(String encoding, String step, String given) {
            var settings = Map.of("serializer.encoding", encoding, "deserializer.encoding", encoding);
            serde.configure(settings, false);
            boolean isNull = given.equals("null");
            if (step.equals("write")) {
                byte[] bytes = serde.serializer().serialize("t", isNull ? null : parse.apply(given));
                return bytes == null ? "null" : HEX.formatHex(bytes);
            }
            T value = serde.deserializer().deserialize("t", isNull ? null : HEX.parseHex(given));
            return value == null ? "null" : show.apply(value);
        }
    }

    static final Map<String, Form<?>> FORMS = Map.of(
        "string", new Form<>(Serdes.String(), SerializerJudge::text, SerializerJudge::units),
        "bytes", new Form<>(Serdes.ByteArray(), HEX::parseHex, HEX::formatHex),
        "short", new Form<>(Serdes.Short(), Short::valueOf, Object::toString),
        "int", new Form<>(Serdes.Integer(), Integer::valueOf, Object::toString),
        "long", new Form<>(Serdes.Long(), Long::valueOf, Object::toString),
        "float", new Form<>(Serdes.Float(), bits -> Float.intBitsToFloat(Integer.parseUnsignedInt(bits, 16)),
            value -> String.format("%08x", Float.floatToRawIntBits(value))),
        "double", new Form<>(Serdes.Double(), bits -> Double.longBitsToDouble(Long.parseUnsignedLong(bits, 16)),
            value -> String.format("%016x", Double.doubleToRawLongBits(value))),
        "boolean", new Form<>(Serdes.Boolean(), Boolean::valueOf, Object::toString),
        "uuid", new Form<>(Serdes.UUID(), UUID::fromString, UUID::toString),
        "void", new Form<>(Serdes.Void(), given -> null, Object::toString));

    static String text(String units) {
        var text = new StringBuilder();
        for (int at = 0; at < units.length(); at += 4) {
            text.append((char) Integer.parseInt(units.substring(at, at + 4), 16));
        }
        return text.toString();
    }

    static String units(String text) {
        var units = new StringBuilder();
        text.chars().forEach(unit -> units.append(String.format("%04x", unit)));
        return units.toString();
    }

    public static void main(String[] arguments) throws Exception {
        var answers = new StringBuilder();
        var questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = questions.readLine()) != null; ) {
            String[] asked = line.split("\t", -1);
            String answer;
            try {
                answer = FORMS.get(asked[0]).answer(asked[1], asked[2], asked[3]);
            } catch (Exception refused) {
                answer = "!";
            }
            answers.append(answer).append('\n');
        }
        System.out.print(answers);
    }
}
