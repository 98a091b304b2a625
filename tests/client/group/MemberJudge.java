import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of groups, as many as are asked for.
 *
 * A line of the input is "join NAME GROUP TOPIC STRATEGY" or "leave NAME"; STRATEGY is the class of
 * an assignor, or "consumer" for the protocol of KIP-848. A line of the output is the name of a
 * member, a tab, and what it has, whenever that changed; or the name and "left".
 */
public class MemberJudge {
    private static final class Member extends Thread {
        private final String name;
        private final String topic;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private volatile boolean leaving;

        Member(String address, String name, String group, String topic, String strategy) {
            this.name = name;
            this.topic = topic;
            Properties own = new Properties();
            own.put("bootstrap.servers", address);
            own.put("group.id", group);
            own.put("enable.auto.commit", "false");
            own.put("metadata.max.age.ms", "1000");
            if (strategy.equals("consumer")) {
                own.put("group.protocol", "consumer");
            } else {
                own.put("group.protocol", "classic");
                own.put("partition.assignment.strategy", strategy);
                own.put("heartbeat.interval.ms", "100");
                own.put("session.timeout.ms", "6000");
            }
            consumer = new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            setDaemon(true);
        }

        @Override
        public void run() {
            consumer.subscribe(List.of(topic));
            Set<TopicPartition> told = null;
            try {
                while (!leaving) {
                    consumer.poll(Duration.ofMillis(50));
                    Set<TopicPartition> now = consumer.assignment();
                    if (!now.equals(told)) {
                        told = Set.copyOf(now);
                        tell(told.stream().map(one -> "" + one.partition()).collect(Collectors.joining(",")));
                    }
                }
            } catch (WakeupException woken) {
                // It leaves.
            } catch (RuntimeException failed) {
                tell("failed: " + failed);
            }
            consumer.close();
            tell("left");
        }

        void leave() {
            leaving = true;
            consumer.wakeup();
        }

        private void tell(String what) {
            System.out.println(name + "\t" + what);
            System.out.flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("join")) {
                Member made = new Member(arguments[0], words[1], words[2], words[3], words[4]);
                members.put(words[1], made);
                made.start();
            } else {
                members.remove(words[1]).leave();
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
