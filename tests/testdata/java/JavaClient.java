import static org.apache.zookeeper.CreateMode.CONTAINER;
import static org.apache.zookeeper.CreateMode.EPHEMERAL;
import static org.apache.zookeeper.CreateMode.EPHEMERAL_SEQUENTIAL;
import static org.apache.zookeeper.CreateMode.PERSISTENT;
import static org.apache.zookeeper.CreateMode.PERSISTENT_SEQUENTIAL;
import static org.apache.zookeeper.CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL;
import static org.apache.zookeeper.CreateMode.PERSISTENT_WITH_TTL;
import static org.apache.zookeeper.ZooDefs.Ids.OPEN_ACL_UNSAFE;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Transaction;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;

/** What the Java client can ask of a server, on one that nobody else uses. */
public final class JavaClient {
    private static final byte[] NONE = new byte[0];

    public static void main(String[] args) throws Exception {
        try (Peer a = new Peer(); Peer b = new Peer()) {
            Checks.part("session", () -> session(a));
            Checks.part("nodes", () -> nodes(a.zk, b.zk));
            Checks.part("errors", () -> errors(a.zk));
            Checks.part("multi", () -> multi(a.zk));
            Checks.part("failing multi", () -> failingMulti(a.zk));
            Checks.part("async", () -> async(a.zk));
            Checks.part("acl", () -> acl(a.zk, b.zk));
            Checks.part("other operations", () -> others(a.zk));
            Checks.part("size", () -> size(a));
            JavaWatches.run(a, b);
            JavaSessions.run(a, b);
            JavaRecipes.run(a, b);
            Checks.part("close", () -> close(b.zk));
        }
        Checks.finish();
    }

    private static void session(Peer a) throws Exception {
        Checks.is("has an id", a.zk.getSessionId() != 0);
        Checks.equal("gets the timeout it asks for", Peer.TIMEOUT_MS, a.zk.getSessionTimeout());
        Checks.equal("has a password of 16 bytes", 16, a.zk.getSessionPasswd().length);
        Events states = new Events();
        try (ZooKeeper readOnly = new ZooKeeper(a.address, Peer.TIMEOUT_MS, states, true)) {
            Checks.eventually("is connected if it may be read-only", () -> readOnly.getState().isConnected());
            Checks.equal("may write if it may be read-only", ZooKeeper.States.CONNECTED, readOnly.getState());
        }
        try (Peer tiny = new Peer(a.address, "", 1000)) {
            Checks.is("gets a least timeout", tiny.zk.getSessionTimeout() > 1000);
        }
        try (Peer huge = new Peer(a.address, "", 1_000_000)) {
            Checks.is("gets a most timeout", huge.zk.getSessionTimeout() < 1_000_000);
        }
    }

    private static void nodes(ZooKeeper zk, ZooKeeper other) throws Exception {
        Stat s = new Stat();
        Checks.equal("create answers the path", "/n", zk.create("/n", "one".getBytes(), OPEN_ACL_UNSAFE, PERSISTENT, s));
        Checks.is("create2 answers the stat", s.getCzxid() > 0 && s.getCzxid() == s.getMzxid() && s.getCzxid() == s.getPzxid()
                && s.getCtime() == s.getMtime() && s.getDataLength() == 3 && s.getVersion() == 0 && s.getEphemeralOwner() == 0);
        Checks.equal("create2's stat is that of exists", s, zk.exists("/n", false));
        Stat set = zk.setData("/n", "two".getBytes(), 0);
        Checks.is("setData answers the stat", set.getVersion() == 1 && set.getCzxid() == s.getCzxid() && set.getMzxid() > s.getMzxid());
        Checks.equal("another session reads the data", "two".getBytes(), other.getData("/n", false, s));
        Checks.equal("another session reads the stat", set, s);

        zk.create("/n/null", null, OPEN_ACL_UNSAFE, PERSISTENT);
        zk.create("/n/empty", NONE, OPEN_ACL_UNSAFE, PERSISTENT);
        Checks.equal("null stays null", null, zk.getData("/n/null", false, null));
        Checks.equal("empty stays empty", NONE, zk.getData("/n/empty", false, null));

        Checks.equal("numbers count all children", "/n/s-0000000002", zk.create("/n/s-", NONE, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL));
        Checks.equal("a name may be the number alone", "/n/0000000003", zk.create("/n/", NONE, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL));
        zk.create("/n/e", NONE, OPEN_ACL_UNSAFE, EPHEMERAL, s);
        Checks.equal("an ephemeral has its owner", zk.getSessionId(), s.getEphemeralOwner());
        Checks.equal("ephemerals have numbers", "/n/e-0000000005", zk.create("/n/e-", NONE, OPEN_ACL_UNSAFE, EPHEMERAL_SEQUENTIAL));
        zk.create("/n/c", NONE, OPEN_ACL_UNSAFE, CONTAINER, s);
        Checks.equal("a container has no owner", 0L, s.getEphemeralOwner());
        zk.create("/n/ttl", NONE, OPEN_ACL_UNSAFE, PERSISTENT_WITH_TTL, s, 3_600_000);
        Checks.equal("a TTL node has no owner", 0L, s.getEphemeralOwner());
        Checks.equal("TTL nodes have numbers", "/n/t-0000000008", zk.create("/n/t-", NONE, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL_WITH_TTL, s, 3_600_000));

        zk.create("/n/c/child", NONE, OPEN_ACL_UNSAFE, PERSISTENT_WITH_TTL, null, 1);
        Checks.eventually("a TTL node goes, and the container after it", () -> zk.exists("/n/c", false) == null);

        List<String> children = zk.getChildren("/n", false, s);
        Collections.sort(children);
        Checks.equal("getChildren names all",
                List.of("0000000003", "e", "e-0000000005", "empty", "null", "s-0000000002", "t-0000000008", "ttl"), children);
        Checks.equal("the stat counts children", 8, s.getNumChildren());
        Checks.equal("cversion counts creates and deletes", 10, s.getCversion());
        zk.delete("/n/e", 0);
        Checks.equal("a deleted node is not there", null, other.exists("/n/e", false));
        Checks.is("pzxid moves on deletes", zk.exists("/n", false).getPzxid() > s.getPzxid());
    }

