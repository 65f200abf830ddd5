import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.IOException;
import java.io.Serializable;
import java.math.BigDecimal;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Properties;

/**
 * What the generic jobs compute, from their options {@code job.NAME}: the operator, and the fields of events and
 * results.
 *
 * <p>{@code idLists}: the fields of results with the ids of each side. {@code behindMs}: how far watermarks are behind
 * the newest event.
 */
public record Work(String operator, List<Side> sides, String output, String key, List<String> idLists, boolean left,
    long windowMs, long slideMs, long gapMs, long beforeMs, long afterMs, long behindMs, long idleAfterMs,
    List<Kept> kept, List<Aggregate> aggregates) implements Serializable {
  static final String NEXT = "\u0001"; // between numbers; JSON has no such character
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

  /** An input: the names of its fields, and of those of late events. {@code columns}: of lines; JSON has none. */
  public record Side(String topic, String id, String key, String time, boolean inMs, List<String> columns,
      Filter filter, String late, String lateId, String lateKey, String lateTime, String lateRest)
      implements Serializable {
    private static Side of(Options given, int number) {
      String side = number + ".";
      return new Side(given.list("inputs").get(number), given.text(side + "id"), given.text(side + "key"),
          given.text(side + "time"), given.text(side + "unit").equals("ms"), given.list(side + "columns"),
          Filter.of(given, side + "where."), given.list("late").get(number), given.text(side + "late.id"),
          given.text(side + "late.key"), given.text(side + "late.time"), given.text(side + "late.rest"));
    }

    private JsonNode fields(String text) throws IOException {
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

  /** What a result states of a field of its events: {@code count, sum, min} or {@code max}. Null: no event has it. */
  public record Aggregate(String name, String how, String field) implements Serializable {
    private static Aggregate of(String text) {
      String[] parts = text.split("[=()]");
      return new Aggregate(parts[0], parts[1], parts.length > 2 ? parts[2] : "");
    }

    private String numberOf(JsonNode fields) {
      return how.equals("count") ? "1" : fields.path(field).asText();
    }

    private String with(String total, String number) {
      if (number.isEmpty() || total.isEmpty()) {
        return total + number;
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
  }

  /** In the form that Flink's serializer needs. Key and id are JSON. {@code rest}: the fields that its result keeps. */
  public static final class Event implements Serializable {
    public int side;
    public String key;
    public String id;
    public long timeMs;
    public boolean passes;
    public String[] numbers;
    public String rest;
  }

  /** The events of a cell: their ids by side, or their totals. */
  static final class Cell {
    private final Work work;
    private final List<Collection<String>> ids = new ArrayList<>();
    private final String[] totals;

    Cell(Work work) {
      this.work = work;
      // One entry each time that an event is processed: without a join, a result repeats ids of events sent twice.
      boolean once = work.joins() || work.operator.equals("distinct");
      work.idLists.forEach(name -> ids.add(once ? new LinkedHashSet<>() : new ArrayList<>()));
      totals = new String[work.aggregates.size()];
      Arrays.fill(totals, "");
    }

    void add(int side, String id, String[] numbers) {
      ids.get(side).add(id);
      work.add(totals, numbers);
    }

    /** An inner join has a result if a cell has events of both sides, a left join if it has some of the first. */
    boolean hasResult() {
      return !work.joins() || !(ids.get(0).isEmpty() || (ids.get(1).isEmpty() && !work.left));
    }

    String result(String key, long startMs, long endMs) {
      return work.result(key, window(startMs, endMs) + (totals.length > 0 ? work.stated(totals) : work.listed(ids)));
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
        given.list("kept").stream().map(name -> new Kept(name, given.text("factor." + name))).toList(),
        given.list("aggregates").stream().map(Aggregate::of).toList());
  }

  boolean joins() {
    return sides.size() > 1;
  }

  /** The event in a text; null if the text does not decode. */
  Event event(int number, String text) {
    Side side = sides.get(number);
    try {
      JsonNode fields = side.fields(text);
      JsonNode time = fields.get(side.time);
      Event event = new Event();
      event.side = number;
      event.key = fields.get(side.key).toString();
      event.id = fields.get(side.id).toString();
      event.timeMs = side.inMs ? Long.parseLong(time.asText())
          : LocalDateTime.parse(time.asText()).toInstant(ZoneOffset.UTC).toEpochMilli();
      event.passes = side.filter.passes(fields);
      event.numbers = aggregates.stream().map(one -> one.numberOf(fields)).toArray(String[]::new);
      StringBuilder rest = new StringBuilder();
      if (operator.equals("passthrough")) {
        kept.forEach(one -> rest.append(one.member(fields)));
      }
      event.rest = rest.toString();
      return event;
    } catch (IOException | RuntimeException e) {
      return null;
    }
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

  /** The result of a key, of all events so far ({@code totals}), or with the id of the newest one. */
  String running(Event event, String[] totals) {
    return result(event.key, totals.length > 0 ? stated(totals) : listed(List.of(List.of(event.id))));
  }

  /** The result of a pair, which has the time of the left event. */
  String pair(String key, long leftMs, String leftId, String rightId) {
    return result(key, window(leftMs, leftMs) + listed(List.of(List.of(leftId), List.of(rightId))));
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
      String value = totals[i].isEmpty() ? "null" : totals[i];
      text.append(",\"").append(aggregates.get(i).name).append("\":").append(value);
    }
    return text.toString();
  }

  private String listed(List<? extends Collection<String>> ids) {
    StringBuilder text = new StringBuilder();
    for (int side = 0; side < ids.size(); side++) {
      text.append(",\"").append(idLists.get(side)).append("\":[").append(String.join(",", ids.get(side))).append("]");
    }
    return text.toString();
  }

  private static String window(long startMs, long endMs) {
    return ",\"windowStart\":\"" + text(startMs) + "\",\"windowEnd\":\"" + text(endMs) + "\"";
  }

  private static String eventText(String id, String key, String time, Event event, String rest) {
    return "{\"" + key + "\":" + event.key + ",\"" + id + "\":" + event.id + ",\"" + time + "\":\""
        + text(event.timeMs) + "\"" + rest + "}";
  }

  private static String text(long ms) {
    return LocalDateTime.ofEpochSecond(Math.floorDiv(ms, 1000), Math.floorMod(ms, 1000) * 1_000_000, ZoneOffset.UTC)
        .format(TIME);
  }
}
