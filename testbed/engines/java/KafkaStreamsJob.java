import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The operators of the workloads on Kafka Streams, with the fields of events and results from its options:
 *
 * <ul>
 *   <li>{@code tumbling}: a result for each key and window, with the ids of its events or aggregates of a field. With
 *       two inputs it is a join: a result has the ids of both, each once. An inner join has a result if a window has
 *       events of both, a left join if it has some of the first. Late events go to a separate topic for each input. It
 *       uses the Processor API, because the DSL drops late events silently, and its join has a result for each pair.
 *   <li>{@code running_aggregate}: a result for each event, with its id, or with aggregates of all events of its key.
 *   <li>{@code passthrough}: a result for each event, with some of its fields.
 *   <li>{@code counts}: the DSL's own count of each key, or of each key and window, without ids. The cache of Kafka
 *       Streams may skip updates.
 * </ul>
 *
 * <p>Each input may have a filter.
 *
 * <p>Kafka Streams keeps one stream time per task, so after a shuffle the fastest source partition would decide which
 * events are late. Here each source partition sends marks with its event time through the shuffle to all tasks. A
 * window closes when all partitions of all inputs have passed its end.
 *
 * <p>Argument: a properties file. The options {@code job.*} are for this job; Kafka Streams gets all others.
 */
public final class KafkaStreamsJob {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS");
  private static final String MARK = "\u0000"; // first character of a mark's key; no key of an event has it
  private static final String NEXT = "\u0001"; // between the numbers of an entry; JSON has no such character
  private static final Map<String, Set<String>> COUNTED = Map.of(
      "stream-thread-metrics", Set.of("process-total", "commit-total", "task-created-total"),
      "consumer-fetch-manager-metrics", Set.of("records-consumed-total"),
      "consumer-coordinator-metrics", Set.of("rebalance-total"),
      "producer-metrics", Set.of("record-send-total"));
  private static final long LOOK_MS = 200;
  private static final long IDLE = Long.MAX_VALUE;
  private static final long UNKNOWN = Long.MIN_VALUE;

  /** The options {@code job.NAME}. */
  private record Options(Properties all) {
    String text(String name) {
      return all.getProperty("job." + name, "");
    }

    List<String> list(String name) {
      return text(name).isEmpty() ? List.of() : List.of(text(name).split(","));
    }

    long number(String name) {
      return Long.parseLong(text(name));
    }
  }

  /** An input: the names of its fields, and of those of late events. {@code columns}: of lines; JSON has none. */
  private record Side(String topic, int partitions, String id, String key, String time, boolean inMs,
      List<String> columns, Filter filter, String late, String lateId, String lateKey, String lateTime,
      String lateRest) {}

  /** The events that pass: a field has one of some values, contains a text, or is below a number. */
  private record Filter(String field, List<String> oneOf, String contains, String below) {
    static Filter of(Options given, String name) {
      return new Filter(given.text(name + "field"), given.list(name + "one_of"), given.text(name + "contains"),
          given.text(name + "below"));
    }

    boolean passes(JsonNode fields) {
      if (field.isEmpty()) {
        return true;
      }
      String value = fields.path(field).asText();
      return !contains.isEmpty() ? value.contains(contains)
          : !below.isEmpty() ? new BigDecimal(value).compareTo(new BigDecimal(below)) < 0 : oneOf.contains(value);
    }
  }

  /** What a result states of a field of its events: {@code count, sum, min} or {@code max}. Null: no event has it. */
  private record Aggregate(String name, String how, String field) {
    static Aggregate of(String text) {
      String[] parts = text.split("[=()]");
      return new Aggregate(parts[0], parts[1], parts.length > 2 ? parts[2] : "");
    }

    String numberOf(JsonNode fields) {
      return how.equals("count") ? "1" : fields.path(field).asText();
    }

    String with(String total, String number) {
      if (number.isEmpty() || total.isEmpty()) {
        return total + number;
      }
      BigDecimal left = new BigDecimal(total);
      BigDecimal right = new BigDecimal(number);
      BigDecimal both = switch (how) {
        case "min" -> left.min(right);
        case "max" -> left.max(right);
        default -> left.add(right);
      };
      return both.toPlainString();
    }
  }

