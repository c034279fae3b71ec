import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.data.Stat;

/** Curator's recipes on three sessions, over lost connections and sessions and ends of the server. */
public final class CuratorRecipes {
    private static final byte[] NONE = new byte[0];

    public static void main(String[] args) throws Exception {
        List<Curator> clients = List.of(new Curator(), new Curator(), new Curator());
        CuratorFramework a = clients.get(0).framework;
        CuratorFramework b = clients.get(1).framework;
        Checks.part("framework", () -> framework(a, b));
        Checks.part("transactions", () -> transactions(a));
        Checks.part("LeaderLatch", () -> leaderLatch(clients));
        Checks.part("LeaderSelector", () -> leaderSelector(clients));
        Checks.part("PersistentNode", () -> persistentNode(clients.get(0), b));
        Checks.part("PersistentTtlNode", () -> persistentTtlNode(a, b));
        Checks.part("GroupMember", () -> groupMember(clients.get(0), clients.get(1)));
        CuratorLocks.run(clients);
        CuratorShared.run(clients);
        CuratorCaches.run(clients);
        for (String verb : List.of("restart", "crash")) {
            Checks.part(verb, () -> CuratorEnds.over(verb, clients));
        }
        clients.forEach(Curator::close);
        Checks.finish();
    }

    private static void framework(CuratorFramework a, CuratorFramework b) throws Exception {
        Stat stat = new Stat();
        a.create().storingStatIn(stat).creatingParentsIfNeeded().forPath("/f/g/h", "x".getBytes());
        Checks.is("creates parents", stat.getCzxid() > 0 && b.checkExists().forPath("/f/g") != null);
        a.create().creatingParentContainersIfNeeded().forPath("/containers/x/y");
        a.delete().forPath("/containers/x/y");
        Checks.eventually("parents that are containers go", () -> b.checkExists().forPath("/containers") == null);
        String own = a.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/f/p-", NONE);
        Checks.is("a protected name has a mark and a number", own.matches("/f/_c_[0-9a-f-]{36}-p-0000000001"));
        Checks.equal("create or set", "/f/g", a.create().orSetData().forPath("/f/g", "again".getBytes()));
        Checks.equal("has set", "again".getBytes(), b.getData().forPath("/f/g"));
        CountDownLatch told = new CountDownLatch(2);
        b.getData().usingWatcher((org.apache.curator.framework.api.CuratorWatcher) e -> told.countDown()).forPath("/f/g");
        a.setData().inBackground((c, e) -> told.countDown()).forPath("/f/g", "third".getBytes());
        Checks.is("a callback and a watcher", told.await(30, TimeUnit.SECONDS));
        CuratorFramework in = a.usingNamespace("space");
        in.create().creatingParentsIfNeeded().forPath("/x/y");
        Checks.equal("a namespace", List.of("y"), b.getChildren().forPath("/space/x"));
        b.delete().guaranteed().deletingChildrenIfNeeded().forPath("/f");
        Checks.equal("deletes a tree", null, a.checkExists().forPath("/f"));
    }

    private static void transactions(CuratorFramework a) throws Exception {
        List<CuratorTransactionResult> r = a.transaction().forOperations(
                a.transactionOp().create().forPath("/t", "x".getBytes()),
                a.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/t/s-", NONE),
                a.transactionOp().setData().withVersion(0).forPath("/t", "y".getBytes()),
                a.transactionOp().check().withVersion(1).forPath("/t"),
                a.transactionOp().delete().forPath("/t/s-0000000000"));
        Checks.equal("each has a result", 5, r.size());
        Checks.equal("a number", "/t/s-0000000000", r.get(1).getResultPath());
        Checks.equal("a version", 1, r.get(2).getResultStat().getVersion());
        CuratorOp set = a.transactionOp().setData().forPath("/t", "z".getBytes());
        CuratorOp check = a.transactionOp().check().withVersion(7).forPath("/t");
        Checks.fails("one that fails", Code.BADVERSION, () -> a.transaction().forOperations(set, check));
        Checks.equal("writes nothing", "y".getBytes(), a.getData().forPath("/t"));
    }

    private static void leaderLatch(List<Curator> clients) throws Exception {
        List<LeaderLatch> latches = new ArrayList<>();
        for (Curator c : clients) {
            LeaderLatch latch = new LeaderLatch(c.framework, "/latch", "id" + latches.size());
            latches.add(latch);
            latch.start();
        }
        Checks.eventually("one leads", () -> leaders(latches) == 1);
        Checks.eventually("all take part", () -> latches.get(0).getParticipants().size() == 3);
        LeaderLatch first = leader(latches);
        Checks.is("others know who", latches.stream().allMatch(l -> leaderId(l).equals(first.getId())));
        int i = latches.indexOf(first);
        clients.get(i).expire();
        Checks.eventually("another leads when its session is over", () -> leaders(latches) == 1 && leader(latches) != first);
        Checks.eventually("all take part again", () -> first.getParticipants().size() == 3);
        LeaderLatch second = leader(latches);
        clients.get(latches.indexOf(second)).cut();
        Checks.eventually("one leads when its connection was lost", () -> leaders(latches) == 1);
        LeaderLatch third = leader(latches);
        latches.remove(third);
        third.close();
        Checks.eventually("another leads when it has closed", () -> leaders(latches) == 1);
        for (LeaderLatch latch : latches) {
            latch.close();
        }
        Checks.eventually("nothing is left", () -> {
            Stat parent = clients.get(0).framework.checkExists().forPath("/latch"); // a container
            return parent == null || parent.getNumChildren() == 0;
        });
    }

