import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.ZooKeeper;

/** A Curator client with one session at a time, through a proxy of its own. */
final class Curator implements AutoCloseable {
    final String address;
    final CuratorFramework framework;

    Curator() throws Exception {
        address = Checks.ask("proxy");
        framework = CuratorFrameworkFactory.builder()
                .connectString(address)
                .sessionTimeoutMs(Peer.TIMEOUT_MS)
                .connectionTimeoutMs(15_000)
                .retryPolicy(new RetryNTimes(100, 100))
                .build();
        framework.start();
        if (!framework.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection to " + address);
        }
    }

    ZooKeeper zk() throws Exception {
        return framework.getZookeeperClient().getZooKeeper();
    }

    /** Ends the connection; the client connects again at once. */
    void cut() throws Exception {
        Checks.ask("break " + address);
    }

    /** Ends the session; the client opens another. */
    void expire() throws Exception {
        Peer.expire(zk());
    }

    @Override
    public void close() {
        framework.close();
    }
}
