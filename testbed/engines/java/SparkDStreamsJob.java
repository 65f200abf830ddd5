import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.Optional;
import org.apache.spark.api.java.function.Function3;
import org.apache.spark.streaming.Durations;
import org.apache.spark.streaming.State;
import org.apache.spark.streaming.StateSpec;
import org.apache.spark.streaming.api.java.JavaDStream;
import org.apache.spark.streaming.api.java.JavaInputDStream;
import org.apache.spark.streaming.api.java.JavaStreamingContext;
import org.apache.spark.streaming.kafka010.CanCommitOffsets;
import org.apache.spark.streaming.kafka010.ConsumerStrategies;
import org.apache.spark.streaming.kafka010.HasOffsetRanges;
import org.apache.spark.streaming.kafka010.KafkaUtils;
import org.apache.spark.streaming.kafka010.LocationStrategies;
import org.apache.spark.streaming.kafka010.OffsetRange;
import org.apache.spark.streaming.scheduler.BatchInfo;
import org.apache.spark.streaming.scheduler.StreamingListener;
import org.apache.spark.streaming.scheduler.StreamingListenerBatchCompleted;
import scala.Tuple2;
import sun.misc.Signal;

/**
 * The operators without event time on Spark Streaming (DStreams), with a direct stream from Kafka. {@link Work} has the
 * fields of events and results.
 *
 * <ul>
 *   <li>{@code passthrough}: a result for each event, with some of its fields.
 *   <li>{@code running_aggregate}: a result for each event, with its id, or with aggregates of all events of its key,
 *       which are Spark's state.
 * </ul>
 *
 * <p>The input may have a filter.
 *
 * <p>A checkpoint has the offsets of the batches that have not ended, which a start runs again: at least once. The
 * offsets of a batch are committed to the consumer group after its output.
 *
 * <p>Argument: a properties file, {@code job.*}, with options of the consumer as {@code job.consumer.*}. Spark's
 * options are those of {@code spark-submit}.
 */
public final class SparkDStreamsJob {
  private static final String OF_CONSUMER = "job.consumer.";
  /** Times of the batches whose output is complete. */
  private static final Set<Long> WRITTEN = ConcurrentHashMap.newKeySet();
  /** Time of a batch -> how much it read. */
  private static final Map<Long, Long> ROWS = new ConcurrentHashMap<>();
  private static KafkaProducer<byte[], byte[]> producer;

  private static JavaStreamingContext create(Properties job, Work work) {
    JavaStreamingContext context = new JavaStreamingContext(
        new SparkConf(), Durations.milliseconds(Long.parseLong(job.getProperty("job.batch.ms"))));
    context.checkpoint(job.getProperty("job.checkpoint"));
    JavaInputDStream<ConsumerRecord<byte[], byte[]>> records = KafkaUtils.createDirectStream(context,
        LocationStrategies.PreferConsistent(),
        ConsumerStrategies.Subscribe(List.of(work.sides().get(0).topic()), consumer(job)));
    JavaDStream<Work.Event> events =
        records.flatMap(record -> decoded(work, record.value())).filter(event -> event.passes);
    Function3<String, Optional<Work.Event>, State<String[]>, Tuple2<String, String>> next =
        (key, event, totals) -> running(work, event.get(), totals);
    JavaDStream<Tuple2<String, String>> results = work.operator().equals("passthrough")
        ? events.map(event -> new Tuple2<>(event.key, work.each(event)))
        : events.mapToPair(event -> new Tuple2<>(event.key, event))
            .mapWithState(StateSpec.function(next)).filter(result -> result != null);
    results.foreachRDD((rdd, time) -> {
      rdd.foreachPartition(answers -> write(job, work, answers));
      WRITTEN.add(time.milliseconds());
    });
    // The outputs of a batch run in their order, also after a failed one. The offsets are those of this stream: if the
    // checkpoint has the state of a batch, a start does not ask the streams before the state for that batch.
    records.foreachRDD((rdd, time) -> {
      OffsetRange[] read = ((HasOffsetRanges) rdd.rdd()).offsetRanges();
      ROWS.put(time.milliseconds(), Arrays.stream(read).mapToLong(OffsetRange::count).sum());
      if (WRITTEN.remove(time.milliseconds())) {
        ((CanCommitOffsets) records.inputDStream()).commitAsync(read);
      }
    });
    return context;
  }

