import static org.apache.zookeeper.CreateMode.EPHEMERAL;
import static org.apache.zookeeper.CreateMode.PERSISTENT;
import static org.apache.zookeeper.CreateMode.PERSISTENT_SEQUENTIAL;
import static org.apache.zookeeper.ZooDefs.Ids.OPEN_ACL_UNSAFE;

import java.util.List;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher.WatcherType;
import org.apache.zookeeper.ZooKeeper;

/** What the Java client is told of changes, also of those made while it had no connection. */
final class JavaWatches {
    private static final byte[] NONE = new byte[0];

    private JavaWatches() {}

    static void run(Peer a, Peer b) {
        Checks.part("watches", () -> standard(a, b.zk));
        Checks.part("persistent watches", () -> persistent(a, b.zk));
        Checks.part("removed watches", () -> removed(a, b.zk));
        Checks.part("chroot", () -> chroot(b.zk));
        Checks.part("watches over a reconnect", () -> reconnect(a, b.zk));
        Checks.part("many watches over a reconnect", () -> many(a, b.zk));
        Checks.part("C103", () -> c103(a, b.zk));
    }

    private static void make(ZooKeeper zk, String... paths) throws Exception {
        for (String path : paths) {
            zk.create(path, NONE, OPEN_ACL_UNSAFE, PERSISTENT);
        }
    }

    private static List<String> seen(Peer a, Events e) throws Exception {
        a.fence();
        return e.drain();
    }

    private static void standard(Peer a, ZooKeeper other) throws Exception {
        Events e = new Events();
        a.zk.exists("/w", e);
        make(other, "/w");
        Checks.equal("a node that was not there", List.of("NodeCreated /w"), seen(a, e));
        a.zk.getData("/w", e, null);
        a.zk.exists("/w", e);
        other.setData("/w", NONE, -1);
        other.setData("/w", NONE, -1);
        Checks.equal("data, once", List.of("NodeDataChanged /w"), seen(a, e));
        a.zk.getChildren("/w", e);
        make(other, "/w/x", "/w/y");
        Checks.equal("children, once", List.of("NodeChildrenChanged /w"), seen(a, e));
        a.zk.getChildren("/w", e);
        other.setData("/w", NONE, -1);
        make(other, "/w/x/deep");
        Checks.equal("neither data nor grandchildren concern a watch of children", List.of(), seen(a, e));
        a.zk.getData("/w/y", e, null);
        a.zk.getChildren("/w/y", e);
        other.delete("/w/y", -1);
        Checks.equal("a deletion before its parent's children", List.of("NodeDeleted /w/y", "NodeChildrenChanged /w"), seen(a, e));
        Checks.fails("a read that fails", Code.NONODE, () -> a.zk.getData("/w/y", e, null));
        make(other, "/w/y");
        Checks.equal("sets no watch", List.of(), seen(a, e));

        Events order = new Events();
        a.zk.getData("/w", order, null);
        a.zk.setData("/w", NONE, -1, (rc, path, ctx, stat) -> order.add("answer " + rc), null);
        Checks.equal("one's own write is told of before it is answered", List.of("NodeDataChanged /w", "answer 0"), seen(a, order));

        a.zk.exists("/w/m", e);
        a.zk.getChildren("/w", e);
        a.zk.getData("/w", e, null);
        other.multi(List.of(Op.setData("/w", NONE, -1), Op.create("/w/m", NONE, OPEN_ACL_UNSAFE, PERSISTENT), Op.setData("/w", NONE, -1), Op.delete("/w/m", -1)));
        Checks.equal("a multi, in its order",
                List.of("NodeDataChanged /w", "NodeCreated /w/m", "NodeChildrenChanged /w"), seen(a, e));
    }

