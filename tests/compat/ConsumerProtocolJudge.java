// A consumer with group.protocol=consumer (KIP-848) against a broker that supports only classic groups:
// what it is told, and what works without a group. One line for each step: its name, a tab, what
// came of it.

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ConsumerProtocolJudge {
    static final TopicPartition PARTITION = new TopicPartition("kip-848", 0);
    static final long WAIT_NS = 20_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("group.protocol", "consumer");
        settings.put("auto.offset.reset", "earliest");
        try (var admin = Admin.create(settings)) {
            var topic = new NewTopic(PARTITION.topic(), 1, (short) 1);
            admin.createTopics(List.of(topic)).all().get();
        }
        try (var producer = new KafkaProducer<String, String>(settings)) {
            producer.send(new ProducerRecord<>(PARTITION.topic(), "k", "v")).get();
        }
        for (String step : List.of("subscribe", "missing", "pattern", "re2", "assign", "commit")) {
            settings.put("group.id", "g-" + step);
            String told;
            try (var consumer = new KafkaConsumer<String, String>(settings)) {
                told = read(consumer, step);
            } catch (Exception failure) {
                told = failure.getClass().getSimpleName() + " " + failure.getMessage().contains("group.protocol=classic");
            }
            System.out.println(step + "\t" + told);
        }
    }

    static String read(KafkaConsumer<String, String> consumer, String step) {
        switch (step) {
            case "subscribe" -> consumer.subscribe(List.of(PARTITION.topic()));
            case "missing" -> consumer.subscribe(List.of("not-there"));
            case "pattern" -> consumer.subscribe(Pattern.compile("kip.*"));
            case "re2" -> consumer.subscribe(new SubscriptionPattern("kip.*"));
            default -> consumer.assign(List.of(PARTITION));
        }
        long end = System.nanoTime() + WAIT_NS;
        while (System.nanoTime() < end) {
            var found = consumer.poll(Duration.ofMillis(100));
            if (!found.isEmpty()) {
                if (step.equals("commit")) {
                    consumer.commitSync();
                    return found.count() + " " + consumer.committed(Set.of(PARTITION)).get(PARTITION).offset();
                }
                return String.valueOf(found.count());
            }
        }
        return "neither record nor error";
    }
}