  private static Map<String, Object> consumer(Properties job) {
    Map<String, Object> options = new HashMap<>(Map.of(
        "bootstrap.servers", job.getProperty("job.bootstrap.servers"),
        "group.id", job.getProperty("job.group"),
        "auto.offset.reset", "earliest",
        "enable.auto.commit", "false",
        "isolation.level", "read_committed",
        "key.deserializer", ByteArrayDeserializer.class.getName(),
        "value.deserializer", ByteArrayDeserializer.class.getName()));
    job.stringPropertyNames().stream().filter(name -> name.startsWith(OF_CONSUMER))
        .forEach(name -> options.put(name.substring(OF_CONSUMER.length()), job.getProperty(name)));
    return options;
  }

  private static Iterator<Work.Event> decoded(Work work, byte[] value) {
    Work.Event event = work.event(0, value == null ? null : new String(value, work.sides().get(0).charset()));
    if (event == null) {
      System.out.println("undecodable: a record of " + work.sides().get(0).topic());
      return List.<Work.Event>of().iterator();
    }
    return work.keyed(event).iterator();
  }

  private static Tuple2<String, String> running(Work work, Work.Event event, State<String[]> state) {
    String[] totals = event.numbers.clone();
    if (state.exists()) {
      work.add(totals, state.get());
    }
    state.update(totals);
    String result = work.running(event, totals);
    return result == null ? null : new Tuple2<>(event.key, result);
  }

  /** Returns when the broker has acknowledged all; else the batch fails. */
  private static void write(Properties job, Work work, Iterator<Tuple2<String, String>> answers) throws Exception {
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    while (answers.hasNext()) {
      Tuple2<String, String> answer = answers.next();
      sent.add(producer(job).send(new ProducerRecord<>(work.output(),
          answer._1().getBytes(StandardCharsets.UTF_8), answer._2().getBytes(work.charset()))));
    }
    for (Future<RecordMetadata> one : sent) {
      one.get();
    }
  }

  /** That of the JVM. */
  private static synchronized KafkaProducer<byte[], byte[]> producer(Properties job) {
    if (producer == null) {
      Properties options = new Properties();
      options.put("bootstrap.servers", job.getProperty("job.bootstrap.servers"));
      options.put("acks", "all");
      options.put("max.request.size", job.getProperty("job.max.request.size"));
      producer = new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
    }
    return producer;
  }

  private static final class Batches implements StreamingListener {
    private final String group;
    private boolean isReady;

    Batches(String group) {
      this.group = group;
    }

    @Override
    public void onBatchCompleted(StreamingListenerBatchCompleted completed) {
      BatchInfo batch = completed.batchInfo();
      long time = batch.batchTime().milliseconds();
      // After a start from the checkpoint, Spark does not know the number of records of a batch.
      System.out.printf("counters batch=%d input-rows=%d trigger-ms=%s%n",
          time, ROWS.remove(time), batch.processingDelay().get());
      if (!isReady) {
        isReady = true;
        System.out.println("ready " + group);
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    Properties job = new Properties();
    try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
      job.load(reader);
    }
    Work work = Work.of(job);
    JavaStreamingContext context =
        JavaStreamingContext.getOrCreate(job.getProperty("job.checkpoint"), () -> create(job, work));
    context.addStreamingListener(new Batches(job.getProperty("job.group")));
    // Spark's own hooks end the threads of the tasks before the batches. An interrupted batch would only be repeated.
    Signal.handle(new Signal("TERM"), signal -> context.stop(true, true));
    context.start();
    try {
      context.awaitTermination();
    } catch (Exception e) {
      e.printStackTrace();
      Runtime.getRuntime().halt(1); // without the end of the batches behind the failed one
    }
  }
}
