import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * PGVal's SST and MST on Flink's DataStream API. SST: clicks by page, tumbling event-time window, one result with the
 * ids. MST: clicks and updates in the same windows, and a result with the ids of both, each once. An inner join has a
 * result if a window has clicks and updates, a left join if it has clicks. Late events, which the window operator sets
 * aside, go to a separate topic for each input; Flink's coGroup would drop them.
 *
 * <p>Argument: a properties file, {@code job.*}. Parallelism and checkpoints are the cluster's configuration.
 */
public final class FlinkJob {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String EPOCH = "1970-01-01T00:00:00.000";

  /** A click (side 0) or an update (side 1), in the form that Flink's serializer needs. Page and id are JSON. */
  public static final class Event implements Serializable {
    public int side;
    public String page;
    public String id;
    public long timeMs;
  }

  private static final class EventSchema extends AbstractDeserializationSchema<Event> {
    private final int side;

    EventSchema(int side) {
      super(Event.class);
      this.side = side;
    }

    @Override
    public Event deserialize(byte[] bytes) {
      try {
        JsonNode node = JSON.readTree(bytes);
        Event event = new Event();
        event.side = side;
        event.page = node.get("page").toString();
        event.id = node.get("id").toString();
        event.timeMs = LocalDateTime.parse(node.get("timestamp").asText()).toInstant(ZoneOffset.UTC).toEpochMilli();
        return event;
      } catch (IOException | RuntimeException e) {
        System.out.println("undecodable: " + e);
        return null; // Flink skips it
      }
    }
  }

  /** The windows of SST. */
  private static final class Answer extends ProcessWindowFunction<Event, Tuple2<String, String>, String, TimeWindow> {
    @Override
    public void process(String page, Context context, Iterable<Event> events, Collector<Tuple2<String, String>> out) {
      List<String> ids = new ArrayList<>();
      events.forEach(event -> ids.add(event.id));
      out.collect(result(page, context.window(), ids, List.of()));
    }
  }

  /**
   * The windows of MST. Checkpoints do not contain watermarks. After a recovery, a late event may open a window again
   * whose result was produced and whose other events have been removed. Without a partner the event would be dropped
   * silently. Therefore the state of each page has the end of its last evaluated window, and events of windows up to it
   * are set aside as late.
   */
  private static final class Join extends ProcessWindowFunction<Event, Tuple2<String, String>, String, TimeWindow> {
    private static final ValueStateDescriptor<Long> ANSWERED = new ValueStateDescriptor<>("answered", Types.LONG);
    private final OutputTag<Event> late;
    private final boolean left;

    Join(OutputTag<Event> late, boolean left) {
      this.late = late;
      this.left = left;
    }

    @Override
    public void process(String page, Context context, Iterable<Event> events, Collector<Tuple2<String, String>> out)
        throws Exception {
      ValueState<Long> answered = context.globalState().getState(ANSWERED);
      if (answered.value() != null && context.window().getEnd() <= answered.value()) {
        events.forEach(event -> context.output(late, event));
        return;
      }
      answered.update(context.window().getEnd());
      List<Set<String>> ids = List.of(new LinkedHashSet<>(), new LinkedHashSet<>());
      events.forEach(event -> ids.get(event.side).add(event.id));
      if (!ids.get(0).isEmpty() && (left || !ids.get(1).isEmpty())) {
        out.collect(result(page, context.window(), ids.get(0), ids.get(1)));
      }
    }
  }

  private static Tuple2<String, String> result(
      String page, TimeWindow window, Collection<String> clicks, Collection<String> updates) {
    return Tuple2.of(page, "{\"page\":" + page + ",\"windowStart\":\"" + text(window.getStart())
        + "\",\"windowEnd\":\"" + text(window.getEnd()) + "\",\"clickIds\":[" + String.join(",", clicks)
        + "],\"updateIds\":[" + String.join(",", updates) + "]}");
  }

  /** Serializes the page or the JSON of a result. A class and no lambda, because the sink reads its type argument. */
  private static final class Part implements SerializationSchema<Tuple2<String, String>> {
    private final int field;

    Part(int field) {
      this.field = field;
    }

    @Override
    public byte[] serialize(Tuple2<String, String> answer) {
      return answer.<String>getField(field).getBytes(StandardCharsets.UTF_8);
    }
  }

