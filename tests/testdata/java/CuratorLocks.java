import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;

/** Curator's locks: who holds what together, and what becomes of them when a holder goes. */
final class CuratorLocks {
    private CuratorLocks() {}

    /** Makes the lock of one client. */
    interface Maker {
        InterProcessLock of(CuratorFramework client);
    }

    static void run(List<Curator> clients) {
        CuratorFramework a = clients.get(0).framework;
        CuratorFramework b = clients.get(1).framework;
        Checks.part("InterProcessMutex", () -> {
            exclusive(clients, c -> new InterProcessMutex(c, "/mutex"));
            mutex(clients, a, b);
        });
        Checks.part("InterProcessSemaphoreMutex", () -> exclusive(clients, c -> new InterProcessSemaphoreMutex(c, "/semaphore-mutex")));
        Checks.part("InterProcessMultiLock", () -> exclusive(clients, c -> new InterProcessMultiLock(c, List.of("/multi/x", "/multi/y"))));
        Checks.part("InterProcessReadWriteLock", () -> {
            exclusive(clients, c -> new InterProcessReadWriteLock(c, "/rw").writeLock());
            readWrite(a, b);
        });
        Checks.part("InterProcessSemaphoreV2", () -> semaphore(clients));
    }

    /** Runs one job per client at once. */
    static <T> List<T> together(List<? extends Callable<T>> jobs) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(jobs.size());
        try {
            List<T> results = new ArrayList<>();
            for (Future<T> f : threads.invokeAll(jobs, 60, TimeUnit.SECONDS)) {
                results.add(f.get());
            }
            return results;
        } finally {
            threads.shutdownNow();
        }
    }

    /** Counts how many hold the lock at once while a connection is lost on the way. */
    private static void exclusive(List<Curator> clients, Maker maker) throws Exception {
        AtomicInteger holding = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        AtomicInteger turns = new AtomicInteger();
        List<Callable<Void>> jobs = new ArrayList<>();
        for (Curator c : clients) {
            jobs.add(() -> {
                InterProcessLock lock = maker.of(c.framework);
                for (int i = 0; i < 10; i++) {
                    lock.acquire();
                    most.accumulateAndGet(holding.incrementAndGet(), Math::max);
                    if (turns.incrementAndGet() == 15) {
                        c.cut(); // the session goes on, and the lock with it
                    }
                    Thread.yield();
                    holding.decrementAndGet();
                    lock.release();
                }
                return null;
            });
        }
        together(jobs);
        Checks.equal("is held 30 times", 30, turns.get());
        Checks.equal("by one at a time", 1, most.get());
    }

    private static void mutex(List<Curator> clients, CuratorFramework a, CuratorFramework b) throws Exception {
        InterProcessMutex mine = new InterProcessMutex(a, "/mutex");
        InterProcessMutex other = new InterProcessMutex(b, "/mutex");
        CountDownLatch revoked = new CountDownLatch(1);
        mine.makeRevocable(lock -> revoked.countDown());
        mine.acquire();
        mine.acquire();
        mine.release();
        Checks.is("is re-entrant", !other.acquire(100, TimeUnit.MILLISECONDS));
        Checks.equal("whoever gave up has left", 1, mine.getParticipantNodes().size());
        Revoker.attemptRevoke(b, mine.getParticipantNodes().iterator().next());
        Checks.is("may be asked for", revoked.await(30, TimeUnit.SECONDS));
        clients.get(0).expire();
        Checks.is("goes with its session", other.acquire(30, TimeUnit.SECONDS));
        other.release();
    }

    private static void readWrite(CuratorFramework a, CuratorFramework b) throws Exception {
        InterProcessReadWriteLock x = new InterProcessReadWriteLock(a, "/rw");
        InterProcessReadWriteLock y = new InterProcessReadWriteLock(b, "/rw");
        x.readLock().acquire();
        Checks.is("readers hold it together", y.readLock().acquire(30, TimeUnit.SECONDS));
        y.readLock().release();
        Checks.is("a writer waits for a reader", !y.writeLock().acquire(100, TimeUnit.MILLISECONDS));
        x.readLock().release();
        Checks.is("a writer comes after readers", y.writeLock().acquire(30, TimeUnit.SECONDS));
        Checks.is("a reader waits for a writer", !x.readLock().acquire(100, TimeUnit.MILLISECONDS));
        y.readLock().acquire();
        y.writeLock().release();
        Checks.is("a writer that became a reader lets readers in", x.readLock().acquire(30, TimeUnit.SECONDS));
        x.readLock().release();
        y.readLock().release();
    }

    private static void semaphore(List<Curator> clients) throws Exception {
        AtomicInteger holding = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<Callable<Void>> jobs = new ArrayList<>();
        for (Curator c : clients) {
            jobs.add(() -> {
                InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(c.framework, "/semaphore", 2);
                for (int i = 0; i < 10; i++) {
                    Lease lease = s.acquire();
                    most.accumulateAndGet(holding.incrementAndGet(), Math::max);
                    Thread.sleep(50);
                    holding.decrementAndGet();
                    s.returnLease(lease);
                }
                return null;
            });
        }
        together(jobs);
        Checks.equal("two hold it at once", 2, most.get());
        InterProcessSemaphoreV2 x = new InterProcessSemaphoreV2(clients.get(0).framework, "/semaphore", 2);
        InterProcessSemaphoreV2 y = new InterProcessSemaphoreV2(clients.get(1).framework, "/semaphore", 2);
        x.acquire(2);
        Checks.equal("a third waits", null, y.acquire(100, TimeUnit.MILLISECONDS));
        clients.get(0).expire();
        Checks.is("leases go with their session", y.acquire(2, 30, TimeUnit.SECONDS) != null);
    }
}
