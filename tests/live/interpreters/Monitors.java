import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.locks.LockSupport;

// Threads that wait for monitors for ever, and know whose: behind one that sleeps, in a ring, behind the ring; and one that waits for
// a word and one that is parked, which wait for no lock.
public class Monitors {
	static class Order {}
	static class Ledger {}
	static class Stock {}
	static class Till {}

	static final Object ORDER = new Order(), WORD = new Object();
	static final Object[] RING = { new Ledger(), new Stock(), new Till() };
	static final CyclicBarrier TAKEN = new CyclicBarrier(RING.length + 2);
	static final Map<Object, Integer> HOLDERS = new ConcurrentHashMap<>();
	static final Map<Integer, Object> WAITS = new ConcurrentHashMap<>();

	interface Body { void run() throws Exception; }

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

	static int tid() throws Exception {
		return Integer.parseInt(new File("/proc/thread-self").getCanonicalFile().getName());
	}

	static void await(Object lock) throws Exception {
		WAITS.put(tid(), lock);
		synchronized (lock) {
			throw new Error("nobody gives it back");
		}
	}

	static void keep(Object lock, Body then) throws Exception {
		synchronized (lock) {
			HOLDERS.put(lock, tid());
			TAKEN.await();
			then.run();
		}
	}

	static void awaitState(Thread thread, Thread.State state) {
		while (thread.getState() != state)
			Thread.onSpinWait();
	}

	static void awaitWord() throws Exception {
		synchronized (WORD) {
			WORD.wait();
		}
	}

	public static void main(String[] args) throws Exception {
		System.out.println("ready " + ProcessHandle.current().pid());
		System.in.read();
		List<Thread> waiters = new ArrayList<>();
		start(() -> keep(ORDER, () -> Thread.sleep(1000000000)));
		for (int i = 0; i < RING.length; i++) {
			Object own = RING[i], other = RING[(i + 1) % RING.length];
			waiters.add(start(() -> keep(own, () -> await(other))));
		}
		TAKEN.await();
		for (int i = 0; i < 3; i++)
			waiters.add(start(() -> await(ORDER)));
		waiters.add(start(() -> await(RING[0])));
		for (Thread waiter : waiters)
			awaitState(waiter, Thread.State.BLOCKED);
		awaitState(start(() -> awaitWord()), Thread.State.WAITING);
		awaitState(start(() -> LockSupport.park()), Thread.State.WAITING);
		for (Map.Entry<Integer, Object> wait : WAITS.entrySet()) {
			Object lock = wait.getValue();
			System.out.printf("{\"tid\": %d, \"lock\": \"of %s\", \"holder\": %d}%n", wait.getKey(),
				lock.getClass().getName(), HOLDERS.get(lock));
		}
		System.out.println("done");
		while (System.in.read() >= 0)
			;
	}
}