  /** PGVal's ClickUpdateEvent. The absent side has id 0, and the epoch as its time. */
  private static Tuple2<String, String> late(Event event) {
    String click = "\"clickId\":%s,\"clickTimestamp\":\"%s\"";
    String update = "\"updateId\":%s,\"updateTimestamp\":\"%s\"";
    return Tuple2.of(event.page, "{\"page\":" + event.page + ","
        + (event.side == 0 ? click : update).formatted(event.id, text(event.timeMs)) + ","
        + (event.side == 0 ? update : click).formatted("0", EPOCH) + "}");
  }

  private static String text(long ms) {
    return LocalDateTime.ofEpochSecond(Math.floorDiv(ms, 1000), Math.floorMod(ms, 1000) * 1_000_000, ZoneOffset.UTC)
        .format(DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS"));
  }

  /** The source of the clicks or of the updates. The offsets of several inputs are committed under one group. */
  private static KafkaSource<Event> source(Properties job, String[] inputs, int side) {
    return KafkaSource.<Event>builder()
        .setBootstrapServers(job.getProperty("job.bootstrap.servers"))
        .setTopics(inputs[side])
        .setGroupId(job.getProperty("job.group"))
        .setClientIdPrefix(job.getProperty("job.group") + "-" + inputs[side])
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setValueOnlyDeserializer(new EventSchema(side))
        .setProperty("isolation.level", "read_committed")
        .setProperty("fetch.max.wait.ms", "50")
        .build();
  }

  private static KafkaSink<Tuple2<String, String>> sink(Properties job, String topic) {
    return KafkaSink.<Tuple2<String, String>>builder()
        .setBootstrapServers(job.getProperty("job.bootstrap.servers"))
        .setDeliveryGuarantee(DeliveryGuarantee.valueOf(job.getProperty("job.guarantee")))
        .setTransactionalIdPrefix(job.getProperty("job.group") + "-" + topic)
        .setProperty("transaction.timeout.ms", job.getProperty("job.transaction.timeout.ms"))
        .setProperty("max.request.size", job.getProperty("job.max.request.size"))
        .setRecordSerializer(KafkaRecordSerializationSchema.<Tuple2<String, String>>builder()
            .setTopic(topic)
            .setKeySerializationSchema(new Part(0))
            .setValueSerializationSchema(new Part(1))
            .build())
        .build();
  }

  public static void main(String[] arguments) throws Exception {
    Properties job = new Properties();
    try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
      job.load(reader);
    }
    WatermarkStrategy<Event> watermarks = WatermarkStrategy
        .<Event>forBoundedOutOfOrderness(Duration.ofMillis(Long.parseLong(job.getProperty("job.behind.ms"))))
        .withTimestampAssigner((event, recordTime) -> event.timeMs);
    long idleAfterMs = Long.parseLong(job.getProperty("job.idle.ms"));
    if (idleAfterMs > 0) {
      watermarks = watermarks.withIdleness(Duration.ofMillis(idleAfterMs));
    }
    String[] inputs = job.getProperty("job.inputs").split(",");
    String[] lateTopics = job.getProperty("job.late").split(",");
    OutputTag<Event> late = new OutputTag<>("late", TypeInformation.of(Event.class));
    boolean left = job.getProperty("job.join").equals("left");
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
    DataStream<Event> events = null;
    for (int side = 0; side < inputs.length; side++) {
      DataStream<Event> one =
          environment.fromSource(source(job, inputs, side), watermarks, "input-" + side).uid("input-" + side);
      events = events == null ? one : events.union(one);
    }
    SingleOutputStreamOperator<Tuple2<String, String>> results = events
        .keyBy(event -> event.page)
        .window(TumblingEventTimeWindows.of(Duration.ofMillis(Long.parseLong(job.getProperty("job.window.ms")))))
        .sideOutputLateData(late)
        .process(inputs.length == 1 ? new Answer() : new Join(late, left), Types.TUPLE(Types.STRING, Types.STRING))
        .uid("windows");
    results.sinkTo(sink(job, job.getProperty("job.output"))).uid("output");
    for (int i = 0; i < inputs.length; i++) {
      int side = i;
      results.getSideOutput(late).filter(event -> event.side == side).uid("late-of-" + side)
          .map(FlinkJob::late).returns(Types.TUPLE(Types.STRING, Types.STRING)).uid("late-" + side)
          .sinkTo(sink(job, lateTopics[side])).uid("late-sink-" + side);
    }
    environment.execute(inputs.length == 1 ? "SST" : "MST");
  }
}
