import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's tools, one after the other in one virtual machine, as their scripts start them.
 *
 * ToolJudge FILE reads a tool from each line: its class, what it reads from its input, and its
 * arguments, with tabs between. It prints a line for each: the exit status, and what the tool
 * wrote, in base 64.
 */
public class ToolJudge {
    private static class Ended extends RuntimeException { }

    // A tool may catch its own end and end once more; what it said first is its status.
    private static Integer status;
    private static final List<Runnable> AT_THE_END = new ArrayList<>();

    private static void end(int code) {
        status = status == null ? code : status;
        throw new Ended();
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> AT_THE_END.add(hook));
        PrintStream out = System.out;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split("\t", -1);
            String input = words[1].replace("\\n", "\n").replace("\\t", "\t");
            System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
            ByteArrayOutputStream written = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(written, true, StandardCharsets.UTF_8);
            System.setOut(stream);
            System.setErr(stream);
            int code = run(words[0], Arrays.copyOfRange(words, 2, words.length), stream);
            out.println(code + " " + Base64.getEncoder().encodeToString(written.toByteArray()));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String tool, String[] arguments, PrintStream out) throws Exception {
        status = null;
        AT_THE_END.clear();
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            status = status == null ? 0 : status;
        } catch (InvocationTargetException thrown) {
            if (status == null) {
                thrown.getCause().printStackTrace(out);
                status = 1;
            }
        }
        AT_THE_END.forEach(Runnable::run);
        return status;
    }
}
