import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
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
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * PGVal's SST on Flink's DataStream API: clicks by page, tumbling event-time window, one result with the ids; late
 * clicks, which the window operator sets aside, to a topic of their own.
 *
 * <p>Argument: a properties file, {@code job.*}. Parallelism and checkpoints are the cluster's configuration.
 */
public final class FlinkSst {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String EPOCH = "1970-01-01T00:00:00.000";

  /** A click as Flink's own serializer takes it; page and id are JSON. */
  public static final class Click implements Serializable {
    public String page;
    public String id;
    public long timeMs;
  }

  private static final class ClickSchema extends AbstractDeserializationSchema<Click> {
    ClickSchema() {
      super(Click.class);
    }

    @Override
    public Click deserialize(byte[] bytes) {
      try {
        JsonNode node = JSON.readTree(bytes);
        Click click = new Click();
        click.page = node.get("page").toString();
        click.id = node.get("id").toString();
        click.timeMs = LocalDateTime.parse(node.get("timestamp").asText()).toInstant(ZoneOffset.UTC).toEpochMilli();
        return click;
      } catch (IOException | RuntimeException e) {
        System.out.println("undecodable: " + e);
        return null; // is left out
      }
    }
  }

  private static final class Answer extends ProcessWindowFunction<Click, Tuple2<String, String>, String, TimeWindow> {
    @Override
    public void process(String page, Context context, Iterable<Click> clicks, Collector<Tuple2<String, String>> out) {
      StringBuilder ids = new StringBuilder();
      for (Click click : clicks) {
        ids.append(ids.length() == 0 ? "" : ",").append(click.id);
      }
      out.collect(Tuple2.of(page, "{\"page\":" + page + ",\"windowStart\":\"" + text(context.window().getStart())
          + "\",\"windowEnd\":\"" + text(context.window().getEnd()) + "\",\"clickIds\":[" + ids
          + "],\"updateIds\":[]}"));
    }
  }

  /** Page or JSON of an answer as bytes; a class, since the sink looks for its type argument. */
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

  private static Tuple2<String, String> late(Click click) {
    return Tuple2.of(click.page, "{\"page\":" + click.page + ",\"clickId\":" + click.id + ",\"clickTimestamp\":\""
        + text(click.timeMs) + "\",\"updateId\":0,\"updateTimestamp\":\"" + EPOCH + "\"}");
  }

  private static String text(long ms) {
    return LocalDateTime.ofEpochSecond(Math.floorDiv(ms, 1000), Math.floorMod(ms, 1000) * 1_000_000, ZoneOffset.UTC)
        .format(DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS"));
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
    KafkaSource<Click> source = KafkaSource.<Click>builder()
        .setBootstrapServers(job.getProperty("job.bootstrap.servers"))
        .setTopics(job.getProperty("job.input"))
        .setGroupId(job.getProperty("job.group"))
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setValueOnlyDeserializer(new ClickSchema())
        .setProperty("isolation.level", "read_committed")
        .setProperty("fetch.max.wait.ms", "50")
        .build();
    WatermarkStrategy<Click> watermarks = WatermarkStrategy
        .<Click>forBoundedOutOfOrderness(Duration.ofMillis(Long.parseLong(job.getProperty("job.behind.ms"))))
        .withTimestampAssigner((click, recordTime) -> click.timeMs);
    long idleAfterMs = Long.parseLong(job.getProperty("job.idle.ms"));
    if (idleAfterMs > 0) {
      watermarks = watermarks.withIdleness(Duration.ofMillis(idleAfterMs));
    }
    OutputTag<Click> late = new OutputTag<>("late", TypeInformation.of(Click.class));
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
    SingleOutputStreamOperator<Tuple2<String, String>> results = environment
        .fromSource(source, watermarks, "clicks").uid("clicks")
        .keyBy(click -> click.page)
        .window(TumblingEventTimeWindows.of(Duration.ofMillis(Long.parseLong(job.getProperty("job.window.ms")))))
        .sideOutputLateData(late)
        .process(new Answer(), Types.TUPLE(Types.STRING, Types.STRING)).uid("windows");
    results.sinkTo(sink(job, job.getProperty("job.output"))).uid("output");
    results.getSideOutput(late).map(FlinkSst::late).returns(Types.TUPLE(Types.STRING, Types.STRING)).uid("late")
        .sinkTo(sink(job, job.getProperty("job.late"))).uid("lateOutput");
    environment.execute("SST");
  }
}
