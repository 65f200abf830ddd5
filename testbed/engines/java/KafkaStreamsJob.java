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
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
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
 *   <li>{@code tumbling, sliding, session}: a result for each key and window, with the ids of its events or aggregates
 *       of a field. With two inputs it is a join: a result has the ids of both, each once. Late events go to a separate
 *       topic for each input. It uses the Processor API, because the DSL drops late events silently, and its join has a
 *       result for each pair. Sliding windows are those of the DSL's {@code TimeWindows.advanceBy}, which its
 *       {@code SlidingWindows} are not. {@code distinct}: each id once.
 *   <li>{@code interval}: a result for each pair of events of two inputs whose times are close, with the ids of both.
 *       The second event to arrive makes the result, so none is late; all events stay in the state.
 *   <li>{@code running_aggregate}: a result for each event, with its id, or with aggregates of all events of its key.
 *   <li>{@code passthrough}: a result for each event, with some of its fields.
 *   <li>{@code counts}: the DSL's own count of each key, or of each key and window, without ids. The cache of Kafka
 *       Streams may skip updates.
 *   <li>{@code digests}: of each key and window the count of its events, which are integer ids, and the sums of
 *       docs/evidence.md over them.
 * </ul>
 *
 * <p>Each input may have a filter. With {@code job.grace.ms}, {@code tumbling} uses the DSL, which accepts events for so
 * long after a window's end.
 *
 * <p>Kafka Streams keeps one stream time per task, so after a shuffle the fastest source partition would decide which
 * events are late. Here each source partition sends marks with its event time through the shuffle to all tasks. A
 * window closes when all partitions of all inputs have passed its end.
 *
 * <p>Argument: a properties file. The options {@code job.*} are for this job; Kafka Streams gets all others.
 */
