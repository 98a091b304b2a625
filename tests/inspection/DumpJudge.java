import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * Kafka's dump tool, run over many files by one virtual machine.
 *
 * "dump FILE..." prints a line for each file: "sound" or "damaged", as the tool's words mean.
 * "write FOLDER" lets Kafka write two segments, and die with the second one open.
 */
public class DumpJudge {
    private static class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            write(new File(arguments[1]));
            return;
        }
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        PrintStream out = System.out;
        for (int n = 1; n < arguments.length; n++) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(printed, true);
            System.setOut(stream);
            System.setErr(stream);
            int status = 0;
            try {
                DumpLogSegments.main(new String[] {"--deep-iteration", "--files", arguments[n]});
            } catch (Ended ended) {
                status = ended.status;
            } catch (Throwable thrown) {
                status = 1;
            }
            out.println(status == 0 && isSound(printed.toString()) ? "sound" : "damaged");
        }
    }

    /** Whether the tool complains of nothing but a first offset that is not 0. */
    private static boolean isSound(String printed) {
        for (String line : printed.split("\n")) {
            boolean complaint = line.contains("isvalid: false")
                || line.contains("invalid bytes at the end")
                || line.contains("Mismatches in")
                || line.contains("Found timestamp mismatch")
                || line.contains("Found out of order timestamp")
                || line.contains("indexed offsets are not found")
                || line.contains("is followed by") && !line.contains(" -1 is followed by")
                || line.contains("Snapshot")
                || line.contains("snapshot") && line.contains("corrupt");
            if (complaint && !line.startsWith("Dumping")) {
                return false;
            }
        }
        return true;
    }

    private static void write(File folder) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("index.interval.bytes", 200);
        LogConfig config = new LogConfig(settings);
        long offset = 100;
        for (int number = 0; number < 2; number++) {
            LogSegment segment = LogSegment.open(folder, offset, config, Time.SYSTEM, 0, false);
            for (int batch = 0; batch < 12; batch++) {
                SimpleRecord[] records = new SimpleRecord[3];
                for (int each = 0; each < records.length; each++) {
                    long time = 1_700_000_000_000L + (batch % 5) * 1000 + each;
                    records[each] = new SimpleRecord(time, "key".getBytes(), new byte[20]);
                }
                Compression codec = batch % 2 == 0 ? Compression.NONE : Compression.gzip().build();
                segment.append(offset + 2, MemoryRecords.withRecords(offset, codec, 4, records));
                offset += records.length;
            }
            segment.flush();
            if (number == 0) {
                segment.onBecomeInactiveSegment();
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
