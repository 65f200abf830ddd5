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
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.storm.Config;
import org.apache.storm.StormSubmitter;
import org.apache.storm.generated.AlreadyAliveException;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.bolt.selector.DefaultTopicSelector;
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
import org.apache.storm.topology.base.BaseWindowedBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.NimbusLeaderNotFoundException;
import org.apache.storm.windowing.TupleWindow;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * PGVal's SST on Storm: clicks, grouped by page, tumbling event-time window, one result with the ids; late clicks aside.
 *
 * <p>Arguments: the engine's settings as a JSON file, and how many seconds to wait for a Nimbus that leads.
 */
public final class StormSst {
    private static final Logger LOG = LoggerFactory.getLogger(StormSst.class);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final DateTimeFormatter TIME =
        DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS").withZone(ZoneOffset.UTC);
    private static final String NO_UPDATE = TIME.format(Instant.EPOCH);
    private static final int FETCH_BYTES_MAX = 2_048;
    private static final int MESSAGE_TIMEOUT_SECONDS_MIN = 300;
    private static final long RETRY_MS = 200;

    private StormSst() {}

    public static void main(String[] arguments) throws Exception {
        JsonNode settings = JSON.readTree(Path.of(arguments[0]).toFile());
        Instant deadline = Instant.now().plusSeconds(Long.parseLong(arguments[1]));
        while (true) {
            try {
                StormSubmitter.submitTopology(settings.get("group").asText(), config(settings), topology(settings));
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
        // With more, what is on its way to one that died would come again only after the timeout.
        config.setNumWorkers(1);
        config.setNumAckers(atMostOnce(settings) ? 0 : 1);
        // A window's clicks are acknowledged when the next window answers: before the timeout, else they come again.
        int window = settings.get("window_ms").asInt() / 1000;
        config.setMessageTimeoutSecs(Math.max(MESSAGE_TIMEOUT_SECONDS_MIN, 5 * window));
        config.setMaxSpoutPending(1_000_000);
        return config;
    }

    private static org.apache.storm.generated.StormTopology topology(JsonNode settings) {
        int parallelism = settings.get("parallelism").asInt();
        int lagMs = settings.get("max_disorder_ms").asInt() + settings.get("allowed_lateness_ms").asInt();
        TopologyBuilder builder = new TopologyBuilder();
        // One reader keeps the partitions abreast: the watermark follows the newest click of all readers, and a click
        // that falls behind by more than the lag is late, or lost.
        builder.setSpout("clicks", new Clicks(spout(settings)), 1);
        BaseWindowedBolt windows = new Windows(settings.get("window_ms").asLong())
            .withTumblingWindow(BaseWindowedBolt.Duration.of(settings.get("window_ms").asInt()))
            .withTimestampField("end_inclusive_ms")
            .withLag(BaseWindowedBolt.Duration.of(lagMs))
            .withWatermarkInterval(BaseWindowedBolt.Duration.of(200))
            .withLateTupleStream("late");
        builder.setBolt("windows", windows, parallelism).fieldsGrouping("clicks", new Fields("page"));
        builder.setBolt("late", new Late(), parallelism).localOrShuffleGrouping("windows", "late");
        builder.setBolt("results", sink(settings, "output"), parallelism).localOrShuffleGrouping("windows");
        builder.setBolt("lateResults", sink(settings, "late"), parallelism).localOrShuffleGrouping("late");
        return builder.createTopology();
    }

    private static boolean atMostOnce(JsonNode settings) {
        return settings.get("guarantee").asText().equals("at_most_once");
    }

    private static KafkaSpoutConfig<String, String> spout(JsonNode settings) {
        JsonNode timeouts = settings.get("timeouts");
        KafkaSpoutConfig.Builder<String, String> builder =
            KafkaSpoutConfig.builder(settings.get("bootstrap_servers").asText(), settings.get("input").asText())
                .setProp("group.id", settings.get("group").asText())
                .setProp("auto.offset.reset", "earliest")
                .setProp("isolation.level", "read_committed")
                // Small portions of each partition in turn, when there is a backlog.
                .setProp("max.partition.fetch.bytes", FETCH_BYTES_MAX)
                .setProp("fetch.max.wait.ms", 50)
                .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
                .setOffsetCommitPeriodMs((long) (1000 * timeouts.get("commit_interval_seconds").asDouble()))
                .setProcessingGuarantee(
                    atMostOnce(settings) ? ProcessingGuarantee.AT_MOST_ONCE : ProcessingGuarantee.AT_LEAST_ONCE)
                .setRecordTranslator(new Decoder());
        return builder.build();
    }

    private static KafkaBolt<String, String> sink(JsonNode settings, String topic) {
        Properties producer = new Properties();
        producer.put("bootstrap.servers", settings.get("bootstrap_servers").asText());
        producer.put("acks", "all");
        producer.put("linger.ms", "5");
        producer.put("max.request.size", "8000000");
        producer.put("key.serializer", StringSerializer.class.getName());
        producer.put("value.serializer", StringSerializer.class.getName());
        return new KafkaBolt<String, String>()
            .withProducerProperties(producer)
            .withTopicSelector(new DefaultTopicSelector(settings.get(topic).asText()))
            .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>("key", "message"));
    }

    private static String text(JsonNode value) {
        return value.toString();
    }

    /** A click as (page, id, time_ms, end_inclusive_ms); what cannot be decoded is skipped, and acknowledged. */
    private static final class Decoder implements RecordTranslator<String, String> {
        private static final Fields FIELDS = new Fields("page", "id", "time_ms", "end_inclusive_ms");

        @Override
        public List<Object> apply(ConsumerRecord<String, String> record) {
            try {
                JsonNode click = JSON.readTree(record.value());
                long time = LocalDateTime.parse(click.get("timestamp").asText()).toInstant(ZoneOffset.UTC).toEpochMilli();
                // Storm's windows are (start, end], ours [start, end).
                return new Values(click.get("page").asText(), click.get("id").asLong(), time, time + 1);
            } catch (IOException | RuntimeException undecodable) {
                LOG.warn("undecodable: {}-{}@{}", record.topic(), record.partition(), record.offset());
                return null;
            }
        }

        @Override
        public Fields getFieldsFor(String stream) {
            return FIELDS;
        }

        @Override
        public List<String> streams() {
            return List.of("default");
        }
    }

    /** The spout; it says when it has polled its partitions for the first time, with all bolts in place. */
    private static final class Clicks extends KafkaSpout<String, String> {
        private boolean polled;

        Clicks(KafkaSpoutConfig<String, String> config) {
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

    private static final class Windows extends BaseWindowedBolt {
        private final long sizeMs;
        private transient OutputCollector collector;

        Windows(long sizeMs) {
            this.sizeMs = sizeMs;
        }

        @Override
        public void prepare(Map<String, Object> config, TopologyContext context, OutputCollector to) {
            collector = to;
        }

        @Override
        public void execute(TupleWindow window) {
            Map<String, List<Tuple>> byPage = new TreeMap<>();
            for (Tuple click : window.get()) {
                byPage.computeIfAbsent(click.getStringByField("page"), page -> new ArrayList<>()).add(click);
            }
            long end = window.getEndTimestamp();
            byPage.forEach((page, clicks) -> {
                ObjectNode result = JSON.createObjectNode();
                result.put("page", page);
                result.put("windowStart", TIME.format(Instant.ofEpochMilli(end - sizeMs)));
                result.put("windowEnd", TIME.format(Instant.ofEpochMilli(end)));
                ArrayNode ids = result.putArray("clickIds");
                clicks.forEach(click -> ids.add(click.getLongByField("id")));
                result.putArray("updateIds");
                // Anchored to all its clicks: they are read again unless the result is in the topic.
                collector.emit(clicks, new Values(text(result.get("page")), text(result)));
            });
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("key", "message"));
        }
    }

    private static final class Late extends BaseBasicBolt {
        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            Tuple click = (Tuple) tuple.getValueByField("late_tuple");
            ObjectNode late = JSON.createObjectNode();
            late.put("page", click.getStringByField("page"));
            late.put("clickId", click.getLongByField("id"));
            late.put("clickTimestamp", TIME.format(Instant.ofEpochMilli(click.getLongByField("time_ms"))));
            late.put("updateId", 0);
            late.put("updateTimestamp", NO_UPDATE);
            collector.emit(new Values(text(late.get("page")), text(late)));
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("key", "message"));
        }
    }
}
