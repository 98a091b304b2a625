import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Everything that Kafka's Java client is asked to do with a broker, in one virtual machine.
 *
 * ClientJudge ADDRESS PREFIX prints a line for each step: its name, a tab, and what came of it.
 * The source compiles with the clients of Kafka 3.9 and of Kafka 4.
 */
public class ClientJudge {
    // Young enough for retention to leave the records alone.
    private static final long TIME_MS = System.currentTimeMillis() - 3_600_000;
    private static final Duration MOMENT = Duration.ofMillis(100);
    private static final long PATIENCE_MS = 30_000;

    private final String address;
    private final String topic;
    private final Admin admin;

    private interface Step {
        Object run() throws Exception;
    }

    private ClientJudge(String address, String prefix) {
        this.address = address;
        this.topic = prefix + "-topic";
        this.admin = Admin.create(settings());
    }

    public static void main(String[] arguments) {
        ClientJudge judge = new ClientJudge(arguments[0], arguments[1]);
        judge.topics();
        judge.records();
        judge.times();
        judge.groups();
        judge.offsets();
        judge.configs();
        judge.endings();
        judge.admin.close();
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private void topics() {
        tell("create", () -> {
            NewTopic asked = new NewTopic(topic, 3, (short) 1);
            var made = admin.createTopics(List.of(asked));
            return made.numPartitions(topic).get() + " " + made.replicationFactor(topic).get();
        });
        tell("create again", () -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get());
        tell("create badly", () -> admin.createTopics(List.of(new NewTopic("a/b", 1, (short) 1))).all().get());
        tell("create widely", () -> admin.createTopics(List.of(new NewTopic("wide", 1, (short) 3))).all().get());
        tell("list", () -> admin.listTopics().names().get().contains(topic));
        tell("describe", () -> {
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return found.partitions().size() + " " + found.isInternal() + " "
                + found.partitions().get(2).leader().id() + " " + found.partitions().get(2).isr().size();
        });
        tell("describe by id", () -> {
            var id = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
            var ids = org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id));
            return admin.describeTopics(ids).allTopicIds().get().get(id).name().equals(topic);
        });
        tell("describe nothing", () -> admin.describeTopics(List.of("absent")).allTopicNames().get());
        tell("cluster", () -> admin.describeCluster().nodes().get().size() + " "
            + admin.describeCluster().controller().get().id());
    }

    private void records() {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            tell("produce " + codec, () -> {
                Properties own = settings();
                own.put("compression.type", codec);
                own.put("acks", "all");
                own.put("linger.ms", "20");
                long last = -1;
                try (KafkaProducer<byte[], byte[]> producer = producer(own)) {
                    var sent = new ArrayList<java.util.concurrent.Future<RecordMetadata>>();
                    for (int n = 0; n < 20; n++) {
                        sent.add(producer.send(record(n, codec)));
                    }
                    for (var one : sent) {
                        last = one.get().offset();
                    }
                }
                return last;
            });
        }
        tell("produce unsafely", () -> {
            Properties own = settings();
            own.put("acks", "0");
            own.put("enable.idempotence", "false");
            try (KafkaProducer<byte[], byte[]> producer = producer(own)) {
                producer.send(new ProducerRecord<>(topic, 1, null, bytes("lost or not"))).get();
            }
            return end(1) >= 0;
        });
        tell("produce too much", () -> {
            Properties own = settings();
            own.put("max.request.size", "10000000");
            try (KafkaProducer<byte[], byte[]> producer = producer(own)) {
                return producer.send(new ProducerRecord<>(topic, 2, null, new byte[2_000_000])).get().offset();
            }
        });
        tell("consume", () -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer((String) null)) {
                TopicPartition first = partition(0);
                consumer.assign(List.of(first));
                consumer.seekToBeginning(List.of(first));
                List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
                until(() -> {
                    consumer.poll(MOMENT).forEach(seen::add);
                    return seen.size() >= 100;
                });
                for (int n = 0; n < seen.size(); n++) {
                    check(seen.get(n), n);
                }
                return seen.size() + " " + consumer.position(first);
            }
        });
    }

    private ProducerRecord<byte[], byte[]> record(int n, String codec) {
        var headers = List.of(
            new RecordHeader("codec", bytes(codec)), new RecordHeader("empty", null), new RecordHeader("codec", bytes("2")));
        return new ProducerRecord<>(topic, 0, TIME_MS + n, bytes("k" + n), bytes("v" + n), new ArrayList<>(headers));
    }

    private void check(ConsumerRecord<byte[], byte[]> seen, int n) {
        boolean right = seen.offset() == n
            && seen.timestamp() == TIME_MS + n % 20
            && Arrays.equals(seen.key(), bytes("k" + n % 20))
            && Arrays.equals(seen.value(), bytes("v" + n % 20))
            && seen.headers().toArray().length == 3
            && seen.headers().lastHeader("empty").value() == null
            && Arrays.equals(seen.headers().lastHeader("codec").value(), bytes("2"));
        if (!right) {
            throw new IllegalStateException("record " + n + " is " + seen);
        }
    }

    private void times() {
        tell("times", () -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer((String) null)) {
                Map<TopicPartition, Long> wanted = Map.of(partition(0), TIME_MS + 5);
                OffsetAndTimestamp found = consumer.offsetsForTimes(wanted).get(partition(0));
                consumer.assign(List.of(partition(0)));
                consumer.seek(partition(0), found.offset());
                List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
                until(() -> {
                    consumer.poll(MOMENT).forEach(seen::add);
                    return !seen.isEmpty();
                });
                return found.offset() + " " + (found.timestamp() - TIME_MS) + " " + seen.get(0).offset();
            }
        });
        tell("time to come", () -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer((String) null)) {
                return consumer.offsetsForTimes(Map.of(partition(0), TIME_MS * 2)).get(partition(0));
            }
        });
        tell("ends", () -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer((String) null)) {
                return consumer.beginningOffsets(List.of(partition(0))).values()
                    + " " + consumer.endOffsets(List.of(partition(0))).values();
            }
        });
        tell("newest", () -> {
            var found = admin.listOffsets(Map.of(partition(0), OffsetSpec.maxTimestamp())).partitionResult(partition(0)).get();
            return found.offset() + " " + (found.timestamp() - TIME_MS);
        });
    }

    private void groups() {
        String group = topic + "-group";
        tell("group", () -> {
            List<Integer> shares = new ArrayList<>();
            KafkaConsumer<byte[], byte[]> first = member(group, null);
            KafkaConsumer<byte[], byte[]> second = member(group, null);
            KafkaConsumer<byte[], byte[]> third = member(group, null);
            KafkaConsumer<byte[], byte[]> fourth = member(group, null);
            shares.add(share(List.of(first)));
            shares.add(share(List.of(first, second)));
            // More members than partitions: one of them has nothing to do.
            shares.add(share(List.of(first, second, third, fourth)));
            second.close();
            shares.add(share(List.of(first, third, fourth)));
            third.close();
            shares.add(share(List.of(first, fourth)));
            fourth.close();
            shares.add(share(List.of(first)));
            first.close();
            return shares;
        });
        tell("static member", () -> {
            KafkaConsumer<byte[], byte[]> first = member(topic + "-static", "one");
            share(List.of(first));
            first.close();
            KafkaConsumer<byte[], byte[]> again = member(topic + "-static", "one");
            int count = share(List.of(again));
            again.close();
            var gone = new org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions(
                List.of(new org.apache.kafka.clients.admin.MemberToRemove("one")));
            admin.removeMembersFromConsumerGroup(topic + "-static", gone).all().get();
            return count + " " + described(topic + "-static").members().size();
        });
    }

    /** How many partitions the members of a group have together, once each partition has one. */
    private int share(Collection<KafkaConsumer<byte[], byte[]>> members) {
        Set<TopicPartition> all = new TreeSet<>((a, b) -> a.toString().compareTo(b.toString()));
        until(() -> {
            all.clear();
            int count = 0;
            int least = 3;
            for (KafkaConsumer<byte[], byte[]> member : members) {
                member.poll(MOMENT);
                all.addAll(member.assignment());
                count += member.assignment().size();
                least = Math.min(least, member.assignment().size());
            }
            return all.size() == 3 && count == 3 && least == 3 / members.size();
        });
        return all.size();
    }

    private void offsets() {
        String group = topic + "-offsets";
        tell("commit", () -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
                consumer.assign(List.of(partition(0)));
                consumer.commitSync(Map.of(partition(0), new OffsetAndMetadata(42, "a note")));
                OffsetAndMetadata found = consumer.committed(Set.of(partition(0))).get(partition(0));
                return found.offset() + " " + found.metadata();
            }
        });
        tell("resume", () -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
                consumer.assign(List.of(partition(0)));
                List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
                until(() -> {
                    consumer.poll(MOMENT).forEach(seen::add);
                    return !seen.isEmpty();
                });
                return seen.get(0).offset();
            }
        });
        tell("commit elsewhere", () -> {
            var other = Map.of(partition(1), new OffsetAndMetadata(1));
            admin.alterConsumerGroupOffsets(group, other).all().get();
            return committed(group);
        });
        tell("commit nowhere", () -> {
            var other = Map.of(new TopicPartition("absent", 0), new OffsetAndMetadata(1));
            return admin.alterConsumerGroupOffsets(group, other).all().get();
        });
        tell("forget", () -> {
            admin.deleteConsumerGroupOffsets(group, Set.of(partition(1))).all().get();
            return committed(group);
        });
        tell("describe group", () -> {
            ConsumerGroupDescription found = described(group);
            return found.members().size() + " " + found.coordinator().id();
        });
        tell("delete group", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        tell("delete group again", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    }

    private Object committed(String group) throws Exception {
        Map<String, Long> found = new TreeMap<>();
        admin.listConsumerGroupOffsets(Map.of(group, new ListConsumerGroupOffsetsSpec())).all().get().get(group)
            .forEach((where, what) -> found.put("p" + where.partition(), what.offset()));
        return found;
    }

    private ConsumerGroupDescription described(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    private void configs() {
        ConfigResource ours = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        tell("config", () -> {
            ConfigEntry found = admin.describeConfigs(List.of(ours)).all().get().get(ours).get("retention.ms");
            return found.value() + " " + found.source() + " " + found.type() + " " + found.isReadOnly();
        });
        tell("set config", () -> {
            alter(ours, new ConfigEntry("retention.ms", "12345000"), AlterConfigOp.OpType.SET);
            ConfigEntry found = admin.describeConfigs(List.of(ours)).all().get().get(ours).get("retention.ms");
            return found.value() + " " + found.source();
        });
        tell("append config", () -> {
            alter(ours, new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND);
            return admin.describeConfigs(List.of(ours)).all().get().get(ours).get("cleanup.policy").value();
        });
        tell("unset config", () -> {
            alter(ours, new ConfigEntry("cleanup.policy", ""), AlterConfigOp.OpType.DELETE);
            return admin.describeConfigs(List.of(ours)).all().get().get(ours).get("cleanup.policy").value();
        });
        tell("bad config", () -> {
            alter(ours, new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
            return null;
        });
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        tell("broker config", () -> {
            alter(broker, new ConfigEntry("log.cleaner.threads", "2"), AlterConfigOp.OpType.SET);
            ConfigEntry found = admin.describeConfigs(List.of(broker)).all().get().get(broker).get("log.cleaner.threads");
            alter(broker, new ConfigEntry("log.cleaner.threads", ""), AlterConfigOp.OpType.DELETE);
            return found.value() + " " + found.source();
        });
    }

    private void alter(ConfigResource where, ConfigEntry entry, AlterConfigOp.OpType how) throws Exception {
        admin.incrementalAlterConfigs(Map.of(where, List.of(new AlterConfigOp(entry, how)))).all().get();
    }

    private void endings() {
        tell("grow", () -> {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        });
        tell("shrink", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
        tell("delete records", () -> {
            var deleted = admin.deleteRecords(Map.of(partition(0), RecordsToDelete.beforeOffset(10)));
            return deleted.lowWatermarks().get(partition(0)).get().lowWatermark();
        });
        tell("directories", () -> {
            var found = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().iterator().next();
            return found.replicaInfos().containsKey(partition(0)) + " " + found.totalBytes().isPresent();
        });
        tell("delete", () -> {
            admin.deleteTopics(List.of(topic)).all().get();
            return admin.listTopics().names().get().contains(topic);
        });
        tell("delete again", () -> admin.deleteTopics(List.of(topic)).all().get());
    }

    // What the steps are made of.

    private static void tell(String name, Step step) {
        String told;
        try {
            told = String.valueOf(step.run());
        } catch (ExecutionException failed) {
            told = failed.getCause().getClass().getSimpleName();
        } catch (Exception failed) {
            told = "failed: " + failed;
        }
        System.out.println(name + "\t" + told);
    }

    private static void until(BooleanSupplier isTrue) {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!isTrue.getAsBoolean()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("it never came true");
            }
        }
    }

    private long end(int partition) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer((String) null)) {
            return consumer.endOffsets(List.of(partition(partition))).get(partition(partition));
        }
    }

    private KafkaConsumer<byte[], byte[]> member(String group, String instance) {
        Properties own = settings();
        own.put("group.id", group);
        own.put("heartbeat.interval.ms", "100");
        own.put("session.timeout.ms", "6000");
        if (instance != null) {
            own.put("group.instance.id", instance);
        }
        KafkaConsumer<byte[], byte[]> made = consumer(own);
        made.subscribe(List.of(topic));
        return made;
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        Properties own = settings();
        if (group != null) {
            own.put("group.id", group);
        }
        return consumer(own);
    }

    private KafkaConsumer<byte[], byte[]> consumer(Properties own) {
        own.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private KafkaProducer<byte[], byte[]> producer(Properties own) {
        return new KafkaProducer<>(own, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private Properties settings() {
        Properties made = new Properties();
        made.put("bootstrap.servers", address);
        return made;
    }

    private TopicPartition partition(int index) {
        return new TopicPartition(topic, index);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
