import static org.apache.zookeeper.CreateMode.EPHEMERAL;
import static org.apache.zookeeper.CreateMode.PERSISTENT;
import static org.apache.zookeeper.ZooDefs.Ids.OPEN_ACL_UNSAFE;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.ZooKeeper;

/** Sessions of the Java client over lost connections, expiry and ends of the server. */
final class JavaSessions {
    private static final byte[] NONE = new byte[0];

    private JavaSessions() {}

    static void run(Peer a, Peer b) {
        Checks.part("resume", () -> resume(b.zk));
        Checks.part("ended by another", () -> endedByAnother(b.zk));
        Checks.part("expiry", () -> expiry(b.zk));
        for (String verb : List.of("restart", "crash")) {
            Checks.part(verb, () -> over(verb, a, b));
        }
    }

    private static void resume(ZooKeeper other) throws Exception {
        Peer first = new Peer();
        first.zk.create("/resumed", NONE, OPEN_ACL_UNSAFE, EPHEMERAL);
        first.fence();
        first.cutOff();
        try (Peer stranger = new Peer(first.zk, new byte[16])) {
            Checks.eventually("another password is no session", () -> stranger.states.saw("Expired"));
            Checks.is("nor does it end the session", other.exists("/resumed", false) != null);
        }
        try (Peer second = new Peer(first.zk, first.zk.getSessionPasswd())) {
            second.connected();
            Checks.equal("the password is", first.zk.getSessionId(), second.zk.getSessionId());
            Checks.equal("its ephemerals stay", List.of("/resumed"), second.zk.getEphemerals());
        }
        Checks.equal("its ephemerals go when it is closed", null, other.exists("/resumed", false));
        first.heal();
        Checks.eventually("whoever had it is told that it is over", () -> first.states.saw("Expired"));
        first.close();
    }

    private static void endedByAnother(ZooKeeper other) throws Exception {
        try (Peer a = new Peer()) {
            a.zk.create("/ended", NONE, OPEN_ACL_UNSAFE, EPHEMERAL);
            Events e = new Events();
            other.exists("/ended", e);
            Peer.expire(a.zk);
            Checks.eventually("tells of its ephemerals", () -> e.saw("NodeDeleted /ended"));
            Checks.eventually("is told", () -> a.states.saw("Expired"));
            Checks.fails("no operation works any more", Code.SESSIONEXPIRED, () -> a.zk.exists("/", false));
        }
    }

    private static void expiry(ZooKeeper other) throws Exception {
        try (Peer a = new Peer(Checks.ask("proxy"), "", 4000)) {
            a.zk.create("/expiring", NONE, OPEN_ACL_UNSAFE, EPHEMERAL);
            long timeout = a.zk.getSessionTimeout();
            Events e = new Events();
            other.exists("/expiring", e);
            long start = System.nanoTime();
            a.fence();
            a.cutOff();
            Checks.eventually("ends a session that is not heard of", () -> e.saw("NodeDeleted /expiring"));
            long took = (System.nanoTime() - start) / 1_000_000;
            Checks.is("not before its timeout of " + timeout + " ms", took >= timeout);
            a.heal();
            Checks.eventually("is told when there is a connection again", () -> a.states.saw("Expired"));
        }
    }

    /** The server ends and starts again while writes are on their way. */
    private static void over(String verb, Peer a, Peer b) throws Exception {
        String root = "/" + verb;
        a.zk.create(root, NONE, OPEN_ACL_UNSAFE, PERSISTENT);
        a.zk.create(root + "/e", NONE, OPEN_ACL_UNSAFE, EPHEMERAL);
        Events e = new Events();
        b.zk.getData(root, e, null);
        long session = a.zk.getSessionId();
        Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        int writes = 2000;
        CountDownLatch answered = new CountDownLatch(writes);
        Thread writer = new Thread(() -> {
            for (int i = 0; i < writes; i++) {
                a.zk.create(root + "/" + i, NONE, OPEN_ACL_UNSAFE, PERSISTENT, (rc, path, ctx, name) -> {
                    if (rc == 0) {
                        acknowledged.add(path.substring(root.length() + 1));
                    }
                    answered.countDown();
                }, null);
            }
        });
        writer.start();
        Checks.within(30_000, () -> !acknowledged.isEmpty());
        Checks.ask(verb);
        writer.join();
        Checks.is("every write is answered", answered.await(60, TimeUnit.SECONDS));
        a.connected();
        b.connected();
        Checks.is("what was acknowledged is there", a.zk.getChildren(root, false).containsAll(acknowledged));
        Checks.equal("the session goes on", session, a.zk.getSessionId());
        Checks.is("its ephemerals stay", a.zk.getEphemerals(root).equals(List.of(root + "/e")));
        a.zk.setData(root, NONE, -1);
        b.fence();
        Checks.is("a watch from before is there", e.saw("NodeDataChanged " + root));
    }
}