    private static void persistent(Peer a, ZooKeeper other) throws Exception {
        Events one = new Events();
        Events all = new Events();
        a.zk.addWatch("/p", one, AddWatchMode.PERSISTENT);
        a.zk.addWatch("/r", all, AddWatchMode.PERSISTENT_RECURSIVE);
        for (String root : List.of("/p", "/r")) {
            make(other, root, root + "/x", root + "/x/y");
            other.setData(root, NONE, -1);
            other.setData(root, NONE, -1);
            other.setData(root + "/x/y", NONE, -1);
            for (String path : List.of(root + "/x/y", root + "/x", root)) {
                other.delete(path, -1);
            }
            make(other, root);
        }
        Checks.equal("of one node and its children", List.of("NodeCreated /p", "NodeChildrenChanged /p", "NodeDataChanged /p",
                "NodeDataChanged /p", "NodeChildrenChanged /p", "NodeDeleted /p", "NodeCreated /p"), seen(a, one));
        Checks.equal("of a tree", List.of("NodeCreated /r", "NodeCreated /r/x", "NodeCreated /r/x/y", "NodeDataChanged /r",
                "NodeDataChanged /r", "NodeDataChanged /r/x/y", "NodeDeleted /r/x/y", "NodeDeleted /r/x", "NodeDeleted /r",
                "NodeCreated /r"), seen(a, all));
    }

    private static void removed(Peer a, ZooKeeper other) throws Exception {
        make(other, "/d");
        Events e = new Events();
        a.zk.getData("/d", e, null);
        a.zk.getChildren("/d", e);
        a.zk.removeWatches("/d", e, WatcherType.Data, false);
        other.setData("/d", NONE, -1);
        make(other, "/d/x");
        Checks.equal("one watcher of data", List.of("DataWatchRemoved /d", "NodeChildrenChanged /d"), seen(a, e));
        Checks.fails("one that is not there", Code.NOWATCHER, () -> a.zk.removeWatches("/d", e, WatcherType.Any, false));
        a.zk.getData("/d", e, null);
        a.zk.getChildren("/d", e);
        a.zk.addWatch("/d", e, AddWatchMode.PERSISTENT_RECURSIVE);
        a.zk.removeAllWatches("/d", WatcherType.Any, false);
        List<String> told = seen(a, e);
        Checks.is("all watchers of a path are told", told.size() == 3 && told.contains("PersistentWatchRemoved /d"));
        other.setData("/d", NONE, -1);
        other.delete("/d/x", -1);
        Checks.equal("nobody is told of changes", List.of(), seen(a, e));
        Checks.fails("none left", Code.NOWATCHER, () -> a.zk.removeAllWatches("/d", WatcherType.Any, false));
    }

    /** C105 of the Java client. */
    private static void chroot(ZooKeeper plain) throws Exception {
        make(plain, "/app");
        try (Peer in = new Peer(Checks.ask("proxy"), "/app", Peer.TIMEOUT_MS)) {
            Events root = new Events();
            Events tree = new Events();
            in.zk.getChildren("/", root);
            Checks.equal("create", "/s-0000000000", in.zk.create("/s-", NONE, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL));
            Checks.equal("a watch of the root", List.of("NodeChildrenChanged /"), seen(in, root));
            in.zk.addWatch("/", tree, AddWatchMode.PERSISTENT_RECURSIVE);
            List<OpResult> r = in.zk.multi(List.of(Op.create("/x", NONE, OPEN_ACL_UNSAFE, PERSISTENT), Op.setData("/x", NONE, 0), Op.check("/x", 1)));
            Checks.equal("multi, whose answer the client leaves whole", "/app/x", ((OpResult.CreateResult) r.get(0)).getPath());
            in.zk.create("/e", NONE, OPEN_ACL_UNSAFE, EPHEMERAL);
            Checks.equal("the nodes", 3, plain.getAllChildrenNumber("/app"));
            Checks.equal("the children", 3, in.zk.getChildren("/", false).size());
            Checks.equal("a watch of the tree", List.of("NodeCreated /x", "NodeDataChanged /x", "NodeCreated /e"), seen(in, tree));
            in.zk.removeWatches("/", tree, WatcherType.Any, false);
            plain.setData("/app/x", NONE, -1);
            Checks.equal("a watch that was removed", List.of("PersistentWatchRemoved /"), seen(in, tree));
        }
        try (Peer nowhere = new Peer(Checks.ask("proxy"), "/nowhere", Peer.TIMEOUT_MS)) {
            Checks.fails("a root that is not there", Code.NONODE, () -> make(nowhere.zk, "/x"));
        }
    }

