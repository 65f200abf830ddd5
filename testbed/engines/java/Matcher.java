import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.stream.DoubleStream;
import java.util.stream.IntStream;

/**
 * ShuffleBench's rules: rule i matches a record if {@code (hash - offset of i) mod 2^63} is below its share of 2^63.
 * The hash is komihash 5.0 of the first 16 bytes; an offset is komihash 4.3 of a seed and the number of the rule.
 *
 * <p>With {@code hashes}, each rule has a hash of its own: komihash 4.3 with the offset as seed, at most its share of 2^63.
 *
 * <p>Like ShuffleBench's index, it looks only at the rules whose range overlaps the slot of a hash: its upper 16 bits.
 */
public final class Matcher implements Serializable {
  private static final long HASH_SEED = 0x81C1F2B68968424DL;
  private static final long RULES_SEED = 0x2E3FAC4F58FC98B4L;
  private static final long RANGE = Long.MAX_VALUE;
  private static final int SLOTS = 1 << 16;
  private static final int SHIFT = 47;
  private final long[] offsets;
  private final long[] widths; // -1: all hashes
  private final int[][] ofSlots; // null: hashes

  private Matcher(double[] shares, boolean hashes) {
    int rules = shares.length;
    offsets = new long[rules];
    widths = new long[rules];
    for (int rule = 0; rule < rules; rule++) {
      double share = shares[rule];
      ByteBuffer seeded = ByteBuffer.allocate(12).order(ByteOrder.LITTLE_ENDIAN).putLong(RULES_SEED).putInt(rule);
      offsets[rule] = komihash(seeded.array(), 0, true);
      widths[rule] = share >= 1 ? -1 : (long) Math.floor(Math.scalb(share, 63));
    }
    ofSlots = hashes ? null : indexed();
  }

  private int[][] indexed() {
    IntStream.Builder[] slots = new IntStream.Builder[SLOTS];
    for (int rule = 0; rule < widths.length; rule++) {
      long first = (offsets[rule] & RANGE) >>> SHIFT;
      long most = widths[rule] < 0 ? SLOTS : Math.min(SLOTS, (widths[rule] >>> SHIFT) + 2);
      for (long slot = first; slot < first + most; slot++) {
        int at = (int) (slot % SLOTS);
        slots[at] = slots[at] == null ? IntStream.builder() : slots[at];
        slots[at].add(rule);
      }
    }
    int[][] found = new int[SLOTS][];
    for (int slot = 0; slot < SLOTS; slot++) {
      found[slot] = slots[slot] == null ? new int[0] : slots[slot].build().toArray();
    }
    return found;
  }

  /**
   * Of {@code ranges} or {@code hashes}, and either three numbers (rules, selectivity and the exponent of Zipf's law) or
   * shares, each with its number of rules ({@code 0.01=100}). Null without them.
   */
  static Matcher of(List<String> given) {
    if (given.isEmpty()) {
      return null;
    }
    List<String> rules = given.subList(1, given.size());
    boolean hashes = given.get(0).equals("hashes");
    if (rules.get(0).contains("=")) {
      return new Matcher(rules.stream().map(one -> one.split("=")).flatMapToDouble(
          one -> DoubleStream.generate(() -> Double.parseDouble(one[0])).limit(Long.parseLong(one[1]))).toArray(), hashes);
    }
    double[] numbers = rules.stream().mapToDouble(Double::parseDouble).toArray();
    double[] weights = IntStream.range(0, (int) numbers[0]).mapToDouble(rule -> 1 / Math.pow(rule + 1, numbers[2])).toArray();
    double total = 0;
    for (double weight : weights) {
      total += weight;
    }
    double sum = total;
    return new Matcher(DoubleStream.of(weights).map(weight -> weight / sum * numbers[1]).toArray(), hashes);
  }

  /** The rules that match a record. {@code first, second}: its first 16 bytes, most significant first. */
  IntStream rules(long first, long second) {
    byte[] head = ByteBuffer.allocate(16).putLong(first).putLong(second).array();
    if (ofSlots == null) {
      return IntStream.range(0, widths.length)
          .filter(rule -> widths[rule] < 0 || (komihash(head, offsets[rule], true) & RANGE) <= widths[rule]);
    }
    long hash = komihash(head, HASH_SEED, false) & RANGE;
    return IntStream.of(ofSlots[(int) (hash >>> SHIFT)])
        .filter(rule -> widths[rule] < 0 || (hash - offsets[rule] & RANGE) < widths[rule]);
  }

  /** komihash of a message of at most 31 bytes. {@code isOld}: version 4.3, else 5.0. */
  static long komihash(byte[] message, long seed, boolean isOld) {
    long[] state = {0x243F6A8885A308D3L ^ seed & 0x5555555555555555L, 0x452821E638D01377L ^ seed & 0xAAAAAAAAAAAAAAAAL};
    mix(state, state[0], state[1]);
    ByteBuffer words = ByteBuffer.allocate(48).order(ByteOrder.LITTLE_ENDIAN).put(message);
    int rest = 0;
    if (message.length > 15) {
      mix(state, state[0] ^ words.getLong(0), state[1] ^ words.getLong(8));
      rest = 16;
    }
    if (message.length > 0) {
      int end = isOld && message[message.length - 1] < 0 ? 2 : 1;
      words.put(message.length, (byte) end);
    }
    mix(state, state[0] ^ words.getLong(rest), state[1] ^ words.getLong(rest + 8));
    mix(state, state[0], state[1]);
    return state[0];
  }

  private static void mix(long[] state, long left, long right) {
    long upper = Math.multiplyHigh(left, right) + (left >> 63 & right) + (right >> 63 & left);
    state[1] += upper;
    state[0] = left * right ^ state[1];
  }
}