    private static void errors(ZooKeeper zk) throws Exception {
        zk.create("/e", NONE, OPEN_ACL_UNSAFE, PERSISTENT);
        zk.create("/e/x", NONE, OPEN_ACL_UNSAFE, EPHEMERAL);
        Checks.fails("read of nothing", Code.NONODE, () -> zk.getData("/none", false, null));
        Checks.fails("children of nothing", Code.NONODE, () -> zk.getChildren("/none", false));
        Checks.fails("write to nothing", Code.NONODE, () -> zk.setData("/none", NONE, -1));
        Checks.fails("create below nothing", Code.NONODE, () -> zk.create("/none/x", NONE, OPEN_ACL_UNSAFE, PERSISTENT));
        Checks.fails("create again", Code.NODEEXISTS, () -> zk.create("/e", NONE, OPEN_ACL_UNSAFE, PERSISTENT));
        Checks.fails("delete a parent", Code.NOTEMPTY, () -> zk.delete("/e", -1));
        Checks.fails("write another version", Code.BADVERSION, () -> zk.setData("/e", NONE, 7));
        Checks.fails("delete another version", Code.BADVERSION, () -> zk.delete("/e/x", 7));
        Checks.fails("create below an ephemeral", Code.NOCHILDRENFOREPHEMERALS, () -> zk.create("/e/x/y", NONE, OPEN_ACL_UNSAFE, PERSISTENT));
        Checks.fails("no such scheme", Code.INVALIDACL,
                () -> zk.create("/e/y", NONE, Collections.singletonList(new ACL(Perms.ALL, new Id("nosuch", "x"))), PERSISTENT));
        Checks.fails("auth without a login", Code.INVALIDACL, () -> zk.create("/e/y", NONE, Ids.CREATOR_ALL_ACL, PERSISTENT));
        Checks.fails("delete a system node", Code.BADARGUMENTS, () -> zk.delete("/zookeeper", -1));
    }

    private static void multi(ZooKeeper zk) throws Exception {
        List<OpResult> r = zk.multi(List.of(
                Op.create("/m", "x".getBytes(), OPEN_ACL_UNSAFE, PERSISTENT),
                Op.create("/m/s-", NONE, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL),
                Op.create("/m/s-", NONE, OPEN_ACL_UNSAFE, EPHEMERAL_SEQUENTIAL),
                Op.create("/m/c", NONE, OPEN_ACL_UNSAFE, CONTAINER),
                Op.create("/m/t", NONE, OPEN_ACL_UNSAFE, PERSISTENT_WITH_TTL, 3_600_000),
                Op.check("/m", 0),
                Op.setData("/m", "y".getBytes(), 0),
                Op.delete("/m/s-0000000000", -1)));
        List<String> paths = new ArrayList<>();
        for (OpResult one : r.subList(0, 5)) {
            paths.add(((OpResult.CreateResult) one).getPath());
        }
        Checks.equal("creates answer their paths", List.of("/m", "/m/s-0000000000", "/m/s-0000000001", "/m/c", "/m/t"), paths);
        Stat s = ((OpResult.SetDataResult) r.get(6)).getStat();
        Checks.is("setData answers its stat", s.getVersion() == 1 && s.getMzxid() == s.getCzxid());
        Checks.is("check and delete answer", r.get(5) instanceof OpResult.CheckResult && r.get(7) instanceof OpResult.DeleteResult);
        Checks.is("a container's create answers a stat of its zxid", ((OpResult.CreateResult) r.get(3)).getStat().getCzxid() == s.getMzxid());

        Transaction t = zk.transaction().check("/m", 1).setData("/m", "z".getBytes(), 1).create("/m/u", NONE, OPEN_ACL_UNSAFE, PERSISTENT).delete("/m/u", 0);
        Checks.equal("a transaction answers each", 4, t.commit().size());
        Checks.equal("a transaction writes", "z".getBytes(), zk.getData("/m", false, null));
        Checks.equal("an empty multi is one", List.of(), zk.multi(List.of()));

        List<OpResult> reads = zk.multi(List.of(Op.getData("/m"), Op.getChildren("/m"), Op.getData("/none")));
        Checks.equal("multi reads data", "z".getBytes(), ((OpResult.GetDataResult) reads.get(0)).getData());
        List<String> children = new ArrayList<>(((OpResult.GetChildrenResult) reads.get(1)).getChildren());
        Collections.sort(children);
        Checks.equal("multi reads children", List.of("c", "s-0000000001", "t"), children);
        Checks.equal("a read that fails fails alone", Code.NONODE.intValue(), ((OpResult.ErrorResult) reads.get(2)).getErr());
    }

