import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** The orders of java.util.HashMap: for each line of names, one line with three orders of them. */
public class HashOrderJudge {
    public static void main(String[] none) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] names = line.split(" ");
            Map<String, String> growing = new HashMap<>();
            Map<String, String> sized = new HashMap<>(names.length);
            Map<String, String> computed = new HashMap<>();
            for (String name : names) {
                growing.put(name, "");
                sized.put(name, "");
                computed.computeIfAbsent(name, key -> "");
            }
            out.println(String.join(" ", growing.keySet()) + "\t" + String.join(" ", sized.keySet())
                + "\t" + String.join(" ", computed.keySet()));
        }
    }
}