  /** All settings. {@code idLists}: the fields of results with the ids of each side. */
  private record Job(String operator, List<Side> sides, String output, String key, List<String> idLists, boolean left,
      long windowMs, long behindMs, long idleAfterMs, List<String> kept, Options options, List<Aggregate> aggregates) {
    boolean joins() {
      return sides.size() > 1;
    }

    /** The event in a text; null if the text does not decode. */
    Event event(int number, String text) {
      Side side = sides.get(number);
      try {
        JsonNode fields = side.columns.isEmpty() ? JSON.readTree(text) : line(side, text);
        JsonNode time = fields.get(side.time);
        long timeMs = side.inMs ? Long.parseLong(time.asText())
            : LocalDateTime.parse(time.asText()).toInstant(ZoneOffset.UTC).toEpochMilli();
        return new Event(fields.get(side.key).toString(), fields.get(side.id).toString(), timeMs, fields);
      } catch (IOException | RuntimeException e) {
        return null;
      }
    }

    private static JsonNode line(Side side, String text) {
      String[] values = text.split("\t", -1);
      if (values.length != side.columns.size()) {
        throw new IllegalArgumentException(values.length + " columns");
      }
      ObjectNode fields = JSON.createObjectNode();
      for (int i = 0; i < values.length; i++) {
        fields.put(side.columns.get(i), values[i]);
      }
      fields.put(side.id, Long.parseLong(fields.get(side.id).asText()));
      return fields;
    }

    String[] numbersOf(Event event) {
      return aggregates.stream().map(one -> one.numberOf(event.fields)).toArray(String[]::new);
    }

    void add(String[] totals, String[] numbers) {
      for (int i = 0; i < totals.length; i++) {
        totals[i] = aggregates.get(i).with(totals[i], numbers[i]);
      }
    }

    String stated(String[] totals) {
      StringBuilder text = new StringBuilder();
      for (int i = 0; i < totals.length; i++) {
        String value = totals[i].isEmpty() ? "null" : totals[i];
        text.append(",\"").append(aggregates.get(i).name).append("\":").append(value);
      }
      return text.toString();
    }
  }

  /** Key and id are JSON. */
  private record Event(String key, String id, long timeMs, JsonNode fields) {}

  private record Answer(String topic, String json) {}

  /** Keys events, prefixes values with the side, and sends a mark when the partition has passed a window. */
  private static final class Split implements Processor<byte[], String, String, String> {
    private final Job job;
    private final int side;
    private ProcessorContext<String, String> context;
    private long newestMs = UNKNOWN;
    private long passedMs = UNKNOWN;
    private long quietMs;
    private boolean idle;

    Split(Job job, int side) {
      this.job = job;
      this.side = side;
    }

    @Override
    public void init(ProcessorContext<String, String> given) {
      context = given;
      if (job.idleAfterMs > 0) {
        context.schedule(Duration.ofMillis(LOOK_MS), PunctuationType.WALL_CLOCK_TIME, this::noticeIdle);
      }
    }

    @Override
    public void process(Record<byte[], String> record) {
      Event event = job.event(side, record.value());
      if (event == null) {
        System.out.println("undecodable: " + context.recordMetadata().map(Object::toString).orElse("?"));
        return;
      }
      quietMs = 0;
      if (job.sides.get(side).filter.passes(event.fields)) {
        context.forward(new Record<>(event.key, side + record.value(), record.timestamp()));
      }
      newestMs = Math.max(newestMs, event.timeMs);
      long passed = Math.floorDiv(newestMs - job.behindMs, job.windowMs) * job.windowMs;
      if (passed > passedMs || idle) {
        passedMs = Math.max(passed, passedMs);
        idle = false;
        mark(passedMs, record.timestamp());
      }
    }

    /** Counts calls, not time: a task that is moved or restored gets no calls and no records, and is not idle. */
    private void noticeIdle(long now) {
      quietMs += LOOK_MS;
      if (!idle && quietMs >= job.idleAfterMs) {
        idle = true;
        mark(IDLE, now);
      }
    }

    private void mark(long ms, long timestamp) {
      context.forward(new Record<>(markOf(side, context.taskId().partition()), Long.toString(ms), timestamp));
    }
  }

  /** The windows of the keys of one task. */
  private static final class Windows implements Processor<String, String, String, Answer> {
    private final Job job;
    private ProcessorContext<String, Answer> context;
    private KeyValueStore<Bytes, byte[]> entries; // end of window, key, increasing number -> side, id, numbers
    private KeyValueStore<String, Long> marks;
    private List<Collection<String>> ids; // ids of the current result, by side; in a join each id once
    private String[] totals;
    private long closedMs;
    private long lastNumber;

    Windows(Job job) {
      this.job = job;
    }

