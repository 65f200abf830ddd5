package streamproof;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.instrument.UnmodifiableClassException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.ProtectionDomain;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;

/**
 * Moves the clock of a JVM: {@code -javaagent:JAR=FILE}, where FILE contains the offset in seconds, such as +0.
 *
 * <p>The agent rewrites the constant pools of all classes, including those of the JDK. Calls of the methods that return
 * the time of day, or that wait until an instant, become calls of the methods of the same names in this class. {@code
 * System.nanoTime}, and waits for a duration, do not change. Ten times per second, the agent writes the time that an
 * ordinary class sees to FILE.PID, in milliseconds, so that a probe can verify the offset.
 */
public final class ClockAgent {
    private static final long LOOK_MILLIS = 100;
    private static final String OURS = "streamproof/ClockAgent";
    /** Class -> its methods that return the time of day or wait until an instant, as named in a constant pool. */
    private static final Map<String, Set<String>> TELLERS = Map.of(
            "java/lang/System", Set.of("currentTimeMillis()J"),
            "jdk/internal/misc/VM", Set.of("getNanoTimeAdjustment(J)J"),
            "java/util/concurrent/locks/LockSupport", Set.of("parkUntil(J)V", "parkUntil(Ljava/lang/Object;J)V"));

    /**
     * Classes that are not rewritten. They implement the waits, from Java 21 on by calls of the same methods, and get
     * instants of the machine's clock.
     */
    private static final Set<String> WAITERS =
            Set.of("java/util/concurrent/locks/LockSupport", "jdk/internal/misc/VirtualThreads");

    private static volatile long offsetMillis;

    private ClockAgent() {}

    /** Called by the JVM before the program starts. {@code file} is the text after {@code =}. */
    public static void premain(String file, Instrumentation instrumentation) {
        if (file == null || file.isEmpty()) {
            throw new IllegalArgumentException("The clock agent needs its file: -javaagent:JAR=FILE, with +0 in FILE.");
        }
        Module ours = ClockAgent.class.getModule();
        instrumentation.redefineModule(
                Object.class.getModule(), Set.of(ours), Map.of("jdk.internal.misc", Set.of(ours)), Map.of(), Set.of(),
                Map.of());
        getNanoTimeAdjustment(0); // looks the method up before any class is rewritten
        instrumentation.addTransformer(new Redirecting(), true);
        Class<?>[] loaded = Arrays.stream(instrumentation.getAllLoadedClasses())
                .filter(instrumentation::isModifiableClass).toArray(Class<?>[]::new);
        if (!isRedirected(instrumentation, loaded)) { // all at once: one by one takes three times as long
            for (Class<?> each : loaded) {
                isRedirected(instrumentation, each); // a class that cannot be rewritten keeps the machine's clock
            }
        }
        Path clock = Path.of(file);
        look(clock);
        Path seen = clock.resolveSibling(clock.getFileName() + "." + ProcessHandle.current().pid());
        seen.toFile().deleteOnExit(); // not in the thread, because the program may end before the thread runs
        Thread thread = new Thread(() -> watch(clock, seen), "streamproof-clock");
        thread.setDaemon(true);
        thread.start();
    }

    private static boolean isRedirected(Instrumentation instrumentation, Class<?>... loaded) {
        try {
            instrumentation.retransformClasses(loaded);
            return true;
        } catch (UnmodifiableClassException | LinkageError | InternalError left) {
            return false;
        }
    }

    /** Replaces {@link System#currentTimeMillis}. */
    public static long currentTimeMillis() {
        return System.currentTimeMillis() + offsetMillis;
    }

