import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer and the member of a group "java", until the end of the input.
 *
 * Prints a line for each event: "ack PARTITION OFFSET NUMBER", "assigned PARTITION...",
 * "read PARTITION OFFSET VALUE", "committing PARTITION:OFFSET...", "committed ..." and "failed ...".
 */
public class JavaClients {
    private static final String NAME = "java";
    private static volatile boolean stopping;

    public static void main(String[] words) throws Exception {
        String servers = words[0];
        String topic = words[1];
        int[] numbers = new int[words.length - 2];
        for (int at = 0; at < numbers.length; at++) {
            numbers[at] = Integer.parseInt(words[at + 2]);
        }
        Map<String, Object> common = new HashMap<>();
        common.put("bootstrap.servers", servers);
        common.put("request.timeout.ms", numbers[5]);
        common.put("retry.backoff.ms", 50);
        common.put("reconnect.backoff.max.ms", 200);
        Thread producing = started(() -> produce(common, topic, numbers));
        Thread consuming = started(() -> consume(common, topic, numbers[4], numbers[7]));
        while (System.in.read() >= 0) {
        }
        stopping = true;
        producing.join();
        consuming.join();
        System.exit(0);
    }

    private static Thread started(Runnable work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable failure) {
                System.out.println("failed " + failure);
            }
        });
        thread.start();
        return thread;
    }

    private static void produce(Map<String, Object> common, String topic, int[] numbers) {
        int partitions = numbers[0];
        Semaphore room = new Semaphore(numbers[1]);
        Map<String, Object> config = new HashMap<>(common);
        config.put("acks", "all");
        config.put("enable.idempotence", true);
        config.put("linger.ms", 1);
        config.put("delivery.timeout.ms", numbers[6]);
        config.put("max.block.ms", numbers[6]);
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, text, text)) {
            int next = 0;
            while (!stopping) {
                for (int each = 0; each < numbers[2] && room.tryAcquire(); each++) {
                    int number = next++;
                    String value = NAME + " " + number;
                    producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (sent, failure) -> {
                        room.release();
                        System.out.println(failure == null
                            ? "ack " + sent.partition() + " " + sent.offset() + " " + number
                            : "failed " + failure);
                    });
                }
                sleep(numbers[3]);
            }
        }
    }

    private static void consume(Map<String, Object> common, String topic, int pollMs, int fetchWaitMs) {
        Map<String, Object> config = new HashMap<>(common);
        config.put("group.id", NAME);
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("fetch.min.bytes", 4000); // to save processor time
        config.put("fetch.max.wait.ms", fetchWaitMs);
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, text, text)) {
            Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                    uncommitted.keySet().removeAll(revoked);
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    List<String> shown = new ArrayList<>();
                    assigned.forEach(one -> shown.add("" + one.partition()));
                    System.out.println("assigned " + String.join(" ", shown));
                }
            });
            while (!stopping) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(pollMs))) {
                    System.out.println("read " + one.partition() + " " + one.offset() + " " + one.value());
                    uncommitted.put(
                        new TopicPartition(topic, one.partition()), new OffsetAndMetadata(one.offset() + 1));
                }
                if (!uncommitted.isEmpty()) {
                    commit(consumer, uncommitted);
                }
                sleep(pollMs); // so that a commit covers several batches
            }
        }
    }

    private static void commit(
            KafkaConsumer<String, String> consumer, Map<TopicPartition, OffsetAndMetadata> uncommitted) {
        List<String> pairs = new ArrayList<>();
        uncommitted.forEach((place, offset) -> pairs.add(place.partition() + ":" + offset.offset()));
        String shown = String.join(" ", pairs);
        System.out.println("committing " + shown);
        try {
            consumer.commitSync(uncommitted);
        } catch (KafkaException failure) {
            return; // the next commit has the same offsets or higher ones
        }
        System.out.println("committed " + shown);
        uncommitted.clear();
    }

    private static void sleep(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