    @Override
    public void init(ProcessorContext<String, Answer> given) {
      context = given;
      entries = context.getStateStore("entries");
      marks = context.getStateStore("marks");
      ids = new ArrayList<>();
      job.idLists.forEach(name -> ids.add(job.joins() ? new LinkedHashSet<>() : new ArrayList<>()));
      totals = new String[job.aggregates.size()];
      Arrays.fill(totals, "");
      closedMs = Optional.ofNullable(marks.get("closed")).orElse(0L);
    }

    @Override
    public void process(Record<String, String> record) {
      if (record.key().startsWith(MARK)) {
        advance(record.key(), Long.parseLong(record.value()), record.timestamp());
        return;
      }
      int side = record.value().charAt(0) - '0';
      Event event = job.event(side, record.value().substring(1));
      long end = (Math.floorDiv(event.timeMs, job.windowMs) + 1) * job.windowMs;
      if (end <= closedMs) {
        Answer late = new Answer(job.sides.get(side).late, late(job.sides.get(side), event));
        context.forward(new Record<>(event.key, late, record.timestamp()));
        return;
      }
      // One entry each time that the event is processed: without a join, a result repeats ids of events sent twice.
      lastNumber = Math.max(lastNumber + 1, System.currentTimeMillis() * 1000);
      byte[] name = event.key.getBytes(StandardCharsets.UTF_8);
      ByteBuffer key = ByteBuffer.allocate(16 + name.length).putLong(end).put(name).putLong(lastNumber);
      String entry = side + event.id + NEXT + String.join(NEXT, job.numbersOf(event));
      entries.put(Bytes.wrap(key.array()), entry.getBytes(StandardCharsets.UTF_8));
    }

    private void advance(String partition, long ms, long timestamp) {
      marks.put(partition, ms);
      long least = IDLE;
      for (int side = 0; side < job.sides.size(); side++) {
        for (int i = 0; i < job.sides.get(side).partitions; i++) {
          least = Math.min(least, Optional.ofNullable(marks.get(markOf(side, i))).orElse(UNKNOWN));
        }
      }
      if (least == IDLE || least <= closedMs) {
        return;
      }
      closedMs = least;
      marks.put("closed", least);
      answer(timestamp);
    }

    private void answer(long timestamp) {
      Bytes from = Bytes.wrap(new byte[8]);
      Bytes to = Bytes.wrap(ByteBuffer.allocate(8).putLong(closedMs + 1).array());
      List<Bytes> gone = new ArrayList<>();
      long end = 0;
      String name = null;
      try (KeyValueIterator<Bytes, byte[]> found = entries.range(from, to)) {
        while (found.hasNext()) {
          var entry = found.next();
          byte[] key = entry.key.get();
          long nextEnd = ByteBuffer.wrap(key).getLong();
          String nextName = new String(key, 8, key.length - 16, StandardCharsets.UTF_8);
          if (name != null && (nextEnd != end || !nextName.equals(name))) {
            emit(name, end, timestamp);
          }
          end = nextEnd;
          name = nextName;
          String[] parts = new String(entry.value, StandardCharsets.UTF_8).split(NEXT, -1);
          ids.get(parts[0].charAt(0) - '0').add(parts[0].substring(1));
          job.add(totals, Arrays.copyOfRange(parts, 1, parts.length));
          gone.add(entry.key);
        }
      }
      if (name != null) {
        emit(name, end, timestamp);
      }
      gone.forEach(entries::delete);
    }

    private void emit(String name, long end, long timestamp) {
      if (!job.joins() || !(ids.get(0).isEmpty() || (ids.get(1).isEmpty() && !job.left))) {
        StringBuilder lists = new StringBuilder();
        for (int side = 0; side < ids.size(); side++) {
          lists.append(",\"").append(job.idLists.get(side)).append("\":[").append(String.join(",", ids.get(side)))
              .append("]");
        }
        String result = "{\"" + job.key + "\":" + name + ",\"windowStart\":\"" + text(end - job.windowMs)
            + "\",\"windowEnd\":\"" + text(end) + "\"" + (totals.length > 0 ? job.stated(totals) : lists) + "}";
        context.forward(new Record<>(name, new Answer(job.output, result), timestamp));
      }
      ids.forEach(Collection::clear);
      Arrays.fill(totals, "");
    }
  }

  /** The aggregates of each key over all events so far; without aggregates the ids, which need no state. */
  private static final class Running implements Processor<String, String, String, Answer> {
    private final Job job;
    private ProcessorContext<String, Answer> context;
    private KeyValueStore<Bytes, byte[]> entries; // key -> totals

    Running(Job job) {
      this.job = job;
    }

