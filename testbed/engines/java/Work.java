import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.IOException;
import java.io.Serializable;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * What the generic jobs compute, from their options {@code job.NAME}: the operator, and the fields of events and
 * results.
 *
 * <p>{@code idLists}: the fields of results with the ids of each side; empty: results have none. {@code behindMs}: how
 * far watermarks are behind the newest event. {@code until}: the carried field of a left event with the latest time of
 * its right ones, if not empty. {@code carried}: the fields of events that results have, too, of which
 * {@code partitionedBy}, if not empty, is the key of a result's record. {@code changes}: the fields of which a result
 * of a sliding window states relative changes. {@code every}: number of events of a key from one result of a running
 * aggregate to the next. {@code matcher}: finds the keys of an event; null: a field has it, or, with
 * {@code splits}, the words that are its keys.
 * {@code stateBytes}: the size of a result, if it is a state; 0: it is JSON. {@code failsOnPoison}: whether the job
 * fails on a text that does not decode, instead of skipping it.
 */
public record Work(String operator, List<Side> sides, String output, String key, List<String> idLists, boolean left,
    long windowMs, long slideMs, long gapMs, long beforeMs, long afterMs, long behindMs, long idleAfterMs,
    String until, List<Kept> kept, List<Aggregate> aggregates, List<String> carried, String partitionedBy,
    List<String> changes, int every, Matcher matcher, boolean splits, int stateBytes, boolean failsOnPoison)
    implements Serializable {
  static final String NEXT = "\u0001"; // between numbers; JSON has no such character
  private static final String EACH = "\u0002"; // between different values
  private static final Pattern SPACE = Pattern.compile("[ \t-\r]+");
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS");

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

  /**
   * An input: the names of its fields, and of those of late events. {@code idPaths}: of an id of several fields.
   * {@code columns}: of lines. {@code layout}: the numbers of raw bytes, as {@code NAME@OFFSET}. JSON has neither.
   */
  public record Side(String topic, String id, List<String> idPaths, String key, String time, boolean inMs,
      List<String> columns, List<String> layout, Filter filter, String late, String lateId, String lateKey,
      String lateTime, String lateRest) implements Serializable {
    private static Side of(Options given, int number) {
      String side = number + ".";
      return new Side(given.list("inputs").get(number), given.text(side + "id"), given.list(side + "id.paths"),
          given.text(side + "key"), given.text(side + "time"), given.text(side + "unit").equals("ms"),
          given.list(side + "columns"), given.list(side + "layout"), Filter.of(given, side + "where."),
          given.list("late").get(number), given.text(side + "late.id"), given.text(side + "late.key"),
          given.text(side + "late.time"), given.text(side + "late.rest"));
    }

    /** Of the text of a value; of raw bytes it has a character for each. */
    Charset charset() {
      return layout.isEmpty() ? StandardCharsets.UTF_8 : StandardCharsets.ISO_8859_1;
    }

    /** The id as JSON. One of several fields is the array of their texts. */
    private String id(JsonNode fields) {
      if (idPaths.isEmpty()) {
        return fields.get(id).toString();
      }
      ArrayNode texts = JSON.createArrayNode();
      for (String path : idPaths) {
        JsonNode found = fields;
        for (String step : path.split("\\.")) {
          found = found.isArray() ? found.get(Integer.parseInt(step)) : found.get(step);
        }
        texts.add(found.asText());
      }
      return texts.toString();
    }

    private JsonNode fields(String text) throws IOException {
      if (!layout.isEmpty()) {
        ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(charset()));
        ObjectNode fields = JSON.createObjectNode();
        for (String place : layout) {
          String[] parts = place.split("@");
          fields.put(parts[0], bytes.getLong(Integer.parseInt(parts[1])));
        }
        return fields;
      }
      if (columns.isEmpty()) {
        return JSON.readTree(text);
      }
      String[] values = text.split("\t", -1);
      if (values.length != columns.size()) {
        throw new IllegalArgumentException(values.length + " columns");
      }
      ObjectNode fields = JSON.createObjectNode();
      for (int i = 0; i < values.length; i++) {
        fields.put(columns.get(i), values[i]);
      }
      return fields.put(id, Long.parseLong(fields.get(id).asText()));
    }
  }

  /** The events that pass: a field has one of some values, contains a text, or is below a number. */
  public record Filter(String field, List<String> oneOf, String contains, String below) implements Serializable {
    private static Filter of(Options given, String name) {
      return new Filter(given.text(name + "field"), given.list(name + "one_of"), given.text(name + "contains"),
          given.text(name + "below"));
    }

    private boolean passes(JsonNode fields) {
      if (field.isEmpty()) {
        return true;
      }
      String value = fields.path(field).asText();
      return !contains.isEmpty() ? value.contains(contains)
          : !below.isEmpty() ? new BigDecimal(value).compareTo(new BigDecimal(below)) < 0 : oneOf.contains(value);
    }
  }

  /** A field of an event that is in its result. A {@code factor} multiplies it. */
  public record Kept(String name, String factor) implements Serializable {
    private String member(JsonNode fields) {
      JsonNode value = fields.get(name);
      JsonNode stated = factor.isEmpty() ? value
          : TextNode.valueOf(new BigDecimal(value.asText()).multiply(new BigDecimal(factor)).toPlainString());
      return ",\"" + name + "\":" + stated;
    }
  }

  /**
   * What a result states of a field of its events: {@code count, sum, sum_mod64, min, max, avg} or {@code distinct}.
   * Null: no event has it. The total of an average is {@code SUM/COUNT}, that of {@code distinct} all values.
   */
  public record Aggregate(String name, String how, String field) implements Serializable {
    private static Aggregate of(String text) {
      String[] parts = text.split("[=()]");
      return new Aggregate(parts[0], parts[1], parts.length > 2 ? parts[2] : "");
    }

    private String numberOf(JsonNode fields) {
      String number = how.equals("count") ? "1" : fields.path(field).asText();
      return how.equals("avg") && !number.isEmpty() ? number + "/1" : number;
    }

    private String with(String total, String number) {
      if (number.isEmpty() || total.isEmpty()) {
        return total + number;
      }
      if (how.equals("distinct")) {
        Set<String> values = new LinkedHashSet<>(List.of(total.split(EACH)));
        values.addAll(List.of(number.split(EACH)));
        return String.join(EACH, values);
      }
      if (how.equals("avg")) {
        String[] one = total.split("/");
        String[] other = number.split("/");
        return new BigDecimal(one[0]).add(new BigDecimal(other[0])).toPlainString() + "/"
            + (Long.parseLong(one[1]) + Long.parseLong(other[1]));
      }
      BigDecimal one = new BigDecimal(total);
      BigDecimal other = new BigDecimal(number);
      BigDecimal both = switch (how) {
        case "min" -> one.min(other);
        case "max" -> one.max(other);
        default -> one.add(other);
      };
      return both.toPlainString();
    }

    private String stated(String total) {
      if (total.isEmpty()) {
        return "null";
      }
      if (how.equals("avg")) {
        String[] parts = total.split("/");
        return Double.toString(new BigDecimal(parts[0]).doubleValue() / Long.parseLong(parts[1]));
      }
      return how.equals("sum_mod64") ? Long.toString(word(total))
          : how.equals("distinct") ? Integer.toString(total.split(EACH).length) : total;
    }

    /** The last 64 bits of a whole number. */
    private static long word(String total) {
      return new BigDecimal(total).toBigIntegerExact().longValue();
    }
  }

  /**
   * In the form that Flink's serializer needs. Key and id are JSON, but a text that is still to be split. {@code rest}: the fields that its result keeps.
   * {@code carried}: those that the result of a cell has, as a JSON object. {@code head}: the first bytes of a raw
   * value.
   */
  public static final class Event implements Serializable {
    public int side;
    public String key;
    public String id;
    public long timeMs;
    public boolean passes;
    public String[] numbers;
    public String rest;
    public String carried;
    public long[] head;

    private Event of(String otherKey) {
      Event other = new Event();
      other.side = side;
      other.key = otherKey;
      other.id = id;
      other.timeMs = timeMs;
      other.passes = passes;
      other.numbers = numbers;
      other.rest = rest;
      other.carried = carried;
      return other;
    }
  }

  /** What the result of a cell needs of an event. */
  record Part(int side, String id, long timeMs, String carried, String[] numbers) {
    static Part of(Event event) {
      return new Part(event.side, event.id, event.timeMs, event.carried, event.numbers);
    }

    static Part read(String text) {
      String[] parts = text.substring(1).split(NEXT, -1);
      String[] numbers = Arrays.copyOfRange(parts, 3, parts.length);
      return new Part(text.charAt(0) - '0', parts[0], Long.parseLong(parts[1]), parts[2], numbers);
    }

    String written() {
      return side + String.join(NEXT, id, Long.toString(timeMs), carried, String.join(NEXT, numbers));
    }
  }

  /** The events of a cell: their ids by side, their totals, and what its result carries. */
  static final class Cell {
    private final Work work;
    private final List<Collection<String>> ids = new ArrayList<>();
    private final String[] totals;
    private final ObjectNode carried = JSON.createObjectNode();
    private final Map<Long, JsonNode> ofSlides = new HashMap<>();

    Cell(Work work) {
      this.work = work;
      // One entry each time that an event is processed: without a join, a result repeats ids of events sent twice.
      boolean once = work.joins() || work.operator.equals("distinct");
      for (int i = 0; i < work.sides.size(); i++) {
        ids.add(once ? new LinkedHashSet<>() : new ArrayList<>());
      }
      totals = new String[work.aggregates.size()];
      Arrays.fill(totals, "");
    }

    void add(Part part) {
      ids.get(part.side).add(part.id);
      work.add(totals, part.numbers);
      if (work.changes.isEmpty()) {
        work.carry(carried, part.carried);
      } else {
        ofSlides.put(Math.floorDiv(part.timeMs, work.slideMs), read(part.carried));
      }
    }

    private String changes(long startMs, long endMs) {
      StringBuilder text = new StringBuilder();
      for (String name : work.changes) {
        long last = endMs / work.slideMs - 1;
        for (long back = 1; back < (endMs - startMs) / work.slideMs; back++) {
          text.append(",\"").append(name).append("Change").append(back).append("\":")
              .append(change(numberOf(last - back, name), numberOf(last, name)));
        }
      }
      return text.toString();
    }

    private Double numberOf(long slide, String name) {
      JsonNode fields = ofSlides.get(slide);
      return fields == null || !fields.has(name) ? null : fields.get(name).doubleValue();
    }

    private static Double change(Double then, Double now) {
      return then == null || then == 0 || now == null ? null : (now - then) / then;
    }

    /** An inner join has a result if a cell has events of both sides, a left join if it has some of the first. */
    boolean hasResult() {
      return !work.joins() || !(ids.get(0).isEmpty() || (ids.get(1).isEmpty() && !work.left));
    }

    /** The key of the record of the result. */
    String recordKey(String key) {
      return work.recordKey(key, carried);
    }

    String result(String key, long startMs, long endMs) {
      String more = members(carried) + changes(startMs, endMs);
      return work.result(key, work.window(startMs, endMs) + work.listed(ids) + work.stated(totals) + more);
    }
  }

  static Work of(Properties options) {
    Options given = new Options(options);
    List<Side> sides = new ArrayList<>();
    for (int i = 0; i < given.list("inputs").size(); i++) {
      sides.add(Side.of(given, i));
    }
    return new Work(given.text("operator"), sides, given.text("output"), given.text("key"), given.list("id.lists"),
        given.text("join").equals("left"), given.number("window.ms"), given.number("slide.ms"), given.number("gap.ms"),
        given.number("before.ms"), given.number("after.ms"), given.number("behind.ms"), given.number("idle.ms"),
        given.text("until"),
        given.list("kept").stream().map(name -> new Kept(name, given.text("factor." + name))).toList(),
        given.list("aggregates").stream().map(Aggregate::of).toList(), given.list("carried"),
        given.text("partitioned.by"), given.list("changes"), (int) given.number("every"), Matcher.of(given.list("matcher")),
        given.text("splits").equals("true"), (int) given.number("state.bytes"), given.text("poison").equals("fail"));
  }

  /** Of the values of results. */
  Charset charset() {
    return stateBytes > 0 ? StandardCharsets.ISO_8859_1 : StandardCharsets.UTF_8;
  }

  /** The event, once for each of its keys. */
  List<Event> keyed(Event event) {
    if (splits) {
      return SPACE.splitAsStream(event.key).filter(word -> !word.isEmpty())
          .map(word -> event.of(TextNode.valueOf(word).toString())).toList();
    }
    return matcher == null ? List.of(event)
        : matcher.rules(event.head[0], event.head[1]).mapToObj(rule -> event.of("\"consumer_" + rule + "\"")).toList();
  }

  /** Whether an event may have several keys. */
  boolean hasKeys() {
    return splits || matcher != null;
  }

  /** All ends of windows are multiples of this. */
  long stepMs() {
    return operator.equals("session") ? gapMs : operator.equals("sliding") ? slideMs : windowMs;
  }

  boolean joins() {
    return sides.size() > 1;
  }

  /** The event in a text; null if the text does not decode and the job skips it. */
  Event event(int number, String text) {
    Side side = sides.get(number);
    try {
      JsonNode fields = side.fields(text);
      JsonNode time = fields.get(side.time);
      Event event = new Event();
      event.side = number;
      event.key = matcher != null ? "" : splits ? fields.get(side.key).asText() : fields.get(side.key).toString();
      event.id = side.id(fields);
      event.timeMs = side.inMs ? Long.parseLong(time.asText())
          : LocalDateTime.parse(time.asText()).toInstant(ZoneOffset.UTC).toEpochMilli();
      event.passes = side.filter.passes(fields);
      event.numbers = aggregates.stream().map(one -> one.numberOf(fields)).toArray(String[]::new);
      StringBuilder rest = new StringBuilder();
      if (operator.equals("passthrough")) {
        kept.forEach(one -> rest.append(one.member(fields)));
      }
      event.rest = rest.toString();
      event.carried = carried(fields);
      if (matcher != null) {
        ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(side.charset()));
        event.head = new long[] {bytes.getLong(0), bytes.getLong(8)};
      }
      return event;
    } catch (IOException | RuntimeException e) {
      if (failsOnPoison) {
        throw new IllegalArgumentException("poison: a record of " + side.topic + " does not decode", e);
      }
      return null;
    }
  }

  private String carried(JsonNode fields) {
    ObjectNode found = JSON.createObjectNode();
    Stream.concat(carried.stream(), changes.stream()).filter(fields::has)
        .forEach(name -> found.set(name, fields.get(name)));
    return found.toString();
  }

  /** Add what an event carries. */
  private void carry(ObjectNode whole, String more) {
    if (!carried.isEmpty()) {
      whole.setAll(read(more));
    }
  }

  private static ObjectNode read(String members) {
    try {
      return (ObjectNode) JSON.readTree(members);
    } catch (IOException e) {
      throw new IllegalStateException(e); // the job wrote it
    }
  }

  private String recordKey(String key, ObjectNode all) {
    return partitionedBy.isEmpty() ? key : all.get(partitionedBy).toString();
  }

  private static String members(ObjectNode all) {
    String text = all.toString();
    return all.isEmpty() ? "" : "," + text.substring(1, text.length() - 1);
  }

  /** Add the numbers of an event, or other totals, to {@code totals}. */
  void add(String[] totals, String[] numbers) {
    for (int i = 0; i < totals.length; i++) {
      totals[i] = aggregates.get(i).with(totals[i], numbers[i]);
    }
  }

  /** The result of an event without state: its id, key and time, and the fields to keep. */
  String each(Event event) {
    Side side = sides.get(event.side);
    return eventText(side.id, side.key, side.time, event, event.rest);
  }

  /**
   * The result of a key, of all events so far ({@code totals}), or with the id of the newest one. Null: its next result
   * comes later.
   */
  String running(Event event, String[] totals) {
    for (int i = 0; i < totals.length; i++) {
      if (aggregates.get(i).how.equals("count") && Long.parseLong(totals[i]) % every != 0) {
        return null;
      }
    }
    if (stateBytes > 0) {
      ByteBuffer state = ByteBuffer.allocate(stateBytes);
      Arrays.stream(totals).forEach(total -> state.putLong(Aggregate.word(total)));
      return new String(state.array(), charset());
    }
    return result(event.key, listed(List.of(List.of(event.id))) + stated(totals));
  }

  /**
   * The key of the record, and the result, of a pair, which has the time of the left event. Null: the left event ended
   * before the right one.
   */
  String[] pair(String key, long leftMs, Part left, Part right) {
    if (!until.isEmpty() && right.timeMs > read(left.carried).get(until).asLong()) {
      return null;
    }
    ObjectNode both = JSON.createObjectNode();
    carry(both, left.carried);
    carry(both, right.carried);
    String ids = listed(List.of(List.of(left.id), List.of(right.id)));
    return new String[] {recordKey(key, both), result(key, window(leftMs, leftMs) + ids + members(both))};
  }

  String late(Event event) {
    Side side = sides.get(event.side);
    return eventText(side.lateId, side.lateKey, side.lateTime, event, side.lateRest);
  }

  private String result(String keyText, String rest) {
    return "{\"" + key + "\":" + keyText + rest + "}";
  }

  private String stated(String[] totals) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < totals.length; i++) {
      text.append(",\"").append(aggregates.get(i).name).append("\":").append(aggregates.get(i).stated(totals[i]));
    }
    return text.toString();
  }

  private String listed(List<? extends Collection<String>> ids) {
    StringBuilder text = new StringBuilder();
    for (int side = 0; side < idLists.size(); side++) {
      // PGVal's results have a list of another input, too.
      Collection<String> some = side < ids.size() ? ids.get(side) : List.of();
      text.append(",\"").append(idLists.get(side)).append("\":[").append(String.join(",", some)).append("]");
    }
    return text.toString();
  }

  private String window(long startMs, long endMs) {
    String end = ",\"windowEnd\":\"" + text(endMs) + "\"";
    // The key may be the start of the window. A JSON object has a name once.
    return key.equals("windowStart") ? end : ",\"windowStart\":\"" + text(startMs) + "\"" + end;
  }

  private static String eventText(String id, String key, String time, Event event, String rest) {
    // The key may be the time. A JSON object has a name once.
    String at = key.equals(time) ? "" : ",\"" + time + "\":\"" + text(event.timeMs) + "\"";
    return "{\"" + key + "\":" + event.key + ",\"" + id + "\":" + event.id + at + rest + "}";
  }

  private static String text(long ms) {
    return LocalDateTime.ofEpochSecond(Math.floorDiv(ms, 1000), Math.floorMod(ms, 1000) * 1_000_000, ZoneOffset.UTC)
        .format(TIME);
  }
}
