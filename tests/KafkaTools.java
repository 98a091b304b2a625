import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's tools in one virtual machine, each run when it is asked for, as its script starts it.
 *
 * A line of the input is a tool's class, what the tool reads, and its arguments, each in base 64,
 * with spaces between. The answer is a line with the exit status and what the tool wrote to stdout
 * and to stderr, in base 64. A tool that ends the virtual machine itself leaves "-" for its status,
 * which is that of the virtual machine.
 */
public class KafkaTools {
    private static class Ended extends RuntimeException { }

    /** What is written, but for what a tool says because it is kept from ending. */
    private static class Heard extends ByteArrayOutputStream {
        @Override
        public synchronized void write(int one) {
            if (!unwinding) super.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int start, int length) {
            if (!unwinding) super.write(bytes, start, length);
        }

        String encoded() {
            return Base64.getEncoder().encodeToString(toByteArray());
        }
    }

    // A tool may catch its own end and end once more; what it said first is its status.
    private static volatile Integer status;
    private static volatile boolean unwinding;
    private static volatile boolean running;
    private static Heard out;
    private static Heard err;
    private static PrintStream answers;
    private static final List<Runnable> AT_THE_END = new ArrayList<>();

    private static void end(int code) {
        status = status == null ? code : status;
        unwinding = true;
        throw new Ended();
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> AT_THE_END.add(hook));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (running) answer("-");
        }));
        answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[][] words = Arrays.stream(line.split(" ", -1))
                .map(word -> Base64.getDecoder().decode(word)).toArray(byte[][]::new);
            String[] texts = Arrays.stream(words)
                .map(word -> new String(word, StandardCharsets.UTF_8)).toArray(String[]::new);
            System.setIn(new ByteArrayInputStream(words[1]));
            out = new Heard();
            err = new Heard();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            running = true;
            run(texts[0], Arrays.copyOfRange(texts, 2, texts.length));
            running = false;
            answer(status.toString());
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(String code) {
        answers.println(code + " " + out.encoded() + " " + err.encoded());
        answers.flush();
    }

    private static void run(String tool, String[] arguments) throws Exception {
        status = null;
        unwinding = false;
        AT_THE_END.clear();
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            status = status == null ? 0 : status;
        } catch (InvocationTargetException thrown) {
            if (status == null) {
                thrown.getCause().printStackTrace();
                status = 1;
            }
        }
        unwinding = false;
        AT_THE_END.forEach(Runnable::run);
    }
}