    @Override
    public void init(ProcessorContext<String, Answer> given) {
      context = given;
      entries = context.getStateStore("entries");
    }

    @Override
    public void process(Record<String, String> record) {
      if (record.key().startsWith(MARK)) {
        return;
      }
      Event event = job.event(0, record.value().substring(1));
      String stated = ",\"" + job.idLists.get(0) + "\":[" + event.id + "]";
      if (!job.aggregates.isEmpty()) {
        Bytes key = Bytes.wrap(event.key.getBytes(StandardCharsets.UTF_8));
        byte[] before = entries.get(key);
        String[] totals = job.numbersOf(event);
        if (before != null) {
          job.add(totals, new String(before, StandardCharsets.UTF_8).split(NEXT, -1));
        }
        entries.put(key, String.join(NEXT, totals).getBytes(StandardCharsets.UTF_8));
        stated = job.stated(totals);
      }
      Answer answer = new Answer(job.output, "{\"" + job.key + "\":" + event.key + stated + "}");
      context.forward(new Record<>(event.key, answer, record.timestamp()));
    }
  }

  /** A result for each event: its id, key and time, and the fields to keep, of which some are multiplied. */
  private static final class Each implements Processor<String, String, String, Answer> {
    private final Job job;
    private ProcessorContext<String, Answer> context;

    Each(Job job) {
      this.job = job;
    }

    @Override
    public void init(ProcessorContext<String, Answer> given) {
      context = given;
    }

    @Override
    public void process(Record<String, String> record) {
      if (record.key().startsWith(MARK)) {
        return;
      }
      Event event = job.event(0, record.value().substring(1));
      Side side = job.sides.get(0);
      StringBuilder rest = new StringBuilder();
      for (String name : job.kept) {
        JsonNode value = event.fields.get(name);
        String factor = job.options.text("factor." + name);
        JsonNode product = factor.isEmpty() ? value
            : TextNode.valueOf(new BigDecimal(value.asText()).multiply(new BigDecimal(factor)).toPlainString());
        rest.append(",\"").append(name).append("\":").append(product);
      }
      String result = eventText(side.id, side.key, side.time, event, rest.toString());
      context.forward(new Record<>(event.key, new Answer(job.output, result), record.timestamp()));
    }
  }

  private static String markOf(int side, int partition) {
    return MARK + side + "/" + partition;
  }

  private static String late(Side side, Event event) {
    return eventText(side.lateId, side.lateKey, side.lateTime, event, side.lateRest);
  }

  private static String eventText(String id, String key, String time, Event event, String rest) {
    return "{\"" + key + "\":" + event.key + ",\"" + id + "\":" + event.id + ",\"" + time + "\":\""
        + text(event.timeMs) + "\"" + rest + "}";
  }

  private static String text(long ms) {
    return LocalDateTime.ofEpochSecond(Math.floorDiv(ms, 1000), Math.floorMod(ms, 1000) * 1_000_000, ZoneOffset.UTC)
        .format(TIME);
  }