public final class KafkaStreamsJob {
  private static final String MARK = "\u0000"; // first character of a mark's key; no key of an event has it
  private static final Set<String> WINDOWS = Set.of("tumbling", "distinct", "sliding", "session");
  private static final Map<String, Set<String>> COUNTED = Map.of(
      "stream-thread-metrics", Set.of("process-total", "commit-total", "task-created-total"),
      "consumer-fetch-manager-metrics", Set.of("records-consumed-total"),
      "consumer-coordinator-metrics", Set.of("rebalance-total"),
      "producer-metrics", Set.of("record-send-total"));
  private static final String EVENT = "\u0002"; // between events; no event has it
  private static final String GRACE_MS = "job.grace.ms";
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
        work.keyed(event).forEach(
            one -> context.forward(new Record<>(one.key, side + record.value(), record.timestamp())));
      }
      newestMs = Math.max(newestMs, event.timeMs);
      long passed = Math.floorDiv(newestMs - work.behindMs(), work.stepMs()) * work.stepMs();
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

  /** An operator on the events of the keys of one task. */
  private abstract static class Operator implements Processor<String, String, String, Answer> {
    protected final Work work;
    protected KeyValueStore<Bytes, byte[]> entries;
    protected ProcessorContext<String, Answer> context;
    private long lastNumber;

    Operator(Work work) {
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
        passed(record.key(), Long.parseLong(record.value()), record.timestamp());
      } else {
        Work.Event event = work.event(record.value().charAt(0) - '0', record.value().substring(1));
        event.key = record.key(); // one of its keys, if it has several
        take(event, record.timestamp());
      }
    }

    /** An event has arrived. */
    abstract void take(Work.Event event, long timestamp);

    /** A source partition has passed an instant, which concerns windows only. */
    void passed(String partition, long ms, long timestamp) {}

    void answer(String key, String result, long timestamp) {
      context.forward(new Record<>(key, new Answer(work.output(), result), timestamp));
    }

    /** Increases, also from one process to the next. */
    long nextNumber() {
      lastNumber = Math.max(lastNumber + 1, System.currentTimeMillis() * 1000);
      return lastNumber;
    }

    static byte[] bytes(String text) {
      return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
      return new String(bytes, StandardCharsets.UTF_8);
    }
  }

  /** Windows, which close when all source partitions have passed their end. */
  private abstract static class Closing extends Operator {
    protected long closedMs;
    private final List<Integer> partitions;
    private KeyValueStore<String, Long> marks;

    Closing(Job job) {
      super(job.work);
      partitions = job.partitions;
    }

    @Override
    public void init(ProcessorContext<String, Answer> given) {
      super.init(given);
      marks = context.getStateStore("marks");
      closedMs = Optional.ofNullable(marks.get("closed")).orElse(0L);
    }

    @Override
    void take(Work.Event event, long timestamp) {
      if (!keep(event)) {
        Answer late = new Answer(work.sides().get(event.side).late(), work.late(event));
        context.forward(new Record<>(event.key, late, timestamp));
      }
    }

    @Override
    void passed(String partition, long ms, long timestamp) {
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
      close(timestamp);
    }

    /** Add an event to its windows that are open; false if it is late. */
    abstract boolean keep(Work.Event event);

    /** Write the results of the windows that have closed, and forget them. */
    abstract void close(long timestamp);

    void emit(Work.Cell cell, String key, long startMs, long endMs, long timestamp) {
      if (cell != null && cell.hasResult()) {
        answer(cell.recordKey(key), cell.result(key, startMs, endMs), timestamp);
      }
    }
  }

  /** Windows of one length. An entry is the end of a window, a key and an increasing number -> an event. */
  private static final class Windows extends Closing {
    Windows(Job job) {
      super(job);
    }

    @Override
    boolean keep(Work.Event event) {
      long stepMs = work.stepMs();
      long end = Math.floorDiv(event.timeMs, stepMs) * stepMs + work.windowMs();
      boolean isOpen = end > closedMs;
      byte[] name = bytes(event.key);
      byte[] part = bytes(Work.Part.of(event).written());
      for (; end > Math.max(closedMs, event.timeMs); end -= stepMs) {
        ByteBuffer key = ByteBuffer.allocate(16 + name.length).putLong(end).put(name).putLong(nextNumber());
        entries.put(Bytes.wrap(key.array()), part);
      }
      return isOpen;
    }

    @Override
    void close(long timestamp) {
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
            emit(cell, name, end - work.windowMs(), end, timestamp);
            cell = new Work.Cell(work);
          }
          end = nextEnd;
          name = nextName;
          cell.add(Work.Part.read(text(entry.value)));
          gone.add(entry.key);
        }
      }
      emit(cell, name, end - work.windowMs(), end, timestamp);
      gone.forEach(entries::delete);
    }
  }

  /**
   * Sessions, as Flink's: an event joins all open sessions of its key that are within the gap, and is late if there are
   * none and its own window has ended. An entry is a key and a first time -> the last time and the events.
   */
  private static final class Sessions extends Closing {
    Sessions(Job job) {
      super(job);
    }

    @Override
    boolean keep(Work.Event event) {
      long firstMs = event.timeMs;
      long lastMs = event.timeMs;
      StringBuilder events = new StringBuilder(EVENT).append(Work.Part.of(event).written());
      List<Bytes> joined = new ArrayList<>();
      try (KeyValueIterator<Bytes, byte[]> found =
          entries.range(place(event.key, 0), place(event.key, event.timeMs + work.gapMs()))) {
        while (found.hasNext()) {
          var entry = found.next();
          String[] parts = text(entry.value).split(EVENT, 2);
          // Between these places there may be others, of a longer key.
          if (nameIn(entry.key).equals(event.key) && Long.parseLong(parts[0]) + work.gapMs() >= event.timeMs) {
            joined.add(entry.key);
            firstMs = Math.min(firstMs, firstIn(entry.key));
            lastMs = Math.max(lastMs, Long.parseLong(parts[0]));
            events.append(EVENT).append(parts[1]);
          }
        }
      }
      if (joined.isEmpty() && event.timeMs + work.gapMs() <= closedMs) {
        return false;
      }
      joined.forEach(entries::delete);
      entries.put(place(event.key, firstMs), bytes(lastMs + events.toString()));
      return true;
    }

    @Override
    void close(long timestamp) {
      List<Bytes> gone = new ArrayList<>();
      try (KeyValueIterator<Bytes, byte[]> all = entries.all()) {
        while (all.hasNext()) {
          var entry = all.next();
          String[] parts = text(entry.value).split(EVENT);
          long end = Long.parseLong(parts[0]) + work.gapMs();
          if (end <= closedMs) {
            Work.Cell cell = new Work.Cell(work);
            Arrays.stream(parts).skip(1).map(Work.Part::read).forEach(cell::add);
            emit(cell, nameIn(entry.key), firstIn(entry.key), end, timestamp);
            gone.add(entry.key);
          }
        }
      }
      gone.forEach(entries::delete);
    }

    private static Bytes place(String key, long firstMs) {
      byte[] name = bytes(key);
      return Bytes.wrap(ByteBuffer.allocate(name.length + 8).put(name).putLong(firstMs).array());
    }

    private static String nameIn(Bytes place) {
      return new String(place.get(), 0, place.get().length - 8, StandardCharsets.UTF_8);
    }

    private static long firstIn(Bytes place) {
      return ByteBuffer.wrap(place.get(), place.get().length - 8, 8).getLong();
    }
  }

  /** The pairs of events of a key. An entry is a side, a key, a time and an increasing number -> an event. */
  private static final class Pairs extends Operator {
    private final long[] rangesMs; // from the time of a left event: how much earlier and later the right one may be

    Pairs(Work work) {
      super(work);
      rangesMs = new long[] {work.beforeMs(), work.afterMs()};
    }

    @Override
    void take(Work.Event event, long timestamp) {
      int side = event.side;
      Work.Part mine = Work.Part.of(event);
      entries.put(place(side, event.key, event.timeMs, nextNumber()), bytes(mine.written()));
      Bytes from = place(1 - side, event.key, Math.max(0, event.timeMs - rangesMs[side]), 0);
      Bytes to = place(1 - side, event.key, event.timeMs + rangesMs[1 - side] + 1, 0);
      try (KeyValueIterator<Bytes, byte[]> found = entries.range(from, to)) {
        while (found.hasNext()) {
          var entry = found.next();
          byte[] key = entry.key.get();
          if (key.length == from.get().length) { // else of another key
            Work.Part other = Work.Part.read(text(entry.value));
            long otherMs = ByteBuffer.wrap(key, key.length - 16, 8).getLong();
            String[] pair = side == 0 ? work.pair(event.key, event.timeMs, mine, other)
                : work.pair(event.key, otherMs, other, mine);
            if (pair != null) {
              answer(pair[0], pair[1], timestamp);
            }
          }
        }
      }
    }

    private static Bytes place(int side, String key, long timeMs, long number) {
      byte[] name = bytes(key);
      return Bytes.wrap(ByteBuffer.allocate(17 + name.length).put((byte) side).put(name).putLong(timeMs)
          .putLong(number).array());
    }
  }

  /** The aggregates of each key over all events so far; without aggregates the ids, which need no state. */
  private static final class Running extends Operator {
    Running(Work work) {
      super(work);
    }

    @Override
    void take(Work.Event event, long timestamp) {
      String[] totals = event.numbers;
      if (totals.length > 0) {
        Bytes key = Bytes.wrap(bytes(event.key));
        byte[] before = entries.get(key);
        if (before != null) {
          work.add(totals, text(before).split(Work.NEXT, -1));
        }
        entries.put(key, bytes(String.join(Work.NEXT, totals)));
      }
      String result = work.running(event, totals);
      if (result != null) {
        answer(event.key, result, timestamp);
      }
    }
  }

  /** A result for each event. */
  private static final class Each extends Operator {
    Each(Work work) {
      super(work);
    }

    @Override
    public void init(ProcessorContext<String, Answer> given) {
      context = given; // there is no state
    }

    @Override
    void take(Work.Event event, long timestamp) {
      answer(event.key, work.each(event), timestamp);
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
          .stream(work.sides().get(side).topic(), Consumed.with(Serdes.ByteArray(), texts(work.sides().get(side))))
          .process(() -> new Split(work, side));
      events = events == null ? one : events.merge(one);
    }
    KStream<String, Answer> answers = switch (work.operator()) {
      case "passthrough" -> events.process(() -> new Each(work));
      case "running_aggregate" -> shuffled(events, job).process(() -> new Running(work), "entries");
      case "interval" -> shuffled(events, job).process(() -> new Pairs(work), "entries");
      case "session" -> shuffled(events, job).process(() -> new Sessions(job), "entries", "marks");
      default -> shuffled(events, job).process(() -> new Windows(job), "entries", "marks");
    };
    Serde<Answer> written = Serdes.serdeFrom(
        (topic, answer) -> answer.json.getBytes(work.charset()),
        (topic, bytes) -> {
          throw new UnsupportedOperationException("answers are written only");
        });
    answers.to((key, answer, context) -> answer.topic, Produced.with(Serdes.String(), written));
  }

  /** The values of an input. */
  private static Serde<String> texts(Work.Side side) {
    return Serdes.serdeFrom(
        (topic, text) -> text.getBytes(side.charset()),
        (topic, bytes) -> bytes == null ? null : new String(bytes, side.charset()));
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

  private static void buildCounts(StreamsBuilder builder, Work work, Properties options) {
    KGroupedStream<String, String> events = builder
        .stream(work.sides().get(0).topic(), Consumed.with(Serdes.String(), Serdes.String())).groupByKey();
    if (work.windowMs() == 0) {
      events.count().toStream().to(work.output(), Produced.with(Serdes.String(), Serdes.Long()));
    } else {
      closing(events.windowedBy(windows(work, options)).count(), options).toStream().to(work.output(),
          Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, work.windowMs()), Serdes.Long()));
    }
  }

  private static void buildDigests(StreamsBuilder builder, Work work, Properties options) {
    KTable<Windowed<String>, byte[]> totals = builder
        .stream(work.sides().get(0).topic(), Consumed.with(Serdes.String(), Serdes.Long()))
        .groupByKey()
        .windowedBy(windows(work, options))
        .aggregate(() -> new byte[3 * Long.BYTES], (key, id, total) -> {
          ByteBuffer known = ByteBuffer.wrap(total);
          long n = known.getLong();
          long ids = known.getLong();
          long squares = known.getLong();
          n++; ids += id; squares += id * id;
          return ByteBuffer.allocate(3 * Long.BYTES).putLong(n).putLong(ids).putLong(squares).array();
        }, Materialized.with(Serdes.String(), Serdes.ByteArray()));
    closing(totals, options).toStream().mapValues(total -> {
      ByteBuffer known = ByteBuffer.wrap(total);
      return "{\"n\":" + known.getLong() + ",\"ids\":" + known.getLong() + ",\"squares\":" + known.getLong() + "}";
    }).to(work.output(),
        Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, work.windowMs()), Serdes.String()));
  }

  /** As {@link #buildDigests}, but results list the ids. */
  private static void buildLists(StreamsBuilder builder, Work work, Properties options) {
    KTable<Windowed<String>, byte[]> lists = builder
        .stream(work.sides().get(0).topic(), Consumed.with(Serdes.String(), Serdes.Long()))
        .groupByKey()
        .windowedBy(windows(work, options))
        .aggregate(() -> new byte[0], (key, id, list) ->
            ByteBuffer.allocate(list.length + Long.BYTES).put(list).putLong(id).array(),
            Materialized.with(Serdes.String(), Serdes.ByteArray()));
    closing(lists, options).toStream().mapValues(list -> {
      ByteBuffer ids = ByteBuffer.wrap(list);
      StringBuilder text = new StringBuilder("{\"order_ids\":[");
      while (ids.hasRemaining()) {
        text.append(ids.position() == 0 ? "" : ",").append(ids.getLong());
      }
      return text.append("]}").toString();
    }).to(work.output(),
        Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, work.windowMs()), Serdes.String()));
  }

  /**
   * The DSL's windows of one input, which is not shuffled: stream time is that of the partition. A cell is the key of
   * its events, and then each of them.
   */
  private static void buildWindows(StreamsBuilder builder, Work work, Properties options) {
    Work.Side side = work.sides().get(0);
    Consumed<String, String> read = Consumed.with(Serdes.String(), texts(side)).withTimestampExtractor(
        (record, newest) -> {
          Work.Event event = work.event(0, (String) record.value());
          return event == null ? -1 : event.timeMs; // Kafka Streams skips a record with a negative time
        });
    KTable<Windowed<String>, String> cells = builder.stream(side.topic(), read)
        .filter((key, text) -> work.event(0, text).passes)
        .groupByKey()
        .windowedBy(windows(work, options))
        .aggregate(() -> "", (key, text, cell) -> {
          Work.Event event = work.event(0, text);
          return (cell.isEmpty() ? event.key : cell) + EVENT + Work.Part.of(event).written();
        }, Materialized.with(Serdes.String(), Serdes.String()));
    closing(cells, options).toStream().map((window, text) -> {
      String[] parts = text.split(EVENT);
      Work.Cell cell = new Work.Cell(work);
      Arrays.stream(parts).skip(1).map(Work.Part::read).forEach(cell::add);
      String result = cell.result(parts[0], window.window().start(), window.window().end());
      return KeyValue.pair(cell.recordKey(parts[0]), result);
    }).to(work.output(), Produced.with(Serdes.String(), Serdes.String()));
  }

  private static TimeWindows windows(Work work, Properties options) {
    return TimeWindows.ofSizeAndGrace(
        Duration.ofMillis(work.windowMs()), Duration.ofMillis(Long.parseLong(options.getProperty(GRACE_MS))));
  }

  /** With {@code job.suppress}, a window has one result, when it closes, instead of one for each flushed update. */
  private static <V> KTable<Windowed<String>, V> closing(KTable<Windowed<String>, V> cells, Properties options) {
    boolean suppresses = Boolean.parseBoolean(options.getProperty("job.suppress"));
    return suppresses ? cells.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded())) : cells;
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
  private static void announce(KafkaStreams streams, boolean outlivesClient) {
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
      if (streams.state() == KafkaStreams.State.ERROR && !outlivesClient) {
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
    StreamsBuilder builder = new StreamsBuilder();
    if (job.work.operator().equals("counts")) {
      buildCounts(builder, job.work, options);
    } else if (job.work.operator().equals("digests")) {
      buildDigests(builder, job.work, options);
    } else if (job.work.operator().equals("lists")) {
      buildLists(builder, job.work, options);
    } else if (options.containsKey(GRACE_MS)) {
      buildWindows(builder, job.work, options);
    } else {
      build(builder, job);
    }
    options.keySet().removeIf(name -> ((String) name).startsWith("job."));
    KafkaStreams streams = new KafkaStreams(builder.build(options), options);
    streams.setUncaughtExceptionHandler(error -> {
      error.printStackTrace();
      // Kafka Streams' own default: the client ends, and its process lives on.
      return job.work.failsOnPoison()
          ? StreamThreadExceptionResponse.SHUTDOWN_CLIENT : StreamThreadExceptionResponse.REPLACE_THREAD;
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    announce(streams, job.work.failsOnPoison());
  }
}
