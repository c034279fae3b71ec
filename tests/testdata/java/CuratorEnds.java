import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.zookeeper.CreateMode;

/** What Curator's recipes hold over an end of the server. */
final class CuratorEnds {
    private CuratorEnds() {}

    static void over(String verb, List<Curator> clients) throws Exception {
        Curator a = clients.get(0);
        CuratorFramework b = clients.get(1).framework;
        String root = "/" + verb;
        InterProcessMutex lock = new InterProcessMutex(a.framework, root + "/lock");
        lock.acquire();
        long session = a.zk().getSessionId();
        AtomicInteger acknowledged = new AtomicInteger();
        AtomicInteger tried = new AtomicInteger();
        AtomicBoolean enough = new AtomicBoolean();
        Thread adder = new Thread(() -> {
            DistributedAtomicLong n = CuratorShared.counter(b, root + "/counter");
            while (!enough.get()) {
                tried.incrementAndGet();
                try {
                    AtomicValue<Long> v = n.increment();
                    if (v.succeeded()) {
                        acknowledged.incrementAndGet();
                    }
                } catch (Exception e) {
                    continue; // the outcome is not known
                }
            }
        });
        try (LeaderLatch latch = new LeaderLatch(a.framework, root + "/latch");
                PersistentNode node = new PersistentNode(a.framework, CreateMode.EPHEMERAL, false, root + "/node", new byte[0]);
                CuratorCaches caches = new CuratorCaches(a.framework, clients.get(2).framework, b, root + "-cache")) {
            latch.start();
            node.start();
            latch.await();
            node.waitForInitialCreate(30, TimeUnit.SECONDS);
            adder.start();
            Checks.within(30_000, () -> acknowledged.get() > 10);
            Checks.ask(verb);
            int before = acknowledged.get();
            Checks.eventually("writes go on", () -> acknowledged.get() > before + 10);
            enough.set(true);
            adder.join();
            long value = CuratorShared.counter(b, root + "/counter").get().postValue();
            Checks.is("no acknowledged increment is lost", value >= acknowledged.get());
            // Curator repeats one whose answer was lost with the connection.
            Checks.is("at most one is made twice", value <= tried.get() + 1);
            Checks.equal("the session goes on", session, a.zk().getSessionId());
            Checks.eventually("the leader leads again", latch::hasLeadership);
            Checks.equal("the ephemeral is still the session's", session, b.checkExists().forPath(root + "/node").getEphemeralOwner());
            InterProcessMutex other = new InterProcessMutex(b, root + "/lock");
            Checks.is("the lock is still held", !other.acquire(100, TimeUnit.MILLISECONDS));
            lock.release();
            Checks.is("and can be handed over", other.acquire(30, TimeUnit.SECONDS));
            other.release();
            caches.change(20, false);
            caches.agree("the server's end");
        }
    }
}
