import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * Counts of the DSL, without ids: the events of each key so far, or, if {@code job.window.ms} is not 0, those of each key
 * and window. Each update of a count is a result. The cache of Kafka Streams may skip updates.
 *
 * <p>Argument: a properties file. The options {@code job.*} are for this job; Kafka Streams gets all others.
 */
public final class KafkaStreamsCount {
  private KafkaStreamsCount() {}

  private static StreamsBuilder counts(String input, String output, long windowMs) {
    StreamsBuilder builder = new StreamsBuilder();
    KGroupedStream<String, String> events =
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String())).groupByKey();
    if (windowMs == 0) {
      events.count().toStream().to(output, Produced.with(Serdes.String(), Serdes.Long()));
    } else {
      events.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(windowMs), Duration.ofSeconds(10)))
          .count().toStream()
          .to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, windowMs), Serdes.Long()));
    }
    return builder;
  }

  /** Logs a line at each change of the state or of the number of this instance's tasks. */
  private static void announce(KafkaStreams streams) throws InterruptedException {
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
      Thread.sleep(50);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Properties options = new Properties();
    try (var reader = Files.newBufferedReader(Path.of(arguments[0]))) {
      options.load(reader);
    }
    String input = options.getProperty("job.inputs");
    String output = options.getProperty("job.output");
    long windowMs = Long.parseLong(options.getProperty("job.window.ms"));
    options.keySet().removeIf(name -> ((String) name).startsWith("job."));
    KafkaStreams streams = new KafkaStreams(counts(input, output, windowMs).build(options), options);
    streams.setUncaughtExceptionHandler(error -> {
      error.printStackTrace();
      return StreamThreadExceptionResponse.REPLACE_THREAD;
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    announce(streams);
  }
}
