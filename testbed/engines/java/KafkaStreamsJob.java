import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
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
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * PGVal's SST and MST on Kafka Streams. SST: clicks, shuffled by page, tumbling event-time window, one result with the
 * ids. MST: clicks and updates in the same windows, and a result with the ids of both, each once. An inner join has a
 * result if a window has clicks and updates, a left join if it has clicks. Late events go to a separate topic for each
 * input. The job uses the Processor API, because the DSL drops late events silently, and its join has a result for each
 * pair.
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
  private static final String EPOCH = "1970-01-01T00:00:00.000";
  private static final String MARK = "\u0000"; // first character of a mark's key; no page has it
  private static final long LOOK_MS = 200;
  private static final long IDLE = Long.MAX_VALUE;
  private static final long UNKNOWN = Long.MIN_VALUE;

  /** The options. Inputs, their partitions and topics for late events are listed by side: 0 clicks, 1 updates. */
  private record Job(List<String> inputs, List<Integer> partitions, String output, List<String> late, boolean left,
      long windowMs, long behindMs, long idleAfterMs) {
    boolean joins() {
      return inputs.size() > 1;
    }
  }

  /** A click or an update; page and id are JSON. */
  private record Event(String page, String id, long timeMs) {
    /** The event in a JSON text; null if the text does not decode. */
    static Event of(String text) {
      try {
        JsonNode node = JSON.readTree(text);
        LocalDateTime time = LocalDateTime.parse(node.get("timestamp").asText());
        String id = node.get("id").toString();
        return new Event(node.get("page").toString(), id, time.toInstant(ZoneOffset.UTC).toEpochMilli());
      } catch (IOException | RuntimeException e) {
        return null;
      }
    }
  }

  private record Answer(String topic, String json) {}

  /** Keys events by page, prefixes values with the side, and sends a mark when the partition has passed a window. */
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
      Event event = Event.of(record.value());
      if (event == null) {
        System.out.println("undecodable: " + context.recordMetadata().map(Object::toString).orElse("?"));
        return;
      }
      quietMs = 0;
      context.forward(new Record<>(event.page, side + record.value(), record.timestamp()));
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

  /** The windows of the pages of one task. */
  private static final class Windows implements Processor<String, String, String, Answer> {
    private final Job job;
    private ProcessorContext<String, Answer> context;
    private KeyValueStore<Bytes, byte[]> entries; // end of window, page, increasing number -> side, id
    private KeyValueStore<String, Long> marks;
    private List<Collection<String>> ids; // ids of the current result, by side; in a join each id once
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
      ids = job.joins() ? List.of(new LinkedHashSet<>(), new LinkedHashSet<>())
          : List.of(new ArrayList<>(), new ArrayList<>());
      closedMs = Optional.ofNullable(marks.get("closed")).orElse(0L);
    }

    @Override
    public void process(Record<String, String> record) {
      if (record.key().startsWith(MARK)) {
        advance(record.key(), Long.parseLong(record.value()), record.timestamp());
        return;
      }
      int side = record.value().charAt(0) - '0';
      Event event = Event.of(record.value().substring(1));
      long end = (Math.floorDiv(event.timeMs, job.windowMs) + 1) * job.windowMs;
      if (end <= closedMs) {
        Answer late = new Answer(job.late.get(side), late(side, event));
        context.forward(new Record<>(event.page, late, record.timestamp()));
        return;
      }
      // One entry each time that the event is processed: a result of SST repeats the id of an event sent twice.
      lastNumber = Math.max(lastNumber + 1, System.currentTimeMillis() * 1000);
      byte[] page = event.page.getBytes(StandardCharsets.UTF_8);
      ByteBuffer key = ByteBuffer.allocate(16 + page.length).putLong(end).put(page).putLong(lastNumber);
      entries.put(Bytes.wrap(key.array()), (side + event.id).getBytes(StandardCharsets.UTF_8));
    }

    private void advance(String partition, long ms, long timestamp) {
      marks.put(partition, ms);
      long least = IDLE;
      for (int side = 0; side < job.inputs.size(); side++) {
        for (int i = 0; i < job.partitions.get(side); i++) {
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
      String page = null;
      try (KeyValueIterator<Bytes, byte[]> found = entries.range(from, to)) {
        while (found.hasNext()) {
          var entry = found.next();
          byte[] key = entry.key.get();
          long nextEnd = ByteBuffer.wrap(key).getLong();
          String nextPage = new String(key, 8, key.length - 16, StandardCharsets.UTF_8);
          if (page != null && (nextEnd != end || !nextPage.equals(page))) {
            emit(page, end, timestamp);
          }
          end = nextEnd;
          page = nextPage;
          String value = new String(entry.value, StandardCharsets.UTF_8);
          ids.get(value.charAt(0) - '0').add(value.substring(1));
          gone.add(entry.key);
        }
      }
      if (page != null) {
        emit(page, end, timestamp);
      }
      gone.forEach(entries::delete);
    }

    private void emit(String page, long end, long timestamp) {
      if (job.joins() && (ids.get(0).isEmpty() || (ids.get(1).isEmpty() && !job.left))) {
        ids.forEach(Collection::clear);
        return;
      }
      String result = "{\"page\":" + page + ",\"windowStart\":\"" + text(end - job.windowMs) + "\",\"windowEnd\":\""
          + text(end) + "\",\"clickIds\":[" + String.join(",", ids.get(0)) + "],\"updateIds\":["
          + String.join(",", ids.get(1)) + "]}";
      context.forward(new Record<>(page, new Answer(job.output, result), timestamp));
      ids.forEach(Collection::clear);
    }
  }

  private static String markOf(int side, int partition) {
    return MARK + side + "/" + partition;
  }

  /** PGVal's ClickUpdateEvent. The absent side has id 0, and the epoch as its time. */
  private static String late(int side, Event event) {
    String click = "\"clickId\":%s,\"clickTimestamp\":\"%s\"";
    String update = "\"updateId\":%s,\"updateTimestamp\":\"%s\"";
    String of = side == 0 ? click : update;
    String none = side == 0 ? update : click;
    return "{\"page\":" + event.page + "," + of.formatted(event.id, text(event.timeMs)) + ","
        + none.formatted("0", EPOCH) + "}";
  }

  private static String text(long ms) {
    return LocalDateTime.ofEpochSecond(Math.floorDiv(ms, 1000), Math.floorMod(ms, 1000) * 1_000_000, ZoneOffset.UTC)
        .format(TIME);
  }

  private static Topology topology(Job job, Properties options) {
    Set<Integer> all = new HashSet<>();
    int shuffled = job.partitions.get(0);
    for (int i = 0; i < shuffled; i++) {
      all.add(i);
    }
    Serde<Answer> answers = Serdes.serdeFrom(
        (topic, answer) -> answer.json.getBytes(StandardCharsets.UTF_8),
        (topic, bytes) -> {
          throw new UnsupportedOperationException("answers are written only");
        });
    StreamsBuilder builder = new StreamsBuilder();
    builder.addStateStore(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("entries"), Serdes.Bytes(), Serdes.ByteArray()));
    builder.addStateStore(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("marks"), Serdes.String(), Serdes.Long()));
    KStream<String, String> events = null;
    for (int i = 0; i < job.inputs.size(); i++) {
      int side = i;
      KStream<String, String> one = builder
          .stream(job.inputs.get(side), Consumed.with(Serdes.ByteArray(), Serdes.String()))
          .process(() -> new Split(job, side));
      events = events == null ? one : events.merge(one);
    }
    events.repartition(Repartitioned.with(Serdes.String(), Serdes.String())
            .withName("by-page")
            .withNumberOfPartitions(shuffled)
            .withStreamPartitioner((topic, key, value, count) -> Optional.of(key.startsWith(MARK) ? all
                : Set.of(Utils.toPositive(Utils.murmur2(key.getBytes(StandardCharsets.UTF_8))) % count))))
        .process(() -> new Windows(job), "entries", "marks")
        .to((key, answer, context) -> answer.topic, Produced.with(Serdes.String(), answers));
    return builder.build(options);
  }

  /** Logs a line at each change of the state or of the number of this instance's tasks. */
  private static void announce(KafkaStreams streams) {
    String last = "";
    while (true) {
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
    List<String> inputs = List.of(options.getProperty("job.inputs").split(","));
    List<Integer> partitions = new ArrayList<>();
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", options.getProperty("bootstrap.servers")))) {
      var described = admin.describeTopics(inputs).allTopicNames().get();
      inputs.forEach(input -> partitions.add(described.get(input).partitions().size()));
    }
    Job job = new Job(inputs, partitions, options.getProperty("job.output"),
        List.of(options.getProperty("job.late").split(",")), options.getProperty("job.join").equals("left"),
        Long.parseLong(options.getProperty("job.window.ms")), Long.parseLong(options.getProperty("job.behind.ms")),
        Long.parseLong(options.getProperty("job.idle.ms")));
    options.keySet().removeIf(name -> ((String) name).startsWith("job."));
    KafkaStreams streams = new KafkaStreams(topology(job, options), options);
    streams.setUncaughtExceptionHandler(error -> {
      error.printStackTrace();
      return StreamThreadExceptionResponse.REPLACE_THREAD;
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    announce(streams);
  }
}
