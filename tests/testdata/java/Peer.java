import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;

/** A client with one session, through a proxy of its own that the test plays faults on. */
final class Peer implements AutoCloseable {
    static final int TIMEOUT_MS = 8000;

    final String address;
    final ZooKeeper zk;
    /** What the client was told of its connection and session. */
    final Events states = new Events();

    Peer() throws Exception {
        this(Checks.ask("proxy"), "", TIMEOUT_MS);
    }

    Peer(String address, String chroot, int timeoutMs) throws Exception {
        this.address = address;
        zk = new ZooKeeper(address + chroot, timeoutMs, states);
        connected();
    }

    /** Takes over the session of another client, by another address. */
    Peer(ZooKeeper of, byte[] password) throws Exception {
        address = Checks.ask("proxy");
        zk = new ZooKeeper(address, TIMEOUT_MS, states, of.getSessionId(), password);
    }

    /** Ends the session of another client. */
    static void expire(ZooKeeper of) throws Exception {
        try (Peer thief = new Peer(of, of.getSessionPasswd())) {
            thief.connected();
        }
    }

    void connected() throws Exception {
        if (!Checks.within(30_000, () -> zk.getState().isConnected())) {
            throw new IllegalStateException("no connection to " + address);
        }
    }

    /** Repeats what was lost with its connection. */
    static <T> T again(Callable<T> operation) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                return operation.call();
            } catch (KeeperException.ConnectionLossException e) {
                if (tries == 100) {
                    throw e;
                }
            }
        }
    }

    /**
     * Returns when all events have been seen that the server sent before now: callbacks and
     * events come from one queue.
     */
    void fence() throws Exception {
        CountDownLatch answered = new CountDownLatch(1);
        zk.sync("/", (rc, path, ctx) -> answered.countDown(), null);
        if (!answered.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no answer to sync");
        }
    }

    /** Ends the connection; the client may not connect again before heal. */
    void cutOff() throws Exception {
        Checks.ask("partition " + address);
        Checks.ask("break " + address);
        Checks.within(30_000, () -> !zk.getState().isConnected());
    }

    void heal() throws Exception {
        Checks.ask("heal " + address);
    }

    @Override
    public void close() throws Exception {
        zk.close();
    }
}
