import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** Curator's counters, barriers and queues. */
final class CuratorShared {
    private CuratorShared() {}

    static void run(List<Curator> clients) {
        CuratorFramework a = clients.get(0).framework;
        CuratorFramework b = clients.get(1).framework;
        Checks.part("DistributedAtomicLong", () -> atomicLong(clients));
        Checks.part("SharedCount", () -> sharedCount(a, b));
        Checks.part("DistributedBarrier", () -> barrier(a, b));
        Checks.part("DistributedDoubleBarrier", () -> doubleBarrier(clients));
        Checks.part("SimpleDistributedQueue", () -> simpleQueue(clients));
        Checks.part("DistributedQueue", () -> queue(a, b));
        Checks.part("DistributedPriorityQueue", () -> priorityQueue(a, b));
    }

    static DistributedAtomicLong counter(CuratorFramework client, String path) {
        PromotedToLock lock = PromotedToLock.builder().lockPath(path + "-lock").retryPolicy(new RetryNTimes(100, 10)).build();
        return new DistributedAtomicLong(client, path, new RetryNTimes(3, 1), lock);
    }

    private static void atomicLong(List<Curator> clients) throws Exception {
        List<Callable<List<Long>>> jobs = new ArrayList<>();
        for (Curator c : clients) {
            jobs.add(() -> {
                List<Long> got = new ArrayList<>();
                for (int i = 0; i < 20; i++) {
                    got.add(counter(c.framework, "/counter").increment().postValue());
                }
                return got;
            });
        }
        List<Long> all = new ArrayList<>();
        CuratorLocks.together(jobs).forEach(all::addAll);
        Collections.sort(all);
        Checks.equal("increments are all different", IntStream.rangeClosed(1, 60).mapToObj(Long::valueOf).collect(Collectors.toList()), all);
        DistributedAtomicLong n = counter(clients.get(0).framework, "/counter");
        Checks.is("compares", !n.compareAndSet(7L, 8L).succeeded());
        Checks.is("and sets", n.compareAndSet(60L, 100L).succeeded());
        Checks.equal("another client sees it", 100L, counter(clients.get(1).framework, "/counter").get().postValue());
    }

    private static void sharedCount(CuratorFramework a, CuratorFramework b) throws Exception {
        try (SharedCount x = new SharedCount(a, "/shared", 1); SharedCount y = new SharedCount(b, "/shared", 1)) {
            x.start();
            y.start();
            x.setCount(5);
            Checks.eventually("another client is told", () -> y.getCount() == 5);
            var seen = y.getVersionedValue();
            Checks.is("a version that is current", x.trySetCount(x.getVersionedValue(), 6));
            Checks.is("a version that is not", !y.trySetCount(seen, 7));
            Checks.eventually("and is told again", () -> y.getCount() == 6);
        }
    }

    private static void barrier(CuratorFramework a, CuratorFramework b) throws Exception {
        DistributedBarrier x = new DistributedBarrier(a, "/barrier");
        DistributedBarrier y = new DistributedBarrier(b, "/barrier");
        x.setBarrier();
        Checks.is("holds", !y.waitOnBarrier(100, TimeUnit.MILLISECONDS));
        x.removeBarrier();
        Checks.is("opens", y.waitOnBarrier(30, TimeUnit.SECONDS));
    }

    private static void doubleBarrier(List<Curator> clients) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger left = new AtomicInteger();
        List<Callable<Boolean>> jobs = new ArrayList<>();
        for (Curator c : clients) {
            jobs.add(() -> {
                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(c.framework, "/double", clients.size());
                inside.incrementAndGet();
                boolean together = barrier.enter(30, TimeUnit.SECONDS) && inside.get() == clients.size();
                left.incrementAndGet();
                return barrier.leave(30, TimeUnit.SECONDS) && together && left.get() == clients.size();
            });
        }
        Checks.equal("all enter and leave together", List.of(true, true, true), CuratorLocks.together(jobs));
    }

    private static List<String> names(int n) {
        return IntStream.range(0, n).mapToObj(i -> "item" + i).collect(Collectors.toList());
    }

    private static void simpleQueue(List<Curator> clients) throws Exception {
        for (String item : names(30)) {
            new SimpleDistributedQueue(clients.get(0).framework, "/simple").offer(item.getBytes());
        }
        List<Callable<List<String>>> jobs = new ArrayList<>();
        for (Curator c : clients) {
            jobs.add(() -> {
                List<String> got = new ArrayList<>();
                SimpleDistributedQueue q = new SimpleDistributedQueue(c.framework, "/simple");
                for (byte[] item = q.poll(); item != null; item = q.poll()) {
                    got.add(new String(item));
                }
                return got;
            });
        }
        List<String> all = new ArrayList<>();
        CuratorLocks.together(jobs).forEach(all::addAll);
        Collections.sort(all);
        List<String> want = names(30);
        Collections.sort(want);
        Checks.equal("each item is taken once", want, all);
        SimpleDistributedQueue q = new SimpleDistributedQueue(clients.get(1).framework, "/simple");
        Callable<byte[]> take = () -> q.poll(30, TimeUnit.SECONDS);
        Callable<byte[]> offer = () -> {
            new SimpleDistributedQueue(clients.get(0).framework, "/simple").offer("late".getBytes());
            return null;
        };
        Checks.equal("whoever waits is told", "late".getBytes(), CuratorLocks.together(List.of(take, offer)).get(0));
    }

    /** Keeps what a queue gives it. */
    private static QueueConsumer<String> consumer(Events got) {
        return new QueueConsumer<>() {
            @Override
            public void consumeMessage(String message) {
                got.add(message);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        };
    }

    private static final QueueSerializer<String> TEXT = new QueueSerializer<>() {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes();
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes);
        }
    };

    private static void queue(CuratorFramework a, CuratorFramework b) throws Exception {
        Events got = new Events();
        try (DistributedQueue<String> in = QueueBuilder.<String>builder(a, null, TEXT, "/queue").buildQueue();
                DistributedQueue<String> out = QueueBuilder.builder(b, consumer(got), TEXT, "/queue").lockPath("/queue-locks").buildQueue()) {
            in.start();
            for (String item : names(30)) {
                in.put(item);
            }
            in.flushPuts(30, TimeUnit.SECONDS);
            out.start();
            Checks.eventually("gives all", () -> got.saw("item29"));
            Checks.equal("in order", names(30), got.drain());
        }
    }

    private static void priorityQueue(CuratorFramework a, CuratorFramework b) throws Exception {
        Events got = new Events();
        try (DistributedPriorityQueue<String> in = QueueBuilder.<String>builder(a, null, TEXT, "/priority").buildPriorityQueue(0);
                DistributedPriorityQueue<String> out = QueueBuilder.builder(b, consumer(got), TEXT, "/priority").buildPriorityQueue(0)) {
            in.start();
            List<String> items = names(9);
            for (int i = 8; i >= 0; i--) {
                in.put(items.get(i), i);
            }
            in.flushPuts(30, TimeUnit.SECONDS);
            out.start();
            Checks.eventually("gives all", () -> got.saw("item8"));
            Checks.equal("by priority", items, got.drain());
        }
    }
}
