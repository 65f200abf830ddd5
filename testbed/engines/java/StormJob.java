import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.storm.Config;
import org.apache.storm.StormSubmitter;
import org.apache.storm.generated.AlreadyAliveException;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.bolt.selector.FieldNameTopicSelector;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.kafka.spout.KafkaSpoutConfig.ProcessingGuarantee;
import org.apache.storm.kafka.spout.RecordTranslator;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseWindowedBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.NimbusLeaderNotFoundException;
import org.apache.storm.utils.Utils;
import org.apache.storm.windowing.TupleWindow;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * PGVal's SST and MST on Storm. SST: clicks, grouped by page, tumbling event-time window, one result with the ids. MST:
 * clicks and updates in the same windows, and a result with the ids of both, each once. An inner join has a result if a
 * window has clicks and updates, a left join if it has clicks. Late events go to a separate topic for each input.
 *
 * <p>Arguments: the engine's settings as a JSON file, and the seconds to wait for a Nimbus that is the leader.
 */
public final class StormJob {
    private static final Logger LOG = LoggerFactory.getLogger(StormJob.class);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final DateTimeFormatter TIME =
        DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS").withZone(ZoneOffset.UTC);
    private static final String EPOCH = TIME.format(Instant.EPOCH);
    private static final Fields RECORD = new Fields("key", "message", "topic");
    private static final Fields EVENT = new Fields("page", "id", "time_ms", "end_inclusive_ms", "side", "partition");
    private static final List<String> IDS = List.of("clickIds", "updateIds");
    private static final int FETCH_BYTES_MAX = 2_048;
    private static final long RETRY_MS = 200;
    private static final long ACTIVE_MS_MAX = 500;

    public static void main(String[] arguments) throws Exception {
        JsonNode settings = JSON.readTree(Path.of(arguments[0]).toFile());
        Instant deadline = Instant.now().plusSeconds(Long.parseLong(arguments[1]));
        StormTopology topology = topology(settings);
        while (true) {
            try {
                StormSubmitter.submitTopology(settings.get("group").asText(), config(settings), topology);
                return;
            } catch (AlreadyAliveException alive) {
                return;
            } catch (Exception starting) {
                if (!(starting instanceof NimbusLeaderNotFoundException || starting.getCause() instanceof IOException
                        || starting.getCause() instanceof NimbusLeaderNotFoundException)
                        || Instant.now().isAfter(deadline)) {
                    throw starting;
                }
                Thread.sleep(RETRY_MS);
            }
        }
    }

    private static Config config(JsonNode settings) {
        Config config = new Config();
        // With several workers, tuples on the way to a dead one would be replayed only after the message timeout.
        config.setNumWorkers(1);
        config.setNumAckers(atMostOnce(settings) ? 0 : 1);
        config.setMessageTimeoutSecs(settings.get("timeouts").get("message_timeout_seconds").asInt());
        config.setMaxSpoutPending(1_000_000);
        Map<String, Object> cluster = Utils.readStormConfig();
        settings.path("options").fieldNames().forEachRemaining(name -> config.put(name, cluster.get(name)));
        return config;
    }

    private static StormTopology topology(JsonNode settings) throws Exception {
        int parallelism = settings.get("parallelism").asInt();
        int lagMs = settings.get("max_disorder_ms").asInt() + settings.get("allowed_lateness_ms").asInt();
        boolean joins = settings.get("workload").asText().equals("mst");
        List<String> inputs = texts(settings, joins ? List.of("input", "update_input") : List.of("input"));
        TopologyBuilder builder = new TopologyBuilder();
        // One spout that fetches little at a time, so that `Abreast` holds few events while partitions wait for others.
        builder.setSpout("events", new Events(spout(settings, inputs)), 1);
        String join = joins ? settings.get("join").asText() : "none";
        long sizeMs = settings.get("window_ms").asLong();
        BaseWindowedBolt windows = new Windows(sizeMs, join, settings.get("output").asText())
            .withTumblingWindow(BaseWindowedBolt.Duration.of(settings.get("window_ms").asInt()))
            .withTimestampField("end_inclusive_ms")
            // One more than needed: Storm evaluates a window when the watermark equals its end, but still accepts an
            // event with that time, which is then in no window.
            .withLag(BaseWindowedBolt.Duration.of(lagMs + 1))
            .withWatermarkInterval(BaseWindowedBolt.Duration.of(200))
            .withLateTupleStream("late");
        builder.setBolt("windows", windows, parallelism)
            .fieldsGrouping("abreast", new Fields("page"));
        builder.setBolt("abreast", new Abreast(partitions(settings, inputs), lagMs, idleMs(settings)), 1)
            .globalGrouping("events");
        builder.setBolt("late", new Late(texts(settings, List.of("late", "late_updates"))), parallelism)
            .localOrShuffleGrouping("windows", "late").localOrShuffleGrouping("abreast", "late");
        builder.setBolt("sink", sink(settings), parallelism)
            .localOrShuffleGrouping("windows").localOrShuffleGrouping("late");
        return builder.createTopology();
    }

