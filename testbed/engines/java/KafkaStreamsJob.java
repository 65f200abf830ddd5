import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
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
 * The operators of the workloads on Kafka Streams. {@link Work} has the fields of events and results.
 *
 * <ul>
 *   <li>{@code tumbling}: a result for each key and window, with the ids of its events or aggregates of a field. With
 *       two inputs it is a join: a result has the ids of both, each once. Late events go to a separate topic for each
 *       input. It uses the Processor API, because the DSL drops late events silently, and its join has a result for
 *       each pair. {@code distinct}: each id once.
 *   <li>{@code interval}: a result for each pair of events of two inputs whose times are close, with the ids of both.
 *       The second event to arrive makes the result, so none is late; all events stay in the state.
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
  private static final String MARK = "\u0000"; // first character of a mark's key; no key of an event has it
  private static final Set<String> WINDOWS = Set.of("tumbling", "distinct");
  private static final Map<String, Set<String>> COUNTED = Map.of(
      "stream-thread-metrics", Set.of("process-total", "commit-total", "task-created-total"),
      "consumer-fetch-manager-metrics", Set.of("records-consumed-total"),
      "consumer-coordinator-metrics", Set.of("rebalance-total"),
      "producer-metrics", Set.of("record-send-total"));
  private static final long LOOK_MS = 200;
  private static final long IDLE = Long.MAX_VALUE;
  private static final long UNKNOWN = Long.MIN_VALUE;

  /** What the job computes, and the number of partitions of each input. */
  private record Job(Work work, List<Integer> partitions) {
    static Job of(Properties options) throws Exception {
      Work work = Work.of(options);
      List<String> topics = work.sides().stream().map(Work.Side::topic).toList();
      try (Admin admin = Admin.create(Map.of("bootstrap.servers", options.getProperty("bootstrap.servers")))) {
        var described = admin.describeTopics(topics).allTopicNames().get();
        return new Job(work, topics.stream().map(topic -> described.get(topic).partitions().size()).toList());
      }
    }
  }

  private record Answer(String topic, String json) {}

  /** Keys events, prefixes values with the side, and sends a mark when the partition has passed a window. */
  private static final class Split implements Processor<byte[], String, String, String> {
    private final Work work;
    private final int side;
    private ProcessorContext<String, String> context;
    private long newestMs = UNKNOWN;
    private long passedMs = UNKNOWN;
    private long quietMs;
    private boolean idle;

    Split(Work work, int side) {
      this.work = work;
      this.side = side;
    }

    @Override
    public void init(ProcessorContext<String, String> given) {
      context = given;
      if (work.idleAfterMs() > 0) {
        context.schedule(Duration.ofMillis(LOOK_MS), PunctuationType.WALL_CLOCK_TIME, this::noticeIdle);
      }
    }

    @Override
    public void process(Record<byte[], String> record) {
      Work.Event event = work.event(side, record.value());
      if (event == null) {
        System.out.println("undecodable: " + context.recordMetadata().map(Object::toString).orElse("?"));
        return;
      }
      quietMs = 0;
      if (event.passes) {
        context.forward(new Record<>(event.key, side + record.value(), record.timestamp()));
      }
      newestMs = Math.max(newestMs, event.timeMs);
      long passed = Math.floorDiv(newestMs - work.behindMs(), work.windowMs()) * work.windowMs();
      if (passed > passedMs || idle) {
        passedMs = Math.max(passed, passedMs);
        idle = false;
        mark(passedMs, record.timestamp());
      }
    }

    /** Counts calls, not time: a task that is moved or restored gets no calls and no records, and is not idle. */
    private void noticeIdle(long now) {
      quietMs += LOOK_MS;
      if (!idle && quietMs >= work.idleAfterMs()) {
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
    private final Work work;
    private final List<Integer> partitions;
    private ProcessorContext<String, Answer> context;
    private KeyValueStore<Bytes, byte[]> entries; // end of window, key, increasing number -> side, id, numbers
    private KeyValueStore<String, Long> marks;
    private long closedMs;
    private long lastNumber;

    Windows(Job job) {
      work = job.work;
      partitions = job.partitions;
    }

    @Override
    public void init(ProcessorContext<String, Answer> given) {
      context = given;
      entries = context.getStateStore("entries");
      marks = context.getStateStore("marks");
      closedMs = Optional.ofNullable(marks.get("closed")).orElse(0L);
    }

    @Override
    public void process(Record<String, String> record) {
      if (record.key().startsWith(MARK)) {
        advance(record.key(), Long.parseLong(record.value()), record.timestamp());
        return;
      }
      int side = record.value().charAt(0) - '0';
      Work.Event event = work.event(side, record.value().substring(1));
      long end = (Math.floorDiv(event.timeMs, work.windowMs()) + 1) * work.windowMs();
      if (end <= closedMs) {
        Answer late = new Answer(work.sides().get(side).late(), work.late(event));
        context.forward(new Record<>(event.key, late, record.timestamp()));
        return;
      }
      lastNumber = Math.max(lastNumber + 1, System.currentTimeMillis() * 1000);
      byte[] name = event.key.getBytes(StandardCharsets.UTF_8);
      ByteBuffer key = ByteBuffer.allocate(16 + name.length).putLong(end).put(name).putLong(lastNumber);
      String entry = side + event.id + Work.NEXT + String.join(Work.NEXT, event.numbers);
      entries.put(Bytes.wrap(key.array()), entry.getBytes(StandardCharsets.UTF_8));
    }

    private void advance(String partition, long ms, long timestamp) {
      marks.put(partition, ms);
      long least = IDLE;
      for (int side = 0; side < partitions.size(); side++) {
        for (int i = 0; i < partitions.get(side); i++) {
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
      Work.Cell cell = null;
      try (KeyValueIterator<Bytes, byte[]> found = entries.range(from, to)) {
        while (found.hasNext()) {
          var entry = found.next();
          byte[] key = entry.key.get();
          long nextEnd = ByteBuffer.wrap(key).getLong();
          String nextName = new String(key, 8, key.length - 16, StandardCharsets.UTF_8);
          if (cell == null || nextEnd != end || !nextName.equals(name)) {
            emit(cell, name, end, timestamp);
            cell = new Work.Cell(work);
          }
          end = nextEnd;
          name = nextName;
          String[] parts = new String(entry.value, StandardCharsets.UTF_8).split(Work.NEXT, -1);
          String[] numbers = Arrays.copyOfRange(parts, 1, parts.length);
          cell.add(parts[0].charAt(0) - '0', parts[0].substring(1), numbers);
          gone.add(entry.key);
        }
      }
      emit(cell, name, end, timestamp);
      gone.forEach(entries::delete);
    }

    private void emit(Work.Cell cell, String name, long end, long timestamp) {
      if (cell != null && cell.hasResult()) {
        String result = cell.result(name, end - work.windowMs(), end);
        context.forward(new Record<>(name, new Answer(work.output(), result), timestamp));
      }
    }
  }

  /** The pairs of events of a key. */
  private static final class Pairs implements Processor<String, String, String, Answer> {
    private final Work work;
    private final long[] rangesMs; // from the time of a left event: how much earlier and later the right one may be
    private ProcessorContext<String, Answer> context;
    private KeyValueStore<Bytes, byte[]> entries; // side, key, time, increasing number -> id
    private long lastNumber;

    Pairs(Work work) {
      this.work = work;
      rangesMs = new long[] {work.beforeMs(), work.afterMs()};
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
      int side = record.value().charAt(0) - '0';
      Work.Event event = work.event(side, record.value().substring(1));
      lastNumber = Math.max(lastNumber + 1, System.currentTimeMillis() * 1000);
      entries.put(place(side, event.key, event.timeMs, lastNumber), event.id.getBytes(StandardCharsets.UTF_8));
      Bytes from = place(1 - side, event.key, Math.max(0, event.timeMs - rangesMs[side]), 0);
      Bytes to = place(1 - side, event.key, event.timeMs + rangesMs[1 - side] + 1, 0);
      try (KeyValueIterator<Bytes, byte[]> found = entries.range(from, to)) {
        while (found.hasNext()) {
          var entry = found.next();
          byte[] key = entry.key.get();
          if (key.length == from.get().length) { // else of another key
            String id = new String(entry.value, StandardCharsets.UTF_8);
            long otherMs = ByteBuffer.wrap(key, key.length - 16, 8).getLong();
            String result = side == 0 ? work.pair(event.key, event.timeMs, event.id, id)
                : work.pair(event.key, otherMs, id, event.id);
            context.forward(new Record<>(event.key, new Answer(work.output(), result), record.timestamp()));
          }
        }
      }
    }

    private static Bytes place(int side, String key, long timeMs, long number) {
      byte[] name = key.getBytes(StandardCharsets.UTF_8);
      return Bytes.wrap(ByteBuffer.allocate(17 + name.length).put((byte) side).put(name).putLong(timeMs)
          .putLong(number).array());
    }
  }

  /** The aggregates of each key over all events so far; without aggregates the ids, which need no state. */
  private static final class Running implements Processor<String, String, String, Answer> {
    private final Work work;
    private ProcessorContext<String, Answer> context;
    private KeyValueStore<Bytes, byte[]> entries; // key -> totals

    Running(Work work) {
      this.work = work;
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
      Work.Event event = work.event(0, record.value().substring(1));
      String[] totals = event.numbers;
      if (totals.length > 0) {
        Bytes key = Bytes.wrap(event.key.getBytes(StandardCharsets.UTF_8));
        byte[] before = entries.get(key);
        if (before != null) {
          work.add(totals, new String(before, StandardCharsets.UTF_8).split(Work.NEXT, -1));
        }
        entries.put(key, String.join(Work.NEXT, totals).getBytes(StandardCharsets.UTF_8));
      }
      Answer answer = new Answer(work.output(), work.running(event, totals));
      context.forward(new Record<>(event.key, answer, record.timestamp()));
    }
  }

  /** A result for each event. */
  private static final class Each implements Processor<String, String, String, Answer> {
    private final Work work;
    private ProcessorContext<String, Answer> context;

    Each(Work work) {
      this.work = work;
    }

    @Override
    public void init(ProcessorContext<String, Answer> given) {
      context = given;
    }

    @Override
    public void process(Record<String, String> record) {
      if (!record.key().startsWith(MARK)) {
        Work.Event event = work.event(0, record.value().substring(1));
        Answer answer = new Answer(work.output(), work.each(event));
        context.forward(new Record<>(event.key, answer, record.timestamp()));
      }
    }
  }

  private static String markOf(int side, int partition) {
    return MARK + side + "/" + partition;
  }

  private static void build(StreamsBuilder builder, Job job) {
    Work work = job.work;
    if (!work.operator().equals("passthrough")) {
      builder.addStateStore(
          Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("entries"), Serdes.Bytes(), Serdes.ByteArray()));
    }
    if (WINDOWS.contains(work.operator())) {
      builder.addStateStore(
          Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("marks"), Serdes.String(), Serdes.Long()));
    }
    KStream<String, String> events = null;
    for (int i = 0; i < work.sides().size(); i++) {
      int side = i;
      KStream<String, String> one = builder
          .stream(work.sides().get(side).topic(), Consumed.with(Serdes.ByteArray(), Serdes.String()))
          .process(() -> new Split(work, side));
      events = events == null ? one : events.merge(one);
    }
    KStream<String, Answer> answers = switch (work.operator()) {
      case "passthrough" -> events.process(() -> new Each(work));
      case "running_aggregate" -> shuffled(events, job).process(() -> new Running(work), "entries");
      case "interval" -> shuffled(events, job).process(() -> new Pairs(work), "entries");
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
    int tasks = job.partitions.get(0);
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

  private static void buildCounts(StreamsBuilder builder, Work work) {
    KGroupedStream<String, String> events = builder
        .stream(work.sides().get(0).topic(), Consumed.with(Serdes.String(), Serdes.String())).groupByKey();
    if (work.windowMs() == 0) {
      events.count().toStream().to(work.output(), Produced.with(Serdes.String(), Serdes.Long()));
    } else {
      events.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(work.windowMs()), Duration.ofSeconds(10)))
          .count().toStream().to(work.output(),
              Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, work.windowMs()), Serdes.Long()));
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

  public static void main(String[] arguments) throws Exception {
    Properties options = new Properties();
    try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
      options.load(reader);
    }
    Job job = Job.of(options);
    options.keySet().removeIf(name -> ((String) name).startsWith("job."));
    StreamsBuilder builder = new StreamsBuilder();
    if (job.work.operator().equals("counts")) {
      buildCounts(builder, job.work);
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