  private static void build(StreamsBuilder builder, Job job) {
    if (!job.operator.equals("passthrough")) {
      builder.addStateStore(
          Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("entries"), Serdes.Bytes(), Serdes.ByteArray()));
    }
    if (job.operator.equals("tumbling")) {
      builder.addStateStore(
          Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("marks"), Serdes.String(), Serdes.Long()));
    }
    KStream<String, String> events = null;
    for (int i = 0; i < job.sides.size(); i++) {
      int side = i;
      KStream<String, String> one = builder
          .stream(job.sides.get(side).topic, Consumed.with(Serdes.ByteArray(), Serdes.String()))
          .process(() -> new Split(job, side));
      events = events == null ? one : events.merge(one);
    }
    KStream<String, Answer> answers = switch (job.operator) {
      case "passthrough" -> events.process(() -> new Each(job));
      case "running_aggregate" -> shuffled(events, job).process(() -> new Running(job), "entries");
      default -> shuffled(events, job).process(() -> new Windows(job), "entries", "marks");
    };
    Serde<Answer> written = Serdes.serdeFrom(
        (topic, answer) -> answer.json.getBytes(StandardCharsets.UTF_8),
        (topic, bytes) -> {
          throw new UnsupportedOperationException("answers are written only");
        });
    answers.to((key, answer, context) -> answer.topic, Produced.with(Serdes.String(), written));
  }

  private static KStream<String, String> shuffled(KStream<String, String> events, Job job) {
    int tasks = job.sides.get(0).partitions;
    Set<Integer> all = new HashSet<>();
    for (int i = 0; i < tasks; i++) {
      all.add(i);
    }
    return events.repartition(Repartitioned.with(Serdes.String(), Serdes.String())
        .withName("by-key")
        .withNumberOfPartitions(tasks)
        .withStreamPartitioner((topic, key, value, count) -> Optional.of(key.startsWith(MARK) ? all
            : Set.of(Utils.toPositive(Utils.murmur2(key.getBytes(StandardCharsets.UTF_8))) % count))));
  }

  private static void buildCounts(StreamsBuilder builder, Job job) {
    KGroupedStream<String, String> events = builder
        .stream(job.sides.get(0).topic, Consumed.with(Serdes.String(), Serdes.String())).groupByKey();
    if (job.windowMs == 0) {
      events.count().toStream().to(job.output, Produced.with(Serdes.String(), Serdes.Long()));
    } else {
      events.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(job.windowMs), Duration.ofSeconds(10)))
          .count().toStream().to(job.output,
              Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, job.windowMs), Serdes.Long()));
    }
  }

  /** The totals of this instance's threads and clients. */
  private static String counters(KafkaStreams streams) {
    Map<String, Double> totals = new TreeMap<>();
    streams.metrics().forEach((name, metric) -> {
      boolean ofPart = name.tags().containsKey("topic") || name.tags().containsKey("partition");
      if (!ofPart && COUNTED.getOrDefault(name.group(), Set.of()).contains(name.name())
          && metric.metricValue() instanceof Double value && !value.isNaN()) {
        totals.merge(name.name(), value, Double::sum);
      }
    });
    StringBuilder line = new StringBuilder("counters");
    totals.forEach((name, value) -> line.append(' ').append(name).append('=').append(value.longValue()));
    return line.toString();
  }

  /** Logs a line at each change of the state or of the number of this instance's tasks, and counters each second. */
  private static void announce(KafkaStreams streams) {
    String last = "";
    long due = 0;
    while (true) {
      if (System.currentTimeMillis() >= due) {
        due = System.currentTimeMillis() + 1000;
        System.out.println(counters(streams));
      }
      long tasks = streams.metadataForLocalThreads().stream().mapToLong(t -> t.activeTasks().size()).sum();
      String now = streams.state() == KafkaStreams.State.RUNNING && tasks > 0
          ? "ready with " + tasks + " tasks" : "state " + streams.state();
      if (!now.equals(last)) {
        System.out.println(now + " at " + Instant.now());
        last = now;
      }
      if (streams.state() == KafkaStreams.State.ERROR) {
        Runtime.getRuntime().halt(1);
      }
      try {
        Thread.sleep(50);
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  private static Job job(Options given) throws Exception {
    List<String> inputs = given.list("inputs");
    List<Side> sides = new ArrayList<>();
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", given.all.getProperty("bootstrap.servers")))) {
      var described = admin.describeTopics(inputs).allTopicNames().get();
      for (int i = 0; i < inputs.size(); i++) {
        String side = i + ".";
        sides.add(new Side(inputs.get(i), described.get(inputs.get(i)).partitions().size(), given.text(side + "id"),
            given.text(side + "key"), given.text(side + "time"), given.text(side + "unit").equals("ms"),
            given.list(side + "columns"), Filter.of(given, side + "where."), given.list("late").get(i),
            given.text(side + "late.id"), given.text(side + "late.key"), given.text(side + "late.time"),
            given.text(side + "late.rest")));
      }
    }
    return new Job(given.text("operator"), sides, given.text("output"), given.text("key"), given.list("id.lists"),
        given.text("join").equals("left"), given.number("window.ms"), given.number("behind.ms"),
        given.number("idle.ms"), given.list("kept"), given,
        given.list("aggregates").stream().map(Aggregate::of).toList());
  }

  public static void main(String[] arguments) throws Exception {
    Properties options = new Properties();
    try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
      options.load(reader);
    }
    Properties given = new Properties();
    given.putAll(options);
    Job job = job(new Options(given));
    options.keySet().removeIf(name -> ((String) name).startsWith("job."));
    StreamsBuilder builder = new StreamsBuilder();
    if (job.operator.equals("counts")) {
      buildCounts(builder, job);
    } else {
      build(builder, job);
    }
    KafkaStreams streams = new KafkaStreams(builder.build(options), options);
    streams.setUncaughtExceptionHandler(error -> {
      error.printStackTrace();
      return StreamThreadExceptionResponse.REPLACE_THREAD;
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    announce(streams);
  }
}
