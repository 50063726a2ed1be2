import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

// Threads that take turns with each kind of lock, or with a pool's connection, ROUNDS times each, and sleep while they have it; one that
// waits all the time for a lock that another one keeps; and an executor's.
public class Locks {
	static final int THREADS = 3, ROUNDS = 60, NAP_MS = 2;

	static class Shelf {}

	interface Body { void run() throws Exception; }

	static final ReentrantLock LOCK = new ReentrantLock(), KEPT = new ReentrantLock();
	static final ReentrantReadWriteLock WRITES = new ReentrantReadWriteLock();
	static final Semaphore PERMITS = new Semaphore(1);
	static final Object SHELF = new Shelf();
	static Thread worker;
	static final ExecutorService POOL = Executors.newFixedThreadPool(1, work -> worker = new Thread(work, "worker"));
	static final BlockingQueue<String> CONNECTIONS = new ArrayBlockingQueue<>(1, true, List.of("connection"));

	static void nap() throws Exception { Thread.sleep(NAP_MS); }

	static void lock() throws Exception {
		LOCK.lock();
		try { nap(); } finally { LOCK.unlock(); }
	}

	static void write() throws Exception {
		WRITES.writeLock().lock();
		try { nap(); } finally { WRITES.writeLock().unlock(); }
	}

	static void permit() throws Exception {
		PERMITS.acquire();
		try { nap(); } finally { PERMITS.release(); }
	}

	static void monitor() throws Exception {
		synchronized (SHELF) { nap(); }
	}

	static void connect() throws Exception {
		String connection = CONNECTIONS.take();
		try { nap(); } finally { CONNECTIONS.put(connection); }
	}

	static void future() throws Exception {
		POOL.submit(() -> { nap(); return null; }).get();
		nap();
	}

	static int tid() throws Exception {
		return Integer.parseInt(new File("/proc/thread-self").getCanonicalFile().getName());
	}

	static Thread start(Body body) {
		Thread thread = new Thread(() -> {
			try {
				body.run();
			} catch (Exception error) {
				throw new Error(error);
			}
		});
		thread.setDaemon(true);
		thread.start();
		return thread;
	}

	// All threads are there before anybody looks, and begin when they are told to.
	static void play(String kind, Body round, Object begin, List<Thread> players) {
		for (int i = 0; i < THREADS; i++)
			players.add(start(() -> {
				int tid = tid();
				synchronized (begin) { begin.wait(); }
				for (int done = 0; done < ROUNDS; done++)
					round.run();
				synchronized (System.out) {
					System.out.printf("{\"kind\": \"%s\", \"tid\": %d, \"rounds\": %d, \"nap_ns\": %d}%n", kind, tid, ROUNDS, NAP_MS * 1000000);
				}
			}));
	}

	static void awaitWaiting(Thread thread) {
		while (thread.getState() != Thread.State.WAITING)
			Thread.onSpinWait();
	}

	static void keep(int[] tid, Object kept) throws Exception {
		KEPT.lock();
		tid[0] = tid();
		synchronized (kept) { kept.notify(); }
		Thread.sleep(1000000000);
	}

	public static void main(String[] args) throws Exception {
		Object begin = new Object(), kept = new Object();
		List<Thread> players = new ArrayList<>();
		int[] keeper = new int[1], stuck = new int[1];
		synchronized (kept) {
			start(() -> keep(keeper, kept));
			kept.wait();
		}
		Thread waiter = start(() -> { stuck[0] = tid(); KEPT.lock(); });
		play("lock", Locks::lock, begin, players);
		play("write", Locks::write, begin, players);
		play("permit", Locks::permit, begin, players);
		play("monitor", Locks::monitor, begin, players);
		play("future", Locks::future, begin, players);
		play("connection", Locks::connect, begin, players);
		POOL.submit(() -> 0).get();
		awaitWaiting(worker);
		awaitWaiting(waiter);
		for (Thread player : players)
			awaitWaiting(player);
		System.out.println("ready " + ProcessHandle.current().pid());
		System.in.read();
		synchronized (begin) { begin.notifyAll(); }
		for (Thread player : players)
			player.join();
		System.out.printf("{\"kind\": \"kept\", \"tid\": %d, \"holder\": %d}%n", stuck[0], keeper[0]);
		System.out.println("done");
		while (System.in.read() >= 0)
			;
		System.exit(0);
	}
}
