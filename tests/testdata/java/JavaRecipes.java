import static org.apache.zookeeper.ZooDefs.Ids.OPEN_ACL_UNSAFE;

import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.recipes.leader.LeaderElectionSupport;
import org.apache.zookeeper.recipes.leader.LeaderElectionSupport.EventType;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;
import org.apache.zookeeper.recipes.queue.DistributedQueue;

/** The recipes that come with ZooKeeper. */
final class JavaRecipes {
    private JavaRecipes() {}

    static void run(Peer a, Peer b) {
        Checks.part("WriteLock", () -> lock(a, b));
        Checks.part("LeaderElectionSupport", () -> election(a));
        Checks.part("DistributedQueue of ZooKeeper", () -> queue(a, b));
    }

    private static void lock(Peer a, Peer b) throws Exception {
        CountDownLatch acquired = new CountDownLatch(1);
        WriteLock x = new WriteLock(a.zk, "/write-lock", OPEN_ACL_UNSAFE);
        WriteLock y = new WriteLock(b.zk, "/write-lock", OPEN_ACL_UNSAFE, new LockListener() {
            @Override
            public void lockAcquired() {
                acquired.countDown();
            }

            @Override
            public void lockReleased() {}
        });
        Checks.is("is free", x.lock());
        Checks.is("is held", !y.lock() && x.isOwner() && !y.isOwner());
        x.unlock();
        Checks.is("is handed over", acquired.await(30, TimeUnit.SECONDS) && y.isOwner());
        y.unlock();
    }

    private static LeaderElectionSupport candidate(Peer p, String host, Events told) {
        LeaderElectionSupport s = new LeaderElectionSupport();
        s.setZooKeeper(p.zk);
        s.setHostName(host);
        s.setRootNodeName("/elect");
        s.addListener(type -> told.add(type.name()));
        s.start();
        return s;
    }

    private static void election(Peer a) throws Exception {
        a.zk.create("/elect", new byte[0], OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        Events first = new Events();
        Events second = new Events();
        Peer leader = new Peer();
        LeaderElectionSupport x = candidate(leader, "x", first);
        Checks.eventually("the first leads", () -> first.saw(EventType.ELECTED_COMPLETE.name()));
        LeaderElectionSupport y = candidate(a, "y", second);
        Checks.eventually("the second does not", () -> second.saw(EventType.READY_COMPLETE.name()));
        Checks.equal("who leads", "x", y.getLeaderHostName());
        leader.close();
        Checks.eventually("the second leads when the first's session is over", () -> second.saw(EventType.ELECTED_COMPLETE.name()));
        Checks.equal("who leads then", "y", y.getLeaderHostName());
        y.stop();
    }

    private static void queue(Peer a, Peer b) throws Exception {
        DistributedQueue in = new DistributedQueue(a.zk, "/java-queue", OPEN_ACL_UNSAFE);
        DistributedQueue out = new DistributedQueue(b.zk, "/java-queue", OPEN_ACL_UNSAFE);
        for (String item : List.of("1", "2", "3")) {
            in.offer(item.getBytes());
        }
        for (String item : List.of("1", "2", "3")) {
            Checks.equal("gives " + item, item.getBytes(), out.take());
        }
        Checks.equal("is empty", null, out.poll());
    }
}
