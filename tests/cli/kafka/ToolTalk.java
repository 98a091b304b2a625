import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's tools on demand, in one virtual machine.
 *
 * Each line that is read is a class and its arguments, with tabs between. Each line that is
 * printed is its exit status, and what it wrote to both of its outputs in base 64.
 */
public class ToolTalk {
    private static class Ended extends RuntimeException { }

    // A tool may catch its own end and end once more; what it said first is its status.
    // What it says when it is kept from ending is nothing that it says otherwise.
    private static Integer status;
    private static ByteArrayOutputStream out;
    private static ByteArrayOutputStream err;
    private static byte[] outAtEnd;
    private static byte[] errAtEnd;

    private static void end(int code) {
        if (status == null) {
            status = code;
            outAtEnd = out.toByteArray();
            errAtEnd = err.toByteArray();
        }
        throw new Ended();
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        PrintStream answers = System.out;
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            out = new ByteArrayOutputStream();
            err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            boolean ended = status != null;
            String said = encoded(ended ? outAtEnd : out.toByteArray());
            String complained = encoded(ended ? errAtEnd : err.toByteArray());
            answers.println(code + "\t" + said + "\t" + complained);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String encoded(byte[] written) {
        return Base64.getEncoder().encodeToString(written);
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
