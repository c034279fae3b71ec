import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.apache.zookeeper.KeeperException;

/**
 * Prints one line per check and counts them. The program's output is for the test that started
 * it, which plays the faults that are asked for.
 */
final class Checks {
    /** What a check may throw. */
    interface Body {
        void run() throws Exception;
    }

    private static final BufferedReader IN =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final long PATIENCE_MS = 30_000;
    private static String part = "";
    private static int passed;
    private static int made;

    private Checks() {}

    /** Runs one part of the program. What it throws fails that part alone. */
    static void part(String name, Body body) {
        part = name;
        long start = System.nanoTime();
        try {
            body.run();
        } catch (Exception e) {
            is("ends without an exception, not with " + e, false);
            e.printStackTrace();
        }
        System.out.println("     " + part + " took " + (System.nanoTime() - start) / 1_000_000 + " ms");
    }

    static synchronized void is(String what, boolean ok) {
        made++;
        if (ok) {
            passed++;
        }
        System.out.println((ok ? "ok   " : "FAIL ") + part + ": " + what);
    }

    static void equal(String what, Object want, Object got) {
        boolean same = want instanceof byte[] && got instanceof byte[]
                ? Arrays.equals((byte[]) want, (byte[]) got)
                : Objects.equals(want, got);
        is(same ? what : what + ": " + text(got) + ", not " + text(want), same);
    }

    private static String text(Object o) {
        String all = o instanceof byte[] ? new String((byte[]) o, StandardCharsets.UTF_8) : String.valueOf(o);
        return all.length() > 2000 ? all.substring(0, 2000) + "..." : all;
    }

    /** Wants body to fail with an error of the server. */
    static void fails(String what, KeeperException.Code code, Body body) throws Exception {
        try {
            body.run();
            is(what + ": no error, not " + code, false);
        } catch (KeeperException e) {
            equal(what, code, e.code());
        }
    }

    /** Waits for a condition, which is a check as well. */
    static void eventually(String what, Callable<Boolean> condition) throws Exception {
        is(what, within(PATIENCE_MS, condition));
    }

    static boolean within(long ms, Callable<Boolean> condition) throws Exception {
        for (long end = System.nanoTime() + ms * 1_000_000; System.nanoTime() < end; Thread.sleep(5)) {
            if (condition.call()) {
                return true;
            }
        }
        return condition.call();
    }

    /** Has the test do something and returns what it answers. */
    static String ask(String what) throws IOException {
        System.out.println("ask " + what);
        String answer = IN.readLine();
        if (answer == null) {
            throw new IOException("the test has gone");
        }
        return answer;
    }

    /** Prints the count and ends the program, whatever threads there still are. */
    static void finish() {
        System.out.println("passed " + passed + " of " + made);
        System.out.flush();
        Runtime.getRuntime().halt(passed == made ? 0 : 1);
    }
}