    private static List<String> texts(JsonNode settings, List<String> names) {
        return names.stream().map(name -> settings.get(name).asText()).collect(Collectors.toList());
    }

    private static int partitions(JsonNode settings, List<String> topics) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", settings.get("bootstrap_servers").asText()))) {
            return admin.describeTopics(topics).allTopicNames().get().values().stream()
                .mapToInt(topic -> topic.partitions().size()).sum();
        }
    }

    /** Time after which a partition without events is not waited for, in milliseconds. */
    private static long idleMs(JsonNode settings) {
        JsonNode seconds = settings.path("idle_after_seconds");
        return seconds.isNumber() ? (long) (1000 * seconds.asDouble()) : Long.MAX_VALUE;
    }

    private static boolean atMostOnce(JsonNode settings) {
        return settings.get("guarantee").asText().equals("at_most_once");
    }

    private static KafkaSpoutConfig<String, String> spout(JsonNode settings, List<String> inputs) {
        JsonNode timeouts = settings.get("timeouts");
        KafkaSpoutConfig.Builder<String, String> builder =
            KafkaSpoutConfig.builder(settings.get("bootstrap_servers").asText(), inputs.toArray(new String[0]))
                .setProp("group.id", settings.get("group").asText())
                .setProp("auto.offset.reset", "earliest")
                .setProp("isolation.level", "read_committed")
                // With a backlog, the spout reads a few records of each partition in turn.
                .setProp("max.partition.fetch.bytes", FETCH_BYTES_MAX)
                .setProp("fetch.max.wait.ms", 50)
                .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
                .setOffsetCommitPeriodMs((long) (1000 * timeouts.get("commit_interval_seconds").asDouble()))
                .setProcessingGuarantee(
                    atMostOnce(settings) ? ProcessingGuarantee.AT_MOST_ONCE : ProcessingGuarantee.AT_LEAST_ONCE)
                .setRecordTranslator(new Decoder(inputs, settings.get("poison").asText().equals("fail")));
        return builder.build();
    }

    private static KafkaBolt<String, String> sink(JsonNode settings) {
        Properties producer = new Properties();
        producer.put("bootstrap.servers", settings.get("bootstrap_servers").asText());
        producer.put("acks", "all");
        producer.put("linger.ms", "5");
        producer.put("max.request.size", "8000000");
        producer.put("key.serializer", StringSerializer.class.getName());
        producer.put("value.serializer", StringSerializer.class.getName());
        return new KafkaBolt<String, String>()
            .withProducerProperties(producer)
            .withTopicSelector(new FieldNameTopicSelector("topic", null))
            .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>("key", "message"));
    }

    /** Turns a click or an update into a tuple. An undecodable record is skipped and acknowledged, or ends the worker. */
    private static final class Decoder implements RecordTranslator<String, String> {
        private final List<String> inputs;
        private final boolean failsOnPoison;

        Decoder(List<String> inputs, boolean failsOnPoison) {
            this.inputs = inputs;
            this.failsOnPoison = failsOnPoison;
        }

        @Override
        public List<Object> apply(ConsumerRecord<String, String> record) {
            try {
                JsonNode event = JSON.readTree(record.value());
                long time = LocalDateTime.parse(event.get("timestamp").asText()).toInstant(ZoneOffset.UTC).toEpochMilli();
                int side = inputs.indexOf(record.topic());
                // Storm's windows are (start, end], those of PGVal [start, end).
                return new Values(event.get("page").asText(), event.get("id").asLong(), time, time + 1, side,
                    record.topic() + "/" + record.partition());
            } catch (IOException | RuntimeException undecodable) {
                LOG.warn("undecodable: {}-{}@{}", record.topic(), record.partition(), record.offset());
                if (failsOnPoison) {
                    throw new IllegalArgumentException("poison: a record of " + record.topic(), undecodable);
                }
                return null;
            }
        }

        @Override
        public Fields getFieldsFor(String stream) {
            return EVENT;
        }
    }

    /** The spout. It logs a line after it has polled its partitions for the first time, when all bolts are ready. */
    private static final class Events extends KafkaSpout<String, String> {
        private boolean polled;

        Events(KafkaSpoutConfig<String, String> config) {
            super(config);
        }

        @Override
        public void nextTuple() {
            super.nextTuple();
            if (!polled) {
                polled = true;
                LOG.info("spout ready");
            }
        }
    }

    /**
     * Passes the events of all inputs on in the order of their times, up to the time that all partitions have reached.
     * Sets aside events that are behind this time by more than the lag.
     *
     * <p>Storm searches the events of a window only up to the first that is too new, and loses those after it. The
     * spout reads the same number of bytes from each partition, so in a backlog a partition with few events is ahead of
     * one with many. Without this bolt, many events of the latter would be late or lost.
     */
    private static final class Abreast extends BaseRichBolt {
        private final int partitions;
        private final long lagMs;
        private final long idleMs;
        private transient Map<String, Long> newest;
        private transient Map<String, Long> seenMs;
        private transient long reached;
        private transient long cameMs;
        private transient long activeMs; // stops while no event arrives: then no partition is idle relative to others
        private transient PriorityQueue<Tuple> held;
        private transient OutputCollector collector;

        Abreast(int partitions, long lagMs, long idleMs) {
            this.partitions = partitions;
            this.lagMs = lagMs;
            this.idleMs = idleMs;
        }

        @Override
        public void prepare(Map<String, Object> config, TopologyContext context, OutputCollector to) {
            newest = new HashMap<>();
            seenMs = new HashMap<>();
            cameMs = System.nanoTime() / 1_000_000;
            held = new PriorityQueue<>(Comparator.comparingLong(Abreast::time));
            collector = to;
        }

        @Override
        public void execute(Tuple event) {
            long nowMs = System.nanoTime() / 1_000_000;
            activeMs += Math.min(nowMs - cameMs, ACTIVE_MS_MAX);
            cameMs = nowMs;
            newest.merge(event.getStringByField("partition"), time(event), Math::max);
            seenMs.put(event.getStringByField("partition"), activeMs);
            // It never falls: a partition that was idle may continue with older events.
            reached = Math.max(reached, allReached());
            if (time(event) < reached - lagMs) {
                pass("late", event);
            } else {
                held.add(event);
            }
            while (!held.isEmpty() && time(held.peek()) <= reached) {
                pass("default", held.remove());
            }
        }

        private long allReached() {
            if (newest.size() < partitions && activeMs < idleMs) {
                return 0;
            }
            return newest.entrySet().stream().filter(of -> activeMs - seenMs.get(of.getKey()) < idleMs)
                .mapToLong(Map.Entry::getValue).min().orElse(0);
        }

        private void pass(String stream, Tuple event) {
            collector.emit(stream, event, event.getValues());
            collector.ack(event);
        }

        private static long time(Tuple event) {
            return event.getLongByField("time_ms");
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(EVENT);
            declarer.declareStream("late", EVENT);
        }
    }

    private static final class Windows extends BaseWindowedBolt {
        private final long sizeMs;
        private final String join; // inner, left, or none
        private final String topic;
        private transient OutputCollector collector;

        Windows(long sizeMs, String join, String topic) {
            this.sizeMs = sizeMs;
            this.join = join;
            this.topic = topic;
        }

        @Override
        public void prepare(Map<String, Object> config, TopologyContext context, OutputCollector to) {
            collector = to;
        }

        @Override
        public void execute(TupleWindow window) {
            window.get().stream().collect(Collectors.groupingBy(event -> event.getStringByField("page")))
                .forEach((page, events) -> answer(window.getEndTimestamp(), page, events));
        }

        private void answer(long end, String page, List<Tuple> events) {
            List<Collection<Long>> ids = join.equals("none") ? List.of(new ArrayList<>(), new ArrayList<>())
                : List.of(new LinkedHashSet<>(), new LinkedHashSet<>());
            events.forEach(event -> ids.get(event.getIntegerByField("side")).add(event.getLongByField("id")));
            if (ids.get(0).isEmpty() || (ids.get(1).isEmpty() && join.equals("inner"))) {
                return;
            }
            ObjectNode result = JSON.createObjectNode();
            result.put("page", page);
            result.put("windowStart", TIME.format(Instant.ofEpochMilli(end - sizeMs)));
            result.put("windowEnd", TIME.format(Instant.ofEpochMilli(end)));
            for (int side = 0; side < IDS.size(); side++) {
                ids.get(side).forEach(result.putArray(IDS.get(side))::add);
            }
            // The result is anchored to all of its events: they are read again unless the result is in the topic.
            collector.emit(events, new Values(result.get("page").toString(), result.toString(), topic));
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(RECORD);
        }
    }

    /** PGVal's ClickUpdateEvent. The absent side has id 0, and the epoch as its time. */
    private static final class Late extends BaseBasicBolt {
        private static final List<String> SIDES = List.of("click", "update");
        private final List<String> topics;

        Late(List<String> topics) {
            this.topics = topics;
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            Tuple event = tuple.contains("late_tuple") ? (Tuple) tuple.getValueByField("late_tuple") : tuple;
            int side = event.getIntegerByField("side");
            ObjectNode late = JSON.createObjectNode();
            late.put("page", event.getStringByField("page"));
            for (int i = 0; i < SIDES.size(); i++) {
                late.put(SIDES.get(i) + "Id", i == side ? event.getLongByField("id") : 0);
                Instant time = Instant.ofEpochMilli(event.getLongByField("time_ms"));
                late.put(SIDES.get(i) + "Timestamp", i == side ? TIME.format(time) : EPOCH);
            }
            collector.emit(new Values(late.get("page").toString(), late.toString(), topics.get(side)));
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(RECORD);
        }
    }
}