    private static void reconnect(Peer a, ZooKeeper other) throws Exception {
        String[] paths = {"/c", "/c/same", "/c/data", "/c/gone", "/c/children", "/c/full", "/c/full/x", "/c/p", "/c/r"};
        make(other, paths);
        Events e = new Events();
        Events kept = new Events();
        for (String path : List.of("/c/same", "/c/data", "/c/gone")) {
            a.zk.getData(path, e, null);
        }
        for (String path : List.of("/c/same", "/c/children", "/c/full")) {
            a.zk.getChildren(path, e);
        }
        a.zk.exists("/c/new", e);
        a.zk.exists("/c/never", e);
        a.zk.addWatch("/c/p", kept, AddWatchMode.PERSISTENT);
        a.zk.addWatch("/c/r", kept, AddWatchMode.PERSISTENT_RECURSIVE);
        a.fence();
        a.cutOff();
        e.drain();
        kept.drain();
        a.states.drain();
        other.setData("/c/data", NONE, -1);
        other.delete("/c/gone", -1);
        make(other, "/c/children/x", "/c/new");
        other.delete("/c/full/x", -1);
        a.heal();
        Checks.eventually("is connected again", () -> a.states.saw("SyncConnected"));
        List<String> told = seen(a, e);
        told.removeIf(state -> !state.startsWith("Node"));
        told.sort(null);
        Checks.equal("what changed meanwhile is told", List.of("NodeChildrenChanged /c/children", "NodeChildrenChanged /c/full",
                "NodeCreated /c/new", "NodeDataChanged /c/data", "NodeDeleted /c/gone"), told);
        other.setData("/c/same", NONE, -1);
        make(other, "/c/same/x", "/c/never", "/c/p/x", "/c/r/x");
        Checks.equal("the other watches are still there",
                List.of("NodeDataChanged /c/same", "NodeChildrenChanged /c/same", "NodeCreated /c/never"), seen(a, e));
        told = seen(a, kept);
        told.removeIf(state -> !state.startsWith("Node"));
        Checks.equal("the persistent ones as well", List.of("NodeChildrenChanged /c/p", "NodeCreated /c/r/x"), told);
    }

    /** So many that the client sets them again in several requests, of at most 128 KiB of paths each. */
    private static void many(Peer a, ZooKeeper other) throws Exception {
        Events e = new Events();
        make(other, "/many");
        String prefix = "/many/" + "x".repeat(90);
        int n = 3000;
        for (int i = 0; i < n; i++) {
            a.zk.exists(prefix + i, e, (rc, path, ctx, stat) -> {}, null);
        }
        a.fence();
        a.cutOff();
        make(other, prefix + 0);
        a.heal();
        Checks.eventually("what came meanwhile is told", () -> e.saw("NodeCreated " + prefix + 0));
        a.fence();
        e.drain();
        for (int i : new int[] {1, n / 2, n - 1}) {
            make(other, prefix + i);
            Checks.equal("watch " + i + " is still there", List.of("NodeCreated " + prefix + i), seen(a, e));
        }
    }

    /** Nothing that the Java client knows to ask costs a connection. */
    private static void c103(Peer a, ZooKeeper other) throws Exception {
        make(other, "/k");
        a.fence();
        a.states.drain();
        Events e = new Events();
        a.zk.addWatch("/k", e, AddWatchMode.PERSISTENT);
        a.zk.removeWatches("/k", e, WatcherType.Any, false);
        a.zk.addWatch("/k", e, AddWatchMode.PERSISTENT_RECURSIVE);
        a.zk.removeAllWatches("/k", WatcherType.Any, false);
        a.zk.whoAmI();
        a.zk.getEphemerals();
        a.zk.getAllChildrenNumber("/");
        a.zk.getConfig(false, null);
        a.fence();
        Checks.equal("no connection ends", List.of(), a.states.drain());
    }
}
