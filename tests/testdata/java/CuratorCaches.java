import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.utils.ZKPaths;
import org.apache.zookeeper.KeeperException;

/** Curator's caches hold what the tree holds, whatever happened on the way. */
@SuppressWarnings("deprecation") // they are what most programs use
final class CuratorCaches implements AutoCloseable {
    private static final int SEED = 2026;

    private final CuratorFramework other;
    private final String root;
    private final CuratorCache cache;
    private final TreeCache tree;
    private final NodeCache node;
    private final PathChildrenCache children;
    private final Events told = new Events();
    private final Random random = new Random(SEED);

    /**
     * Caches of two clients; another changes the tree. They are of two since ZooKeeper before 3.9
     * loses a persistent watch when its path gets another one on the same connection.
     */
    CuratorCaches(CuratorFramework client, CuratorFramework second, CuratorFramework other, String root) throws Exception {
        this.other = other;
        this.root = root;
        other.create().forPath(root, new byte[0]);
        cache = CuratorCache.build(second, root);
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forCreates(d -> told.add("created " + d.getPath()))
                .forChanges((old, d) -> told.add("changed " + d.getPath()))
                .forDeletes(d -> told.add("deleted " + d.getPath()))
                .build());
        tree = TreeCache.newBuilder(client, root).build();
        node = new NodeCache(client, root + "/n1");
        children = new PathChildrenCache(client, root, true);
        cache.start();
        tree.start();
        node.start();
        children.start();
    }

    static void run(List<Curator> clients) {
        Checks.part("caches", () -> {
            CuratorFramework b = clients.get(1).framework;
            try (CuratorCaches c = new CuratorCaches(clients.get(0).framework, clients.get(2).framework, b, "/cache")) {
                c.agree("nothing yet");
                b.create().forPath("/cache/x", "1".getBytes());
                Checks.eventually("tells what was created", () -> c.told.saw("created /cache/x"));
                b.setData().forPath("/cache/x", "2".getBytes());
                Checks.eventually("tells what was changed", () -> c.told.saw("changed /cache/x"));
                b.delete().forPath("/cache/x");
                Checks.eventually("tells what was deleted", () -> c.told.saw("deleted /cache/x"));
                c.change(100, true);
                c.agree("100 changes");
                for (int i = 0; i < 5; i++) {
                    c.change(20, false);
                    clients.get(0).cut();
                    clients.get(2).cut();
                    c.change(20, false);
                }
                c.agree("lost connections");
                c.change(20, false);
                clients.get(0).expire();
                clients.get(2).expire();
                c.change(20, false);
                c.agree("a session that ended");
            }
        });
    }

    /**
     * Makes changes at random below the root, but deletes parents only where the caches stay
     * connected: behind a lost connection Curator's takes a node whose cversion is the same for
     * one whose children are the same, even if it was deleted and created meanwhile.
     */
    void change(int n, boolean parents) throws Exception {
        for (int i = 0; i < n; i++) {
            boolean parent = random.nextBoolean();
            String path = root + "/n" + random.nextInt(5) + (parent ? "" : "/m" + random.nextInt(3));
            byte[] data = Integer.toString(random.nextInt()).getBytes();
            try {
                switch (random.nextInt(parent && !parents ? 2 : 3)) {
                    case 0:
                        other.create().orSetData().creatingParentsIfNeeded().forPath(path, data);
                        break;
                    case 1:
                        other.setData().forPath(path, data);
                        break;
                    default:
                        other.delete().deletingChildrenIfNeeded().forPath(path);
                }
            } catch (KeeperException.NoNodeException e) {
                continue; // as good as any other
            }
        }
    }

    /** Wants each cache to come to hold what it is a cache of. */
    void agree(String after) throws Exception {
        Map<String, String> all = new TreeMap<>();
        read(root, all);
        Map<String, String> direct = new TreeMap<>(all);
        direct.keySet().removeIf(path -> !ZKPaths.getPathAndNode(path).getPath().equals(root));
        Checks.eventually("CuratorCache after " + after, () -> all.equals(texts(cache.stream()::iterator)));
        Checks.eventually("TreeCache after " + after, () -> all.equals(treeTexts(root, new TreeMap<>())));
        Checks.eventually("PathChildrenCache after " + after, () -> direct.equals(texts(children.getCurrentData())));
        Checks.eventually("NodeCache after " + after, () -> {
            ChildData d = node.getCurrentData();
            return java.util.Objects.equals(all.get(root + "/n1"), d == null ? null : text(d));
        });
    }

    private void read(String path, Map<String, String> all) throws Exception {
        var stat = new org.apache.zookeeper.data.Stat();
        byte[] data = other.getData().storingStatIn(stat).forPath(path);
        all.put(path, new String(data) + " " + stat.getMzxid());
        for (String child : other.getChildren().forPath(path)) {
            read(ZKPaths.makePath(path, child), all);
        }
    }

    private Map<String, String> treeTexts(String path, Map<String, String> all) {
        ChildData d = tree.getCurrentData(path);
        if (d != null) {
            all.put(path, text(d));
            tree.getCurrentChildren(path).keySet().forEach(child -> treeTexts(ZKPaths.makePath(path, child), all));
        }
        return all;
    }

    private static Map<String, String> texts(Iterable<ChildData> cached) {
        Map<String, String> all = new TreeMap<>();
        cached.forEach(d -> all.put(d.getPath(), text(d)));
        return all;
    }

    private static String text(ChildData d) {
        return new String(d.getData()) + " " + d.getStat().getMzxid();
    }

    @Override
    public void close() throws Exception {
        cache.close();
        tree.close();
        node.close();
        children.close();
    }
}
