import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
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
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * The operators of the workloads on Flink's DataStream API. {@link Work} has the fields of events and results.
 *
 * <ul>
 *   <li>{@code tumbling, sliding, session}: a result for each key and event-time window, with the ids of its events or
 *       aggregates of a field. With two inputs it is a join: a result has the ids of both, each once. Late events go to
 *       a separate topic for each input; Flink's coGroup would drop them. {@code distinct}: tumbling windows with each
 *       id once.
 *   <li>{@code interval}: a result for each pair of events of two inputs whose times are close, with the ids of both.
 *   <li>{@code running_aggregate}: a result for each event, with its id, or with aggregates of all events of its key.
 *   <li>{@code passthrough}: a result for each event, with some of its fields.
 * </ul>
 *
 * <p>Each input may have a filter.
 *
 * <p>Argument: a properties file, {@code job.*}. Parallelism and checkpoints are the cluster's configuration.
 */
public final class FlinkJob {
  private static final Set<String> WITHOUT_LATE = Set.of("passthrough", "running_aggregate", "interval");
  private static final TypeInformation<Tuple2<String, String>> ANSWER = Types.TUPLE(Types.STRING, Types.STRING);

  private static final class EventSchema extends AbstractDeserializationSchema<Work.Event> {
    private final Work work;
    private final int side;

    EventSchema(Work work, int side) {
      super(Work.Event.class);
      this.work = work;
      this.side = side;
    }

    @Override
    public Work.Event deserialize(byte[] bytes) {
      String text = bytes == null ? null : new String(bytes, work.sides().get(side).charset());
      Work.Event event = work.event(side, text);
      if (event == null) {
        System.out.println("undecodable: a record of " + work.sides().get(side).topic());
      }
      return event; // Flink skips null
    }
  }

  /**
   * Checkpoints do not contain watermarks. After a recovery, a late event may open a window again whose result was
   * produced and whose other events have been removed. With ids this is a second result, which is correct. In a join
   * the event would be dropped silently without a partner, and aggregates would be those of the event alone. There, the
   * state of each key has the end of its last evaluated window, and events of windows up to it are set aside as late.
   */
  private static final class Windows
      extends ProcessWindowFunction<Work.Event, Tuple2<String, String>, String, TimeWindow> {
    private static final ValueStateDescriptor<Long> ANSWERED = new ValueStateDescriptor<>("answered", Types.LONG);
    private final Work work;
    private final OutputTag<Work.Event> late;

    Windows(Work work, OutputTag<Work.Event> late) {
      this.work = work;
      this.late = late;
    }

    @Override
    public void process(String key, Context context, Iterable<Work.Event> events, Collector<Tuple2<String, String>> out)
        throws Exception {
      TimeWindow window = context.window();
      if (work.joins() || !work.aggregates().isEmpty()) {
        ValueState<Long> answered = context.globalState().getState(ANSWERED);
        if (answered.value() != null && window.getEnd() <= answered.value()) {
          events.forEach(event -> context.output(late, event));
          return;
        }
        answered.update(window.getEnd());
      }
      Work.Cell cell = new Work.Cell(work);
      events.forEach(event -> cell.add(Work.Part.of(event)));
      if (cell.hasResult()) {
        out.collect(Tuple2.of(cell.recordKey(key), cell.result(key, window.getStart(), window.getEnd())));
      }
    }
  }

  /** The aggregates of each key over all events so far; without aggregates the ids, which need no state. */
  private static final class Running extends KeyedProcessFunction<String, Work.Event, Tuple2<String, String>> {
    private static final ValueStateDescriptor<String> TOTALS = new ValueStateDescriptor<>("totals", Types.STRING);
    private final Work work;

    Running(Work work) {
      this.work = work;
    }

    @Override
    public void processElement(Work.Event event, Context context, Collector<Tuple2<String, String>> out)
        throws Exception {
      String[] totals = event.numbers.clone();
      if (totals.length > 0) {
        ValueState<String> state = getRuntimeContext().getState(TOTALS);
        if (state.value() != null) {
          work.add(totals, state.value().split(Work.NEXT, -1));
        }
        state.update(String.join(Work.NEXT, totals));
      }
      String result = work.running(event, totals);
      if (result != null) {
        out.collect(Tuple2.of(event.key, result));
      }
    }
  }

  private static final class Pairs extends ProcessJoinFunction<Work.Event, Work.Event, Tuple2<String, String>> {
    private final Work work;

    Pairs(Work work) {
      this.work = work;
    }

    @Override
    public void processElement(
        Work.Event left, Work.Event right, Context context, Collector<Tuple2<String, String>> out) {
      String[] pair = work.pair(left.key, left.timeMs, Work.Part.of(left), Work.Part.of(right));
      if (pair != null) {
        out.collect(Tuple2.of(pair[0], pair[1]));
      }
    }
  }

  /** Serializes the key or the JSON of a result. A class and no lambda, because the sink reads its type argument. */
  private static final class Part implements SerializationSchema<Tuple2<String, String>> {
    private final int field;
    private final String charset;