    private static void failingMulti(ZooKeeper zk) throws Exception {
        try {
            zk.multi(List.of(Op.create("/fm", NONE, OPEN_ACL_UNSAFE, PERSISTENT), Op.setData("/none", NONE, -1), Op.check("/", -1)));
            Checks.is("throws", false);
        } catch (KeeperException e) {
            Checks.equal("throws the first error", Code.NONODE, e.code());
            List<Integer> codes = new ArrayList<>();
            for (OpResult one : e.getResults()) {
                codes.add(((OpResult.ErrorResult) one).getErr());
            }
            Checks.equal("has an error for each", List.of(0, -101, -2), codes);
        }
        Checks.equal("does nothing", null, zk.exists("/fm", false));
        Checks.fails("check of another version", Code.BADVERSION, () -> zk.transaction().check("/", 7).commit());
        Checks.fails("check of nothing", Code.NONODE, () -> zk.transaction().check("/none", -1).commit());
        Events done = new Events();
        CountDownLatch answered = new CountDownLatch(1);
        zk.multi(List.of(Op.create("/fm", NONE, OPEN_ACL_UNSAFE, PERSISTENT), Op.delete("/fm", 7)), (rc, path, ctx, results) -> {
            done.add(Code.get(rc) + " " + results.size());
            answered.countDown();
        }, null);
        answered.await(30, TimeUnit.SECONDS);
        Checks.equal("a callback gets the results", List.of("BADVERSION 2"), done.drain());
    }

    /** Sends 1000 operations at once, each of whose answers depends on those before it. */
    private static void async(ZooKeeper zk) throws Exception {
        int rounds = 200;
        Events got = new Events();
        CountDownLatch answered = new CountDownLatch(5 * rounds);
        List<String> want = new ArrayList<>();
        for (int i = 0; i < rounds; i++) {
            String path = "/a" + i;
            byte[] data = ("d" + i).getBytes();
            zk.create(path, NONE, OPEN_ACL_UNSAFE, PERSISTENT, (rc, p, ctx, name) -> answer(got, answered, "create " + rc + " " + name), null);
            zk.setData(path, data, 0, (rc, p, ctx, s) -> answer(got, answered, "set " + rc + " " + s.getVersion()), null);
            zk.getData(path, false, (rc, p, ctx, d, s) -> answer(got, answered, "get " + rc + " " + new String(d)), null);
            zk.delete(path, 1, (rc, p, ctx) -> answer(got, answered, "delete " + rc), null);
            zk.exists(path, false, (rc, p, ctx, s) -> answer(got, answered, "exists " + rc), null);
            Collections.addAll(want, "create 0 " + path, "set 0 1", "get 0 d" + i, "delete 0", "exists -101");
        }
        Checks.is("1000 operations are answered", answered.await(60, TimeUnit.SECONDS));
        Checks.equal("in the order they were sent in, each seeing those before it", want, got.drain());
    }

    private static void answer(Events got, CountDownLatch answered, String what) {
        got.add(what);
        answered.countDown();
    }

