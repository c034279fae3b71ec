import java.util.ArrayList;
import java.util.List;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;

/** A watcher that keeps what it was told as text, in order. Any thread may use it. */
final class Events implements Watcher {
    private final List<String> seen = new ArrayList<>();

    @Override
    public void process(WatchedEvent e) {
        add(e.getType() == Event.EventType.None ? e.getState().name() : e.getType() + " " + e.getPath());
    }

    synchronized void add(String event) {
        seen.add(event);
    }

    /** Returns what came since the last call. */
    synchronized List<String> drain() {
        List<String> all = new ArrayList<>(seen);
        seen.clear();
        return all;
    }

    synchronized boolean saw(String event) {
        return seen.contains(event);
    }
}