    Part(int field, Charset charset) {
      this.field = field;
      this.charset = charset.name();
    }

    @Override
    public byte[] serialize(Tuple2<String, String> answer) {
      return answer.<String>getField(field).getBytes(Charset.forName(charset));
    }
  }

  /** The source of an input. The offsets of several inputs are committed under one group. */
  private static KafkaSource<Work.Event> source(Properties job, Work work, int side) {
    String topic = work.sides().get(side).topic();
    return KafkaSource.<Work.Event>builder()
        .setBootstrapServers(job.getProperty("job.bootstrap.servers"))
        .setTopics(topic)
        .setGroupId(job.getProperty("job.group"))
        .setClientIdPrefix(job.getProperty("job.group") + "-" + topic)
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setValueOnlyDeserializer(new EventSchema(work, side))
        .setProperty("isolation.level", "read_committed")
        .setProperty("fetch.max.wait.ms", "50")
        .build();
  }

  private static KafkaSink<Tuple2<String, String>> sink(Properties job, String topic, Charset charset) {
    return KafkaSink.<Tuple2<String, String>>builder()
        .setBootstrapServers(job.getProperty("job.bootstrap.servers"))
        .setDeliveryGuarantee(DeliveryGuarantee.valueOf(job.getProperty("job.guarantee")))
        .setTransactionalIdPrefix(job.getProperty("job.group") + "-" + topic)
        .setProperty("transaction.timeout.ms", job.getProperty("job.transaction.timeout.ms"))
        .setProperty("max.request.size", job.getProperty("job.max.request.size"))
        .setRecordSerializer(KafkaRecordSerializationSchema.<Tuple2<String, String>>builder()
            .setTopic(topic)
            .setKeySerializationSchema(new Part(0, StandardCharsets.UTF_8))
            .setValueSerializationSchema(new Part(1, charset))
            .build())
        .build();
  }

  public static void main(String[] arguments) throws Exception {
    Properties job = new Properties();
    try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
      job.load(reader);
    }
    Work work = Work.of(job);
    WatermarkStrategy<Work.Event> watermarks = WatermarkStrategy
        .<Work.Event>forBoundedOutOfOrderness(Duration.ofMillis(work.behindMs()))
        .withTimestampAssigner((event, recordTime) -> event.timeMs);
    if (work.idleAfterMs() > 0) {
      watermarks = watermarks.withIdleness(Duration.ofMillis(work.idleAfterMs()));
    }
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
    DataStream<Work.Event> events = null;
    for (int side = 0; side < work.sides().size(); side++) {
      DataStream<Work.Event> one =
          environment.fromSource(source(job, work, side), watermarks, "input-" + side).uid("input-" + side);
      events = events == null ? one : events.union(one);
    }
    // After the source, so that all events move the watermark.
    events = events.filter(event -> event.passes).uid("filter");
    if (work.hasKeys()) {
      events = events.<Work.Event>flatMap((event, out) -> work.keyed(event).forEach(out::collect))
          .returns(Work.Event.class).uid("keys");
    }
    OutputTag<Work.Event> late = new OutputTag<>("late", TypeInformation.of(Work.Event.class));
    SingleOutputStreamOperator<Tuple2<String, String>> results = switch (work.operator()) {
      case "passthrough" -> events.map(event -> Tuple2.of(event.key, work.each(event))).returns(ANSWER);
      case "running_aggregate" -> events.keyBy(event -> event.key).process(new Running(work), ANSWER);
      case "interval" -> of(events, 0).intervalJoin(of(events, 1))
          .between(Duration.ofMillis(-work.beforeMs()), Duration.ofMillis(work.afterMs()))
          .process(new Pairs(work), ANSWER);
      default -> events.keyBy(event -> event.key).window(windows(work)).sideOutputLateData(late)
          .process(new Windows(work, late), ANSWER);
    };
    results.uid("results").sinkTo(sink(job, work.output(), work.charset())).uid("output");
    for (int i = 0; i < work.sides().size() && !WITHOUT_LATE.contains(work.operator()); i++) {
      int side = i;
      results.getSideOutput(late).filter(event -> event.side == side).uid("late-of-" + side)
          .map(event -> Tuple2.of(event.key, work.late(event))).returns(ANSWER).uid("late-" + side)
          .sinkTo(sink(job, work.sides().get(side).late(), StandardCharsets.UTF_8)).uid("late-sink-" + side);
    }
    environment.execute(work.operator());
  }

  private static KeyedStream<Work.Event, String> of(DataStream<Work.Event> events, int side) {
    return events.filter(event -> event.side == side).uid("side-" + side).keyBy(event -> event.key);
  }

  private static WindowAssigner<Object, TimeWindow> windows(Work work) {
    Duration length = Duration.ofMillis(work.windowMs());
    return switch (work.operator()) {
      case "sliding" -> SlidingEventTimeWindows.of(length, Duration.ofMillis(work.slideMs()));
      case "session" -> EventTimeSessionWindows.withGap(Duration.ofMillis(work.gapMs()));
      default -> TumblingEventTimeWindows.of(length);
    };
  }
}
