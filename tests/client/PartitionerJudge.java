// Kafka's own partitioners, asked line by line; numbers of a list have commas between, words spaces.
// "-" is an empty list. Each answer is a line. It lives in Kafka's package to replace the random
// numbers by those of the question.

package org.apache.kafka.clients.producer.internals;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.RoundRobinPartitioner;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.utils.LogContext;

public class PartitionerJudge {
    static class Drawn extends BuiltInPartitioner {
        final int[] draws;
        int next = 0;

        Drawn(int batchSize, int[] draws) {
            super(new LogContext(), "t", batchSize);
            this.draws = draws;
        }

        @Override
        int randomPartition() {
            return draws[next++ % draws.length];
        }
    }

    static Cluster cluster(int count, int[] available) {
        Node node = new Node(0, "localhost", 9092);
        Node[] nodes = {node};
        var leaders = Arrays.stream(available).boxed().collect(Collectors.toSet());
        List<PartitionInfo> partitions = new ArrayList<>();
        for (int id = 0; id < count; id++) {
            partitions.add(new PartitionInfo("t", id, leaders.contains(id) ? node : null, nodes, nodes));
        }
        return new Cluster("c", List.of(node), partitions, Set.of(), Set.of());
    }

    static int[] numbers(String list) {
        return list.equals("-") ? new int[0] : Arrays.stream(list.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    static String list(IntStream numbers) {
        return numbers.mapToObj(Integer::toString).collect(Collectors.joining(","));
    }

    // key HEX COUNT: the partition of the key.
    static String key(String[] asked) {
        byte[] key = asked[1].equals("-") ? new byte[0] : HexFormat.of().parseHex(asked[1]);
        return "" + BuiltInPartitioner.partitionForKey(key, Integer.parseInt(asked[2]));
    }

    // draw COUNT AVAILABLE SIZES IDS LENGTH DRAWS: the partition of each draw.
    static String draw(String[] asked) {
        var cluster = cluster(Integer.parseInt(asked[1]), numbers(asked[2]));
        var partitioner = new Drawn(1, numbers(asked[6]));
        partitioner.updatePartitionLoadStats(numbers(asked[3]), numbers(asked[4]), Integer.parseInt(asked[5]));
        return list(IntStream.range(0, partitioner.draws.length).map(turn -> {
            var current = partitioner.peekCurrentPartitionInfo(cluster);
            partitioner.updatePartitionInfo(current, 2, cluster, true);
            return current.partition();
        }));
    }

    // stick COUNT BATCH_SIZE DRAWS SIZES: the partition of each record; size 0 lets open batches leave.
    static String stick(String[] asked) {
        int count = Integer.parseInt(asked[1]);
        int batchSize = Integer.parseInt(asked[2]);
        var cluster = cluster(count, IntStream.range(0, count).toArray());
        var partitioner = new Drawn(batchSize, numbers(asked[3]));
        int[] open = new int[count];  // bytes in the open batch of a partition
        List<Integer> chosen = new ArrayList<>();
        for (int size : numbers(asked[4])) {
            if (size == 0) {
                Arrays.fill(open, 0);
                continue;
            }
            while (true) {
                var current = partitioner.peekCurrentPartitionInfo(cluster);
                int at = current.partition();
                if (open[at] > 0 && open[at] + size > batchSize) {
                    open[at] = 0;
                }
                if (open[at] == 0) {
                    partitioner.updatePartitionInfo(current, 0, cluster, true);
                    if (partitioner.isPartitionChanged(current)) {
                        continue;
                    }
                }
                chosen.add(at);
                open[at] += size;
                boolean isFull = open[at] >= batchSize;
                if (isFull) {
                    open[at] = 0;
                }
                partitioner.updatePartitionInfo(current, size, cluster, isFull);
                break;
            }
        }
        return list(chosen.stream().mapToInt(Integer::intValue));
    }

    // turn COUNT AVAILABLE RECORDS: the partitions of so many records.
    static String turn(String[] asked) {
        var cluster = cluster(Integer.parseInt(asked[1]), numbers(asked[2]));
        try (var partitioner = new RoundRobinPartitioner()) {
            return list(IntStream.range(0, Integer.parseInt(asked[3]))
                .map(record -> partitioner.partition("t", null, null, null, null, cluster)));
        }
    }

    public static void main(String[] arguments) throws Exception {
        var answers = new StringBuilder();
        var questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = questions.readLine()) != null; ) {
            String[] asked = line.split(" ");
            answers.append(switch (asked[0]) {
                case "key" -> key(asked);
                case "draw" -> draw(asked);
                case "stick" -> stick(asked);
                default -> turn(asked);
            }).append('\n');
        }
        System.out.print(answers);
    }
}
