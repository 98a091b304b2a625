import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's tools in one virtual machine, each run when it is asked for.
 *
 * A line of the input is a tool's class and its arguments, each in base 64, with spaces between. The
 * answer is a line with the exit status and what the tool wrote to stdout and to stderr, in base 64.
 */
public class JavaTools {
    private static class Ended extends RuntimeException { }

    // A tool may catch its own end and end once more; what it said first is its status.
    private static Integer status;

    private static void end(int code) {
        status = status == null ? code : status;
        // A tool that catches its own end has nothing to say of it.
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        throw new Ended();
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        System.setIn(new ByteArrayInputStream(new byte[0]));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = Arrays.stream(line.split(" ", -1))
                .map(word -> new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8))
                .toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            Base64.Encoder encoder = Base64.getEncoder();
            answers.println(code + " " + encoder.encodeToString(out.toByteArray())
                + " " + encoder.encodeToString(err.toByteArray()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String tool, String[] arguments) throws Exception {
        status = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return status == null ? 0 : status;
        } catch (InvocationTargetException thrown) {
            if (status == null) {
                thrown.getCause().printStackTrace();
                return 1;
            }
            return status;
        }
    }
}