    /** Replaces the JDK's method, which {@code Instant.now} uses. -1: {@code seconds} is too far from the time. */
    public static long getNanoTimeAdjustment(long seconds) {
        try {
            long nanos = (long) Finer.ADJUSTMENT.invokeExact(seconds);
            return nanos == -1 ? nanos : nanos + offsetMillis * 1_000_000;
        } catch (Throwable impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Replaces {@link LockSupport#parkUntil(long)}. Converts the instant to the machine's clock. */
    public static void parkUntil(long deadlineMillis) {
        LockSupport.parkUntil(deadlineMillis - offsetMillis);
    }

    /** Replaces {@link LockSupport#parkUntil(Object, long)}. */
    public static void parkUntil(Object blocker, long deadlineMillis) {
        LockSupport.parkUntil(blocker, deadlineMillis - offsetMillis);
    }

    private static void watch(Path clock, Path seen) {
        Path fresh = seen.resolveSibling(seen.getFileName() + ".new");
        while (true) {
            look(clock);
            try {
                Files.writeString(fresh, Probe.now() + "\n");
                Files.move(fresh, seen, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            } catch (IOException full) {
                // Without a current file, no probe accepts the clock as moved or as correct.
            }
            try {
                Thread.sleep(LOOK_MILLIS);
            } catch (InterruptedException end) {
                return;
            }
        }
    }

    private static void look(Path clock) {
        try {
            offsetMillis = new BigDecimal(Files.readString(clock).strip()).movePointRight(3).longValue();
        } catch (IOException | NumberFormatException unreadable) {
            // The offset that was read last stays.
        }
    }

    /** Looks the method up when it is first used, after the package was opened to this class. */
    private static final class Finer {
        static final MethodHandle ADJUSTMENT;

        static {
            try {
                ADJUSTMENT = MethodHandles.lookup().findStatic(
                        Class.forName("jdk.internal.misc.VM"), "getNanoTimeAdjustment",
                        MethodType.methodType(long.class, long.class));
            } catch (ReflectiveOperationException other) {
                throw new ExceptionInInitializerError(other);
            }
        }
    }

    /** An ordinary class, which is rewritten like those of the program. */
    static final class Probe {
        static long now() {
            return System.currentTimeMillis();
        }
    }

    private static final class Redirecting implements ClassFileTransformer {
        @Override
        public byte[] transform(
                ClassLoader loader, String name, Class<?> loaded, ProtectionDomain domain, byte[] code) {
            boolean isOurs = name != null && name.startsWith(OURS) && !name.endsWith("$Probe");
            return isOurs || name != null && WAITERS.contains(name) ? null : redirected(code);
        }
    }

    /** The class file with calls of {@link #TELLERS} led to {@link ClockAgent}; null if it has none. */
    private static byte[] redirected(byte[] code) {
        ByteBuffer file = ByteBuffer.wrap(code);
        int count = file.getShort(8) & 0xffff;
        int[] at = new int[count];
        int end = 10;
        for (int i = 1; i < count; i++) {
            at[i] = end;
            int tag = code[end];
            switch (tag) {
                case 1 -> end += 3 + (file.getShort(end + 1) & 0xffff);
                case 3, 4, 9, 10, 11, 12, 17, 18 -> end += 5;
                case 5, 6 -> {
                    end += 9;
                    i++; // a long or a double takes two places
                }
                case 7, 8, 16, 19, 20 -> end += 3;
                case 15 -> end += 4;
                default -> {
                    return null;
                }
            }
        }
        byte[] changed = null;
        for (int i = 1; i < count; i++) {
            if (at[i] == 0 || code[at[i]] != 10) {
                continue;
            }
            int owner = at[file.getShort(at[i] + 1) & 0xffff];
            int named = at[file.getShort(at[i] + 3) & 0xffff];
            Set<String> tellers = TELLERS.getOrDefault(text(file, at, owner + 1), Set.of());
            if (!tellers.isEmpty() && tellers.contains(text(file, at, named + 1) + text(file, at, named + 3))) {
                changed = changed == null ? code.clone() : changed;
                ByteBuffer.wrap(changed).putShort(at[i] + 1, (short) (count + 1));
            }
        }
        return changed == null || count + 2 > 0xffff ? null : withOurs(changed, count, end);
    }

    /** The text that the two bytes at {@code where} refer to. */
    private static String text(ByteBuffer file, int[] at, int where) {
        int start = at[file.getShort(where) & 0xffff];
        int length = file.getShort(start + 1) & 0xffff;
        return new String(file.array(), start + 3, length, StandardCharsets.UTF_8);
    }

    /** Appends two constants to the pool: the name of this class, and the class. */
    private static byte[] withOurs(byte[] code, int count, int end) {
        try {
            ByteArrayOutputStream made = new ByteArrayOutputStream(code.length + 64);
            DataOutputStream out = new DataOutputStream(made);
            out.write(code, 0, 8);
            out.writeShort(count + 2);
            out.write(code, 10, end - 10);
            out.writeByte(1);
            out.writeUTF(OURS);
            out.writeByte(7);
            out.writeShort(count);
            out.write(Arrays.copyOfRange(code, end, code.length));
            return made.toByteArray();
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