    private static void acl(ZooKeeper zk, ZooKeeper other) throws Exception {
        try (Peer owner = new Peer()) {
            owner.zk.addAuthInfo("digest", "u:pw".getBytes());
            owner.zk.create("/acl", NONE, Ids.CREATOR_ALL_ACL, PERSISTENT);
            ACL full = new ACL(Perms.ALL, new Id("digest", DigestAuthenticationProvider.generateDigest("u:pw")));
            Checks.equal("auth becomes the one who creates", List.of(full), owner.zk.getACL("/acl", null));
            Checks.fails("nobody else reads", Code.NOAUTH, () -> other.getData("/acl", false, null));
            Checks.fails("nobody else writes", Code.NOAUTH, () -> other.setData("/acl", NONE, -1));
            Checks.fails("nobody else creates below", Code.NOAUTH, () -> other.create("/acl/x", NONE, OPEN_ACL_UNSAFE, PERSISTENT));
            Checks.fails("nobody else reads the ACL", Code.NOAUTH, () -> other.getACL("/acl", null));
            List<ACL> both = Arrays.asList(full, new ACL(Perms.READ, Ids.ANYONE_ID_UNSAFE));
            Checks.equal("setACL counts", 1, owner.zk.setACL("/acl", both, 0).getAversion());
            Checks.fails("setACL of another version", Code.BADVERSION, () -> owner.zk.setACL("/acl", both, 0));
            Checks.equal("a reader sees no hash", new Id("digest", "u:x"), other.getACL("/acl", null).get(0).getId());
            Checks.equal("whoAmI names the login", List.of("digest u", "ip 127.0.0.1"), identities(owner.zk));
            Checks.ask("break " + owner.address);
            Checks.equal("a new connection logs in again", 1, Peer.again(() -> owner.zk.setData("/acl", NONE, 0)).getVersion());
        }
        Checks.equal("whoAmI names the address", List.of("ip 127.0.0.1"), identities(zk));
        Events states = new Events();
        try (ZooKeeper unknown = new ZooKeeper(Checks.ask("proxy"), Peer.TIMEOUT_MS, states)) {
            unknown.addAuthInfo("nosuch", NONE);
            Checks.eventually("a login that fails is told", () -> states.saw("AuthFailed"));
        }
    }

    private static List<String> identities(ZooKeeper zk) throws Exception {
        List<String> all = new ArrayList<>();
        zk.whoAmI().forEach(i -> all.add(i.getAuthScheme() + " " + i.getUser()));
        Collections.sort(all);
        return all;
    }

    private static void others(ZooKeeper zk) throws Exception {
        zk.create("/o", NONE, OPEN_ACL_UNSAFE, PERSISTENT);
        zk.create("/o/e", NONE, OPEN_ACL_UNSAFE, EPHEMERAL);
        Checks.equal("getEphemerals by prefix", List.of("/o/e"), zk.getEphemerals("/o"));
        Checks.is("getEphemerals of all", zk.getEphemerals().size() > 1);
        Checks.equal("getAllChildrenNumber", 1, zk.getAllChildrenNumber("/o"));
        Checks.fails("getAllChildrenNumber of nothing", Code.NONODE, () -> zk.getAllChildrenNumber("/none"));
        Checks.equal("the configuration of one server is empty", NONE, zk.getConfig(false, null));
        Checks.fails("write to the configuration", Code.NOAUTH, () -> zk.setData("/zookeeper/config", NONE, -1));
        try (ZooKeeperAdmin admin = new ZooKeeperAdmin(Checks.ask("proxy"), Peer.TIMEOUT_MS, new Events())) {
            Checks.fails("reconfigure one server", Code.RECONFIGDISABLED,
                    () -> admin.reconfigure("server.2=127.0.0.1:2888:3888;2181", null, null, -1, null));
        }
    }

    /** A request may have 1048575 bytes: the path twice four bytes and its length, then the data. */
    private static void size(Peer a) throws Exception {
        String path = "/size" + "x".repeat(200); // so that the answer to a read is no longer
        int overhead = 8 + 4 + path.length() + 4 + 4; // header, path, data, version
        byte[] most = new byte[0xfffff - overhead];
        Arrays.fill(most, (byte) 'x');
        a.zk.create(path, NONE, OPEN_ACL_UNSAFE, PERSISTENT);
        Checks.equal("the largest request is taken", 1, a.zk.setData(path, most, -1).getVersion());
        Checks.is("and read again", Arrays.equals(most, a.zk.getData(path, false, null)));
        Checks.fails("one byte more costs the connection", Code.CONNECTIONLOSS, () -> a.zk.setData(path, new byte[most.length + 1], -1));
        Checks.is("but not the session nor the data", Arrays.equals(most, Peer.again(() -> a.zk.getData(path, false, null))));
        a.zk.delete(path, 1);
    }

    private static void close(ZooKeeper zk) throws Exception {
        zk.create("/closing", NONE, OPEN_ACL_UNSAFE, EPHEMERAL);
        try (Peer other = new Peer()) {
            Events e = new Events();
            other.zk.exists("/closing", e);
            zk.close();
            other.fence();
            Checks.equal("takes the ephemerals before it returns", List.of("NodeDeleted /closing"), e.drain());
        }
    }
}
