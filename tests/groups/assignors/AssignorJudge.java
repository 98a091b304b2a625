// Asks the assignors of Kafka's Java client. Its standard input has one thing in each line, its
// fields separated by tabs; what it finds goes to standard output when it is told to answer.
//
//   group <assignor>                     a new group, with a new leader
//   topic <name> <racks>                 partitions separated by ';', racks of replicas by ','
//   member <id> <instance or ""> <subscription in hexadecimal>
//   assign <generation>                  one line for each member: id, partitions, the bytes of the
//                                        assignment, and the user data the member sends next time
//   subscribe <topics> <owned> <generation> <rack or ""> <user data or "">
//                                        the bytes of a subscription
//   order <names>                        the names as a HashSet has them
//   partitions <topic> <numbers>         the same with partitions
//   answer                               everything that was found since the last time

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class AssignorJudge {
    static final HexFormat HEX = HexFormat.of();

    static String name;
    static ConsumerPartitionAssignor leader;
    static List<PartitionInfo> partitions = new ArrayList<>();
    static Map<String, Subscription> members = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // All of it is kept until whoever asks has written everything and begins to read.
        var found = new ByteArrayOutputStream();
        var out = new PrintStream(found, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "group" -> {
                    name = fields[1];
                    leader = assignor();
                }
                case "topic" -> addTopic(fields[1], fields[2].split(";", -1));
                case "member" -> {
                    var subscription = ConsumerProtocol.deserializeSubscription(bytes(fields[3]));
                    if (!fields[2].isEmpty()) subscription.setGroupInstanceId(Optional.of(fields[2]));
                    members.put(fields[1], subscription);
                }
                case "assign" -> assign(Integer.parseInt(fields[1]), out);
                case "subscribe" -> out.println(hex(ConsumerProtocol.serializeSubscription(
                    new Subscription(
                        List.of(fields[1].split(",")),
                        fields[5].isEmpty() ? null : bytes(fields[5]),
                        parsed(fields[2]),
                        Integer.parseInt(fields[3]),
                        fields[4].isEmpty() ? Optional.empty() : Optional.of(fields[4])))));
                case "order" -> {
                    Set<String> names = new HashSet<>();
                    for (String each : fields[1].split(",")) names.add(each);
                    out.println(String.join(",", names));
                }
                case "partitions" -> {
                    Set<TopicPartition> numbers = new HashSet<>();
                    for (String each : fields[2].split(",")) {
                        numbers.add(new TopicPartition(fields[1], Integer.parseInt(each)));
                    }
                    out.println(numbers.stream()
                        .map(each -> String.valueOf(each.partition()))
                        .collect(Collectors.joining(",")));
                }
                case "answer" -> {
                    out.println("answered");
                    out.flush();
                    found.writeTo(System.out);
                    System.out.flush();
                    found.reset();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    static ConsumerPartitionAssignor assignor() {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    static void addTopic(String topic, String[] racks) {
        for (int index = 0; index < racks.length; index++) {
            List<Node> replicas = new ArrayList<>();
            for (String rack : racks[index].split(",")) {
                replicas.add(new Node(replicas.size(), "host", 9092, rack.isEmpty() ? null : rack));
            }
            Node[] nodes = replicas.toArray(new Node[0]);
            partitions.add(new PartitionInfo(topic, index, null, nodes, nodes));
        }
    }

    @SuppressWarnings("removal")
    static void assign(int generation, PrintStream out) {
        Cluster cluster = new Cluster("id", List.of(), partitions, Set.of(), Set.of());
        try {
            var found = leader.assign(cluster, new GroupSubscription(members)).groupAssignment();
            for (String member : new TreeSet<>(found.keySet())) {
                Assignment given = found.get(member);
                ByteBuffer sent = ConsumerProtocol.serializeAssignment(given);
                String text = hex(sent.duplicate());
                var self = assignor();
                self.onAssignment(
                    ConsumerProtocol.deserializeAssignment(sent),
                    new ConsumerGroupMetadata("g", generation, member, Optional.empty()));
                String next = hex(self.subscriptionUserData(Set.of()));
                out.println(String.join("\t", member, written(given.partitions()), text, next));
            }
        } catch (RuntimeException failure) {
            out.println("failed\t" + failure.getClass().getSimpleName());
        }
        out.println(".");
        partitions.clear();
        members = new HashMap<>();
    }

    static ByteBuffer bytes(String text) {
        return ByteBuffer.wrap(HEX.parseHex(text));
    }

    static String hex(ByteBuffer data) {
        if (data == null) return "";
        byte[] copy = new byte[data.remaining()];
        data.get(copy);
        return HEX.formatHex(copy);
    }

    static String written(List<TopicPartition> partitions) {
        return partitions.stream()
            .map(each -> each.topic() + ":" + each.partition())
            .collect(Collectors.joining(","));
    }

    static List<TopicPartition> parsed(String text) {
        List<TopicPartition> found = new ArrayList<>();
        for (String each : text.isEmpty() ? new String[0] : text.split(",")) {
            String[] parts = each.split(":");
            found.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        }
        return found;
    }
}