    private static long leaders(List<LeaderLatch> latches) {
        return latches.stream().filter(LeaderLatch::hasLeadership).count();
    }

    private static LeaderLatch leader(List<LeaderLatch> latches) {
        return latches.stream().filter(LeaderLatch::hasLeadership).findFirst().orElse(null);
    }

    private static String leaderId(LeaderLatch latch) {
        try {
            return latch.getLeader().getId();
        } catch (Exception e) {
            return e.toString();
        }
    }

    private static void leaderSelector(List<Curator> clients) throws Exception {
        AtomicInteger leading = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        BlockingQueue<String> turns = new LinkedBlockingQueue<>();
        List<LeaderSelector> selectors = new ArrayList<>();
        for (int i = 0; i < clients.size(); i++) {
            String id = "id" + i;
            LeaderSelector s = new LeaderSelector(clients.get(i).framework, "/selector", new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    most.accumulateAndGet(leading.incrementAndGet(), Math::max);
                    turns.add(id);
                    try {
                        Thread.sleep(20);
                    } finally {
                        leading.decrementAndGet();
                    }
                }
            });
            s.setId(id);
            s.autoRequeue();
            s.start();
            selectors.add(s);
        }
        Checks.eventually("each leads", () -> turns.containsAll(List.of("id0", "id1", "id2")));
        Checks.equal("one at a time", 1, most.get());
        clients.get(0).expire();
        turns.clear();
        // A turn that outlives its session may overlap the next leader's: it is over when id0 leads again.
        Checks.eventually("leads again after its session is over", () -> Collections.frequency(turns, "id0") > 1);
        turns.clear();
        most.set(0);
        Checks.eventually("each leads after a session is over", () -> turns.containsAll(List.of("id0", "id1", "id2")));
        Checks.equal("and one at a time again", 1, most.get());
        selectors.forEach(LeaderSelector::close);
    }

    private static void persistentNode(Curator owner, CuratorFramework other) throws Exception {
        try (PersistentNode node = new PersistentNode(owner.framework, CreateMode.EPHEMERAL, false, "/pn", "one".getBytes())) {
            node.start();
            Checks.is("is created", node.waitForInitialCreate(30, TimeUnit.SECONDS));
            node.setData("two".getBytes());
            Checks.eventually("has its data", () -> "two".equals(new String(other.getData().forPath("/pn"))));
            other.delete().forPath("/pn");
            Checks.eventually("comes back when it is deleted", () -> isOf("/pn", owner, other));
            long session = owner.zk().getSessionId();
            owner.expire();
            Checks.eventually("comes back in the next session", () -> owner.zk().getSessionId() != session && isOf("/pn", owner, other));
            Checks.equal("with its data", "two".getBytes(), other.getData().forPath("/pn"));
        }
        Checks.eventually("goes when it is closed", () -> other.checkExists().forPath("/pn") == null);
    }

    private static boolean isOf(String path, Curator owner, CuratorFramework other) throws Exception {
        Stat s = other.checkExists().forPath(path);
        return s != null && s.getEphemeralOwner() == owner.zk().getSessionId();
    }

    private static void persistentTtlNode(CuratorFramework a, CuratorFramework other) throws Exception {
        try (PersistentTtlNode node = new PersistentTtlNode(a, "/ttl", 2000, "x".getBytes())) {
            node.start();
            Checks.is("is created", node.waitForInitialCreate(30, TimeUnit.SECONDS));
            other.create().forPath("/ttl/child");
            other.delete().forPath("/ttl/child");
            Thread.sleep(5000);
            Checks.is("is kept beyond its TTL", other.checkExists().forPath("/ttl") != null);
        }
        Checks.eventually("goes when nobody keeps it", () -> other.checkExists().forPath("/ttl") == null);
    }

    private static void groupMember(Curator a, Curator b) throws Exception {
        try (GroupMember x = new GroupMember(a.framework, "/group", "x", "1".getBytes())) {
            x.start();
            GroupMember y = new GroupMember(b.framework, "/group", "y", "2".getBytes());
            y.start();
            Checks.eventually("both see both", () -> x.getCurrentMembers().size() == 2 && y.getCurrentMembers().size() == 2);
            y.setThisData("3".getBytes());
            Checks.eventually("a member's data", () -> Map.of("x", "1", "y", "3").equals(members(x)));
            b.expire();
            Checks.eventually("a member comes back in its next session",
                    () -> isOf("/group/y", b, a.framework) && Map.of("x", "1", "y", "3").equals(members(x)));
            y.close();
            Checks.eventually("a member goes", () -> Map.of("x", "1").equals(members(x)));
        }
    }

    private static Map<String, String> members(GroupMember g) {
        Map<String, String> all = new java.util.TreeMap<>();
        g.getCurrentMembers().forEach((id, data) -> all.put(id, new String(data)));
        return all;
    }
}
